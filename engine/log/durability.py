"""Makes a log durable: a commit syncs its batches, a flush also its indexes and snapshots.

A commit syncs without the log lock, then raises the high watermark to the log end from before the
sync. Both open all files before they sync the first, because a failed open is not a failed sync: it
changes nothing, and the operation can be repeated. So if open files or space are lacking, a commit
or flush is refused and the directory stays online; a failed sync takes it offline.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Final, NamedTuple

from engine.errors import Overloaded, StorageFull, StorageOffline, WouldBlock
from engine.fs.health import DirectoryHealth
from engine.fs.port import OpenDirectory
from engine.log.files import LogContext, SyncOrder
from engine.log.results import Recovery
from engine.log.state import Impatient, LogCore, LogState
from engine.segment.segment import Segment
from engine.types import OffsetMetadata

_LOG = logging.getLogger(__name__)

FLUSH_AGAIN_MS: Final = 1_000
"""The delay before a flush is repeated that was refused for lack of files or space."""


SMALL_COMMIT_BYTES: Final = 256 * 1024
"""More may take a disk much longer than the few bytes of the commits before."""


class Commit(NamedTuple):
    """A running commit: the log's state when it began."""

    health: DirectoryHealth
    """The health of the data directory of the files."""
    state: LogState
    order: SyncOrder
    target: OffsetMetadata
    """The log end when the commit began, to which the high watermark rises."""
    truncations: int


