"""One read of a log: whole batches of one response after the other, up to a bound of the reader.

It ends where its bounds say, not where a broker's segment ends, so it is the same on every replica.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.fetch.v13.response import AbortedTransaction, PartitionData

from app.store.kafka.marks import Marks, watermarks_of
from app.store.kafka.read.batches import Taken, delivered, take
from engine.errors import StoredDataCorrupt
from engine.log.results import Fetched, ReadEnd
from engine.state.watermarks import Watermarks
from engine.types import INT64_MAX, Buffer, FetchIsolation


class Wanted(NamedTuple):
    """The parameters of a read; `end_offset` is exclusive."""

    offset: int
    max_bytes: int
    isolation: FetchIsolation
    end_offset: int | None
    minimum_one_batch: bool

    @property
    def has_data(self) -> bool:
        """Whether the bounds allow any batch."""
        if self.max_bytes <= 0 and not self.minimum_one_batch:
            return False
        return self.end_offset is None or self.offset < self.end_offset


class Page:
    """A read that grows by one response after the other."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._pieces: list[memoryview] = []
        self._aborted: list[AbortedTransaction] = []
        self._first_offset: int | None = None
        self._marks: Watermarks | None = None
        self.next_offset = wanted.offset
        self.left_bytes = wanted.max_bytes
        self.ended_by: ReadEnd | None = None
        """None while there may be more."""

    @property
    def data(self) -> Buffer:
        if len(self._pieces) == 1:
            return self._pieces[0]
        return b"".join(self._pieces)

    def add(self, data: PartitionData, asked_bytes: int) -> None:
        """Add a response; it is cut if it has all the bytes that were asked for."""
        records: Buffer = data.records or b""
        self._aborted.extend(data.aborted_transactions or ())
        before = self.next_offset
        self.take(records, response_marks(data))
        if self.ended_by is not None:
            return
        if self.next_offset == before:
            raise StoredDataCorrupt(
                f"the broker sent {len(records)} bytes without a whole batch",
                file="",
                position=0,
                offset=before,
            )
        if len(records) >= asked_bytes:
            self.ended_by = ReadEnd.MAX_BYTES

    def take(self, records: Buffer, marks: Watermarks) -> None:
        """Take the whole batches of a response that fit, and see whether that was all."""
        wanted = self._wanted
        taken = take(
            records,
            self.next_offset,
            max_bytes=self.left_bytes,
            end_offset=wanted.end_offset,
            minimum_one_batch=wanted.minimum_one_batch and not self._pieces,
        )
        if taken.size_bytes:
            self._pieces.append(memoryview(records)[: taken.size_bytes])
            self.left_bytes -= taken.size_bytes
            if self._first_offset is None:
                self._first_offset = taken.first_offset
        self.next_offset = taken.next_offset
        self._marks = _with_data(marks, wanted.isolation, taken.next_offset, taken.size_bytes)
        self.ended_by = self._end(taken, has_records=len(records) > 0)

    def _end(self, taken: Taken, *, has_records: bool) -> ReadEnd | None:
        assert self._marks is not None, "a response was taken"
        wanted = self._wanted
        bound = self._marks.bound(wanted.isolation).offset
        stop = INT64_MAX if wanted.end_offset is None else wanted.end_offset
        if taken.is_full:
            return ReadEnd.MAX_BYTES
        if taken.is_at_end or not has_records:
            # What compaction has left out before the end counts as read.
            self.next_offset = max(self.next_offset, min(bound, stop))
        if self.next_offset >= stop:
            return ReadEnd.END_OFFSET
        if self.next_offset >= bound:
            return ReadEnd.LOG_BOUND
        return ReadEnd.MAX_BYTES if self.left_bytes <= 0 else None

    def fetched(self, marks: Marks) -> Fetched:
        assert self._marks is not None
        assert self.ended_by is not None
        data = self.data
        if self._wanted.isolation is FetchIsolation.TXN_COMMITTED:
            data = delivered(data, self._aborted)
        # The published value, if it is the same: readers compare the two by identity first.
        mine = self._marks.in_epoch(marks.leader_epoch)
        shown = marks.watermarks if marks.watermarks == mine else mine
        return Fetched(
            data,
            self._first_offset,
            self.next_offset,
            shown,
            marks.leader_epoch,
            self.ended_by,
            None,
        )


def response_marks(data: PartitionData) -> Watermarks:
    """Return the offsets of one response."""
    high = max(data.high_watermark, 0)
    start = min(max(data.log_start_offset, 0), high)
    stable = high if data.last_stable_offset < 0 else data.last_stable_offset
    return watermarks_of(start, min(max(stable, start), high), high, high)


def _with_data(
    marks: Watermarks, isolation: FetchIsolation, next_offset: int, size_bytes: int
) -> Watermarks:
    """Return the offsets of a response whose records end there: it read them before the records."""
    bound = marks.bound(isolation).offset
    if not size_bytes or next_offset <= bound:
        return marks
    stable = marks.last_stable_offset
    if isolation is FetchIsolation.TXN_COMMITTED:
        stable = next_offset
    high = max(marks.high_watermark, next_offset)
    return watermarks_of(marks.log_start_offset, stable, high, high)
