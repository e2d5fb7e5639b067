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

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from engine.errors import (
    CorruptIndex,
    LogReplaced,
    OffsetError,
    SegmentNotFound,
    StoredDataCorrupt,
)
from engine.log.index_repair import mending
from engine.log.read.extent import Extent, Split
from engine.log.read.fetch import (
    ReadRequest,
    ensure_in_range,
    ensure_known,
    fetch,
)
from engine.log.read.segment_files import (
    FileCheck,
    FileKind,
    SegmentFile,
    check_log,
    committed,
    listed,
    open_file,
    read_log,
)
from engine.log.read.times import Bounds, first_at_or_after, with_max_timestamp
from engine.log.results import Committed, DamagedPlace, Fetched, Listing, LogTag
from engine.log.state import LogCore, LogState, LogView
from engine.records.budget import DecodeBudget
from engine.segment.file_records import NotCached
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.types import (
    Buffer,
    FetchIsolation,
    TimestampAndOffset,
)


def _no_version(_: Segment) -> str:
    return ""


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