class Durability:
    """The part of a log that syncs. Thread-safe."""

    def __init__(self, core: LogCore, recovery: Recovery) -> None:
        self._core = core
        self._lock_nonblocking = Impatient(core.lock)
        self._syncing_nonblocking = Impatient(core.syncing, seconds=0)
        self.recovery: Final = recovery
        """What recovery found and repaired when the log was opened."""
        self._flushes_asked_for = self._flushes_done = 0
        """A flush is due while they differ."""
        self._is_flush_scheduled = False

    @property
    def health(self) -> DirectoryHealth:
        """The health of the log's present data directory."""
        return self._core.context.health

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk with its indexes, and is not scanned after a crash."""
        return self._core.state.recovery_point

    @property
    def has_uncommitted(self) -> bool:
        """Whether a commit would raise the high watermark."""
        marks = self._core.state.watermarks
        return marks.high.offset < marks.end.offset

    @property
    def is_commit_small(self) -> bool:
        """Whether a commit syncs at most `SMALL_COMMIT_BYTES` of one file, and no directory."""
        state = self._core.state
        high, end = state.watermarks.high, state.watermarks.end
        return (
            high.segment_base_offset == end.segment_base_offset
            and end.position - high.position <= SMALL_COMMIT_BYTES
            and not state.local.has_new_names
        )

    @property
    def uncommitted_bytes(self) -> int:
        """The bytes above the high watermark, which readers do not see yet."""
        state = self._core.state
        high = state.watermarks.high
        base = high.segment_base_offset
        return sum(
            segment.size_bytes - (high.position if segment.base_offset == base else 0)
            for segment in state.local.segments.snapshot.segments
            if segment.base_offset >= base
        )

    @property
    def is_flush_due(self) -> bool:
        """Whether a scheduled flush has yet to sync a roll or a removal of segments."""
        return self._flushes_done < self._flushes_asked_for

    @property
    def needs_flush(self) -> bool:
        """Whether a flush has anything to sync."""
        state = self._core.state
        is_behind = state.recovery_point < state.watermarks.log_end_offset
        return is_behind or self.has_uncommitted or self.is_flush_due

    def commit(self, *, nonblocking: bool = False) -> int:
        """Sync everything appended so far and make it visible; return the high watermark.

        Syncs the `.log` files, and the directory if a segment is new, without the log lock. Raises
        StorageOffline if the disk fails; the high watermark then stays until a restart. Raises
        Overloaded if too many files are open, and with `nonblocking` WouldBlock if there is more to
        sync than `is_commit_small` says or a lock is held; a later commit may succeed.
        """
        core = self._core
        with self._syncing_nonblocking if nonblocking else core.syncing:
            commit = self.begin_commit(nonblocking=nonblocking)
            if nonblocking and not self.is_commit_small:
                raise WouldBlock
            started = perf_counter()
            # Opened first: a failed open is not a failed sync.
            opened = self._open_directory() if commit.order.has_new_names else nullcontext()
            try:
                with opened as directory, commit.health.syncing:
                    commit.order.run(directory)
            except ValueError as error:
                raise core.closed() from error  # closed meanwhile
        duration_ms = (perf_counter() - started) * 1000
        return self.end_commit(commit, duration_ms=duration_ms, nonblocking=nonblocking)

    def begin_commit(self, *, nonblocking: bool = False) -> Commit:
        """Return what to sync so that everything appended so far is committed.

        The caller syncs it, or the whole file system, without the lock, and calls `end_commit`.
        Raises StorageOffline if the log is closed, and WouldBlock as `commit`.
        """
        core = self._core
        with self._lock_nonblocking if nonblocking else core.lock:
            if core.is_closed:
                raise core.closed()
            state = core.state
            order, target = state.local.sync_order(), state.watermarks.end
            return Commit(core.context.health, state, order, target, state.truncations)

    def end_commit(
        self, commit: Commit, *, duration_ms: float | None, nonblocking: bool = False
    ) -> int:
        """Make what `commit` covers visible, after its sync; return the high watermark.

        `duration_ms` of a sync is reported once: it is None for the other logs that it covers.
        After a truncation or a move in between it makes nothing visible, because those sync what
        they leave. If it raises WouldBlock, nothing is visible either, until a later commit.
        """
        core = self._core
        if duration_ms is not None:
            core.context.recorder.flushed(core.topic_partition, duration_ms=duration_ms)
        with self._lock_nonblocking if nonblocking else core.lock:
            state = core.state
            if commit.state is state and commit.truncations == state.truncations:
                state.local.synced(commit.order)
                state.raise_high_watermark(commit.target)
            return state.watermarks.high_watermark  # after a move: of the copy

    def flush(self) -> int:
        """Commit, and make indexes and snapshots durable too; return the recovery point.

        Recovery does not scan what is below it. Raises StorageOffline; for lack of files or space
        raises Overloaded or StorageFull, and schedules another flush.
        """
        try:
            return self._flush()
        except (Overloaded, StorageFull):
            self.flush_soon(FLUSH_AGAIN_MS)
            raise

    def _flush(self) -> int:
        core = self._core
        with core.lock:
            context, state = core.context, core.state
            core.ensure_open()
            asked_for = self._flushes_asked_for
            target = state.watermarks.log_end_offset
            truncations = state.truncations
            segments = state.local.segments.overlapping(state.recovery_point, target + 1)
            snapshots = [name for name in state.producers.snapshots if name >= state.recovery_point]
        self.commit()
        try:
            self._flush_beside(context, state, segments, snapshots)
        except ValueError:  # files were closed
            core.ensure_open()
            assert state is not core.state, "only a move closes the files of an open log"
        with core.lock:
            self._flushes_done = max(asked_for, self._flushes_done)
            if state is core.state and truncations == state.truncations:
                state.recovery_point = max(target, state.recovery_point)
                state.local.rest_sealed(segments)
            return core.state.recovery_point

    def _flush_beside(
        self,
        context: LogContext,
        state: LogState,
        segments: Sequence[Segment],
        snapshots: Sequence[int],
    ) -> None:
        """Sync everything that the flush covers, without the log lock.

        Raises Overloaded and StorageFull, after which the directory stays online, or
        StorageOffline.
        """
        core = self._core
        health, present = context.health, state.local.segments
        with core.naming:
            if state is not core.state:
                return  # the log has moved, and the move has flushed it
            # A segment that was removed meanwhile may have lost or moved its files.
            segments = [one for one in segments if present.get(one.base_offset) is one]
            with health.appending:
                for segment in segments:
                    segment.indexes.open()
        with health.writing:
            for segment in segments:
                try:
                    segment.indexes.sync()
                except ValueError:
                    if present.get(segment.base_offset) is segment:
                        raise  # the log was closed or moved; the segment was not removed
        with core.naming:
            if state is not core.state:
                return  # the log has moved, and the move has flushed it
            core.ensure_open()  # otherwise the directory may be renamed, or belong to another log
            for offset in snapshots:
                with health.appending:
                    snapshot = state.producers.open_snapshot(offset)
                if snapshot is not None:
                    with snapshot, health.syncing:
                        snapshot.sync_all()
            with core.lock:
                producers = state.producers.recent()
            with health.appending:
                state.producers.write_windows(producers)
                state.epochs.flush()
                directory = context.fs.open_directory(state.local.directory)
        with directory, health.syncing:
            directory.sync_all()

    def _open_directory(self) -> OpenDirectory:
        """Open the directory under its present name, to sync the names in it."""
        core = self._core
        with core.naming, core.context.health.appending:
            return core.context.fs.open_directory(core.state.local.directory)

    def flush_soon(self, delay_ms: int = 0) -> None:
        """Schedule a flush, which makes a roll or a removal of segments durable."""
        core = self._core
        self._flushes_asked_for += 1
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            name = f"flush {core.topic_partition}"
            core.context.scheduler.once(name, delay_ms, self._flush_if_open)

    def _flush_if_open(self) -> None:
        core = self._core
        self._is_flush_scheduled = False  # first: later requests schedule another flush
        if core.is_closed or core.context.health.is_offline:
            return
        try:
            self.try_to_flush()
        except (StorageOffline, ValueError):
            if not core.is_closed:  # a log that was closed meanwhile needs no flush
                raise

    def try_to_flush(self) -> None:
        """Flush; log and ignore a lack of files or space, because a flush is scheduled again."""
        try:
            self.flush()
        except (Overloaded, StorageFull) as error:
            _LOG.warning("the flush of %s is postponed: %s", self._core.topic_partition, error)
