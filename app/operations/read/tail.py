"""Tail: one client that follows one partition and receives every commit.

A tail pulls: it reads on when its client has received the last event, so the log is its queue.
Tails at the same offset share one read and one rendering per commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from app.codecs.calls import OffsetSpec, ReadCall, resumed
from app.codecs.events import (
    Look,
    Page,
    chunk_of,
    end_event,
    offsets_event,
    records_event,
    retry_line,
)
from app.codecs.receipts import page_body, page_frame_bytes, read_headers
from app.codecs.records_out import render_records
from app.codecs.stored import View
from app.http.answers import NO_STORE, Headers, Scope, Send
from app.http.problems import Draining, kind_of, problem_answer, problem_members
from app.http.request_checks import trace_of
from app.limits.admission import Phase
from app.operations.exchange import Exchange
from app.operations.read.fetch import (
    ensure_current,
    ensure_log_id,
    fetch,
    fetch_bytes,
    fetch_now,
    may_grow,
    moved_since,
    start_offset,
)
from app.operations.read.slow_clients import PIECE_BYTES, Delivery
from app.operations.read.wait import DisconnectWatcher, Watch
from app.operations.request_content import negotiate
from app.operations.service import Service
from app.store.port import Partition
from engine.errors import EngineError
from engine.guard import WouldBlock
from engine.log.results import Fetched
from engine.records.budget import DecodeBudget

EVENT_COPIES: Final = 3
"""Copies of the records in memory while an event is rendered: page, single line, event."""

EVENT_STREAM: Final = b"text/event-stream"

PageKey: TypeAlias = tuple[Hashable, int, int, ReadCall]
"""The input of a page: the log, its current end, the tail's offset, and its options."""

SendNow: TypeAlias = Callable[[bytes], bool]
"""Writes a piece of the answer if the client has received everything before."""


class _End(NamedTuple):
    """Why a tail ends; the members of its last event."""

    reason: str
    detail: str
    retryable: bool
    problem: msgspec.Raw | None = None


_ANYWHERE: Final = OffsetSpec()

_TOO_SLOW: Final = _End("slow_consumer", "the client took nothing for too long", retryable=True)
_OVER: Final = _End("time_limit", "a tail lasts no longer than max_tail_ms", retryable=True)
_GONE: Final = _End("client_gone", "the client hung up", retryable=True)


async def open_tail(exchange: Exchange, partition: Partition, call: ReadCall) -> TailSession:
    """Begin to follow a partition; raises what a read from there raises, and Overloaded."""
    negotiate(exchange.head.get(b"accept"), (EVENT_STREAM,))
    call = resumed(call, exchange.head)
    exchange.ticket.tail()
    start = await start_offset(exchange, partition, call)
    page = await page_from(exchange.service, partition, _shared(call), start)
    return TailSession(exchange, partition, call, page)


def _shared(call: ReadCall) -> ReadCall:
    """Return the part of a call that equal tails share."""
    return call._replace(start=_ANYWHERE, log_id=None, query=b"")


