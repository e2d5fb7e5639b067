"""The half of a log that needs no lock: where it is, and what it holds.

Readers take one value of the watermarks and one snapshot of the segments. Deleted segments stay
readable for whoever took the snapshot; only truncation takes bytes from under a reader, who then
looks again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from engine.config import LogConfig
from engine.errors import CorruptIndex, StorageOffline, StoredDataCorrupt
from engine.fs.health import DirectoryHealth
from engine.log import lookup
from engine.log.context import LogContext
from engine.log.read import ReadRequest, fetch
from engine.log.results import Fetched, LogTag, SegmentInfo
from engine.log.state import LogState
from engine.segment.file_records import NotCached
from engine.segment.segment import Segment
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, TimestampAndOffset, TopicPartition

_Found = TypeVar("_Found")


class LogReader(ABC):
    """One partition, seen by readers. Thread-safe, and nothing here waits for a writer."""

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
        self._is_closed = False

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
    def unflushed_messages(self) -> int:
        """Offsets from the recovery point to the log end."""
        return self._state.watermarks.log_end_offset - self._state.recovery_point

    @property
    def has_uncommitted(self) -> bool:
        """Whether a commit would show readers something new."""
        marks = self._state.watermarks
        return marks.high.offset < marks.end.offset

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
        OffsetBelowLogStart, OffsetBeyondLogEnd, StoredDataCorrupt. Takes no lock.
        """
        request = ReadRequest(
            offset, max_bytes, isolation, end_offset, minimum_one_batch, cached_only
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

    def _fetch(self, request: ReadRequest) -> Fetched:
        state = self._state
        while True:
            # Segments after watermarks: what the watermarks promise is then surely in the snapshot.
            truncations = state.truncations
            marks = state.watermarks
            try:
                with self._context.health.reading():
                    return fetch(request, state.local.segments.snapshot, marks, state.leader_epoch)
            except (CorruptIndex, StoredDataCorrupt) as error:
                if truncations != state.truncations:
                    continue  # the bytes went while they were read
                if isinstance(error, StoredDataCorrupt):
                    self._context.recorder.corrupt_data_found(self.topic_partition)
                raise
            except ValueError as error:
                if not self._is_closed:
                    raise
                raise StorageOffline(  # the files were closed under the reader
                    f"{self.topic_partition} is closed", log=str(self.topic_partition)
                ) from error

    @abstractmethod
    def _mend(self, error: CorruptIndex) -> None:
        """Make the index anew that a look-up found wrong, or raise `error` if nobody here can."""

    def offset_for_time(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Return the first committed record of at least that time, if there is one."""
        marks = self._state.watermarks
        found = self._mending(
            lambda: lookup.first_at_or_after(
                timestamp_ms,
                self._state.local.segments.snapshot,
                log_start_offset=marks.log_start_offset,
                limit_bytes=self._context.config.max_decompressed_batch_bytes,
            )
        )
        return found if found is not None and found.offset < marks.high_watermark else None

    def max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the largest time, if it is committed."""
        marks = self._state.watermarks
        found = self._mending(
            lambda: lookup.with_max_timestamp(
                self._state.local.segments.snapshot,
                limit_bytes=self._context.config.max_decompressed_batch_bytes,
            )
        )
        return found if found is not None and found.offset < marks.high_watermark else None

    def _mending(self, look_up: Callable[[], _Found]) -> _Found:
        try:
            return look_up()
        except CorruptIndex as error:
            self._mend(error)
            return look_up()

    def segments_info(self) -> list[SegmentInfo]:
        """Return all segments, oldest first."""
        return self._state.describe_segments()
