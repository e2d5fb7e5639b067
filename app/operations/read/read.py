"""Read: from parsed parameters to whole batches as stored, or their records as JSON.

A reader at the end waits for the commit that moves it, then looks again; nothing polls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from app.codecs.arrow_out import arrow_stream
from app.codecs.calls import ReadCall
from app.codecs.receipts import (
    end_in_tag,
    immutable_etag,
    is_immutable,
    may_be_immutable,
    page_body,
    page_frame_bytes,
    read_headers,
)
from app.codecs.records_out import render_records
from app.codecs.selection import ACCEPT_RANGES, known_tag, part_of, tag_in, tags_in
from app.codecs.stored import View
from app.http.answers import (
    ARROW,
    FOREVER,
    JSON,
    JSON_WITH_TEXT_OFFSETS,
    NDJSON,
    NO_STORE,
    RECORD_BATCH,
    Answer,
    Headers,
)
from app.operations.exchange import Exchange
from app.operations.read.fetch import (
    ensure_current,
    fetch,
    fetch_bytes,
    fetch_now,
    may_grow,
    moved_since,
    start_offset,
    with_end,
)
from app.operations.read.render_memory import Found
from app.operations.request_content import codings_of
from app.operations.wait import long_poll
from app.store.port import Partition
from engine.errors import WouldBlock
from engine.log.results import Fetched
from engine.records.budget import DecodeBudget
from engine.types import INT64_MAX, Buffer

ARROW_COPIES: Final = 4
"""Copies of the records in memory while an Arrow stream is rendered: records, columns, buffer."""

VARY: Final = (b"vary", b"accept, accept-encoding")


async def read_batches(exchange: Exchange, partition: Partition, call: ReadCall) -> Answer:
    """Read whole batches, byte for byte as stored."""
    exchange.ensure_takes_batches()
    call = await with_end(partition, call)
    known = _known(exchange, partition, call, RECORD_BATCH, (None,))
    if known is not None:
        return _not_modified(exchange, known)
    _, fetched = await fetch_or_wait(exchange, partition, call)
    return _unless_known(exchange, batches_answer(exchange, partition, call, fetched))


def batches_answer(
    exchange: Exchange, partition: Partition, call: ReadCall, fetched: Fetched
) -> Answer:
    """Return the answer of readBatches from a read result."""
    next_offset = fetched.next_offset
    etag = _fixed_etag(
        exchange, partition, call, RECORD_BATCH, fetched=fetched, next_offset=next_offset
    )
    headers: Headers = [(b"content-type", RECORD_BATCH), *_caching(exchange, etag)]
    headers += read_headers(partition, call, fetched, next_offset, b"batches")
    if fetched.first_offset is not None:
        headers.append((b"log-first-offset", b"%d" % fetched.first_offset))
    answer = Answer(200, headers, fetched.data)
    return answer if etag is None else part_of(exchange.head, etag, answer)


async def read_records(exchange: Exchange, partition: Partition, call: ReadCall) -> Answer:
    """Read records as JSON, NDJSON or an Arrow stream."""
    media_type = exchange.wanted_records(call.media_type)
    call = await with_end(partition, call)
    # Each coding of JSON has its own tag; columns are never compressed.
    accepted = None if media_type == ARROW else exchange.head.get(b"accept-encoding")
    codings = codings_of(accepted)
    known = _known(exchange, partition, call, media_type, codings)
    if known is not None:
        return _not_modified(exchange, known, VARY)
    found = await _find_or_wait(exchange, partition, call)
    answer = await records_answer(exchange, partition, call, found, media_type)
    answer = Answer(answer.status, list(answer.headers), answer.body)
    etag = dict(answer.headers).get(b"etag")
    if etag is None:
        return answer
    known = known_tag(exchange.head, (tag_in(coding, etag) for coding in codings))
    if known is not None:
        return _not_modified(exchange, known, VARY)
    return part_of(exchange.head, etag, answer)


async def records_answer(
    exchange: Exchange,
    partition: Partition,
    call: ReadCall,
    found: Found,
    media_type: bytes,
    *,
    ensure_wanted: Callable[[], None] | None = None,
) -> Answer:
    """Return what `records_now` does, on a worker; `ensure_wanted` as in `decode`."""
    answer = records_now(exchange, partition, call, found, media_type)
    if answer is None:
        work = partial(_page, exchange, partition, call, found, media_type, budget=exchange.budget)
        page = await exchange.decode(exchange.read, work, ensure_wanted)
        exchange.ticket.exchange_answer(len(page.body))
        answer = _answer(exchange, partition, call, found, media_type=media_type, page=page)
    return answer


def records_now(
    exchange: Exchange, partition: Partition, call: ReadCall, found: Found, media_type: bytes
) -> Answer | None:
    """Return readRecords' answer if it is ready or cheap; None: render it on a worker.

    The answer is shared: copy its headers before adding to them.
    """
    service = exchange.service
    answer = found.answers.get(media_type)
    if answer is None:
        is_large = len(found.fetched.data) > service.settings.inline_read_bytes
        if is_large or media_type == ARROW:  # importing nanoarrow takes some ms
            return None
        try:
            page = _page(exchange, partition, call, found, media_type, budget=None)
        except WouldBlock:
            return None
        answer = _answer(exchange, partition, call, found, media_type=media_type, page=page)
    exchange.ticket.settle_answer(len(answer.body))
    return answer


def _answer(
    exchange: Exchange,
    partition: Partition,
    call: ReadCall,
    found: Found,
    *,
    media_type: bytes,
    page: _Page,
) -> Answer:
    """Return a page with its headers, shared with equal reads of this turn."""
    fetched = found.fetched
    as_text = call.offsets_as_text and media_type == JSON
    headers: Headers = [(b"content-type", JSON_WITH_TEXT_OFFSETS if as_text else media_type)]
    headers += [*_caching(exchange, page.etag), VARY]
    headers += read_headers(
        partition, call, fetched, page.next_offset, b"records", cut_by=page.cut_by
    )
    answer = found.answers[media_type] = Answer(200, headers, page.body)
    exchange.ticket.settle_answer(len(answer.body))
    return answer


class _Page(NamedTuple):
    """Records in one media type, and the next offset."""

    body: Buffer
    next_offset: int
    cut_by: str
    """The bound that ended the page before the end of the read; empty if none did."""
    etag: bytes | None
    """The ETag of an immutable page."""


def _page(
    exchange: Exchange,
    partition: Partition,
    call: ReadCall,
    found: Found,
    media_type: bytes,
    *,
    budget: DecodeBudget | None,
) -> _Page:
    """Return the records as a page; without a budget, on the event loop, raises WouldBlock."""
    fetched = found.fetched
    body, next_offset, cut_by = show(
        exchange, partition, call, found.start, fetched, media_type=media_type, budget=budget
    )
    etag = _fixed_etag(
        exchange,
        partition,
        call,
        media_type,
        fetched=fetched,
        next_offset=next_offset,
        cut_by=cut_by,
    )
    if isinstance(body, bytearray) and media_type == JSON:
        shown = None if etag else fetched  # an immutable page must not contain current offsets
        body = page_body(partition, shown, body, next_offset, as_text=call.offsets_as_text)
    return _Page(body, next_offset, cut_by, etag)


def show(
    exchange: Exchange,
    partition: Partition,
    call: ReadCall,
    start: int,
    fetched: Fetched,
    *,
    media_type: bytes,
    budget: DecodeBudget | None,
) -> tuple[bytearray | memoryview, int, str]:
    """Return records in one media type, their end, and the bound that cut them.

    JSON records are an array without the page around it. Without a budget, on the event loop,
    raises WouldBlock.
    """
    settings = exchange.service.settings
    limit = settings.default_fetch_records
    view = View(
        start=start,
        end=INT64_MAX if call.end_offset is None else call.end_offset,
        max_records=limit if call.max_records is None else min(call.max_records, limit),
        max_answer_bytes=settings.max_answer_bytes,
        max_record_bytes=settings.max_answer_bytes,
        frame_bytes=page_frame_bytes(partition) if media_type == JSON else 0,
        limit_bytes=settings.max_decompressed_batch_bytes,
        budget=budget,
        nonblocking=budget is None,
        encoding=call.encoding,
        offsets_as_text=call.offsets_as_text,
        is_ndjson=media_type == NDJSON,
        is_verified=fetched.is_verified,
        texts=None if call.filter else exchange.service.texts_of(partition, fetched),
        wanted=call.wanted,
    )
    body: bytearray | memoryview
    copies = ARROW_COPIES if media_type == ARROW else 1
    memory = exchange.service.render_memory
    with memory.hold((fetched.data,), copies=copies, is_inline=view.nonblocking):
        if media_type == ARROW:
            body, stopped_at, cut_by = arrow_stream(fetched.data, view)
        else:
            rendered = render_records(fetched.data, view)
            body, stopped_at, cut_by = rendered.text, rendered.next_offset, rendered.stopped_by
    next_offset = fetched.next_offset if stopped_at is None else stopped_at
    if cut_by == "max_records" and view.max_records != call.max_records:
        cut_by = "default_fetch_records"
    return body, next_offset, cut_by


async def fetch_or_wait(
    exchange: Exchange, partition: Partition, call: ReadCall
) -> tuple[int, Fetched]:
    """Return the actual start and the result, after a long poll if requested."""
    found = await _find_or_wait(exchange, partition, call)
    return found.start, found.fetched


async def _find_or_wait(exchange: Exchange, partition: Partition, call: ReadCall) -> Found:
    start = await start_offset(exchange, partition, call)
    poll = _Poll(exchange, partition, call, await find(exchange, partition, call, start))
    await long_poll(exchange, poll, call.max_wait_ms)
    return poll.found


@dataclass(slots=True)
class _Poll:
    """A read of one partition that waits for enough."""

    exchange: Exchange
    partition: Partition
    call: ReadCall
    found: Found

    @property
    def logs(self) -> Sequence[Hashable]:
        return (self.partition.identity,)

    def is_answered(self) -> bool:
        return is_enough(self.call, self.found.fetched)

    def may_wait(self) -> bool:
        ensure_current(self.exchange.service, self.partition)
        self.exchange.ticket.settle_answer(0)
        return True

    def has_moved(self) -> bool:
        return moved_since(self.partition, self.call, self.found.fetched)

    async def look(self) -> None:
        ensure_current(self.exchange.service, self.partition)
        self.found = await find(self.exchange, self.partition, self.call, self.found.start)


def is_enough(call: ReadCall, fetched: Fetched) -> bool:
    """Whether a long poll can answer: enough bytes, or a bound that new data cannot move."""
    return len(fetched.data) >= call.min_bytes or not may_grow(fetched)


async def find(exchange: Exchange, partition: Partition, call: ReadCall, start: int) -> Found:
    """Read, on a worker if the disk is needed."""
    found = find_now(exchange, partition, call, start)
    return found or await find_on_disk(exchange, partition, call, start)


async def find_on_disk(
    exchange: Exchange, partition: Partition, call: ReadCall, start: int
) -> Found:
    """Read what `find_now` did not find in memory; its bytes are already counted."""
    service = exchange.service
    max_bytes = fetch_bytes(service, call, service.settings.default_fetch_bytes)
    holder = exchange.ticket.holder
    read = await fetch(partition, call, start, max_bytes=max_bytes, holder=holder)
    found = Found(*read, {}, {})
    exchange.ticket.settle_answer(len(found.fetched.data))
    return found


def find_now(exchange: Exchange, partition: Partition, call: ReadCall, start: int) -> Found | None:
    """Read from memory; None if the disk is needed.

    Equal reads in one turn of the loop share the result.
    """
    service, ticket = exchange.service, exchange.ticket
    max_bytes = fetch_bytes(service, call, service.settings.default_fetch_bytes)
    ticket.hold_answer(max_bytes)
    # A result from before the last commit does not answer a later read.
    key = (partition.identity, partition.watermarks.bound(call.isolation).offset, start, call)
    found = service.reads.get(key)
    if found is None:
        waits = call.max_wait_ms > 0
        read = fetch_now(partition, call, start, max_bytes=max_bytes, waits=waits)
        if read is None:
            return None
        found = Found(*read, {}, {})
        service.reads.put(key, found)
    else:
        service.telemetry.read(partition.topic_partition, size_bytes=len(found.fetched.data))
    ticket.settle_answer(len(found.fetched.data))
    return found


def _known(
    exchange: Exchange,
    partition: Partition,
    call: ReadCall,
    media_type: bytes,
    codings: Sequence[bytes | None],
) -> bytes | None:
    """Return the tag in If-None-Match that an immutable answer still has, without its data."""
    header = exchange.head.get(b"if-none-match")
    if header is None or not may_be_immutable(partition, call) or call.log_id != partition.log_id:
        return None
    for tag in tags_in(header):
        end = end_in_tag(tag)
        if end is not None:
            etag = immutable_etag(partition, call, media_type, end)
            if etag is not None and tag in {tag_in(coding, etag) for coding in codings}:
                return tag
    return None


def _unless_known(exchange: Exchange, answer: Answer) -> Answer:
    """Return an answer, or that it was not modified, which its data had to tell."""
    etag = dict(answer.headers).get(b"etag")
    if etag is None or known_tag(exchange.head, (etag,)) is None:
        return answer
    return _not_modified(exchange, etag)


def _fixed_etag(
    exchange: Exchange,
    partition: Partition,
    call: ReadCall,
    media_type: bytes,
    *,
    fetched: Fetched,
    next_offset: int,
    cut_by: str = "",
) -> bytes | None:
    """Return the ETag of an answer if it is immutable; otherwise None."""
    settings = exchange.service.settings
    if call.max_bytes is not None and call.max_bytes > settings.max_fetch_bytes:
        return None  # a setting ends it
    if not is_immutable(partition, call, fetched, next_offset, cut_by):
        return None
    return immutable_etag(partition, call, media_type, next_offset, fetched)


def _not_modified(exchange: Exchange, etag: bytes, *more: tuple[bytes, bytes]) -> Answer:
    visibility = exchange.service.settings.cache_visibility
    return Answer(304, [(b"etag", etag), FOREVER[visibility], *more], b"")


def _caching(exchange: Exchange, etag: bytes | None) -> Headers:
    if etag is None:
        return [NO_STORE]
    return [FOREVER[exchange.service.settings.cache_visibility], (b"etag", etag), ACCEPT_RANGES]
