"""How a log becomes durable: a commit syncs its batches, a flush all that is derived from them too.

A commit syncs without the lock and then raises the high watermark to where the log ended before the
sync. Whatever either needs of files is opened before it is synced: that a file cannot be opened is
no failed sync, and all of it can be done again. So for want of files or space they are refused, and
the directory goes on; a sync that fails takes it offline.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Final, NamedTuple

from engine.errors import Overloaded, StorageFull, StorageOffline
from engine.fs.health import DirectoryHealth
from engine.fs.port import OpenDirectory
from engine.log.context import LogContext
from engine.log.core import LogCore
from engine.log.files import SyncOrder
from engine.log.results import Recovery
from engine.log.state import LogState
from engine.segment.segment import Segment
from engine.types import OffsetMetadata

_LOG = logging.getLogger(__name__)

FLUSH_AGAIN_MS: Final = 1_000
"""How long a flush waits that was refused for want of files or space."""


class Commit(NamedTuple):
    """One commit under way, as it was noted under the log's lock."""

    health: DirectoryHealth
    """That of the data directory in which the files are."""
    state: LogState
    order: SyncOrder
    target: OffsetMetadata
    """Where the log ended; the high watermark rises to it."""
    truncations: int


class Durability:
    """What of a log has to do with syncing. Thread-safe."""

    def __init__(self, core: LogCore, recovery: Recovery) -> None:
        self._core = core
        self.recovery: Final = recovery
        """What opening the log had to repair."""
        self._flushes_asked_for = self._flushes_done = 0
        """One is due while they differ."""
        self._is_flush_scheduled = False

    @property
    def health(self) -> DirectoryHealth:
        """That of the data directory in which the log lies now."""
        return self._core.context.health

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk with its indexes, and believed after a crash."""
        return self._core.state.recovery_point

    @property
    def has_uncommitted(self) -> bool:
        """Whether a commit would show readers something new."""
        marks = self._core.state.watermarks
        return marks.high.offset < marks.end.offset

    @property
    def uncommitted_bytes(self) -> int:
        """The bytes above the high watermark, which no reader sees yet."""
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
        """Whether a roll or a removal of segments waits for the end of the flush that syncs it."""
        return self._flushes_done < self._flushes_asked_for

    @property
    def needs_flush(self) -> bool:
        """Whether a flush would put anything on the disk."""
        state = self._core.state
        is_behind = state.recovery_point < state.watermarks.log_end_offset
        return is_behind or self.has_uncommitted or self.is_flush_due

    def commit(self) -> int:
        """Make everything appended so far durable and visible; return the high watermark.

        Syncs the `.log` files, and the directory where a segment is new, without the lock. Raises
        StorageOffline if the disk fails; the high watermark then stays for good. Overloaded if too
        many files are open: the next one may succeed.
        """
        core = self._core
        with core.syncing:
            commit = self.begin_commit()
            started = perf_counter()
            # Opened first: a failed open is not a failed sync.
            opened = self._open_directory() if commit.order.has_new_names else nullcontext()
            try:
                with opened as directory, commit.health.syncing:
                    commit.order.run(directory)
            except ValueError as error:
                raise core.closed() from error  # meanwhile
        return self.end_commit(commit, duration_ms=(perf_counter() - started) * 1000)

    def begin_commit(self) -> Commit:
        """Return what a sync has to cover so that everything appended so far is committed.

        The caller syncs it without the lock, or the whole file system, and calls `end_commit`.
        Raises StorageOffline if the log is closed.
        """
        core = self._core
        with core.lock:
            core.ensure_open()
            state = core.state
            order, target = state.local.sync_order(), state.watermarks.end
            return Commit(core.context.health, state, order, target, state.truncations)

    def end_commit(self, commit: Commit, *, duration_ms: float) -> int:
        """Make what `commit` covers visible, after a sync that took so long; as `commit`.

        A truncation or a move to another directory that has come between makes nothing visible:
        they sync what they leave.
        """
        core = self._core
        core.context.recorder.flushed(core.topic_partition, duration_ms=duration_ms)
        with core.lock:
            state = core.state
            if commit.state is state and commit.truncations == state.truncations:
                state.local.synced(commit.order)
                state.raise_high_watermark(commit.target)
            return state.watermarks.high_watermark  # after a move all that was copied

    def flush(self) -> int:
        """Commit, and make indexes and snapshots durable too; return the recovery point.

        What lies below it is believed after a crash without being scanned. Raises StorageOffline;
        Overloaded and StorageFull for want of files and space, and tries again later by itself.
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
        """Return once all of it would survive a power cut; the log lock is not held.

        Overloaded and StorageFull: it was refused, and the directory goes on. StorageOffline.
        """
        core = self._core
        health, present = context.health, state.local.segments
        with core.naming:
            if state is not core.state:
                return  # the log lies elsewhere now, where all of it was flushed
            # The files of a segment that has left the log meanwhile may be gone, or elsewhere.
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
                        raise  # the log was closed, or has moved: not this segment removed
        with core.naming:
            if state is not core.state:
                return  # the log lies elsewhere now, where all of it was flushed
            core.ensure_open()  # else another log may have the directory, or it another name
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
        """Open the directory, under the name it has by now, to sync the names in it."""
        core = self._core
        with core.naming, core.context.health.appending:
            return core.context.fs.open_directory(core.state.local.directory)

    def flush_soon(self, delay_ms: int = 0) -> None:
        """Have the scheduler flush the log; a roll or a removal of segments is durable then."""
        core = self._core
        self._flushes_asked_for += 1
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            name = f"flush {core.topic_partition}"
            core.context.scheduler.once(name, delay_ms, self._flush_if_open)

    def _flush_if_open(self) -> None:
        core = self._core
        self._is_flush_scheduled = False  # first: what is asked for from now on is another one
        if core.is_closed or core.context.health.is_offline:
            return
        try:
            self.try_to_flush()
        except (StorageOffline, ValueError):
            if not core.is_closed:  # a log that is closed meanwhile needs no flush
                raise

    def try_to_flush(self) -> None:
        """Flush, unless files or space are wanting: what was done already stays done."""
        try:
            self.flush()
        except (Overloaded, StorageFull) as error:
            _LOG.warning("%s is flushed later: %s", self._core.topic_partition, error)
