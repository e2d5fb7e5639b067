"""Reads a log without its lock: its ends, records, segments and files, offsets by time, splits.

A reader takes one view: matching watermarks and segments. Segments that are deleted meanwhile stay
readable for that view. Only a truncation can remove bytes during a read, which is then repeated
after the truncation.

Offsets by time are found as by Kafka's `UnifiedLog.fetchOffsetByTimestamp`. The first segment whose
largest timestamp reaches the time is searched, from the position that its time index gives. If
compaction has removed the matching record there, or it lies below the log start, the next segment
is searched; Kafka finds nothing in the first case. Records at or above the reader's bound are not
found.

A split cuts a range of offsets into parts of about equal size, at batch boundaries. It only reads
indexes, and the log file between two index entries, so the cost of a plan does not depend on the
size of the range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import accumulate, islice
from typing import Final, NamedTuple, TypeVar

from engine.errors import (
    CorruptIndex,
    LogReplaced,
    OffsetError,
    SegmentNotFound,
    StoredDataCorrupt,
)
from engine.log.index_repair import mending
from engine.log.read.fetch import (
    ReadRequest,
    ensure_in_range,
    ensure_known,
    fetch,
    readable_end,
)
from engine.log.read.segment_files import (
    FileCheck,
    FileKind,
    SegmentFile,
    batch_at,
    check_log,
    committed,
    listed,
    open_file,
    read_log,
)
from engine.log.results import Committed, DamagedPlace, Fetched, Listing, LogTag
from engine.log.state import LogCore, LogState, LogView
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget
from engine.records.compiled import CompiledRecord
from engine.records.parts import records_of
from engine.records.record import Record
from engine.segment.file_records import BatchPosition, NotCached
from engine.segment.index_checks import ensure_true, floor_by_time
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.types import (
    INT64_MAX,
    NO_LEADER_EPOCH,
    Buffer,
    FetchIsolation,
    OffsetMetadata,
    TimestampAndOffset,
)


def _no_version(_: Segment) -> str:
    return ""


class Bounds(NamedTuple):
    """The range and the cost limits of a look-up."""

    log_start_offset: int
    limit_bytes: int
    """The limit for one decoded batch."""
    budget: DecodeBudget | None = None
    """For all batches together; None means unlimited."""

    @contextmanager
    def records(self, batch: BatchView) -> Iterator[Iterator[CompiledRecord | Record]]:
        """Yield an iterator over the records of a batch within the bounds, with memory reserved."""
        budget, limit_bytes = self.budget, self.limit_bytes
        with nullcontext() if budget is None else budget.decoding(batch.content_bound(limit_bytes)):
            records = records_of(batch, limit_bytes=limit_bytes, budget=budget)
            yield (record for record in records if record.offset >= self.log_start_offset)


def first_at_or_after(
    timestamp_ms: int, segments: SegmentSnapshot, bounds: Bounds
) -> TimestampAndOffset | None:
    """Return the first record at or after a time, from the log start on."""
    for segment in _present(segments, bounds.log_start_offset):
        if segment.largest_timestamp >= timestamp_ms:
            found = _search(segment, timestamp_ms, bounds)
            if found is not None:
                return found
    return None


def with_max_timestamp(segments: SegmentSnapshot, bounds: Bounds) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, from the log start on, if any.

    Messages of magic 0 have no timestamps and are skipped.
    """
    best: TimestampAndOffset | None = None
    present = [
        segment for segment in _present(segments, bounds.log_start_offset) if segment.size_bytes
    ]
    for segment in sorted(present, key=lambda one: one.maximum.timestamp, reverse=True):
        if best is not None and not _may_beat(best, segment.maximum.timestamp, segment.base_offset):
            break
        best = _better(best, _newest_in(segment, bounds))
    return best


def _present(segments: SegmentSnapshot, log_start_offset: int) -> Sequence[Segment]:
    """Return the segments that may hold records at or after the log start."""
    return segments.segments[max(0, segments.floor_index(log_start_offset)) :]


