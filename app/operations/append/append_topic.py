"""Append to a topic: the server picks partitions as Kafka's partitioner does.

One request becomes one batch per partition. Each batch is atomic; all of them together are not. If
only some partitions fail, the answer is 207 with one entry per record, in input order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from app.client.partitioner import partition_of
from app.codecs.calls import AppendCall, ensure_no_conditions
from app.codecs.receipts import marks_of, receipt_body, to_json
from app.codecs.records_in import read_records
from app.errors import CommitTimedOut
from app.http.answers import Answer, Body, json_answer
from app.http.problems import kind_of, problem_members
from app.operations.append.append import APPEND_ERRORS, STATUS, build, run_here
from app.operations.deliveries.claim import Claim, Delivery
from app.operations.deliveries.idempotency_key import key_of, keyed_delivery, replayed, run_to_end
from app.operations.exchange import Exchange
from app.operations.request_content import brings_ndjson
from app.operations.service import Service
from app.store.port import Partition, Run
from engine.config import LogConfig
from engine.errors import EngineError, WouldBlock
from engine.log.results import Appended
from engine.records.builder import NewRecord

INLINE_RECORDS: Final = 256
"""Above this number of records, a batch is built on a worker."""


class Spread(NamedTuple):
    """The partition of each record in input order, and the records of each partition."""

    chosen: Sequence[int]
    parts: Mapping[int, list[NewRecord]]


class Written(NamedTuple):
    """An appended part."""

    partition: Partition
    appended: Appended


Outcome: TypeAlias = Written | Exception


class _Request(NamedTuple):
    """A request with its body."""

    exchange: Exchange
    partition: Partition
    """Any of the topic."""
    call: AppendCall
    body: Body
    is_ndjson: bool


async def append_topic_records(exchange: Exchange, topic: str, call: AppendCall) -> Answer:
    """Append records to the partitions that Kafka's partitioner picks for their keys."""
    service = exchange.service
    any_partition = service.any_partition(topic)
    is_ndjson = brings_ndjson(exchange.head)
    ensure_no_conditions(exchange.head)
    key = key_of(exchange.head)
    request = _Request(exchange, any_partition, call, await exchange.body(), is_ndjson)
    if key is None:
        partitions = service.topic(topic).partitions
        sticky = service.sticky_partition(topic, partitions)
        spread = await _spread_out(request, partitions, sticky)
        return await _finish(request, spread, await _write_parts(exchange, topic, call, spread))
    question = (topic, call.acks, exchange.head.get(b"content-type"))
    delivery = await keyed_delivery(exchange, any_partition, key, request.body, question)
    return await run_to_end(_deliver(request, delivery))


async def _deliver(request: _Request, delivery: Delivery) -> Answer:
    """Append to those partitions to which no earlier request with this delivery did."""
    exchange, call, topic = request.exchange, request.call, delivery.topic
    with await exchange.service.deliveries.claimed(delivery) as claim:
        partitions = claim.choose_among(exchange.service.topic(topic).partitions)
        spread = await _spread_out(request, partitions, claim.sticky_partition)
        outcomes = await _write_parts(exchange, topic, call, spread, claim)
    return await _finish(request, spread, outcomes)


async def _spread_out(request: _Request, partitions: int, sticky: int) -> Spread:
    exchange, config = request.exchange, request.partition.config

    def spread() -> Spread:
        made = _new_records(exchange.service, config, request.body, is_ndjson=request.is_ndjson)
        return _spread(made, partitions, sticky)

    if len(request.body) <= exchange.service.settings.inline_append_bytes:
        return spread()
    return await exchange.write(spread)


async def _finish(request: _Request, spread: Spread, outcomes: Mapping[int, Outcome]) -> Answer:
    call = request.call
    settled = await _settle(call, outcomes)
    answer = _answer(request.partition.topic, call, spread, settled)
    return replayed(answer) if answer.status == 200 else answer


async def append_parts(
    exchange: Exchange, topic: str, call: AppendCall, spread: Spread
) -> dict[int, Outcome]:
    """Append one batch per partition and wait for the disk if required; report each outcome.

    Raises the first error if no batch was appended.
    """
    written = await _write_parts(exchange, topic, call, spread)
    return await _settle(call, written)


async def _write_parts(
    exchange: Exchange, topic: str, call: AppendCall, spread: Spread, claim: Claim | None = None
) -> dict[int, Outcome]:
    """Append one batch per partition; raises the first error if none was appended."""
    append = partial(_append_part, exchange, topic, call=call, claim=claim)
    if exchange.service.store.backend == "local":
        outcomes = {number: await append(number, part) for number, part in spread.parts.items()}
    else:
        done = await asyncio.gather(*[append(*part) for part in spread.parts.items()])
        outcomes = dict(zip(spread.parts, done, strict=True))
    return _ensure_any(outcomes)


