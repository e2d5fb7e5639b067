"""Tail: one client that follows logs and receives every commit.

A tail pulls: it reads on when its client has received the last event, so the log is its queue.
Tails at the same offset share one read and one rendering per commit. `TailSession` follows one
partition; that of a topic follows several with the same loop, and the id of each of its events
names the next offset of every partition, so a client resumes exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from app.codecs.calls import OffsetSpec, ReadCall, last_event_id, resumed
from app.codecs.events import (
    EVENT_FRAME_BYTES,
    Look,
    Page,
    chunk_of,
    end_event,
    event_id,
    offsets_event,
    records_event,
    retry_line,
    topic_end_event,
    topic_offsets_event,
    with_id,
)
from app.codecs.paging import Position, encode_positions, parse_positions
from app.codecs.receipts import page_body, page_frame_bytes, read_headers
from app.codecs.records_out import render_records
from app.codecs.stored import View
from app.errors import BackendUnavailable, Draining, MalformedRequest
from app.http.answers import NO_STORE, Headers, Scope, Send
from app.http.problems import kind_of, problem_answer, problem_members
from app.http.request_checks import trace_of
from app.http.slow_clients import PIECE_BYTES, SEND_NOW, Delivery
from app.limits.admission import Phase
from app.operations.exchange import Exchange
from app.operations.read.fetch import (
    ensure_current,
    ensure_log_id,
    ensure_read_of,
    fetch,
    fetch_bytes,
    fetch_now,
    may_grow,
    moved_since,
    start_offset,
)
from app.operations.read.fetch_many import next_offsets, topic_partitions
from app.operations.request_content import negotiate
from app.operations.service import Service
from app.operations.wait import DisconnectWatcher, Watch
from app.store.port import Partition
from engine.errors import EngineError, WouldBlock
from engine.log.results import Fetched
from engine.records.budget import DecodeBudget

EVENT_COPIES: Final = 3
"""Copies of the records in memory while an event is rendered: page, single line, event."""

PageKey: TypeAlias = tuple[Hashable, int, int, ReadCall]
"""The input of a page: the log, its current end, the tail's offset, and its options."""

_ANYWHERE: Final = OffsetSpec()


def shared_part(call: ReadCall) -> ReadCall:
    """Return the part of a call that equal tails share."""
    return call._replace(start=_ANYWHERE, log_id=None, query=b"", last_event_id="")


async def page_from(service: Service, partition: Partition, call: ReadCall, offset: int) -> Page:
    """Return the page from `offset` on, made once for all tails of this turn."""
    key = _key_of(partition, call, offset)
    return page_now(service, partition, key) or await service.tail_pages.join(key)


def page_now(service: Service, partition: Partition, key: PageKey) -> Page | None:
    """Return the page if it is small and in memory; otherwise a worker has begun to render it."""
    settings, shared = service.settings, service.tail_pages
    _, _, offset, call = key
    page = shared.get(key)
    if page is not None:
        service.telemetry.read(partition.topic_partition, size_bytes=page.size_bytes)
        return page
    if shared.is_making(key):
        return None
    max_bytes = fetch_bytes(service, call, settings.tail_fetch_bytes)
    found = fetch_now(partition, call, offset, max_bytes=max_bytes, waits=True)
    if found is not None and len(found[1].data) <= settings.inline_read_bytes:
        with suppress(WouldBlock):
            page = _rendered(service, partition, call, *found, budget=None)
            shared.put(key, page)
            return page

    async def make() -> Page:
        start, fetched = found or await fetch(partition, call, offset, max_bytes=max_bytes)
        budget = DecodeBudget(settings.decode_limits())

        def render() -> Page:
            with service.render_memory.hold((fetched.data,), copies=EVENT_COPIES):
                return _rendered(service, partition, call, start, fetched, budget=budget)

        return await service.workers.read(lambda: budget.run(render))

    shared.begin(key, make())
    return None


def _key_of(partition: Partition, call: ReadCall, offset: int) -> PageKey:
    # A page from before the last commit does not answer a later tail.
    return (partition.identity, partition.watermarks.bound(call.isolation).offset, offset, call)


