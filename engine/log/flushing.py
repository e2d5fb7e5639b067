"""How a log becomes durable: a commit syncs its batches, a flush all that is derived from them too.

A commit syncs without the lock and then raises the high watermark to where the log ended before the
sync. Whatever either needs of files is opened before it is synced: that a file cannot be opened is
no failed sync, and all of it can be done again. So for want of files or space they are refused, and
the directory goes on; a sync that fails takes it offline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Final

from engine.errors import Overloaded, StorageFull, StorageOffline
from engine.fs.port import OpenDirectory
from engine.log.context import LogContext
from engine.log.reader import LogReader
from engine.log.state import LogState
from engine.segment.segment import Segment
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

FLUSH_AGAIN_MS: Final = 1_000
"""How long a flush waits that was refused for want of files or space."""


class DurableLog(LogReader):
    """What of a log has to do with syncing. Thread-safe."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: str,
        state: LogState,
    ) -> None:
        super().__init__(context, topic_partition, topic_id, state)
        self._syncing = threading.Lock()  # while held, nobody else syncs what was appended
        self._naming = threading.Lock()  # while held, the directory keeps its name; taken next
        self._is_flush_scheduled = False

    def commit(self) -> int:
        """Make everything appended so far durable and visible; return the high watermark.

        Syncs the `.log` files, and the directory where a segment is new, without the lock. Raises
        StorageOffline if the disk fails; the high watermark then stays for good. Overloaded if too
        many files are open: the next one may succeed.
        """
        with self._syncing:
            with self._lock:
                context, state = self._context, self._state
                self._ensure_open()
                order = state.local.sync_order()
                target, truncations = state.watermarks.end, state.truncations
            started = perf_counter()
            # Opened first: a failed open is not a failed sync.
            opened = self._open_directory() if order.has_new_names else nullcontext()
            try:
                with opened as directory, context.health.syncing():
                    order.run(directory)
            except ValueError as error:
                raise self._closed() from error  # meanwhile
        duration_ms = (perf_counter() - started) * 1000
        context.recorder.flushed(self.topic_partition, duration_ms=duration_ms)
        with self._lock:
            if state is self._state and truncations == state.truncations:
                state.local.synced(order)
                state.raise_high_watermark(target)
            return self._state.watermarks.high_watermark  # after a move all that was copied

    def flush(self) -> int:
        """Commit, and make indexes and snapshots durable too; return the recovery point.

        What lies below it is believed after a crash without being scanned. Raises StorageOffline;
        Overloaded and StorageFull for want of files and space, and tries again later by itself.
        """
        try:
            return self._flush()
        except (Overloaded, StorageFull):
            self._flush_soon(FLUSH_AGAIN_MS)
            raise

    def _flush(self) -> int:
        with self._lock:
            context, state = self._context, self._state
            self._ensure_open()
            self._is_flush_due = False
            target = state.watermarks.log_end_offset
            truncations = state.truncations
            segments = state.local.segments.overlapping(state.recovery_point, target + 1)
            snapshots = [name for name in state.producers.snapshots if name >= state.recovery_point]
        self.commit()
        try:
            self._flush_beside(context, state, segments, snapshots)
        except ValueError:  # files were closed
            self._ensure_open()
            assert state is not self._state, "only a move closes the files of an open log"
        with self._lock:
            if state is self._state and truncations == state.truncations:
                state.recovery_point = max(target, state.recovery_point)
                state.local.rest_sealed(segments)
            return self._state.recovery_point

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
        health, present = context.health, state.local.segments
        with self._naming:
            if state is not self._state:
                return  # the log lies elsewhere now, where all of it was flushed
            # The files of a segment that has left the log meanwhile may be gone, or elsewhere.
            segments = [one for one in segments if present.get(one.base_offset) is one]
            with health.appending():
                for segment in segments:
                    segment.indexes.open()
        with health.writing():
            for segment in segments:
                try:
                    segment.indexes.sync()
                except ValueError:
                    if present.get(segment.base_offset) is segment:
                        raise  # the log was closed, or has moved: not this segment removed
        with self._naming:
            if state is not self._state:
                return  # the log lies elsewhere now, where all of it was flushed
            self._ensure_open()  # else the directory may have another name, or another log in it
            for offset in snapshots:
                with health.appending():
                    snapshot = state.producers.open_snapshot(offset)
                if snapshot is not None:
                    with snapshot, health.syncing():
                        snapshot.sync_all()
            with self._lock:
                producers = state.producers.recent()
            with health.appending():
                state.producers.write_windows(producers)
                state.epochs.flush()
                directory = context.fs.open_directory(state.local.directory)
        with directory, health.syncing():
            directory.sync_all()

    def close(self, *, if_flushed: bool = False) -> bool:
        """Leave the directory as a clean stop leaves it: snapshot at the end, files trimmed.

        Does not move the recovery point: flush first. Nothing can be done with the log afterwards.
        With `if_flushed`, return False and leave it open if an append came after the last flush.
        """
        with self._naming, self._lock:
            self._ensure_open()
            if if_flushed and self.needs_flush:
                return False
            self._is_closed = True
            with self._context.health.trying():  # a start recovers what was not closed well
                producers = self._state.producers
                producers.take_snapshot(sync=True)
                producers.write_windows(producers.recent())
                self._state.epochs.flush()
                self._state.local.close()
        return True

    def _open_directory(self) -> OpenDirectory:
        """Open the directory, under the name it has by now, to sync the names in it."""
        with self._naming, self._context.health.appending():
            return self._context.fs.open_directory(self._state.local.directory)

    def _flush_soon(self, delay_ms: int = 0) -> None:
        self._is_flush_due = True
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            name = f"flush {self.topic_partition}"
            self._context.scheduler.once(name, delay_ms, self._flush_if_open)

    def _flush_if_open(self) -> None:
        self._is_flush_scheduled = False  # first: what is asked for from now on is another one
        if self._is_closed or self._context.health.is_offline:
            return
        try:
            self._try_to_flush()
        except (StorageOffline, ValueError):
            if not self._is_closed:  # a log that is closed meanwhile needs no flush
                raise

    def _try_to_flush(self) -> None:
        """Flush, unless files or space are wanting: what was done already stays done."""
        try:
            self.flush()
        except (Overloaded, StorageFull) as error:
            _LOG.warning("%s is flushed later: %s", self.topic_partition, error)

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise StorageOffline(f"{self.topic_partition} is closed", log=str(self.topic_partition))