async def _settle(call: AppendCall, outcomes: Mapping[int, Outcome]) -> dict[int, Outcome]:
    """Wait for the disk if required; raises the first error if no batch is on disk.

    For what an earlier request appended, always: the repetition is answered as done.
    """
    waits = call.acks == "all"
    return _ensure_any(
        {
            partition: await _on_disk(outcome)
            if waits or (isinstance(outcome, Written) and outcome.appended.is_duplicate)
            else outcome
            for partition, outcome in outcomes.items()
        }
    )


def _ensure_any(outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
    if not any(isinstance(outcome, Written) for outcome in outcomes.values()):
        raise next(outcome for outcome in outcomes.values() if isinstance(outcome, Exception))
    return outcomes


def _new_records(
    service: Service, config: LogConfig, body: Body, *, is_ndjson: bool
) -> Iterable[NewRecord]:
    """Check all records before the first is written, so that all faults are reported together."""
    return read_records(
        body,
        is_ndjson=is_ndjson,
        max_records=service.settings.max_records_per_request,
        now_ms=service.clock.now_ms(),
        config=config,
    )


def _spread(records: Iterable[NewRecord], partitions: int, sticky: int) -> Spread:
    """Assign the records to partitions; those without a key go to the sticky partition."""
    chosen: list[int] = []
    parts: dict[int, list[NewRecord]] = defaultdict(list)
    for record in records:
        key = record[1]
        partition = sticky if key is None else partition_of(bytes(key), partitions)
        chosen.append(partition)
        parts[partition].append(record)
    return Spread(chosen, parts)


async def _append_part(
    exchange: Exchange,
    topic: str,
    number: int,
    records: list[NewRecord],
    *,
    call: AppendCall,
    claim: Claim | None,
) -> Outcome:
    try:
        partition = exchange.service.partition(topic, number)
        if claim is None:
            return Written(partition, await _append(exchange, partition, call, records))
        if (repeated := claim.repeated(partition)) is not None:
            return Written(partition, repeated)
        claim.mark(records)
        appended = await _append(exchange, partition, call, records)
        claim.written(partition, appended)
    except APPEND_ERRORS as error:
        return error
    return Written(partition, appended)


async def _append(
    exchange: Exchange, partition: Partition, call: AppendCall, records: Sequence[NewRecord]
) -> Appended:
    make = partial(build, partition, call, records)
    run: Run = exchange.write
    if len(records) <= INLINE_RECORDS:
        if partition.is_local:
            with suppress(WouldBlock):
                return partition.append_now(make(), acks=call.acks, checked=True)
        else:
            run = run_here
    return await partition.append(make, acks=call.acks, checked=True, run=run)


async def _on_disk(outcome: Outcome) -> Outcome:
    """Wait until an appended part is on disk; return the error if it fails."""
    if isinstance(outcome, Written):
        try:
            await outcome.partition.committed(outcome.appended.last_offset + 1)
        except (EngineError, CommitTimedOut) as error:
            return error
    return outcome


def _answer(
    topic: str, call: AppendCall, spread: Spread, outcomes: Mapping[int, Outcome]
) -> Answer:
    """Answer for several partitions, at least one of which was written."""
    written = {
        partition: outcome
        for partition, outcome in sorted(outcomes.items())
        if isinstance(outcome, Written)
    }
    failed = {
        partition: outcome
        for partition, outcome in outcomes.items()
        if isinstance(outcome, Exception)
    }
    receipts = [
        receipt_body(partition, appended, marks_of(partition, appended), call.acks)
        for partition, appended in written.values()
    ]
    body = b'{"topic":"%b","count":%d,"acks":"%b","partitions":[%b],"records":[%b]}' % (
        topic.encode(),
        sum(appended.records_count for _, appended in written.values()),
        call.acks.encode(),
        b",".join(receipts),
        b",".join(_entries(spread, written, failed)),
    )
    status = STATUS[call.acks]
    if all(appended.is_duplicate for _, appended in written.values()):
        status = 200
    return json_answer(body, status=207 if failed else status)


def _entries(
    spread: Spread, written: Mapping[int, Written], failed: Mapping[int, Exception]
) -> list[bytes]:
    """Return one object per record in input order: its offset, or its error."""
    next_offsets = {
        partition: outcome.appended.base_offset for partition, outcome in written.items()
    }
    told = {partition: _failure(partition, error) for partition, error in failed.items()}
    entries = []
    for partition in spread.chosen:
        if partition in told:
            entries.append(told[partition])
        else:
            offset = next_offsets[partition]
            entries.append(b'{"partition":%d,"offset":%d}' % (partition, offset))
            next_offsets[partition] = offset + 1
    return entries


def _failure(partition: int, error: Exception) -> bytes:
    kind = kind_of(error)
    return to_json(
        {
            "partition": partition,
            "status": kind.status,
            "code": kind.code,
            "detail": problem_members(error)["detail"],
            "retryable": kind.retryable,
            "side_effects": kind.side_effects,
        }
    )
