"""Tail: one client that follows logs and receives every commit.

A tail pulls: it reads on when its client has received the last event, so the log is its queue.
Tails at the same offset share one read and one rendering per commit. `TailSession` follows one
partition; that of a topic, in `tail_topic`, follows several with the same loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from app.codecs.calls import ReadCall, resumed
from app.codecs.events import Look, Page, end_event, offsets_event, retry_line
from app.codecs.receipts import read_headers
from app.errors import BackendUnavailable, Draining
from app.http.answers import NO_STORE, Headers, Scope, Send
from app.http.problems import kind_of, problem_answer, problem_members
from app.http.request_checks import trace_of
from app.limits.admission import Phase
from app.operations.exchange import Exchange
from app.operations.read.fetch import (
    ensure_current,
    ensure_log_id,
    ensure_read_of,
    moved_since,
    start_offset,
)
from app.operations.read.slow_clients import SEND_NOW, Delivery
from app.operations.read.tail_pages import page_from, page_now, seen_part, shared_part
from app.operations.read.wait import DisconnectWatcher, Watch
from app.operations.request_content import negotiate
from app.store.port import Partition
from engine.errors import EngineError

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
