"""The results of a log's operations: immutable values, each from one consistent moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from engine.errors import PreconditionFailed
from engine.records.header import BatchHeader, TimestampType
from engine.segment.segments import SegmentSnapshot
from engine.state.watermarks import Watermarks
from engine.types import Buffer, EpochOffset, OffsetMetadata, TopicPartition


class LogTag(NamedTuple):
    """Identifies one state of a log's end; the checksum is that of the last batch."""

    leader_epoch: int
    log_end_offset: int
    last_batch_crc: int

    def ensure_expected(self, end_offset: int | None, tag: LogTag | None) -> None:
        """Raise PreconditionFailed if the log end or its tag differs from an expected one."""
        expected: object
        if end_offset is not None and end_offset != self.log_end_offset:
            expected = end_offset
        elif tag is not None and tag != self:
            expected = tag.log_end_offset
        else:
            return
        raise PreconditionFailed(
            f"the log end is {self.log_end_offset}, not the expected one",
            expected=expected,
            log_end_offset=self.log_end_offset,
            tag=self,
        )


class Appended(NamedTuple):
    """The result of an append; offsets inclusive. A part of Kafka's `LogAppendInfo`."""

    base_offset: int
    last_offset: int
    records_count: int
    timestamp: int
    """The append time if the topic stamps it, else the largest record time."""
    is_duplicate: bool
    watermarks: Watermarks
    """The watermarks right after the append."""
    tag: LogTag
    headers: Sequence[BatchHeader] = ()
    """The tag after each batch; none for a duplicate or a share of a batch."""

    def one_by_one(self) -> Iterator[Appended]:
        """Yield one result for each batch, as if it had been appended alone."""
        for header in self.headers:
            first, last = header.base_offset, header.last_offset
            count, timestamp = last - first + 1, header.max_timestamp
            tag = LogTag(self.tag.leader_epoch, last + 1, header.crc)
            marks = self.watermarks
            yield Appended(first, last, count, timestamp, False, marks, tag, (header,))

    def shared_out(self, shares: Iterable[tuple[int, int]]) -> Iterator[Appended]:
        """Yield one result for each append that shares this batch.

        A share is the number of its records and their largest timestamp, in order. Only the last
        share gets a tag, because only it ends at a log end.
        """
        (header,) = self.headers
        is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        marks, (epoch, _, crc) = self.watermarks, self.tag
        first = self.base_offset
        for count, largest in shares:
            end = first + count
            timestamp = self.timestamp if is_stamped else largest
            tag = LogTag(epoch, end, crc)
            yield Appended(first, end - 1, count, timestamp, False, marks, tag)
            first = end


class ReadEnd(Enum):
    """Why a read returned no more."""

    END_OFFSET = "end_offset"
    MAX_BYTES = "max_bytes"
    DAMAGE = "damage"  # the next batch cannot be read: a read that begins there says why
    LOG_BOUND = "log_bound"  # the high watermark, or another bound of this reader


class ReadPath(NamedTuple):
    """How the first batch of a read was found."""

    segment_base_offset: int
    index_offset: int
    index_position: int
    position: int
    scanned_bytes: int


class Fetched(NamedTuple):
    """Whole batches as stored. The first may begin below the requested offset."""

    data: Buffer
    first_offset: int | None
    """The base offset of the first batch; None if there is none."""
    next_offset: int
    """The offset to continue from: above the requested one, unless the read was empty."""
    watermarks: Watermarks
    leader_epoch: int
    ended_by: ReadEnd
    path: ReadPath | None
    segments: SegmentSnapshot | None = None
    """The segments of the view that was read; None for a log elsewhere. They keep files of removed
    segments open: drop them before the result is kept for long."""
    is_verified: bool = False
    """Whether the read has verified the checksum of each batch. That of a log elsewhere has not:
    most of its batches are sent on as they are."""


class RollResult(NamedTuple):
    """The result of a roll; if `rolled` is false, both offsets are those of the empty segment."""

    rolled: bool
    old_base_offset: int
    new_base_offset: int


class RemovalReason(Enum):
    """Why retention removes a segment."""

    LOG_START = "log_start"
    SIZE = "size"
    TIME = "time"


class RemovedSegment(NamedTuple):
    """A segment that retention removed, or would remove; `next_offset` is exclusive."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    reason: RemovalReason


class SegmentInfo(NamedTuple):
    """One segment in a listing; `next_offset` is exclusive."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    modified_ms: int
    is_active: bool
    has_transactions: bool
    """Whether it has an index of aborted transactions."""


class Listing(NamedTuple):
    """All segments of one moment, oldest first, with the log's offsets of that moment."""

    watermarks: Watermarks
    segments: list[SegmentInfo]


class CommittedSegment(NamedTuple):
    """A segment, as far as it is committed; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    """The bytes of the `.log` file below the high watermark."""
    max_timestamp: int
    """The largest record timestamp in the file, in ms; -1 without one."""
    max_timestamp_offset: int
    """The last offset of the first batch that has it; -1 without one."""
    is_sealed: bool
    """Whether it is complete and committed as a whole."""
    version: str
    """A version of the file's content, where compaction may replace it."""


class Committed(NamedTuple):
    """The segments of one moment that are not wholly below the log start, oldest first."""

    segments: Sequence[CommittedSegment]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    epochs: Sequence[EpochOffset]
    is_compacted: bool
    """Whether compaction may replace sealed segments, now or earlier."""
    truncations: int
    """The value of `LogState.truncations`, as in `SegmentFile`."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What recovery did when the log was opened."""

    was_clean: bool
    recovered_segments: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0
    damage: str | None = None
    """Why the log was cut, if not because of an unfinished append."""


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """The offsets that loading found; Kafka's `LoadedLogOffsets`."""

    log_start_offset: int
    recovery_point: int
    end: OffsetMetadata


class CopySource(NamedTuple):
    """A log while all its locks are held, for the last part of a copy."""

    log_start_offset: int
    end_offset: int
    epochs: Sequence[EpochOffset]
    snapshot: bytes
    """The producer state at the log end, as a snapshot file."""
    windows: bytes
    """The producers' duplicate windows, as a file; empty if no producer has several batches."""
    read: Callable[[int, int], Fetched]
    """Reads whole batches from an offset to the log end, up to a number of bytes."""


class DamagedPlace(NamedTuple):
    """A batch of a log file that cannot be read."""

    topic: str
    partition: int
    file: str
    """Name of the log file."""
    position: int
    """Where in the file the batch begins, in bytes."""
    offset: int
    """An offset that cannot be read because of it; -1 if the batch's own is not known."""
    problem: str
    """What is wrong, without the path of the data directory."""
    found_ms: int
    """When it was found first, milliseconds since the epoch."""

    @property
    def log(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def facts(self) -> dict[str, object]:
        """Return what operators are told: where it is, and what is wrong."""
        facts: dict[str, object] = self._asdict()
        del facts["found_ms"]
        return facts
