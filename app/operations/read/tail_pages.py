"""The pages of tails: read and rendered once for all tails that are at the same offset."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from app.codecs.calls import OffsetSpec, ReadCall
from app.codecs.events import EVENT_FRAME_BYTES, Page, chunk_of, event_id, records_event
from app.codecs.receipts import page_body, page_frame_bytes
from app.codecs.records_out import render_records
from app.codecs.stored import View
from app.operations.read.fetch import fetch, fetch_bytes, fetch_now, may_grow
from app.operations.read.slow_clients import PIECE_BYTES
from app.operations.service import Service
from app.store.port import Partition
from engine.errors import WouldBlock
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
        texts=service.texts_of(partition, fetched),
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
