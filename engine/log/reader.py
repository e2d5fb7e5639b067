"""The half of a log that needs no lock: where it is, and what it holds.

Readers take one view: watermarks and a snapshot of the segments that belong together. Deleted
segments stay readable for a reader that took the snapshot. Only a truncation takes bytes away from
under a reader, which then looks again once the truncation is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from engine.config import LogConfig
from engine.errors import (
    CorruptIndex,
    LogReplaced,
    SegmentNotFound,
    StorageOffline,
    StoredDataCorrupt,
)
from engine.fs.health import DirectoryHealth
from engine.guard import GuardedLock, WouldWait
from engine.log import lookup
from engine.log.context import LogContext
from engine.log.files import (
    FileCheck,
    FileKind,
    SegmentFile,
    check_log,
    listed,
    open_file,
    read_log,
)
from engine.log.read import ReadRequest, ensure_in_range, fetch
from engine.log.results import Fetched, LogTag, SegmentInfo
from engine.log.splits import Extent, Split
from engine.log.state import LogState
from engine.log.view import LogView
from engine.segment.file_records import NotCached
from engine.segment.segment import Segment
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, TimestampAndOffset, TopicPartition

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


class LogReader(ABC):
    """One partition, seen by readers. Thread-safe; nothing here waits for an append or a sync."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        state: LogState,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._context = context
        self._state = state
        self._lock = GuardedLock()
        self._is_closed = False
        self._is_flush_due = False
        self._is_removing = False

    # -- where the log is --------------------------------------------------------------------

    @property
    def watermarks(self) -> Watermarks:
        """All four offsets, from one moment."""
        return self._state.watermarks

    @property
    def tag(self) -> LogTag:
        """What tells this state of the log's end from every other."""
        return self._state.tag

    @property
    def leader_epoch(self) -> int:
        """The epoch stamped into what is appended."""
        return self._state.leader_epoch

    @property
    def log_id(self) -> str:
        """Changes whenever an offset might come to mean another record."""
        return f"{self.topic_id}.{self._state.leader_epoch}"

    @property
    def config(self) -> LogConfig:
        """What the log works with now; see `update_config`."""
        return self._state.local.config

    @property
    def directory(self) -> Path:
        """Where the log lies now."""
        return self._state.local.directory

    @property
    def health(self) -> DirectoryHealth:
        """That of the data directory in which the log lies now."""
        return self._context.health

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk with its indexes, and believed after a crash."""
        return self._state.recovery_point

    @property
    def has_uncommitted(self) -> bool:
        """Whether a commit would show readers something new."""
        marks = self._state.watermarks
        return marks.high.offset < marks.end.offset

    @property
    def uncommitted_bytes(self) -> int:
        """The bytes above the high watermark, which no reader sees yet."""
        high = self._state.watermarks.high
        base = high.segment_base_offset
        return sum(
            segment.size_bytes - (high.position if segment.base_offset == base else 0)
            for segment in self.segments
            if segment.base_offset >= base
        )

    @property
    def is_flush_due(self) -> bool:
        """Whether a roll or a removal of segments waits for the flush that makes it durable."""
        return self._is_flush_due

    @property
    def is_removing(self) -> bool:
        """Whether the first segment has left the log and its old name may still be on the disk."""
        return self._is_removing

    @property
    def needs_flush(self) -> bool:
        """Whether a flush would put anything on the disk."""
        is_behind = self._state.recovery_point < self._state.watermarks.log_end_offset
        return is_behind or self.has_uncommitted or self._is_flush_due

    def _ensure_at_hand(self) -> None:
        """Raise WouldWait if an append has to open, make or look at a file first."""
        state, latest = self._state, self._state.epochs.latest
        is_noted = latest is not None and latest.epoch == state.leader_epoch
        if not is_noted or not state.local.segments.active.is_at_hand:
            raise WouldWait

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files."""
        return self._state.local.segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments of one moment, the active one last; those removed later stay readable."""
        return self._state.local.segments.snapshot.segments

    @property
    def segments_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._state.local.segments)

    @property
    def first_segment_base_offset(self) -> int:
        """The log start may lie above it, within the first segment."""
        return self._state.local.segments.first_base_offset

    @property
    def producers_count(self) -> int:
        """How many producers the state remembers."""
        return len(self._state.producers)

    @property
    def highest_producer_id(self) -> int:
        """The greatest id that ever wrote here, as far as the state remembers; -1 if none."""
        return self._state.producers.highest_producer_id

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
        check_bytes = self._context.config.max_index_check_bytes
        request = ReadRequest(
            offset, max_bytes, isolation, end_offset, minimum_one_batch, cached_only, check_bytes
        )
        try:
            fetched = self._fetch(request)
        except NotCached:
            return None
        except CorruptIndex as error:
            if cached_only:
                return None
            self._mend(error)
            fetched = self._fetch(request)
        if fetched.data:
            self._context.recorder.read(self.topic_partition, size_bytes=len(fetched.data))
        return fetched

    def look_at(self, offset: int) -> Fetched:
        """Return the batch that a reader of all there is would begin with; it counts as no read.

        Raises what `read` raises.
        """
        request = ReadRequest(offset, 1, FetchIsolation.LOG_END)
        return self._mending(lambda: self._fetch(request))

    def _fetch(self, request: ReadRequest) -> Fetched:
        return self._seen(partial(fetch, request), cached_only=request.cached_only)

    def _seen(self, look: Callable[[LogView], _Found], *, cached_only: bool = False) -> _Found:
        """Return what a look at one moment of the log finds, never at one between two.

        If the log is cut, or goes on in another directory, while it is looked at, the look is
        repeated. It waits for a cut that is under way; NotCached if it is `cached_only`.
        """
        while True:
            state = self._state
            view = state.view()
            if view is None:
                if cached_only:
                    raise NotCached
                with self._lock:  # until the cut is done
                    continue
            try:
                with self._context.health.reading():
                    found = self._look_once(look, state, view)
            except _LookAgain:
                continue
            except (CorruptIndex, StoredDataCorrupt, StopIteration) as error:
                self._count_damage(error)
                raise
            except ValueError as error:
                if not self._is_closed:
                    raise
                raise self._closed() from error
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
                state is not self._state
                or view.truncations != state.truncations
                or view.segments is not state.local.segments.snapshot
            ):
                raise _LookAgain from error
            raise

    def _closed(self) -> StorageOffline:
        name = str(self.topic_partition)
        return StorageOffline(f"{name} is closed", log=name)

    def _count_damage(self, error: Exception) -> None:
        if isinstance(error, StoredDataCorrupt):
            self._context.recorder.corrupt_data_found(self.topic_partition)

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
        self._context.recorder.read(self.topic_partition, size_bytes=len(data))
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
            with self._context.health.reading():
                found = look()
        except ValueError as error:
            if self._is_closed:
                raise self._closed() from error
            raise SegmentNotFound(
                f"{file.segment.records.path} was removed, replaced or moved while it was read",
                base_offset=file.segment.base_offset,
            ) from error
        if file.truncations != self._state.truncations:
            raise LogReplaced(
                "the log was cut while a file of it was read", log=str(self.topic_partition)
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

    @abstractmethod
    def _mend(self, error: CorruptIndex) -> None:
        """Make the index anew that a look-up found wrong, or raise `error` if nobody here can."""

    def offset_for_time(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Return the first committed record of at least that time, if there is one."""
        return self._committed(partial(lookup.first_at_or_after, timestamp_ms))

    def max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the largest time, if it is committed."""
        return self._committed(lookup.with_max_timestamp)

    def _committed(
        self, look_up: Callable[..., TimestampAndOffset | None]
    ) -> TimestampAndOffset | None:
        """Return what a look-up by time finds, unless it lies at or above the high watermark."""

        def look(view: LogView) -> TimestampAndOffset | None:
            found = look_up(
                view.segments,
                log_start_offset=view.marks.log_start_offset,
                limit_bytes=self._context.config.max_decompressed_batch_bytes,
            )
            high_watermark = view.marks.high_watermark
            return found if found is not None and found.offset < high_watermark else None

        return self._mending(lambda: self._seen(look))

    def _mending(self, look_up: Callable[[], _Found]) -> _Found:
        try:
            return look_up()
        except CorruptIndex as error:
            self._mend(error)
            return look_up()

    def segments_info(self) -> list[SegmentInfo]:
        """Return all segments, oldest first. Raises StorageOffline, Overloaded."""
        return self._mending(lambda: self._seen(listed))
