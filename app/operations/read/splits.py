"""Plans splits between two positions in a topic: byte-balanced ranges of offsets."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from app.codecs.calls import OffsetSpec, ReadCall, parse_offset
from app.codecs.receipts import to_json
from app.errors import InvalidBody
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.operations.read.fetch import start_offset
from app.operations.service import Service
from app.settings import Settings
from app.store.port import Partition
from engine.errors import OffsetBelowLogStart, TooLarge
from engine.types import FetchIsolation
from schemas.splits import Cut, SplitRequest

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