def _rendered(
    service: Service,
    partition: Partition,
    call: ReadCall,
    start: int,
    fetched: Fetched,
    *,
    budget: DecodeBudget | None,
) -> Page:
    """Return the page of a read; without a budget, on the loop, WouldBlock is raised."""
    settings = service.settings
    view = View(
        start=start,
        max_records=settings.default_fetch_records,
        max_answer_bytes=settings.max_tail_event_bytes,
        max_record_bytes=settings.max_answer_bytes,
        frame_bytes=page_frame_bytes(partition) + EVENT_FRAME_BYTES,
        limit_bytes=settings.max_decompressed_batch_bytes,
        encoding=call.encoding,
        offsets_as_text=call.offsets_as_text,
        budget=budget,
        nonblocking=budget is None,
        is_verified=fetched.is_verified,
        texts=None if call.filter else service.texts_of(partition, fetched),
        wanted=call.wanted,
    )
    limit_bytes = view.max_answer_bytes
    while True:
        rendered = render_records(fetched.data, view)
        stopped_at = rendered.next_offset
        next_offset = fetched.next_offset if stopped_at is None else stopped_at
        event = b""
        if rendered.count:
            body = page_body(
                partition, fetched, rendered.text, next_offset, as_text=call.offsets_as_text
            )
            event = records_event(body, event_id(partition, fetched, next_offset))
        if len(event) <= limit_bytes or rendered.count <= 1:
            break
        # What is escaped for readers of lines makes text larger: show less of it.
        shown_bytes = view.max_answer_bytes * limit_bytes // len(event) - 1
        view = replace(view, max_answer_bytes=max(1, shown_bytes))
    chunk = chunk_of(event) if 0 < len(event) <= PIECE_BYTES else b""
    is_all = stopped_at is None and may_grow(fetched)
    size_bytes = len(fetched.data)
    fetched = fetched._replace(data=b"", segments=None)
    seen = Page(b"", b"", start, next_offset, is_all, fetched, size_bytes, None)
    return seen._replace(event=event, chunk=chunk, seen=seen)


def seen_part(page: Page) -> Page:
    """Return a page without its sent part: the same object for all tails at that offset."""
    return page.seen or page


class End(NamedTuple):
    """Why a tail ends; the members of its last event."""

    reason: str
    detail: str
    retryable: bool
    problem: msgspec.Raw | None = None


_TOO_SLOW: Final = End("slow_consumer", "the client received nothing for too long", retryable=True)
_OVER: Final = End("time_limit", "the tail has reached max_tail_ms", retryable=True)
_GONE: Final = End("client_gone", "the client hung up", retryable=True)


class Leg:
    """One log that a tail follows."""

    __slots__ = ("log_id", "offset", "page", "partition")

    def __init__(self, partition: Partition, page: Page) -> None:
        self.partition = partition
        self.log_id = partition.log_id_at(page.fetched.leader_epoch)
        self.offset = page.start
        """Where the tail goes on."""
        self.page = page
        """The last page, from which `offset` on may not have been sent."""

    def advance(self, page: Page) -> Page:
        """Advance past a page that was sent; return it without the sent part."""
        self.offset = page.next_offset
        return seen_part(page)


async def open_tail(exchange: Exchange, partition: Partition, call: ReadCall) -> TailSession:
    """Begin to follow a partition; raises what a read from there raises, and Overloaded."""
    negotiate(exchange.head.get(b"accept"), (EVENT_STREAM,))
    call = resumed(call, exchange.head)
    exchange.ticket.tail()
    start = await start_offset(exchange, partition, call)
    page = await page_from(exchange.service, partition, shared_part(call), start)
    ensure_read_of(partition, call.log_id, page.fetched)
    return TailSession(exchange, (Leg(partition, page),), call)


