"""Append to one partition: the operations, for requests that run in a task.

Small bodies are appended on the event loop, others on a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from app.codecs.calls import AppendCall
from app.errors import CommitTimedOut
from app.http.answers import Answer, Body
from app.operations.append.append import Append, BatchesAppend, RecordsAppend, Way, run_here
from app.operations.deliveries.claim import Delivery
from app.operations.deliveries.idempotency_key import key_of, keyed_delivery, replayed, run_to_end
from app.operations.exchange import Exchange
from app.store.port import Partition
from engine.errors import WouldBlock
from engine.records.budget import always_wanted


async def append_records(exchange: Exchange, partition: Partition, call: AppendCall) -> Answer:
    """Append the records of a JSON or NDJSON body, in one batch."""
    return await _serve(exchange, partition, RecordsAppend, call)


async def append_batches(exchange: Exchange, partition: Partition, call: AppendCall) -> Answer:
    """Append record batches exactly as the client encoded them: all of them, or none."""
    return await _serve(exchange, partition, BatchesAppend, call)


async def _serve(
    exchange: Exchange, partition: Partition, kind: type[Append], call: AppendCall
) -> Answer:
    append = kind(exchange.service, partition, kind.options_of(exchange.head, call))
    key = key_of(exchange.head)
    body = await exchange.body()
    if key is not None:
        return await _append_once(exchange, append, body, key)
    return await complete(append, exchange, body)


async def complete(append: Append, exchange: Exchange, body: Body) -> Answer:
    """Append a whole body; return the receipt, with acks=all once the append is on disk."""
    await run_append(append, exchange, body)
    return await answer_of(append)


async def _append_once(exchange: Exchange, append: Append, body: Body, key: bytes) -> Answer:
    """Append unless a request with this key has; a repetition gets the first offsets."""
    call, media_type = append.call, exchange.head.get(b"content-type")
    expected = (call.expected_end_offset, call.expected_tag and tuple(call.expected_tag))
    question = (append.partition.path, append.kind, call.acks, expected, media_type)
    delivery = await keyed_delivery(exchange, append.partition, key, body, question)
    return await run_to_end(_deliver(exchange, append, body, delivery))


async def _deliver(exchange: Exchange, append: Append, body: Body, delivery: Delivery) -> Answer:
    with await exchange.service.deliveries.claimed(delivery) as claim:
        repeated = claim.repeated(append.partition)
        if repeated is None:
            append.claim = claim
            # A repetition may wait for this append, even if its client disconnects.
            await run_append(append, exchange, body, always_wanted)
    if repeated is None:
        return await answer_of(append)
    append.appended = repeated
    await append.partition.committed(append.end_offset)
    return replayed(append.receipt().as_answer())


async def run_append(
    append: Append,
    exchange: Exchange,
    body: Body,
    ensure_wanted: Callable[[], None] | None = None,
) -> None:
    """Append a whole body, here or on a worker; `ensure_wanted` as for `Exchange.decode`."""
    if append.way_of(body) is not Way.ON_A_WORKER:
        if not append.partition.is_local:
            await append.run(body, run_here, exchange.budget)
            return
        with suppress(WouldBlock):
            append.run_now(body)
            return
    await append.run(body, exchange.decoding(exchange.write, ensure_wanted), exchange.budget)


async def answer_of(append: Append) -> Answer:
    """Return the receipt, with acks=all once the append is on disk."""
    if append.call.acks == "all":
        try:
            await append.partition.committed(append.end_offset)
        except CommitTimedOut as error:
            raise append.explained(error) from None
    return append.receipt().as_answer()
