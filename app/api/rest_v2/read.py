"""Read one partition from an offset on, as Redpanda's proxy does: no consumer, no state."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from app.api.rest_v2.media import Embedded, wanted_records
from app.api.rest_v2.records import Shown, show_records
from app.codecs.calls import OffsetSpec, ReadCall
from app.codecs.receipts import mark_headers
from app.codecs.stored import View
from app.http.answers import NO_STORE, Answer
from app.operations.exchange import Exchange
from app.operations.read.read import fetch_or_wait
from app.store.port import Partition
from engine.errors import WouldBlock
from engine.log.results import Fetched
from engine.records.budget import DecodeBudget
from schemas.kafka_rest_v2 import KafkaRestReadParameters


async def read_records(
    exchange: Exchange, partition: Partition, parameters: KafkaRestReadParameters
) -> Answer:
    """Return an array of records, empty if none comes within the time.

    It skips control batches and compaction gaps: a client that sees only record offsets cannot.
    """
    embedded = wanted_records(exchange.head)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + parameters.timeout / 1000
    start = parameters.offset
    while True:
        left_ms = max(0, round((deadline - loop.time()) * 1000))
        call = ReadCall(OffsetSpec(start), parameters.max_bytes, max_wait_ms=left_ms)
        _, fetched = await fetch_or_wait(exchange, partition, call)
        shown = await _show(exchange, partition, fetched, start, embedded)
        if shown.records or not fetched.data:
            break
        start = fetched.next_offset if shown.next_offset is None else shown.next_offset
    exchange.ticket.exchange_answer(shown.size_bytes)
    next_offset = fetched.next_offset if shown.next_offset is None else shown.next_offset
    headers = [
        (b"content-type", embedded.media_type),
        NO_STORE,
        *mark_headers(partition, fetched.watermarks, next_offset),
    ]
    return Answer(200, headers, b"[" + b",".join(shown.records) + b"]")


async def _show(
    exchange: Exchange, partition: Partition, fetched: Fetched, start: int, embedded: Embedded
) -> Shown:
    settings = exchange.service.settings

    def show(budget: DecodeBudget | None) -> Shown:
        view = View(
            start=start,
            max_records=settings.default_fetch_records,
            max_answer_bytes=settings.max_answer_bytes,
            max_record_bytes=settings.max_answer_bytes,
            limit_bytes=settings.max_decompressed_batch_bytes,
            budget=budget,
            nonblocking=budget is None,
            is_verified=fetched.is_verified,
        )
        with exchange.service.render_memory.hold((fetched.data,), is_inline=view.nonblocking):
            return show_records(fetched.data, view, partition.topic, partition.number, embedded)

    if len(fetched.data) <= settings.inline_read_bytes:
        with suppress(WouldBlock):
            return show(None)
    return await exchange.decode(exchange.read, lambda: show(exchange.budget))
