"""Reads with `stream=true`: one answer to the end, a part at a time.

A part is read when the client has received the one before, so one part is held. The end is fixed
when the answer begins, so a growing log does not make it endless. An error in the first part has
its status; after a later one the connection is closed before the end of the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import NamedTuple

from app.codecs.arrow_out import ARROW_END, arrow_part
from app.codecs.calls import ReadCall
from app.codecs.receipts import page_body, read_headers
from app.errors import MalformedRequest
from app.http.answers import (
    ARROW,
    JSON,
    JSON_WITH_TEXT_OFFSETS,
    NO_STORE,
    RECORD_BATCH,
    BrokenOff,
    Headers,
    Scope,
    StreamedAnswer,
)
from app.http.slow_clients import cut_off_of
from app.limits.admission import Phase
from app.operations.exchange import Exchange
from app.operations.read.fetch import (
    ensure_current,
    ensure_log_id,
    ensure_read_of,
    fetch,
    fetch_bytes,
    start_offset,
    with_end,
)
from app.operations.read.read import VARY, show
from app.operations.wait import DisconnectWatcher
from app.store.port import Partition
from engine.log.results import Fetched
from engine.types import Buffer


async def stream_batches(
    exchange: Exchange, partition: Partition, call: ReadCall, scope: Scope
) -> StreamedAnswer:
    """Read whole batches as stored, up to the end."""
    exchange.ensure_takes_batches()
    return await _begin(exchange, partition, call, RECORD_BATCH, scope)


async def stream_records(
    exchange: Exchange, partition: Partition, call: ReadCall, scope: Scope
) -> StreamedAnswer:
    """Read records up to the end, as JSON, NDJSON or an Arrow stream."""
    media_type = exchange.wanted_records(call.media_type)
    return await _begin(exchange, partition, call, media_type, scope)


async def _begin(
    exchange: Exchange, partition: Partition, call: ReadCall, media_type: bytes, scope: Scope
) -> StreamedAnswer:
    """Return the first part and the headers."""
    if scope["http_version"] == "1.0":
        raise MalformedRequest(
            "stream=true needs HTTP/1.1, whose last chunk says that nothing is missing: in nginx, "
            "`proxy_http_version 1.1`; or read pages, without stream=true"
        )
    log_id = partition.log_id
    call = await with_end(partition, call)
    start = await start_offset(exchange, partition, call)
    await partition.refresh()
    visible = partition.watermarks.bound(call.isolation).offset
    end = visible if call.end_offset is None else min(call.end_offset, visible)
    source = _Source(exchange, partition, log_id, call._replace(end_offset=end), media_type)
    exchange.ticket.hold_answer(source.max_bytes)
    first = await source.part(start)
    exchange.ticket.exchange_answer(len(first.body))
    source.ensure_same()
    end = max(first.start, end)
    headers: Headers = [(b"content-type", media_type), NO_STORE, (b"x-accel-buffering", b"no")]
    fetched, kind = first.fetched, b"records"
    if media_type == RECORD_BATCH:
        kind = b"batches"
        if fetched.first_offset is not None:
            headers.append((b"log-first-offset", b"%d" % fetched.first_offset))
    else:
        headers.append(VARY)
    as_text = call.offsets_as_text and media_type == JSON
    if as_text:
        headers[0] = (b"content-type", JSON_WITH_TEXT_OFFSETS)
    headers += read_headers(partition, call, fetched, end, kind)
    before = between = after = b""
    if media_type == JSON:
        page = bytes(page_body(partition, fetched, bytearray(b"[]"), end, as_text=as_text))
        before, _, after = page.partition(b"[]")
        before, between, after = before + b"[", b",", b"]" + after
    elif media_type == ARROW:
        after = ARROW_END
    frame = _Frame(before, between, after)
    pieces = _pieces(source, first, end, frame, cut_off_of(scope))
    return StreamedAnswer(200, headers, None, pieces)


class _Frame(NamedTuple):
    """Joins parts to one body."""

    before: bytes
    between: bytes
    after: bytes


class _Part(NamedTuple):
    """One read's records, in the answer's media type."""

    start: int
    fetched: Fetched
    body: Buffer
    next_offset: int


class _Source:
    """The source of an answer's parts."""

    def __init__(
        self,
        exchange: Exchange,
        partition: Partition,
        log_id: str,
        call: ReadCall,
        media_type: bytes,
    ) -> None:
        self.exchange = exchange
        self._partition = partition
        self.identity = partition.identity
        """A watch of it is also woken when the service stops."""
        self._log_id = log_id
        self._call = call
        self._media_type = media_type
        self._is_first = True
        settings = exchange.service.settings
        self.max_bytes = fetch_bytes(exchange.service, call, settings.default_fetch_bytes)

    async def part(self, offset: int, ensure_wanted: Callable[[], None] | None = None) -> _Part:
        """Read from an offset on, and render what is found; `ensure_wanted` as in `decode`."""
        exchange = self.exchange
        holder = exchange.ticket.holder
        start, fetched = await fetch(
            self._partition, self._call, offset, max_bytes=self.max_bytes, holder=holder
        )
        ensure_read_of(self._partition, self._log_id, fetched)
        if self._media_type == RECORD_BATCH:
            return _Part(start, fetched, fetched.data, fetched.next_offset)
        work = partial(self._rendered, start, fetched)
        return await exchange.decode(exchange.read, work, ensure_wanted)

    def _rendered(self, start: int, fetched: Fetched) -> _Part:
        partition, call, media_type = self._partition, self._call, self._media_type
        body: Buffer
        budget = self.exchange.budget
        body, next_offset, _ = show(
            self.exchange, partition, call, start, fetched, media_type=media_type, budget=budget
        )
        if media_type == JSON:
            body = memoryview(body)[1:-1]  # without the brackets of its array
        elif media_type == ARROW:
            body = arrow_part(body, is_first=self._is_first)
        self._is_first = False
        return _Part(start, fetched._replace(data=b"", segments=None), body, next_offset)

    def ensure_same(self) -> None:
        """Raise unless the read was of the log that the answer began with."""
        ensure_current(self.exchange.service, self._partition)
        ensure_log_id(self._partition, self._log_id)


