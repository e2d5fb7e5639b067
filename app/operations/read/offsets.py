"""Offsets of logs, look-ups by time, and splits: ranges of a topic of about equal size."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from app.codecs.calls import OffsetSpec, ReadCall, parse_offset
from app.codecs.receipts import offsets_body, offsets_headers, shown_archive, shown_marks, to_json
from app.errors import InvalidBody, MalformedRequest
from app.http.answers import Answer, Headers, json_answer
from app.operations.exchange import Exchange
from app.operations.read.fetch import start_offset
from app.operations.service import Service, local_partition
from app.settings import Settings
from app.store.port import Partition
from engine.errors import OffsetBelowLogStart, TooLarge
from engine.state.watermarks import Watermarks
from engine.types import INT64_MAX, FetchIsolation, TimestampAndOffset
from schemas.splits import Cut, SplitRequest


async def get_offsets(partition: Partition) -> Answer:
    """Return all offsets of a log, and the ETag for conditional appends."""
    await partition.refresh()
    return known_offsets(partition)


def known_offsets(partition: Partition) -> Answer:
    """Return what `get_offsets` does, with the offsets as they are known."""
    # The tag first: a tag older than the offsets can only make a condition fail, never succeed
    # for a log end that the client has not seen.
    tag = partition.tag
    marks = partition.watermarks
    headers: Headers = offsets_headers(partition, marks, tag)
    return json_answer(offsets_body(partition, marks), headers=headers)


async def get_offset_at(exchange: Exchange, partition: Partition, timestamp: str) -> Answer:
    """Return the offset of a time, or of a name for one."""
    await partition.refresh()
    tag = partition.tag
    found, marks = await _offset_at(exchange, partition, timestamp)
    return json_answer(to_json(found), headers=offsets_headers(partition, marks, tag))


async def get_topic_offsets(exchange: Exchange, topic: str, timestamp: str | None) -> Answer:
    """Return the offsets of all partitions, or their look-ups by time."""
    partitions = exchange.service.partitions(topic)
    await refresh_all(partitions)
    if timestamp is None:
        described = [_marks_of(partition) for partition in partitions]
    else:
        described = []
        for partition in partitions:
            found, marks = await _offset_at(exchange, partition, timestamp)
            log_id = partition.log_id_at(marks.leader_epoch)
            described.append({"partition": partition.number, **found, "log_id": log_id})
    return json_answer(to_json({"topic": topic, "partitions": described}))


async def refresh_all(partitions: Iterable[Partition]) -> None:
    """Bring the offsets of several logs up to date."""
    await asyncio.gather(*(partition.refresh() for partition in partitions))


def _marks_of(partition: Partition) -> dict[str, object]:
    marks = partition.watermarks
    return {
        "partition": partition.number,
        **shown_marks(marks),
        **shown_archive(partition.archive),
        "leader_epoch": marks.leader_epoch,
        "recovery_point": partition.recovery_point,
        "log_id": partition.log_id_at(marks.leader_epoch),
    }


async def _offset_at(
    exchange: Exchange, partition: Partition, timestamp: str
) -> tuple[dict[str, object], Watermarks]:
    """Return the offset of a time, and the offsets of the log in which it was looked up."""
    while True:
        marks = partition.watermarks
        epoch = marks.leader_epoch
        if timestamp == "earliest":
            return _found(TimestampAndOffset(-1, marks.log_start_offset, epoch)), marks
        if timestamp == "earliest_local":
            start = local_partition(partition).log.reader.local_log_start_offset
            return _found(TimestampAndOffset(-1, start, epoch)), marks
        if timestamp == "latest":
            return _found(TimestampAndOffset(-1, marks.high_watermark, epoch)), marks
        if timestamp == "max_timestamp":
            found = await partition.max_timestamp(exchange.look_up)
        else:
            time_ms = int(timestamp)
            if time_ms > INT64_MAX:
                raise MalformedRequest("timestamp does not fit in 64 bits", parameter="timestamp")
            found = await partition.offset_for_time(time_ms, exchange.look_up)
        # The log may have been truncated before the look-up: then what was found is of another one.
        if partition.log_id == partition.log_id_at(epoch):
            return _found(found), marks


def _found(found: TimestampAndOffset | None) -> dict[str, object]:
    if found is None:
        return {"offset": None, "timestamp": None, "leader_epoch": None}
    return {
        "offset": found.offset,
        "timestamp": None if found.timestamp < 0 else found.timestamp,
        "leader_epoch": found.leader_epoch,
    }


DEFAULT_SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Stored bytes of a split, if a plan says nothing."""


class _Range(NamedTuple):
    """The range of one partition."""

    partition: Partition
    log_id: str
    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def is_empty(self) -> bool:
        return self.start_offset == self.end_offset

    def shown(self, start_offset: int, end_offset: int, size_bytes: int) -> dict[str, object]:
        return {
            "partition": self.partition.number,
            "start_offset": start_offset,
            "end_offset": end_offset,
            "size_bytes": size_bytes,
            "log_id": self.log_id,
        }


