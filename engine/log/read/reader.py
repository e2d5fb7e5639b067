"""What readers ask of a log, without its lock: where it is, and what it holds.

Readers take one view: watermarks and a snapshot of the segments that belong together. Deleted
segments stay readable for a reader that took the snapshot. Only a truncation takes bytes away from
under a reader, which then looks again once the truncation is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from engine.errors import CorruptIndex, LogReplaced, SegmentNotFound, StoredDataCorrupt
from engine.log.core import LogCore
from engine.log.index_repair import rebuild_index
from engine.log.read import lookup
from engine.log.read.fetch import ReadRequest, ensure_in_range, fetch
from engine.log.read.segment_files import (
    FileCheck,
    FileKind,
    SegmentFile,
    check_log,
    listed,
    open_file,
    read_log,
)
from engine.log.read.splits import Extent, Split
from engine.log.results import Fetched, LogTag, SegmentInfo
from engine.log.state import LogState
from engine.log.view import LogView
from engine.records.budget import DecodeBudget
from engine.segment.file_records import NotCached
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot
from engine.types import Buffer, FetchIsolation, TimestampAndOffset

_Found = TypeVar("_Found")


_OF_A_CHANGE: Final = (
    CorruptIndex,
    FileNotFoundError,
    StopIteration,
    StoredDataCorrupt,
    ValueError,
)
"""What a look may meet where a log was cut, compacted or moved meanwhile."""


class _LookAgain(Exception):
    """The log has changed under a look into it."""


class LogReader:
    """One partition, seen by readers. Thread-safe; nothing here waits for an append or a sync."""

    def __init__(self, core: LogCore) -> None:
        self._core = core

    # -- where the log is --------------------------------------------------------------------

    @property
    def tag(self) -> LogTag:
        """What tells this state of the log's end from every other."""
        return self._core.state.tag

    @property
    def leader_epoch(self) -> int:
        """The epoch stamped into what is appended."""
        return self._core.state.leader_epoch

    @property
    def log_id(self) -> str:
        """Changes whenever an offset might come to mean another record."""
        return f"{self._core.topic_id}.{self._core.state.leader_epoch}"

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files."""
        return self._core.state.local.segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments of one moment, the active one last; those removed later stay readable."""
        return self._core.state.local.segments.snapshot.segments

    @property
    def segments_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._core.state.local.segments)

    @property
    def first_segment_base_offset(self) -> int:
        """The log start may lie above it, within the first segment."""
        return self._core.state.local.segments.first_base_offset

    # -- what it holds -----------------------------------------------------------------------

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
        """Return whole batches from the one that holds `offset` on, below the reader's bound.

        None if `cached_only` and the disk would be needed, or an index mended. Raises
        OffsetBelowLogStart, OffsetBeyondLogEnd, StoredDataCorrupt, Overloaded if many indexes of
        aborted transactions have to be checked first. Takes no lock.
        """
        core = self._core
        check_bytes = core.context.config.max_index_check_bytes
        request = ReadRequest(
            offset, max_bytes, isolation, end_offset, minimum_one_batch, cached_only, check_bytes
        )
        try:
            fetched = self.fetch(request)
        except NotCached:
            return None
        except CorruptIndex as error:
            if cached_only:
                return None
            rebuild_index(core, error)
            fetched = self.fetch(request)
        if fetched.data:
            core.context.recorder.read(core.topic_partition, size_bytes=len(fetched.data))
        return fetched

    def look_at(self, offset: int) -> Fetched:
        """Return the batch that a reader of all there is would begin with; it counts as no read.

        Raises what `read` raises.
        """
        request = ReadRequest(offset, 1, FetchIsolation.LOG_END)
        return self._mending(lambda: self.fetch(request))

    def fetch(self, request: ReadRequest) -> Fetched:
        """As `read`, but raise CorruptIndex and NotCached, and count nothing."""
        return self._seen(partial(fetch, request), cached_only=request.cached_only)

    def _seen(self, look: Callable[[LogView], _Found], *, cached_only: bool = False) -> _Found:
        """Return what a look at one moment of the log finds, never at one between two.

        If the log is cut, or goes on in another directory, while it is looked at, the look is
        repeated. It waits for a cut that is under way; NotCached if it is `cached_only`.
        """
        core = self._core
        while True:
            state = core.state
            view = state.view()
            if view is None:
                if cached_only:
                    raise NotCached
                with core.lock:  # until the cut is done
                    continue
            try:
                with core.context.health.reading:
                    found = self._look_once(look, state, view)
            except _LookAgain:
                continue
            except (CorruptIndex, StoredDataCorrupt, StopIteration) as error:
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
        """Return what a look finds; _LookAgain if it failed because the log has changed.

        Bytes, batches or files that the view promised are then gone, or lie elsewhere.
        """
        try:
            return look(view)
        except _OF_A_CHANGE as error:
            if (
                state is not self._core.state
                or view.truncations != state.truncations
                or view.segments is not state.local.segments.snapshot
            ):
                raise _LookAgain from error
            raise

    def _count_damage(self, error: Exception) -> None:
        if isinstance(error, StoredDataCorrupt):
            self._core.context.recorder.corrupt_data_found(self._core.topic_partition)

    def open_file(self, base_offset: int, kind: FileKind) -> SegmentFile:
        """Open a file of the segment that begins at `base_offset`, as far as it is committed.

        Raises SegmentNotFound. Takes no lock; an index is read as a whole.
        """
        return self._mending(lambda: self._seen(partial(open_file, base_offset, kind)))

    def read_file(self, file: SegmentFile, position: int, max_bytes: int) -> Buffer:
        """Return at least one byte of an open file from `position` on, and about `max_bytes`.

        Never a byte that came into the file after it was opened: raises LogReplaced once the log is
        cut. SegmentNotFound if the file is gone and was not open. Raises StoredDataCorrupt rather
        than return bytes of a damaged batch, StorageOffline.
        """
        if file.content is not None:
            return file.content[position : position + max_bytes]
        data = self._mending(lambda: self._read_file(file, position, max_bytes))
        self._core.context.recorder.read(self._core.topic_partition, size_bytes=len(data))
        return data

    def check_file(self, file: SegmentFile, position: int, max_bytes: int) -> FileCheck:
        """Verify the batches of an open log file from `position` on, about `max_bytes` of them.

        Raises LogReplaced once the log is cut, SegmentNotFound if the file is gone and was not
        open, and StorageOffline.
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
        """Return what was seen of an open file, unless the log was closed or cut meanwhile."""
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
                "the log was cut while a file of it was read", log=str(self._core.topic_partition)
            )
        return found

    def extent_bytes(
        self,
        start_offset: int,
        end_offset: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> int:
        """Return the bytes of the batches that hold offsets from the start to below the end.

        Raises OffsetBelowLogStart, and OffsetBeyondLogEnd if the end is above what such a reader
        may see. Looks into indexes and at most an index interval of the log.
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
        """Return the range in parts of about equal bytes; see `Extent.cut`, and `extent_bytes`.

        Of more than `at_most` parts only the first so many.
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
            ensure_in_range(end, view.marks, bound.offset)
            return use(Extent(start, end, bound, view.segments))

        return self._mending(lambda: self._seen(look))

    def offset_for_time(
        self, timestamp_ms: int, budget: DecodeBudget | None = None
    ) -> TimestampAndOffset | None:
        """Return the first committed record of at least that time, if there is one.

        Raises DecodeBudgetSpent if the budget does not suffice to find it.
        """
        return self._committed(partial(lookup.first_at_or_after, timestamp_ms), budget)

    def max_timestamp(self, budget: DecodeBudget | None = None) -> TimestampAndOffset | None:
        """Return the first record with the largest time, if it is committed.

        Raises as `offset_for_time`.
        """
        return self._committed(lookup.with_max_timestamp, budget)

    def _committed(
        self,
        look_up: Callable[[SegmentSnapshot, lookup.Bounds], TimestampAndOffset | None],
        budget: DecodeBudget | None,
    ) -> TimestampAndOffset | None:
        """Return what a look-up by time finds, unless it lies at or above the high watermark."""

        def look(view: LogView) -> TimestampAndOffset | None:
            limit_bytes = self._core.context.config.max_decompressed_batch_bytes
            bounds = lookup.Bounds(view.marks.log_start_offset, limit_bytes, budget)
            found = look_up(view.segments, bounds)
            high_watermark = view.marks.high_watermark
            return found if found is not None and found.offset < high_watermark else None

        return self._mending(lambda: self._seen(look))

    def _mending(self, look_up: Callable[[], _Found]) -> _Found:
        try:
            return look_up()
        except CorruptIndex as error:
            rebuild_index(self._core, error)
            return look_up()

    def segments_info(self) -> list[SegmentInfo]:
        """Return all segments, oldest first. Raises StorageOffline, Overloaded."""
        return self._mending(lambda: self._seen(listed))
