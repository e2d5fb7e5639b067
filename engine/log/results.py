"""What the operations of a log answer: frozen values, each from one consistent moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from engine.errors import PreconditionFailed
from engine.records.header import BatchHeader, TimestampType
from engine.state.watermarks import Watermarks
from engine.types import Buffer, EpochOffset, OffsetMetadata


class LogTag(NamedTuple):
    """What tells one state of a log's end from every other; the checksum is the last batch's."""

    leader_epoch: int
    log_end_offset: int
    last_batch_crc: int

    def ensure_expected(self, end_offset: int | None, tag: LogTag | None) -> None:
        """Raise PreconditionFailed unless the log ends where the caller expects it, if they do."""
        expected: object
        if end_offset is not None and end_offset != self.log_end_offset:
            expected = end_offset
        elif tag is not None and tag != self:
            expected = tag.log_end_offset
        else:
            return
        raise PreconditionFailed(
            f"the log end is {self.log_end_offset}, not what was expected",
            expected=expected,
            log_end_offset=self.log_end_offset,
            tag=self,
        )


class Appended(NamedTuple):
    """What an append did; offsets inclusive. The part of Kafka's `LogAppendInfo` a client needs."""

    base_offset: int
    last_offset: int
    records_count: int
    timestamp: int
    """The append time if the topic stamps it, else the largest record time."""
    is_duplicate: bool
    watermarks: Watermarks
    """As they are right after the append."""
    tag: LogTag
    headers: Sequence[BatchHeader] = ()
    """Of each batch, as it is in the log now; none for a duplicate, or a share in a batch."""

    def one_by_one(self) -> Iterator[Appended]:
        """Yield what each of several batches would have had as an append of its own."""
        for header in self.headers:
            first, last = header.base_offset, header.last_offset
            count, timestamp = last - first + 1, header.max_timestamp
            tag = LogTag(self.tag.leader_epoch, last + 1, header.crc)
            marks = self.watermarks
            yield Appended(first, last, count, timestamp, False, marks, tag, (header,))

    def shared_out(self, shares: Iterable[tuple[int, int]]) -> Iterator[Appended]:
        """Yield what each of several appends had that share this batch.

        Their shares, in order, are how many records they brought, and the greatest time of those.
        Of the tags only the last is that of a log's end.
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
    LOG_BOUND = "log_bound"  # the high watermark, or what else bounds this reader


class ReadPath(NamedTuple):
    """How the first batch of a read was found."""

    segment_base_offset: int
    index_offset: int
    index_position: int
    position: int
    scanned_bytes: int


class Fetched(NamedTuple):
    """Whole batches as stored. The first may begin below the offset asked for."""

    data: Buffer
    first_offset: int | None
    """The base offset of the first batch; None if there is none."""
    next_offset: int
    """Where to read on: above the offset asked for, unless nothing was there."""
    watermarks: Watermarks
    leader_epoch: int
    ended_by: ReadEnd
    path: ReadPath | None


class RollResult(NamedTuple):
    """What a roll did; with `rolled` false both offsets are those of the empty active segment."""

    rolled: bool
    old_base_offset: int
    new_base_offset: int


class RemovalReason(Enum):
    """Why retention takes a segment."""

    LOG_START = "log_start"
    SIZE = "size"
    TIME = "time"


class RemovedSegment(NamedTuple):
    """A segment that retention took, or would take; `next_offset` is exclusive."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    reason: RemovalReason


class SegmentInfo(NamedTuple):
    """One segment as listings show it; `next_offset` is exclusive."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    modified_ms: int
    is_active: bool
    has_transactions: bool
    """Whether it has an index of aborted transactions."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a log had to do."""

    was_clean: bool
    recovered_segments: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0
    damage: str | None = None
    """What was wrong where the log was cut, if it was more than an unfinished append."""


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """Kafka's `LoadedLogOffsets`: what loading found."""

    log_start_offset: int
    recovery_point: int
    end: OffsetMetadata


class CopySource(NamedTuple):
    """A log at a moment in which no thread can change it."""

    log_start_offset: int
    end_offset: int
    epochs: Sequence[EpochOffset]
    snapshot: bytes
    """The producer state at the end, as in a file."""
    windows: bytes
    """The last batches of the producers, as in a file; empty if no producer has several."""
    read: Callable[[int, int], Fetched]
    """Return whole batches from an offset on, up to so many bytes, to the end of the log."""