class TailSession:
    """A tail whose first page has been read and not sent."""

    status: Final = 200

    def __init__(
        self, exchange: Exchange, partition: Partition, call: ReadCall, page: Page
    ) -> None:
        self._exchange = exchange
        self._service = exchange.service
        self._partition = partition
        self._log_id = partition.log_id
        self._call = call
        self._shared_call = _shared(call)
        self._offset = page.start
        self._page = page
        self._heartbeat_at = self._over_at = 0.0

    def headers(self) -> Headers:
        """Return the headers: the log's offsets, and where the tail begins."""
        marks = self._page.fetched
        return [
            (b"content-type", EVENT_STREAM),
            NO_STORE,
            (b"x-accel-buffering", b"no"),  # nginx would buffer events
            *read_headers(self._partition, self._call, marks, self._offset, b"tail"),
        ]

    async def run(
        self,
        scope: Scope,
        send: Send,
        trace: bytes | None = None,
        send_now: SendNow | None = None,
    ) -> None:
        """Send events until the client disconnects or the tail ends; the last one says why.

        With `send_now` a commit's records may be written in its callback.
        """
        headers = self.headers()
        if trace is not None:
            headers.append((b"traceparent", trace))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        deliveries = self._service.deliveries
        with (
            deliveries.begin(scope, send) as delivery,
            DisconnectWatcher(self._exchange.receive) as departure,
            self._service.tail.watch((self._partition.identity,), departure) as watch,
            self._service.security.lasting.during(
                self._exchange.caller, partial(_hurry, delivery, watch)
            ),
        ):
            see_to = None
            if send_now is not None:
                see_to = partial(self._tell_now, delivery, departure, send_now)
            end = await self._follow(delivery, departure, watch, see_to)
            if not departure.is_gone:
                await delivery.send(self._end_event(end))
                await send({"type": "http.response.body", "body": b""})
        self._service.telemetry.tail_ended(end.reason)

    async def _follow(
        self,
        delivery: Delivery,
        departure: DisconnectWatcher,
        watch: Watch,
        see_to: Callable[[], bool] | None,
    ) -> _End:
        """Send existing and new records; return why the tail ends."""
        loop = asyncio.get_running_loop()
        partition, settings = self._partition, self._service.settings
        self._over_at = loop.time() + settings.max_tail_ms / 1000
        self._beat(loop.time())
        page, self._page = self._page, _seen(self._page)
        try:
            begin = retry_line(settings.tail_retry_ms) + self._offsets(page, self._offset)
            await self._tell(delivery, begin)
            while True:
                end = self._due_end(delivery, departure)
                if end is not None:
                    return end
                now = loop.time()
                if now >= self._over_at:
                    return _OVER
                if page.next_offset != self._offset or now >= self._heartbeat_at:
                    await self._tell(delivery, page.event or self._offsets(page, page.next_offset))
                    self._beat(now)
                    page = self._told(page)
                    continue
                self._page = page
                if page.is_all and not moved_since(partition, self._call, page.fetched):
                    watch.wake_by(min(self._heartbeat_at, self._over_at))
                    await watch.wait(see_to)
                    page = self._page
                else:
                    await asyncio.sleep(0)  # let other tasks run: there may be much to read
                if not departure.is_gone:
                    page = await self._look_again()
        except Exception as error:  # noqa: BLE001  # any error is sent as the last event
            return self._end_of(error)

    def _told(self, page: Page) -> Page:
        """Advance past a page that was sent; return it without the sent part."""
        self._offset = page.next_offset
        return _seen(page)

    def _beat(self, now: float) -> None:
        self._heartbeat_at = now + self._service.settings.tail_heartbeat_ms / 1000

    def _tell_now(
        self, delivery: Delivery, departure: DisconnectWatcher, send_now: SendNow
    ) -> bool:
        """Write a commit's records in its callback; False if anything else is due."""
        if delivery.is_slow or departure.is_gone:
            return False
        try:
            look = self._shared_look() or self._look_now()
            self._exchange.caller.ensure_held(self._service.clock)
        except Exception:  # noqa: BLE001  # the task meets it again, and tells the client
            return False
        if look is None or look.now >= self._heartbeat_at or look.now >= self._over_at:
            return False
        if not send_now(look.page.chunk):
            return False
        self._beat(look.now)
        self._page = self._told(look.page)
        return True

    def _shared_look(self) -> Look | None:
        """Return the page that another tail at the same offset has read in this turn."""
        look, partition = self._service.tail_look, self._partition
        if look is None or look.seen is not self._page or look.log_id != self._log_id:
            return None
        if look.marks is not partition.watermarks:
            return None  # a page from before the last commit is too old
        self._service.telemetry.read(partition.topic_partition, size_bytes=look.page.size_bytes)
        return look

    def _look_now(self) -> Look | None:
        """Read and share the next page; None if that needs a task."""
        service, partition, isolation = self._service, self._partition, self._call.isolation
        if service.admission.phase is not Phase.READY:
            return None
        self._ensure_same()
        marks = partition.watermarks
        end = marks.bound(isolation).offset
        if end == self._page.fetched.watermarks.bound(isolation).offset:
            return None  # woken for another reason: the log has not moved
        page = _page_now(
            service, partition, (partition.identity, end, self._offset, self._shared_call)
        )
        if page is None or not (page.is_all and page.chunk):
            return None
        loop = asyncio.get_running_loop()
        if service.tail_look is None:
            loop.call_soon(self._forget_look)
        look = service.tail_look = Look(self._page, marks, self._log_id, loop.time(), page)
        return look

    def _forget_look(self) -> None:
        self._service.tail_look = None

    def _due_end(self, delivery: Delivery, departure: DisconnectWatcher) -> _End | None:
        """Return why the tail ends, or raise the error; None if it continues."""
        if delivery.is_slow:
            return _TOO_SLOW
        if departure.is_gone:
            return _GONE
        if self._service.admission.phase is not Phase.READY:
            raise Draining("the service is stopping")
        self._ensure_same()
        self._exchange.caller.ensure_held(self._service.clock)
        return None

    def _ensure_same(self) -> None:
        """Raise unless the log is still the one that the tail began with."""
        ensure_current(self._service, self._partition)
        ensure_log_id(self._partition, self._log_id)

    async def _look_again(self) -> Page:
        """Read from the tail's offset."""
        service, partition = self._service, self._partition
        try:
            page = await page_from(service, partition, self._shared_call, self._offset)
        except EngineError:
            # If the log was truncated or deleted meanwhile, that explains the error better.
            service.topic(partition.topic)
            self._ensure_same()
            raise
        self._offset = page.start
        return page

    async def _tell(self, delivery: Delivery, event: bytes) -> None:
        """Send an event; until the client has received it, it counts as an answer."""
        ticket = self._exchange.ticket
        ticket.hold_answer(len(event))
        await delivery.send(event)
        ticket.settle_answer(0)

    def _offsets(self, page: Page, next_offset: int) -> bytes:
        as_text = self._call.offsets_as_text
        return offsets_event(self._partition, page.fetched, next_offset, as_text=as_text)

    def _end_of(self, error: Exception) -> _End:
        kind = kind_of(error)
        path = self._partition.path.decode() + "tail"
        trace = trace_of(self._exchange.head)
        answer = problem_answer(error, path=path, trace=trace)
        detail = str(problem_members(error)["detail"])
        return _End(kind.code, detail, kind.retryable, msgspec.Raw(bytes(answer.body).strip()))

    def _end_event(self, end: _End) -> bytes:
        return end_event(
            self._partition, end._asdict(), self._offset, as_text=self._call.offsets_as_text
        )


