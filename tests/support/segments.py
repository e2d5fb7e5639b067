"""One segment on a disk in memory, and batches with chosen offsets in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.config import LogConfig
from engine.records.builder import build_batch
from engine.records.header import BatchHeader
from engine.records.scan import iter_headers
from engine.segment.index_checks import Reindexing
from engine.segment.recovery import plan_cut
from engine.segment.segment import RollParams, Segment
from engine.state.producers import ProducerStates
from engine.topic_keys import DAY_MS
from engine.types import INT64_MAX, Buffer
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import CONFIG, DIRECTORY
from tests.support.time import START_MS, ManualClock


def batch_at(
    offset: int, *values: bytes, timestamp: int | None = None, **options: Any
) -> bytearray:
    """A batch whose first record has `offset`; its times follow the offsets if none is given."""
    time = START_MS + offset if timestamp is None else timestamp
    records = [(time, b"key", value, ()) for value in values or (b"value-%d" % offset,)]
    return build_batch(records, base_offset=offset, leader_epoch=0, **options)


@dataclass
class Shelf:
    """A partition directory with segments in it."""

    config: LogConfig = CONFIG
    disk: ForgetfulDisk = field(default_factory=ForgetfulDisk)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.disk.make_directory(DIRECTORY, parents=True)
        self.disk.sync_everything()

    def segment(self, base_offset: int = 0, *, is_new: bool = True, **options: Any) -> Segment:
        return Segment(
            self.disk,
            DIRECTORY,
            base_offset,
            self.config,
            now_ms=self.clock.now_ms(),
            is_new=is_new,
            **options,
        )

    def producers(self) -> ProducerStates:
        return ProducerStates(self.disk, DIRECTORY, clock=self.clock, expiration_ms=DAY_MS)

    @property
    def names(self) -> list[str]:
        return self.disk.list_directory(DIRECTORY)


def append(segment: Segment, *batches: Buffer) -> list[int]:
    """Append batches one by one; return their positions."""
    positions = []
    for data in batches:
        headers = [header for _, header in iter_headers(data)]
        newest = max(headers, key=lambda header: header.max_timestamp)
        positions.append(
            segment.append(data, headers[-1].last_offset, newest.max_timestamp, newest.last_offset)
        )
    return positions


def filled(segment: Segment, offsets: Sequence[int]) -> list[int]:
    """Append one record at each of these offsets; return the positions."""
    return append(segment, *(batch_at(offset) for offset in offsets))


def headers_of(segment: Segment) -> list[BatchHeader]:
    return [header for _, header in segment.headers()]


def offsets_of(segment: Segment) -> list[int]:
    return [header.base_offset for header in headers_of(segment)]


def roll_params(segment: Segment, **changes: Any) -> RollParams:
    """An append that gives no reason to roll, with `changes`."""
    calm = RollParams(
        max_segment_ms=INT64_MAX,
        max_segment_bytes=2**31 - 1,
        max_timestamp=START_MS,
        max_offset=segment.base_offset + 1,
        size_bytes=100,
        now_ms=START_MS,
    )
    return calm._replace(**changes)


def truncate(segment: Segment, offset: int, *, now_ms: int = START_MS) -> None:
    """Cut every batch that holds `offset` or more."""
    segment.truncate(plan_cut(segment, offset), now_ms=now_ms)


def reindex(segment: Segment, *, is_active: bool) -> None:
    """Rebuild the sparse indexes as a look-up does that meets a wrong one."""
    work = Reindexing(segment)
    work.walk()
    work.install(is_active=is_active)