class TailSession:
    """A tail whose first page has been read and not sent."""

    status: Final = 200

    def __init__(self, exchange: Exchange, legs: Sequence[Leg], call: ReadCall) -> None:
        self._exchange = exchange
        self._service = exchange.service
        self._legs = legs
        self._call = call
        self._shared_call = shared_part(call)
        self._heartbeat_at = self._over_at = 0.0

    # -- what the events of one partition say; a topic's say it differently --------------------

    def headers(self) -> Headers:
        """Return the headers: the log's offsets, and where the tail begins."""
        (leg,) = self._legs
        marks = read_headers(leg.partition, self._call, leg.page.fetched, leg.offset, b"tail")
        return [*STREAM_HEADERS, *marks]

    def _records(self, leg: Leg, page: Page) -> bytes:  # noqa: ARG002  # a topic's names the leg
        """Return the event with the records of a page."""
        return page.event

    def _skip(self, leg: Leg, page: Page) -> bytes:
        """Return the event that moves past a page without records."""
        as_text = self._call.offsets_as_text
        return offsets_event(leg.partition, page.fetched, page.next_offset, as_text=as_text)

    def _heartbeat(self) -> bytes:
        """Return the first event, and the one that says that the tail is alive."""
        (leg,) = self._legs
        as_text = self._call.offsets_as_text
        return offsets_event(leg.partition, leg.page.fetched, leg.offset, as_text=as_text)

    def _last(self, end: End) -> bytes:
        """Return the last event."""
        (leg,) = self._legs
        as_text = self._call.offsets_as_text
        return end_event(
            leg.partition, leg.page.fetched, end._asdict(), leg.offset, as_text=as_text
        )

    def _path(self) -> str:
        (leg,) = self._legs
        return leg.partition.path.decode() + "tail"

    # -- the tail ----------------------------------------------------------------------------

    async def run(self, scope: Scope, send: Send) -> None:
        """Send events until the client disconnects or the tail ends; the last one says why.

        If the server has the extension `SEND_NOW`, a commit's records may be written in its
        callback.
        """
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers()}
        await send(start)
        send_now: SendNow | None = scope.get("extensions", {}).get(SEND_NOW)
        clients = self._service.slow_clients
        with (
            clients.begin(scope, send) as delivery,
            DisconnectWatcher(self._exchange.receive) as departure,
            self._service.tail.watch(
                [leg.partition.identity for leg in self._legs], departure
            ) as watch,
            self._service.security.lasting.during(
                self._exchange.caller, partial(_hurry, delivery, watch)
            ),
        ):
            see_to = None
            if send_now is not None:
                see_to = partial(self._tell_now, delivery, departure, send_now)
            end = await self._follow(delivery, departure, watch, see_to)
            if not departure.is_gone:
                await delivery.send(self._last(end))
                await send({"type": "http.response.body", "body": b""})
        self._service.telemetry.tail_ended(end.reason)

    async def _follow(
        self,
        delivery: Delivery,
        departure: DisconnectWatcher,
        watch: Watch,
        see_to: Callable[[], bool] | None,
    ) -> End:
        """Send existing and new records; return why the tail ends."""
        loop = asyncio.get_running_loop()
        settings = self._service.settings
        self._over_at = loop.time() + settings.max_tail_ms / 1000
        self._beat(loop.time())
        leg = self._legs[0]
        page, leg.page = leg.page, seen_part(leg.page)
        try:
            await self._tell(delivery, retry_line(settings.tail_retry_ms) + self._heartbeat())
            while True:
                end = self._due_end(delivery, departure, leg)
                if end is not None:
                    return end
                now = loop.time()
                if now >= self._over_at:
                    return _OVER
                if page.next_offset != leg.offset or now >= self._heartbeat_at:
                    await self._tell(delivery, self._event_of(leg, page))
                    self._beat(now)
                    page = leg.advance(page)
                    continue
                leg.page = page
                ready = self._ready_after(leg)
                if ready is None:
                    watch.wake_by(min(self._heartbeat_at, self._over_at))
                    await watch.wait(see_to)
                    ready = self._ready_after(leg) or leg
                else:
                    await asyncio.sleep(0)  # let other tasks run: there may be much to read
                leg = ready
                page = leg.page
                if not departure.is_gone:
                    page = await self._look_again(leg, watch)
        except Exception as error:  # noqa: BLE001  # any error is sent as the last event
            return self._end_of(error)

    def _event_of(self, leg: Leg, page: Page) -> bytes:
        if page.event:
            return self._records(leg, page)
        return self._heartbeat() if page.next_offset == leg.offset else self._skip(leg, page)

    def _ready_after(self, leg: Leg) -> Leg | None:
        """Return the next leg in turn that has more to read; None if all are at their end."""
        legs = self._legs
        at = legs.index(leg) + 1 if len(legs) > 1 else 0
        for one in (*legs[at:], *legs[:at]):
            page, partition = one.page, one.partition
            if page.is_all and partition.watermarks is page.fetched.watermarks:
                continue  # nearly all legs of a topic, at each commit
            if not page.is_all or moved_since(partition, self._call, page.fetched):
                return one
        return None

    def _beat(self, now: float) -> None:
        self._heartbeat_at = now + self._service.settings.tail_heartbeat_ms / 1000

    def _tell_now(
        self, delivery: Delivery, departure: DisconnectWatcher, send_now: SendNow
    ) -> bool:
        """Write a commit's records in its callback; False if anything else is due."""
        if delivery.is_slow or departure.is_gone:
            return False
        try:
            (leg,) = self._legs
            look = self._shared_look(leg) or self._look_now(leg)
            self._exchange.caller.ensure_held(self._service.clock)
        except Exception:  # noqa: BLE001  # the task meets it again, and tells the client
            return False
        if look is None or look.now >= self._heartbeat_at or look.now >= self._over_at:
            return False
        if not send_now(look.page.chunk):
            return False
        self._beat(look.now)
        leg.page = leg.advance(look.page)
        return True

    def _shared_look(self, leg: Leg) -> Look | None:
        """Return the page that another tail at the same offset has read in this turn."""
        look, partition = self._service.tail_look, leg.partition
        if look is None or look.seen is not leg.page or look.log_id != leg.log_id:
            return None
        if look.marks is not partition.watermarks:
            return None  # a page from before the last commit is too old
        self._service.telemetry.read(partition.topic_partition, size_bytes=look.page.size_bytes)
        return look

    def _look_now(self, leg: Leg) -> Look | None:
        """Read and share the next page; None if that needs a task."""
        service, partition, isolation = self._service, leg.partition, self._call.isolation
        if service.admission.phase is not Phase.READY:
            return None
        self._ensure_same(leg)
        marks = partition.watermarks
        end = marks.bound(isolation).offset
        if end == leg.page.fetched.watermarks.bound(isolation).offset:
            return None  # woken for another reason: the log has not moved
        page = page_now(
            service, partition, (partition.identity, end, leg.offset, self._shared_call)
        )
        if page is None or not (page.is_all and page.chunk):
            return None
        ensure_read_of(partition, leg.log_id, page.fetched)
        loop = asyncio.get_running_loop()
        if service.tail_look is None:
            loop.call_soon(self._forget_look)
        look = service.tail_look = Look(leg.page, marks, leg.log_id, loop.time(), page)
        return look

    def _forget_look(self) -> None:
        self._service.tail_look = None

    def _due_end(self, delivery: Delivery, departure: DisconnectWatcher, leg: Leg) -> End | None:
        """Return why the tail ends, or raise the error; None if it continues."""
        if delivery.is_slow:
            return _TOO_SLOW
        if departure.is_gone:
            return _GONE
        if self._service.admission.phase is not Phase.READY:
            raise Draining("the service is stopping")
        self._ensure_same(leg)
        self._exchange.caller.ensure_held(self._service.clock)
        return None

    def _ensure_same(self, leg: Leg) -> None:
        """Raise unless the log is still the one that the tail began with."""
        ensure_current(self._service, leg.partition)
        ensure_log_id(leg.partition, leg.log_id)

    async def _look_again(self, leg: Leg, watch: Watch) -> Page:
        """Read from the tail's offset in a log; while its brokers do not answer, wait some time."""
        service, partition = self._service, leg.partition
        try:
            page = await page_from(service, partition, self._shared_call, leg.offset)
        except BackendUnavailable:
            watch.wake_by(asyncio.get_running_loop().time() + OUTAGE_LOOK_SECONDS)
            await watch.wait()
            return leg.page
        except EngineError:
            # If the log was truncated or deleted meanwhile, that explains the error better.
            service.topic(partition.topic)
            self._ensure_same(leg)
            raise
        ensure_read_of(partition, leg.log_id, page.fetched)
        leg.offset = page.start
        return page

    async def _tell(self, delivery: Delivery, event: bytes) -> None:
        """Send an event; until the client has received it, it counts as an answer."""
        ticket = self._exchange.ticket
        ticket.hold_answer(len(event))
        await delivery.send(event)
        ticket.settle_answer(0)

    def _end_of(self, error: Exception) -> End:
        kind = kind_of(error)
        trace = trace_of(self._exchange.head)
        answer = problem_answer(error, path=self._path(), trace=trace)
        detail = str(problem_members(error)["detail"])
        return End(kind.code, detail, kind.retryable, msgspec.Raw(bytes(answer.body).strip()))


