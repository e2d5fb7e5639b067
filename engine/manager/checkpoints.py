"""The four checkpoint files of a data directory.

They hold each log's recovery point, log start, high watermark and cleaner offset, which a start
uses before it reads the log. So a line must never be wrong: it is removed before the log is
truncated below it, and before a log of the same name can be created. An unreadable file only costs
time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.errors import CorruptCheckpoint, Overloaded, StorageFull
from engine.fs import names
from engine.fs.health import DirectoryHealth
from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.log.maintenance import DueForRelease
from engine.log.read.fetch import deletion_target
from engine.log.results import LogTag
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, int]


class Promises(NamedTuple):
    """The content of the checkpoints, without the cleaner's."""

    recovery_points: Offsets
    log_starts: Offsets
    high_watermarks: Offsets


class _Cut(NamedTuple):
    """A log that is being truncated to `end_offset`; after a crash it may end below that."""

    log: TopicPartition
    end_offset: int
    surely_kept: int


class Checkpoints:
    """The files of one data directory. Thread-safe; an OSError takes the directory offline.

    Writers take a function for the logs and call it under the lock, so that the line of a log that
    was just deleted, truncated or moved cannot come back.
    """

    def __init__(self, fs: FileSystem, health: DirectoryHealth) -> None:
        directory = health.directory
        self._health = health
        self._recovery_points = OffsetCheckpoint(fs, directory / names.RECOVERY_POINT_CHECKPOINT)
        self._log_starts = OffsetCheckpoint(fs, directory / names.LOG_START_CHECKPOINT)
        self._high_watermarks = OffsetCheckpoint(fs, directory / names.HIGH_WATERMARK_CHECKPOINT)
        self._clean_marks = OffsetCheckpoint(fs, directory / names.CLEANER_CHECKPOINT)
        self._marks: Offsets | None = None
        """The content of the cleaner checkpoint; None if it is damaged."""
        self._read_promises = Promises({}, {}, {})
        self.kept: frozenset[TopicPartition] = frozenset()
        """Logs that could not be opened; their lines stay as they were read."""
        self._writing = threading.Lock()

    def read(self) -> Promises:
        """Return the content of the files; a damaged file counts as empty."""
        with self._writing:
            self._marks = self._read(self._clean_marks, "compacted logs count as dirty")
            self._read_promises = Promises(
                self._read(self._recovery_points, "logs are recovered from their start") or {},
                self._read(self._log_starts, "logs start where their first segments do") or {},
                self._read(self._high_watermarks, "the committed offsets are unknown") or {},
            )
            return self._read_promises

    def keep(self, offline: Iterable[TopicPartition]) -> None:
        """Keep the lines of these logs as they were read: they could not be opened.

        Without them the next start would show deleted records again, and would scan the whole log
        and cut it at any damage.
        """
        with self._writing:
            self.kept = frozenset(offline)

    def write(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Write each log's recovery point, log start and high watermark.

        Lines of other logs are removed, the cleaner's included. Raises StorageError.
        """
        with self._writing:
            present = list(logs())
            self._write(present)
            here = {log.topic_partition for log in present} | self.kept
            self._keep_marks(lambda log, _: log in here)

    def truncate(
        self,
        logs: Callable[[], Iterable[Log]],
        log: Log,
        offset: int,
        expected_tag: LogTag | None,
    ) -> int:
        """Lower the log's lines in the files, then truncate it as `Log.truncate_to`.

        With a line above the log end, a start would trust later appends below it without scanning
        them, or begin the log above its end. A batch that holds `offset` is removed whole, so until
        the truncation is complete the lines stay below the segment that is cut.
        """
        with self._writing:
            if 0 <= offset < log.watermarks.log_end_offset:
                kept = [one.base_offset for one in log.reader.segments if one.base_offset <= offset]
                self._write(logs(), _Cut(log.topic_partition, offset, kept[-1] if kept else offset))
                self._keep_marks(lambda key, mark: key != log.topic_partition or mark <= offset)
            try:
                return log.truncate_to(offset, expected_tag=expected_tag)
            finally:
                try:
                    self._write(logs())
                except (Overloaded, StorageFull) as error:
                    _LOG.warning(
                        "%s was truncated; its checkpoints were not raised again: %s",
                        log.topic_partition,
                        error,
                    )

    def delete_records(
        self, logs: Callable[[], Iterable[Log]], log: Log, before_offset: int
    ) -> int:
        """Write the new log start to disk, then raise it as `Log.delete_records`.

        If the write is refused, for lack of space for example, nothing changes.
        """
        with self._writing:
            marks = log.watermarks
            target = max(deletion_target(before_offset, marks), marks.log_start_offset)
            here = sorted(logs(), key=lambda log: log.topic_partition)
            if log in here:  # otherwise it was just deleted, and its line must not come back
                self._write_log_starts(_log_starts(here) | {log.topic_partition: target})
            return log.delete_records(target)

    def release(self, logs: Callable[[], Iterable[Log]], log: Log, due: DueForRelease) -> bool:
        """Write where the log starts, then remove segments as `Maintenance.release`.

        Without the line a start would take the first segment that is left for the log's start.
        """
        with self._writing:
            here = sorted(logs(), key=lambda log: log.topic_partition)
            if log not in here:  # it was just deleted or moved
                return False
            self._write_log_starts(_log_starts(here))
            return log.maintenance.release(due)

    def _write_log_starts(self, starts: Offsets) -> None:
        self._health.ensure_held()
        with self._health.appending:
            self._log_starts.write(self._with_kept(starts, self._read_promises.log_starts))

    def _write(self, logs: Iterable[Log], cut: _Cut | None = None) -> None:
        """Write the three files; no line of a truncated log is above what will be left of it.

        A raised log start may raise the recovery point over bytes that were never synced, so log
        starts are written first; otherwise a start could show those bytes. A log start that a
        truncation lowers is written last.
        """
        here = sorted(logs, key=lambda log: log.topic_partition)
        recovery_points = {log.topic_partition: log.durability.recovery_point for log in here}
        high_watermarks = {log.topic_partition: log.watermarks.high_watermark for log in here}
        starts = _log_starts(here, cut_log=cut and cut.log)
        kept = self._read_promises
        self._health.ensure_held()
        with self._health.appending:
            self._log_starts.write(self._with_kept(starts, kept.log_starts))
            if cut is not None:
                recovery_points = _capped(recovery_points, cut.log, cut.surely_kept)
                high_watermarks = _capped(high_watermarks, cut.log, cut.surely_kept)
            self._recovery_points.write(self._with_kept(recovery_points, kept.recovery_points))
            if cut is not None:
                starts = _capped(starts, cut.log, cut.end_offset)
                self._log_starts.write(self._with_kept(starts, kept.log_starts))
            self._high_watermarks.write(self._with_kept(high_watermarks, kept.high_watermarks))

    def _with_kept(self, offsets: Offsets, as_read: Offsets) -> Offsets:
        kept = {log: as_read[log] for log in self.kept if log in as_read}
        return dict(sorted({**offsets, **kept}.items())) if kept else offsets

    # -- the cleaner's checkpoint ----------------------------------------------------------------

    @property
    def clean_marks(self) -> Offsets:
        """The offset up to which each log was cleaned, as last read or written."""
        return self._marks or {}

    def write_clean_marks(self, marks: Callable[[], Offsets]) -> None:
        """Replace the marks if they have changed. Raises StorageError."""
        with self._writing:
            self._write_marks(marks())

    def _keep_marks(self, is_kept: Callable[[TopicPartition, int], bool]) -> None:
        marks = self._marks or {}
        self._write_marks({log: mark for log, mark in marks.items() if is_kept(log, mark)})

    def _write_marks(self, marks: Offsets) -> None:
        if marks != self._marks:
            with self._health.appending:
                self._clean_marks.write(marks)
            self._marks = marks

    def _read(self, checkpoint: OffsetCheckpoint, consequence: str) -> Offsets | None:
        try:
            with self._health.reading:
                return checkpoint.read()
        except CorruptCheckpoint as error:
            _LOG.warning("ignoring a checkpoint: %s; %s", error, consequence)
            return None


def _log_starts(
    logs: Iterable[Log], *, cut_log: TopicPartition | None = None
) -> dict[TopicPartition, int]:
    """Return the log starts that the durable name of the first segment does not tell.

    Includes a log that is being truncated, because that segment may be removed, and all whose
    oldest segments may be in the archive only, as Kafka does.
    """
    starts: dict[TopicPartition, int] = {}
    for log in logs:
        key, start = log.topic_partition, log.watermarks.log_start_offset
        first = log.reader.first_segment_base_offset  # before `is_removing` is read
        is_told = not (log.maintenance.is_removing or log.durability.is_flush_due or key == cut_log)
        if start > (first if is_told else 0) or log.config.remote_storage_enable:
            starts[key] = start
    return starts


def _capped(offsets: Offsets, log: TopicPartition, highest: int) -> dict[TopicPartition, int]:
    return {key: min(at, highest) if key == log else at for key, at in offsets.items()}