def _newest_in(segment: Segment, bounds: Bounds) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, from the log start on.

    Usually it is in the batch that the segment records as its maximum. If that batch lies below the
    log start, or compaction emptied it, all headers from the log start on are read, and the batches
    with the latest timestamps are decoded.
    """
    starting_offset = bounds.log_start_offset
    maximum = segment.maximum
    ensure_true(segment, maximum)
    noted = segment.locate(max(maximum.offset, starting_offset))
    if noted is not None and maximum.offset >= starting_offset:
        noted_batches = segment.records.batches(noted.position, noted.end)
        best = _newest_of(next(noted_batches)[1], bounds)
        if best is not None and best.timestamp == maximum.timestamp:
            return best
    first = segment.locate(starting_offset)
    if first is None:
        return None
    headers = list(segment.headers(first.position))
    best = None
    for position, header in sorted(headers, key=lambda one: one[1].max_timestamp, reverse=True):
        if best is not None and not _may_beat(best, header.max_timestamp, header.base_offset):
            break
        _, batch = next(segment.records.batches(position, position + header.size_bytes))
        best = _better(best, _newest_of(batch, bounds))
    return best


def _newest_of(batch: BatchView, bounds: Bounds) -> TimestampAndOffset | None:
    best: TimestampAndOffset | None = None
    if batch.header.magic > 0:
        with bounds.records(batch) as records:
            for record in records:
                if best is None or record.timestamp > best.timestamp:
                    best = _answer(batch, record)
    return best


def _better(
    one: TimestampAndOffset | None, other: TimestampAndOffset | None
) -> TimestampAndOffset | None:
    """Return the later of two results; if equal, the one with the lower offset."""
    if one is None or other is None:
        return one or other
    return other if _may_beat(one, other.timestamp, other.offset) else one


def _may_beat(best: TimestampAndOffset, timestamp_ms: int, offset: int) -> bool:
    return (timestamp_ms, -offset) > (best.timestamp, -best.offset)


def _search(segment: Segment, timestamp_ms: int, bounds: Bounds) -> TimestampAndOffset | None:
    entry = floor_by_time(segment, timestamp_ms)
    first = segment.locate(max(entry.offset, bounds.log_start_offset))
    if first is None:
        return None
    for _, batch in segment.records.batches(first.position, segment.size_bytes):
        if batch.header.max_timestamp >= timestamp_ms:
            with bounds.records(batch) as records:
                for record in records:
                    if record.timestamp >= timestamp_ms:
                        return _answer(batch, record)
    return None


def _answer(batch: BatchView, record: CompiledRecord | Record) -> TimestampAndOffset:
    epoch = batch.header.leader_epoch
    return TimestampAndOffset(
        record.timestamp, record.offset, None if epoch == NO_LEADER_EPOCH else epoch
    )


class Split(NamedTuple):
    """A range of offsets, end exclusive, and the bytes to read for it."""

    start_offset: int
    end_offset: int
    size_bytes: int
    """The bytes of the whole batches that a read of it returns; read_committed may return fewer."""


class _Place(NamedTuple):
    """A boundary between two batches: the offset after it, and the readable bytes before it."""

    offset: int
    position: int


class Extent:
    """A range of offsets as one sequence of bytes across its segments."""

    def __init__(
        self, start_offset: int, end_offset: int, bound: OffsetMetadata, segments: SegmentSnapshot
    ) -> None:
        """Look up both ends. The end is neither below the start nor above the bound."""
        assert start_offset <= end_offset <= bound.offset
        first = max(0, segments.floor_index(start_offset))
        last = max(first, segments.floor_index(end_offset))
        self._segments: Sequence[Segment] = segments.segments[first : last + 1]
        self._base_offsets = segments.base_offsets[first : last + 1]
        self._ends = [readable_end(segment, bound) for segment in self._segments]
        self._starts = [0, *accumulate(self._ends)]
        start = self._position_of(start_offset)
        self._start = _Place(start_offset, start)
        # The batch that holds the last offset belongs to the range, even if it ends after it.
        self._end = _Place(end_offset, max(start, self._position_behind(end_offset - 1)))

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches that hold an offset of the range."""
        return self._end.position - self._start.position

    def cut(self, parts: int, max_offsets: int | None = None) -> Iterator[Split]:
        """Yield the range in `parts` of about equal size; fewer if batches are large.

        The parts ascend, without gap or overlap. With `max_offsets` they are cut further, until
        none spans more offsets, unless a single batch does.
        """
        limit = INT64_MAX if max_offsets is None else max_offsets
        start = self._start
        while start.offset < self._end.offset:
            stop = self._end
            if parts > 1:
                # Of the rest of the range, so that one large batch does not distort the later
                # parts.
                stop = self._near(start, start.position + (stop.position - start.position) // parts)
                parts -= 1
            while stop.offset - start.offset > limit:
                middle = self._at(start, start.offset + limit)
                if middle.offset >= stop.offset:
                    break
                yield _split(start, middle)
                start = middle
            yield _split(start, stop)
            start = stop

    def _near(self, after: _Place, position: int) -> _Place:
        """Return the boundary nearest to a byte position, above `after`."""
        index = bisect_right(self._starts, position, hi=len(self._ends)) - 1
        start, end = self._starts[index], self._ends[index]
        if position - start >= end:
            return self._end  # only a gap is left
        batch = batch_at(self._segments[index], position - start, end)
        first = _Place(batch.base_offset, start + batch.position)
        behind = _Place(batch.last_offset + 1, start + batch.end)
        is_first_nearer = position - first.position <= behind.position - position
        nearest = first if is_first_nearer and first.offset > after.offset else behind
        return min(nearest, self._end)

    def _at(self, after: _Place, offset: int) -> _Place:
        """Return the last boundary above `after` and at or before `offset`, or the first above."""
        index, found = self._locate(offset)
        start = self._starts[index]
        if found is None:
            return _Place(offset, start + self._ends[index])
        if found.base_offset >= offset:
            return _Place(offset, start + found.position)
        if found.base_offset > after.offset:
            return _Place(found.base_offset, start + found.position)
        return _Place(found.last_offset + 1, start + found.end)

    def _locate(self, offset: int) -> tuple[int, BatchPosition | None]:
        """Return the index of an offset's segment, and the first batch at or after the offset."""
        index = max(0, bisect_right(self._base_offsets, offset) - 1)
        return index, self._segments[index].locate(offset, self._ends[index])

    def _position_of(self, offset: int) -> int:
        """Return the start of the first batch that holds `offset` or a later one."""
        index, found = self._locate(offset)
        return self._starts[index] + (self._ends[index] if found is None else found.position)

    def _position_behind(self, offset: int) -> int:
        """Return the end of the last batch that holds `offset` or an earlier one."""
        index, found = self._locate(offset)
        if found is None:
            return self._starts[index] + self._ends[index]
        return self._starts[index] + (found.end if found.base_offset <= offset else found.position)


def _split(start: _Place, end: _Place) -> Split:
    return Split(start.offset, end.offset, end.position - start.position)


_Found = TypeVar("_Found")


_OF_A_CHANGE: Final = (
    CorruptIndex,
    FileNotFoundError,
    StopIteration,
    StoredDataCorrupt,
    ValueError,
)
"""Errors of a look-up in a log that was truncated, compacted or moved meanwhile."""


class _LookAgain(Exception):
    """The log was truncated or moved during a look-up."""


class LogReader:
    """The read side of one log. Thread-safe; no method waits for an append or a sync."""

    def __init__(self, core: LogCore) -> None:
        self._core = core

    # -- its ends ----------------------------------------------------------------------------

    @property
    def tag(self) -> LogTag:
        """The tag of the log's present end, for conditional appends."""
        return self._core.state.tag

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that appends get."""
        return self._core.state.leader_epoch

    @property
    def log_id(self) -> str:
        """Changes whenever an offset might refer to another record."""
        return f"{self._core.topic_id}.{self._core.state.watermarks.leader_epoch}"

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files on the disk."""
        return self._core.state.local.segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """A snapshot of all segments on the disk, the active one last.

        They stay readable when removed.
        """
        return self._core.state.local.segments.snapshot.segments

    @property
    def newest_timestamp(self) -> int:
        """The largest timestamp of the newest records, those not committed included; else -1.

        That of the last segment with a time, among the last two.
        """
        last = self._core.state.local.segments.snapshot.segments[-2:]
        return next(
            (one.maximum.timestamp for one in reversed(last) if one.maximum.timestamp >= 0), -1
        )

    @property
    def segments_count(self) -> int:
        """The number of segments on the disk, the active one included."""
        return len(self._core.state.local.segments)

    @property
    def first_segment_base_offset(self) -> int:
        """The base offset of the first segment on the disk.

        The log start may lie above it, or below it if the archive has older segments.
        """
        return self._core.state.local.segments.first_base_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that the disk has; Kafka's `localLogStartOffset`."""
        state = self._core.state
        start, local = state.watermarks.log_start_offset, state.local.segments
        return max(start, local.first_base_offset)

    def content_version(
        self, start_offset: int, end_offset: int, segments: SegmentSnapshot | None = None
    ) -> str | None:
        """Return what changes whenever the bytes of a range below the high watermark do.

        Only compaction replaces bytes within one `log_id`, and never those of the active segment.
        `segments` are those that were read; the present ones without them. It may change without a
        change of content: when a segment is sealed, or its file renamed. None if the file of one is
        closed: compaction or retention has taken the segment away since. Raises StorageOffline.
        """
        found = segments or self._core.state.readable()
        first = max(0, found.floor_index(start_offset))
        last = found.floor_index(max(start_offset, end_offset - 1))
        read = found.segments[first : last + 1]
        try:
            with self._core.context.health.reading:
                return ".".join(
                    f"{segment.base_offset:x}"
                    if segment is found.segments[-1]
                    else f"{segment.base_offset:x}-{segment.records.file.version()}"
                    for segment in read
                )
        except (StoredDataCorrupt, ValueError):  # the file is gone, or closed
            return None

    # -- its content -------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
        cached_only: bool = False,
    ) -> Fetched | None:
        """Return whole batches, from the one that holds `offset` to the reader's bound.

        Returns None if `cached_only` and the disk is needed, or an index must be rebuilt. Raises
        OffsetBelowLogStart, OffsetBeyondLogEnd, StoredDataCorrupt, and Overloaded if many
        transaction indexes must be verified first. Takes no lock.
        """
        core = self._core
        check_bytes = core.context.config.max_index_check_bytes
        request = ReadRequest(
            offset, max_bytes, isolation, end_offset, minimum_one_batch, cached_only, check_bytes
        )
        try:
            if cached_only:
                fetched = self.fetch(request)
            else:
                fetched = mending(core, partial(self.fetch, request))
        except (CorruptIndex, NotCached):
            if cached_only:
                return None
            raise
        if fetched.data:
            core.context.recorder.read(core.topic_partition, size_bytes=len(fetched.data))
        return fetched

    def look_at(self, offset: int) -> Fetched:
        """Return the batch that holds `offset`, up to the log end, without counting it as a read.

        Raises what `read` raises.
        """
        request = ReadRequest(offset, 1, FetchIsolation.LOG_END)
        return mending(self._core, lambda: self.fetch(request))

    def fetch(self, request: ReadRequest) -> Fetched:
        """As `read`, but raises CorruptIndex and NotCached, and does not count the read."""
        return self._seen(partial(fetch, request), cached_only=request.cached_only)

    def _seen(
        self, look: Callable[[LogView], _Found], *, cached_only: bool = False, counts: bool = True
    ) -> _Found:
        """Return the result of a look-up in one consistent view of the log.

        If the log is truncated or moved meanwhile, the look-up is repeated. It waits for a running
        truncation; with `cached_only` it raises NotCached instead. Damage is noted if it `counts`.
        """
        core = self._core
        while True:
            state = core.state
            view = state.view()
            if view is None:
                if cached_only:
                    raise NotCached
                with core.lock:  # until the truncation is done
                    continue
            try:
                with core.context.health.reading:
                    found = self._look_once(look, state, view)
            except _LookAgain:
                continue
            except (CorruptIndex, StoredDataCorrupt, StopIteration) as error:
                if counts:
                    self._count_damage(error)
                raise
            except ValueError as error:
                if not core.is_closed:
                    raise
                raise core.closed() from error
            if view.truncations == state.truncations:
                return found

    def _look_once(
        self, look: Callable[[LogView], _Found], state: LogState, view: LogView
    ) -> _Found:
        """Return the result of a look-up; _LookAgain if it failed because the log has changed.

        The bytes, batches or files of the view are then gone or moved.
        """
        try:
            return look(view)
        except _OF_A_CHANGE as error:
            if (
                state is not self._core.state
                or view.truncations != state.truncations
                or view.segments is not state.readable()
            ):
                raise _LookAgain from error
            raise

    def _count_damage(self, error: Exception) -> None:
        if isinstance(error, StoredDataCorrupt):
            self._core.context.recorder.corrupt_data_found(self._core.topic_partition)
            self.note_damage(error)

    def note_damage(self, error: StoredDataCorrupt) -> None:
        """Remember a damaged place until it is whole or gone."""
        self._core.context.damage.note(self._core.topic_partition, error)

    def is_damaged(self, place: DamagedPlace) -> bool:
        """Whether a place that was found damaged is so still; raises what `read` raises.

        It is not if the log was truncated, or retention or compaction removed it.
        """
        core = self._core
        try:
            if place.offset < 0:
                base_offset = int(place.file.partition(".")[0])
                file = self.open_file(base_offset, FileKind.LOG)
                damage = self.check_file(file, place.position, 1).damage
                return any(error.position == place.position for error in damage)
            request = ReadRequest(place.offset, 1, FetchIsolation.LOG_END)
            mending(core, lambda: self._seen(partial(fetch, request), counts=False))
        except StoredDataCorrupt:
            return True
        except (OffsetError, SegmentNotFound, LogReplaced):
            pass
        return False

    def open_file(self, base_offset: int, kind: FileKind) -> SegmentFile:
        """Open the committed part of a file of the segment that begins at `base_offset`.

        Raises SegmentNotFound. Takes no lock. The content of an index is copied at once.
        """
        return mending(self._core, lambda: self._seen(partial(open_file, base_offset, kind)))

    def read_file(self, file: SegmentFile, position: int, max_bytes: int) -> Buffer:
        """Return about `max_bytes`, and at least one byte, of an open file from `position` on.

        Never returns bytes that were written after the file was opened: raises LogReplaced once the
        log was truncated. Raises SegmentNotFound if the file is gone and was not open,
        StoredDataCorrupt instead of bytes of a damaged batch, and StorageOffline.
        """
        if file.content is not None:
            return file.content[position : position + max_bytes]
        data = mending(self._core, lambda: self._read_file(file, position, max_bytes))
        self._core.context.recorder.read(self._core.topic_partition, size_bytes=len(data))
        return data

    def copy_file(self, file: SegmentFile, position: int, max_bytes: int) -> Buffer:
        """Return up to `max_bytes` of an open file as they are stored, unverified, for a copy.

        Bytes that this read brings into the page cache are dropped from it again. Raises
        LogReplaced once the log was truncated, SegmentNotFound if the file is gone and was not
        open, and StorageOffline.
        """
        if file.content is not None:
            return file.content[position : position + max_bytes]
        length = min(max_bytes, file.size_bytes - position)

        def copy() -> Buffer:
            return file.segment.records.file.read_aside(position, length)

        return self._uncut(file, copy)

    def check_file(self, file: SegmentFile, position: int, max_bytes: int) -> FileCheck:
        """Verify about `max_bytes` of batches of an open log file, from `position` on.

        Raises LogReplaced once the log was truncated, SegmentNotFound if the file is gone and was
        not open, and StorageOffline.
        """

        def check() -> FileCheck:
            return check_log(file.segment, position, max_bytes, file.size_bytes)

        return self._uncut(file, check)

    def _read_file(self, file: SegmentFile, position: int, max_bytes: int) -> Buffer:
        def read() -> Buffer | CorruptIndex | StoredDataCorrupt:
            try:
                return read_log(file.segment, position, max_bytes, file.size_bytes)
            except (CorruptIndex, StoredDataCorrupt) as error:
                return error

        found = self._uncut(file, read)
        if isinstance(found, CorruptIndex | StoredDataCorrupt):
            self._count_damage(found)
            raise found
        return found

    def _uncut(self, file: SegmentFile, look: Callable[[], _Found]) -> _Found:
        """Return what a look-up in an open file finds; raise if the log was closed or truncated."""
        try:
            with self._core.context.health.reading:
                found = look()
        except ValueError as error:
            if self._core.is_closed:
                raise self._core.closed() from error
            raise SegmentNotFound(
                f"{file.segment.records.path} was removed, replaced or moved while it was read",
                base_offset=file.segment.base_offset,
            ) from error
        if file.truncations != self._core.state.truncations:
            raise LogReplaced(
                "the log was truncated during the read", log=str(self._core.topic_partition)
            )
        return found

    def extent_bytes(
        self,
        start_offset: int,
        end_offset: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> int:
        """Return the bytes of the batches that hold offsets of [start, end).

        Raises OffsetBelowLogStart, and OffsetBeyondLogEnd if the end is above the reader's bound.
        Reads the indexes, and at most an index interval of the log at each end.
        """
        return self._with_extent(
            start_offset, end_offset, isolation, lambda extent: extent.size_bytes
        )

    def splits(
        self,
        start_offset: int,
        end_offset: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        *,
        parts: int = 1,
        max_offsets: int | None = None,
        at_most: int | None = None,
    ) -> list[Split]:
        """Return the range in parts of about equal size; see `Extent.cut`.

        Returns only the first `at_most` parts. Raises as `extent_bytes`.
        """
        return self._with_extent(
            start_offset,
            end_offset,
            isolation,
            lambda extent: list(islice(extent.cut(parts, max_offsets), at_most)),
        )

    def _with_extent(
        self, start: int, end: int, isolation: FetchIsolation, use: Callable[[Extent], _Found]
    ) -> _Found:
        def look(view: LogView) -> _Found:
            bound = view.marks.bound(isolation)
            ensure_in_range(start, view.marks)
            ensure_known(start, view.segments)
            ensure_in_range(end, view.marks, bound.offset)
            return use(Extent(start, end, bound, view.segments))

        return mending(self._core, lambda: self._seen(look))

    def offset_for_time(
        self, timestamp_ms: int, budget: DecodeBudget | None = None
    ) -> TimestampAndOffset | None:
        """Return the first committed record at or after a time, if any.

        Raises DecodeBudgetSpent if the budget does not suffice to find it.
        """
        return self._committed(partial(first_at_or_after, timestamp_ms), budget)

    def max_timestamp(self, budget: DecodeBudget | None = None) -> TimestampAndOffset | None:
        """Return the first record with the largest timestamp, if it is committed.

        Raises as `offset_for_time`.
        """
        return self._committed(with_max_timestamp, budget)

    def _committed(
        self,
        look_up: Callable[[SegmentSnapshot, Bounds], TimestampAndOffset | None],
        budget: DecodeBudget | None,
    ) -> TimestampAndOffset | None:
        """Return the result of a look-up by time, if it lies below the high watermark."""

        def look(view: LogView) -> TimestampAndOffset | None:
            ensure_known(view.marks.log_start_offset, view.segments)
            limit_bytes = self._core.context.config.max_decompressed_batch_bytes
            bounds = Bounds(view.marks.log_start_offset, limit_bytes, budget)
            found = look_up(view.segments, bounds)
            high_watermark = view.marks.high_watermark
            return found if found is not None and found.offset < high_watermark else None

        return mending(self._core, lambda: self._seen(look))

    def committed(self, version_of: Callable[[Segment], str]) -> Committed:
        """Return what is committed, by segment, with the leader epochs of that moment.

        `version_of` returns a version of a sealed segment's content where that may change. Raises
        StorageOffline, Overloaded.
        """
        state = self._core.state

        def look(view: LogView) -> Committed:
            marks = view.marks
            return Committed(
                committed(view, version_of if state.keeps_order else _no_version),
                marks.log_start_offset,
                marks.high_watermark,
                marks.log_end_offset,
                state.epochs.entries,
                state.keeps_order,
                view.truncations,
            )

        return mending(self._core, lambda: self._seen(look))

    def listing(self) -> Listing:
        """Return all segments, oldest first. Raises StorageOffline, Overloaded."""
        return mending(self._core, lambda: self._seen(listed))