def _hurry(delivery: Delivery, watch: Watch) -> None:
    """End a tail soon: one that waits for its client is cut off."""
    if delivery.blocked_since is None:
        watch.wake()
    else:
        delivery.cut_off()


_EARLIEST: Final = OffsetSpec(None, "earliest")

_PARTITIONS_ADDED: Final = End(
    "partitions_added", "the topic has more partitions now; resume to follow them", retryable=True
)


async def open_topic_tail(exchange: Exchange, topic: str, call: ReadCall) -> TopicTailSession:
    """Begin to follow a topic; raises what a read of each partition raises, and Overloaded.

    A partition that Last-Event-ID does not name was added since: it is followed from its start.
    """
    negotiate(exchange.head.get(b"accept"), (EVENT_STREAM,))
    partitions = topic_partitions(exchange.service, topic)
    positions = _resumed(exchange, partitions, call)
    exchange.ticket.tail()
    legs = []
    for partition in partitions:
        one = call
        if positions is not None:
            offset = positions.get(partition.number)
            one = call._replace(start=_EARLIEST if offset is None else OffsetSpec(offset))
        legs.append(await _leg(exchange, partition, one))
    return TopicTailSession(exchange, legs, call, topic)


def _resumed(
    exchange: Exchange, partitions: Iterable[Partition], call: ReadCall
) -> Mapping[int, int] | None:
    """Return the next offsets of Last-Event-ID; None without one. Raises LogReplaced."""
    text = last_event_id(call, exchange.head)
    if not text:
        return None
    positions = parse_positions(text)
    offsets = None if positions is None else next_offsets(positions, partitions)
    if offsets is None:
        raise MalformedRequest(
            "Last-Event-ID must be the id of an event of this tail: the topic id, the partitions "
            "with their leader epochs, and their next offsets",
            header="last-event-id",
        )
    return offsets


