"""Background work on a log: retention, compaction, reconfiguration, moves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.config import LogConfig
from engine.fs.port import OpenDirectory
from engine.log.core import LogCore
from engine.log.durability import Durability
from engine.log.maintenance import retention
from engine.log.maintenance.compaction import Compaction
from engine.log.read.fetch import ReadRequest
from engine.log.read.reader import LogReader
from engine.log.results import CopySource, RemovedSegment
from engine.segment.segment import Segment
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, LogStartReason

_LOG = logging.getLogger(__name__)


class Maintenance:
    """Removes and replaces segments, and moves or renames the directory. Thread-safe."""

    def __init__(self, core: LogCore, reader: LogReader, durability: Durability) -> None:
        self._core = core
        self._reader = reader
        self._durability = durability
        self._is_removing = False
        self._held_base_offset: int | None = None
        """The segment that was reported to wait for its time."""

    @property
    def is_removing(self) -> bool:
        """Whether a removed first segment may still have its old name on disk."""
        return self._is_removing

    def held_by_time(self) -> tuple[int, int] | None:
        """Return base offset and largest time of the segment that a time in the future keeps."""
        core = self._core
        now_ms = core.context.clock.now_ms()
        with core.lock:
            core.ensure_open()
            state = core.state
            config, marks = state.local.config, state.watermarks
            segments = state.local.segments.snapshot.segments
            with core.context.health.reading:
                due = retention.removable(segments, config, marks, now_ms)
                held = retention.held_by_time(segments[len(due) :], config, marks, now_ms)
                return None if held is None else (held.base_offset, held.largest_timestamp)

    def _report_held(
        self, left: Sequence[Segment], config: LogConfig, marks: Watermarks, now_ms: int
    ) -> None:
        held = retention.held_by_time(left, config, marks, now_ms)
        if held is not None and held.base_offset != self._held_base_offset:
            _LOG.warning(
                "%s: retention by time waits for segment %d: a record's time, %d, is in the future",
                self._core.topic_partition,
                held.base_offset,
                held.largest_timestamp,
            )
        self._held_base_offset = None if held is None else held.base_offset

    def run_retention(self, *, dry_run: bool = False) -> list[RemovedSegment]:
        """Remove, or with `dry_run` only list, the segments that retention no longer keeps.

        First the oldest one is durably renamed; its name says how far the removal reaches. So a
        start after a power cut can finish it, whatever names the others have then.
        """
        core = self._core
        now_ms = core.context.clock.now_ms()
        with core.reshaping:
            with core.lock:
                context, state = core.context, core.state
                core.ensure_open()
                marks, segments = state.watermarks, state.local.segments.snapshot.segments
                with context.health.reading:
                    removed = retention.removable(segments, state.local.config, marks, now_ms)
                    self._report_held(segments[len(removed) :], state.local.config, marks, now_ms)
                if dry_run or not removed:
                    return removed
                with context.health.appending:  # first: without it nothing may be removed
                    directory = context.fs.open_directory(state.local.directory)
                if len(removed) == len(segments):
                    state.roll(marks.log_end_offset)
                end_offset = removed[-1].next_offset
                state.raise_log_start(end_offset, LogStartReason.SEGMENT_DELETION)
            with directory:
                self._sync_names(directory)  # or a power cut could leave no segment
                with core.lock:
                    core.ensure_open()
                    self._is_removing = True  # first: checkpoints must keep the log start
                    first = state.begin_removal(end_offset)
                self._sync_names(directory)
                self._is_removing = False
                for _ in removed[1:]:
                    with core.lock:
                        core.ensure_open()
                        state.remove_oldest()
                if len(removed) > 1:
                    self._sync_names(directory)
                with core.lock, context.health.writing:
                    core.ensure_open()
                    state.local.retire(first)
        self._durability.flush_soon()
        count, size_bytes = len(removed), sum(segment.size_bytes for segment in removed)
        context.recorder.segments_deleted(core.topic_partition, count=count, size_bytes=size_bytes)
        return removed

    def _sync_names(self, directory: OpenDirectory) -> None:
        with self._core.context.health.writing:
            directory.sync_all()

    def compaction(self) -> Compaction:
        """Begin a round of cleaning; see `engine.log.maintenance.compaction`."""
        core = self._core
        with core.lock:
            context, state = core.context, core.state
            core.ensure_open()
        return Compaction(
            context, state, lock=core.lock, naming=core.naming, reshaping=core.reshaping
        )

    def keep_order(self) -> None:
        """From now on sync each segment before the next one is created; required for compaction."""
        with self._core.lock:
            self._core.state.keeps_order = True
        self._durability.commit()

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        with self._core.lock:
            self._core.state.local.config = config

    def rename_directory(self, directory: Path) -> None:
        """Rename the log's directory; it is durable once the parent directory is synced."""
        core = self._core
        with core.reshaping, core.naming, core.lock, core.context.health.writing:
            core.state.rename_directory(directory)

    def relocate(
        self,
        retired: Path,
        complete: Callable[[CopySource], Maintenance],
        give_name: Callable[[Maintenance], None],
    ) -> Callable[[], None]:
        """Continue in another data directory; callers of the log only notice a pause.

        The log cannot change while `complete` completes the copy and opens it. Then its directory
        is renamed to `retired`; `give_name` makes that durable and gives the copy its final name.
        Returns a function that closes the old files, which readers may still use. If `give_name`
        fails, the next start uses the copy; until then this log refuses writes. Raises
        StorageError.
        """
        core = self._core
        with core.reshaping, core.syncing, core.naming, core.lock:
            core.ensure_open()
            old, context = core.state, core.context
            # Not `reader.read`: it may rebuild an index, which needs locks that are held already.
            still = old.stand_still(
                lambda offset, max_bytes: self._reader.fetch(
                    ReadRequest(offset, max_bytes, FetchIsolation.LOG_END)
                )
            )
            there = complete(still)
            with context.health.writing:
                old.rename_directory(retired)
            try:
                give_name(there)
            except BaseException:
                core.is_closed = True
                raise
            copy = there._core  # noqa: SLF001 - of the copy's Log, which is not used again
            core.context, core.state = copy.context, copy.state
            core.state.go_on_from(old)
        return old.local.close_handles

    def refuse_appends(self) -> None:
        """Raise TopicNotFound for every later append: the topic was deleted."""
        with self._core.lock:
            self._core.is_deleted = True

    def close_handles(self) -> None:
        """Close the files without writing anything; the log cannot be used afterwards."""
        core = self._core
        with core.naming, core.lock:
            core.is_closed = True
            core.state.local.close_handles()

    def check_invariants(self) -> None:
        """Fail unless segments, watermarks and producer state agree."""
        with self._core.lock:
            self._core.state.check_invariants()
