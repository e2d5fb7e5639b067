"""Read: from parsed parameters to whole batches as stored, or their records as JSON.

Bytes in the page cache are read on the event loop, bytes on disk by a worker. A reader at the end
waits for the commit that moves it, and looks again; nothing polls.
"""

from __future__ import annotations

import asyncio

from app.admission import Phase, Ticket
from app.answers import JSON, NDJSON, NO_STORE, RECORD_BATCH, Answer, Headers
from app.operations.exchange import Exchange
from app.operations.service import Service
from app.tail import ClientGone, Departure
from app.translate.calls import ReadCall
from app.translate.receipts import (
    Place,
    immutable_etag,
    is_immutable,
    lines_body,
    page_body,
    read_headers,
)
from app.translate.records_out import Rendered, View, render_records
from engine.errors import LogReplaced, OffsetBelowLogStart, OffsetBeyondLogEnd
from engine.log.results import Fetched, ReadEnd
from engine.types import INT64_MAX

FOREVER = (b"cache-control", b"private, max-age=31536000, immutable")


async def read_batches(exchange: Exchange, place: Place, call: ReadCall) -> Answer:
    """Read whole batches, byte for byte as stored."""
    exchange.ensure_takes_batches()
    etag = _etag(place, call, RECORD_BATCH)
    if etag is not None and exchange.head.get(b"if-none-match") == etag:
        return _not_modified(etag)
    _, fetched = await _fetch_or_wait(exchange, place, call)
    next_offset = fetched.next_offset
    headers: Headers = [(b"content-type", RECORD_BATCH)]
    headers += _caching(place, call, fetched, next_offset, etag, cut_short=False)
    headers += read_headers(place, call, fetched, next_offset, b"batches")
    if fetched.first_offset is not None:
        headers.append((b"log-first-offset", b"%d" % fetched.first_offset))
    return Answer(200, headers, fetched.data)


async def read_records(exchange: Exchange, place: Place, call: ReadCall) -> Answer:
    """Read records as JSON or NDJSON."""
    is_ndjson = exchange.wants_ndjson()
    media_type = NDJSON if is_ndjson else JSON
    etag = _etag(place, call, media_type)
    if etag is not None and exchange.head.get(b"if-none-match") == etag:
        return _not_modified(etag)
    start, fetched = await _fetch_or_wait(exchange, place, call)
    rendered = await _render(exchange, call, fetched, start, is_ndjson=is_ndjson)
    stopped_at = rendered.next_offset
    next_offset = fetched.next_offset if stopped_at is None else stopped_at
    headers: Headers = [(b"content-type", media_type)]
    cut_short = stopped_at is not None
    headers += _caching(place, call, fetched, next_offset, etag, cut_short=cut_short)
    headers.append((b"vary", b"accept"))
    headers += read_headers(place, call, fetched, next_offset, b"records")
    if is_ndjson:
        body = lines_body(rendered.records)
    else:
        body = page_body(place, fetched, rendered, next_offset, as_text=call.offsets_as_text)
    exchange.ticket.settle_answer(len(body))
    return Answer(200, headers, body)


async def _render(
    exchange: Exchange, call: ReadCall, fetched: Fetched, start: int, *, is_ndjson: bool
) -> Rendered:
    settings = exchange.service.settings
    limit = settings.default_fetch_records
    view = View(
        start=start,
        end=INT64_MAX if call.end_offset is None else call.end_offset,
        max_records=limit if call.max_records is None else min(call.max_records, limit),
        max_answer_bytes=settings.max_answer_bytes,
        limit_bytes=settings.max_decompressed_batch_bytes,
        encoding=call.encoding,
        offsets_as_text=call.offsets_as_text,
        is_ndjson=is_ndjson,
    )
    if len(fetched.data) <= settings.inline_read_bytes:
        return render_records(fetched.data, view)
    return await exchange.service.workers.read(lambda: render_records(fetched.data, view))