async def _leg(exchange: Exchange, partition: Partition, call: ReadCall) -> Leg:
    """Return the tail's place in one partition; its records are read in turn with the others'."""
    start = await start_offset(exchange, partition, call)
    start, fetched = await fetch(partition, call, start, max_bytes=0, minimum_one_batch=False)
    fetched = fetched._replace(segments=None)
    unread = Page(b"", b"", start, start, is_all=False, fetched=fetched, size_bytes=0, seen=None)
    return Leg(partition, unread)


class TopicTailSession(TailSession):
    """A tail of all partitions of a topic."""

    def __init__(self, exchange: Exchange, legs: Sequence[Leg], call: ReadCall, topic: str) -> None:
        super().__init__(exchange, legs, call)
        self._topic = topic
        self._partitions = exchange.service.topic(topic).partitions

    def headers(self) -> Headers:
        """Return the headers, without Log-*: they describe a single log."""
        return list(STREAM_HEADERS)

    def _id(self, moving: Leg | None = None, next_offset: int = 0) -> bytes:
        """Return the id of an event; one leg may be about to move."""
        return encode_positions(
            self._legs[0].partition.topic_id,
            (
                Position(
                    leg.partition.number,
                    next_offset if leg is moving else leg.offset,
                    leg.page.fetched.leader_epoch,
                )
                for leg in self._legs
            ),
        ).encode()

    def _records(self, leg: Leg, page: Page) -> bytes:
        return with_id(page.event, self._id(leg, page.next_offset))

    def _skip(self, leg: Leg, page: Page) -> bytes:
        moved = (leg.partition, page.fetched, page.next_offset)
        moved_id = self._id(leg, page.next_offset)
        as_text = self._call.offsets_as_text
        return topic_offsets_event(self._topic, (moved,), moved_id, as_text=as_text)

    def _heartbeat(self) -> bytes:
        offsets = ((leg.partition, leg.page.fetched, leg.offset) for leg in self._legs)
        as_text = self._call.offsets_as_text
        return topic_offsets_event(self._topic, offsets, self._id(), as_text=as_text)

    def _last(self, end: End) -> bytes:
        return topic_end_event(self._topic, end._asdict(), self._id())

    def _path(self) -> str:
        return f"/v1/topics/{self._topic}/tail"

    def _due_end(self, delivery: Delivery, departure: DisconnectWatcher, leg: Leg) -> End | None:
        end = super()._due_end(delivery, departure, leg)
        if end is None and self._service.topic(self._topic).partitions > self._partitions:
            return _PARTITIONS_ADDED
        return end


EVENT_STREAM: Final = b"text/event-stream"
STREAM_HEADERS: Final = (
    (b"content-type", EVENT_STREAM + b"; charset=utf-8"),  # some decode it as Latin-1 otherwise
    NO_STORE,
    (b"x-accel-buffering", b"no"),  # nginx would buffer events
)

OUTAGE_LOOK_SECONDS: Final = 1.0
"""Between two looks for records while the brokers of a cluster do not answer."""

SendNow: TypeAlias = Callable[[bytes], bool]
"""Writes a piece of the answer if the client has received everything before."""