def _hurry(delivery: Delivery, watch: Watch) -> None:
    """End a tail soon: one that waits for its client is cut off."""
    if delivery.blocked_since is None:
        watch.wake()
    else:
        delivery.cut_off()


async def page_from(service: Service, partition: Partition, call: ReadCall, offset: int) -> Page:
    """Return the page from `offset` on, made once for all tails of this turn."""
    key = _key_of(partition, call, offset)
    return _page_now(service, partition, key) or await service.tail_pages.join(key)


def _page_now(service: Service, partition: Partition, key: PageKey) -> Page | None:
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
    found = fetch_now(partition, call, offset, max_bytes=max_bytes)
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
        frame_bytes=page_frame_bytes(partition),
        limit_bytes=settings.max_decompressed_batch_bytes,
        encoding=call.encoding,
        offsets_as_text=call.offsets_as_text,
        budget=budget,
        nonblocking=budget is None,
    )
    rendered = render_records(fetched.data, view)
    stopped_at = rendered.next_offset
    next_offset = fetched.next_offset if stopped_at is None else stopped_at
    event = b""
    if rendered.count:
        body = page_body(
            partition, fetched, rendered.text, next_offset, as_text=call.offsets_as_text
        )
        event = records_event(body, next_offset)
    chunk = chunk_of(event) if 0 < len(event) <= PIECE_BYTES else b""
    is_all = stopped_at is None and may_grow(fetched)
    size_bytes = len(fetched.data)
    fetched = fetched._replace(data=b"")
    seen = Page(b"", b"", start, next_offset, is_all, fetched, size_bytes, None)
    return seen._replace(event=event, chunk=chunk, seen=seen)


def _seen(page: Page) -> Page:
    """Return a page without its sent part: the same object for all tails at that offset."""
    return page.seen or page