async def _fetch_or_wait(exchange: Exchange, place: Place, call: ReadCall) -> tuple[int, Fetched]:
    """Return where the read really started and what was found, after a long poll if asked for."""
    service, ticket = exchange.service, exchange.ticket
    wait_ms = min(call.max_wait_ms, service.settings.max_wait_ms)
    start = await _start_offset(service, place, call)
    start, fetched = await _fetch(service, place, call, start, ticket)
    if wait_ms == 0 or _is_enough(call, fetched):
        return start, fetched
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    async with Departure(exchange.receive) as gone:
        while not _is_enough(call, fetched) and service.admission.phase is Phase.READY:
            left = deadline - loop.time()
            if left <= 0:
                break
            ticket.settle_answer(0)
            ticket.park()
            # The log may have moved since it was read, on another thread: look before waiting.
            if not _moved_since(place, call, fetched):
                await service.tail.wait(place.log, left, gone)
            ticket.resume()
            if gone.done():
                raise ClientGone
            start, fetched = await _fetch(service, place, call, start, ticket)
        return start, fetched


def _is_enough(call: ReadCall, fetched: Fetched) -> bool:
    """Whether a long poll need not wait: enough bytes, or a bound that more data cannot move."""
    return len(fetched.data) >= call.min_bytes or fetched.ended_by is not ReadEnd.LOG_BOUND


def _moved_since(place: Place, call: ReadCall, fetched: Fetched) -> bool:
    bound = fetched.watermarks.bound(call.isolation)
    return place.log.watermarks.bound(call.isolation).offset > bound.offset


async def _start_offset(service: Service, place: Place, call: ReadCall) -> int:
    """Return the number that the start of the read stands for now."""
    if call.log_id is not None and call.log_id != place.log.log_id:
        raise LogReplaced(
            "the log is not the one this URL was made for",
            expected_log_id=call.log_id,
            log_id=place.log.log_id,
        )
    spec = call.start
    if spec.offset is not None:
        return spec.offset
    marks = place.log.watermarks
    if spec.place == "earliest":
        return marks.log_start_offset
    end = marks.bound(call.isolation).offset
    if spec.place == "latest":
        return end
    found = await service.workers.read(lambda: place.log.offset_for_time(spec.timestamp))
    return end if found is None else found.offset


async def _fetch(
    service: Service, place: Place, call: ReadCall, start: int, ticket: Ticket
) -> tuple[int, Fetched]:
    """Read from `start`, or from where a reader that missed the log asked to be moved to."""
    settings = service.settings
    max_bytes = settings.default_fetch_bytes if call.max_bytes is None else call.max_bytes
    max_bytes = min(max_bytes, settings.max_fetch_bytes)
    ticket.hold_answer(max_bytes)
    try:
        fetched = await _read(service, place, call, start, max_bytes)
    except (OffsetBelowLogStart, OffsetBeyondLogEnd):
        instead = _instead(place, call)
        if instead is None:
            raise
        start = instead
        fetched = await _read(service, place, call, start, max_bytes)
    ticket.settle_answer(len(fetched.data))
    return start, fetched


def _instead(place: Place, call: ReadCall) -> int | None:
    """Return where a read starts that missed the log and asked to be moved; None if it did not."""
    marks = place.log.watermarks
    if call.on_out_of_range == "earliest":
        return marks.log_start_offset
    if call.on_out_of_range == "latest":
        return marks.bound(call.isolation).offset
    return None


async def _read(
    service: Service, place: Place, call: ReadCall, start: int, max_bytes: int
) -> Fetched:
    """Read what is cached here and now, and what is not on a worker."""

    def read(*, cached_only: bool) -> Fetched | None:
        return place.log.read(
            start,
            max_bytes=max_bytes,
            isolation=call.isolation,
            end_offset=call.end_offset,
            cached_only=cached_only,
        )

    fetched = read(cached_only=True)
    if fetched is None:
        fetched = await service.workers.read(lambda: read(cached_only=False))
        assert fetched is not None, "only a read of cached bytes may find nothing"
    return fetched


def _etag(place: Place, call: ReadCall, media_type: bytes) -> bytes | None:
    if call.log_id is None or call.log_id != place.log.log_id:
        return None
    return immutable_etag(call, media_type)


def _not_modified(etag: bytes) -> Answer:
    return Answer(304, [(b"etag", etag), FOREVER], b"")


def _caching(
    place: Place,
    call: ReadCall,
    fetched: Fetched,
    next_offset: int,
    etag: bytes | None,
    *,
    cut_short: bool,
) -> Headers:
    if etag is None or not is_immutable(place, call, fetched, next_offset, cut_short=cut_short):
        return [NO_STORE]
    return [FOREVER, (b"etag", etag)]