async def plan_splits(exchange: Exchange, topic: str, wanted: SplitRequest) -> Answer:
    """Return the ranges between the positions, and their splits; raises TooLarge for too many."""
    service = exchange.service
    ensure_sensible(wanted, service.settings)
    partitions = _partitions(service, topic, wanted.partitions)
    starts, ends = (_specs(cut, partitions) for cut in (wanted.start, wanted.end))

    ranges = [
        await _range(exchange, partition, start, end, wanted)
        for partition, start, end in zip(partitions, starts, ends, strict=True)
    ]
    splits = await _splits(ranges, wanted, service.settings)

    def show() -> bytes:
        shown = [one.shown(one.start_offset, one.end_offset, one.size_bytes) for one in ranges]
        parts = [one.shown(*part) for one, cuts in splits for part in cuts]
        return to_json({"topic": topic, "partitions": shown, "splits": parts})

    return json_answer(await service.workers.read(show))


def ensure_sensible(wanted: SplitRequest, settings: Settings) -> None:
    """Raise InvalidBody for contradictory options, TooLarge for a plan that cannot fit."""
    least, most = wanted.min_splits or 1, wanted.max_splits
    if most is not None and most < least:
        raise InvalidBody(f"max_splits {most} is less than min_splits {least}", field="max_splits")
    _ensure_few(least, settings)


def _ensure_few(count: int, settings: Settings) -> None:
    limit = settings.max_splits
    if count > limit:
        raise TooLarge(
            f"the plan would exceed max_splits ({limit}): ask for larger splits",
            limit="max_splits",
            limit_bytes=limit,
            actual_bytes=count,
        )


def _partitions(service: Service, topic: str, numbers: Sequence[int] | None) -> Sequence[Partition]:
    if numbers is None:
        return service.partitions(topic)
    return [service.partition(topic, number) for number in sorted(set(numbers))]


def _specs(cut: Cut, partitions: Sequence[Partition]) -> list[OffsetSpec]:
    """Return the offset of a position in each partition.

    Raises InvalidBody if it names partitions, and not exactly these.
    """
    if not isinstance(cut, Mapping):
        return [parse_offset(str(cut))] * len(partitions)
    numbers = {str(partition.number) for partition in partitions}
    if cut.keys() != numbers:
        odd = min(cut.keys() ^ numbers)
        what = "is missing" if odd in numbers else "is not planned"
        raise InvalidBody(
            f"an object of offsets must name exactly the planned partitions: {odd} {what}"
        )
    return [parse_offset(str(cut[str(partition.number)])) for partition in partitions]


async def _range(
    exchange: Exchange,
    partition: Partition,
    start: OffsetSpec,
    end: OffsetSpec,
    wanted: SplitRequest,
) -> _Range:
    """Return the range with its bytes.

    Raises InvalidBody if it ends before it starts, OffsetBelowLogStart, OffsetBeyondLogEnd.
    """
    isolation = FetchIsolation(wanted.isolation)
    while True:
        # The id first: if the log is replaced now, the plan has the old id.
        log_id = partition.log_id
        start_offset = await _resolve(exchange, partition, start, isolation)
        end_offset = await _resolve(exchange, partition, end, isolation)
        if end_offset < start_offset:
            raise InvalidBody(
                f"partition {partition.number} would be read from {start_offset} to {end_offset}",
                partition=partition.number,
            )
        try:
            size_bytes = await partition.extent_bytes(start_offset, end_offset, isolation)
        except OffsetBelowLogStart:
            if start.offset is not None:
                raise
            continue  # the log start has moved since it was read
        return _Range(partition, log_id, start_offset, end_offset, size_bytes)


async def _resolve(
    exchange: Exchange, partition: Partition, spec: OffsetSpec, isolation: FetchIsolation
) -> int:
    offset = await start_offset(exchange, partition, ReadCall(spec, isolation=isolation))
    if spec.offset is not None:
        return offset
    return min(offset, partition.watermarks.bound(isolation).offset)


async def _splits(
    ranges: Sequence[_Range], wanted: SplitRequest, settings: Settings
) -> list[tuple[_Range, Sequence[tuple[int, int, int]]]]:
    filled = [one for one in ranges if not one.is_empty]
    shares = _shares([one.size_bytes for one in filled], _count(filled, wanted, settings))
    splits, count = [], 0
    for one, parts in zip(filled, shares, strict=True):
        cuts = await one.partition.splits(
            one.start_offset,
            one.end_offset,
            FetchIsolation(wanted.isolation),
            parts=parts,
            max_offsets=wanted.max_records,
            at_most=settings.max_splits + 1,  # too many
        )
        splits.append((one, cuts))
        count += len(cuts)
        _ensure_few(count, settings)
    return splits


def _count(filled: Sequence[_Range], wanted: SplitRequest, settings: Settings) -> int:
    """Return the number of splits, within the limit."""
    target_bytes = wanted.target_bytes
    if target_bytes is None and wanted.min_splits is None:
        target_bytes = DEFAULT_SPLIT_BYTES
    count = wanted.min_splits or 1
    if target_bytes is not None:
        by_bytes = sum(-(-one.size_bytes // target_bytes) for one in filled)
        count = max(count, by_bytes)
    if wanted.max_splits is not None:
        count = min(count, wanted.max_splits)
    count = max(count, len(filled))
    _ensure_few(count, settings)
    return count


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """Distribute `count` parts so that the largest is as small as possible; at least one each."""
    shares = [1] * len(sizes)
    largest = [(-float(size), index) for index, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(count - len(sizes) if sizes else 0):
        _, index = largest[0]
        shares[index] += 1
        heapq.heapreplace(largest, (-sizes[index] / shares[index], index))
    return shares