async def _pieces(
    source: _Source, first: _Part, end: int, frame: _Frame, cut_off: Callable[[], None]
) -> AsyncGenerator[Buffer]:
    """Yield the body; raises BrokenOff if it is not wanted or not allowed any more.

    A client whose credentials end is cut off, even within a part.
    """
    exchange = source.exchange
    service, caller = exchange.service, exchange.caller
    loop = asyncio.get_running_loop()
    with (
        DisconnectWatcher(exchange.receive) as departure,
        service.tail.watch((source.identity,), departure) as watch,
        service.security.lasting.during(caller, cut_off),
    ):

        def ensure_wanted() -> None:
            if departure.is_gone:
                raise BrokenOff("the client hung up")

        def ensure_allowed() -> None:
            ensure_wanted()
            if not caller.is_valid(service.clock.now_ms()):
                raise BrokenOff("the credentials are no longer valid")
            if service.admission.phase is not Phase.READY:
                raise BrokenOff("the service is stopping")

        yield frame.before
        if first.body:
            yield first.body
        offset, separator = first.next_offset, frame.between if first.body else b""
        del first
        while offset < end:
            ensure_allowed()
            while debt_s := caller.debt_s("bytes_out"):
                watch.wake_by(loop.time() + debt_s)
                await watch.wait()
                ensure_allowed()
            exchange.renew_budget()
            part = await source.part(offset, ensure_wanted)
            source.ensure_same()
            exchange.ticket.settle_answer(len(part.body))
            if part.body:
                yield separator
                yield part.body
                separator = frame.between
            offset = part.next_offset
        yield frame.after
