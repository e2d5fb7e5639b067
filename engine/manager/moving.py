"""Moves a partition to another data directory: copies it, then swaps copy and original.

The copy is filled like a follower's log, with the offsets of the original, which stays in use. Then
the original is locked for some milliseconds: the rest is copied, the original is renamed
`…-delete`, the copy gets the partition's name, and the log continues in it.

The directory of the copy, Kafka's `…-future`, with the topic id in it, is created before the
request for the move is answered, and removed when the move ends or fails; so it records the move
for the next start. After a crash the names decide. Before the first rename the copy is useless,
because the original may have been truncated since; the move starts again. After it the copy is
complete and on disk, and its name has the same id as the original's; the next start finishes the
move.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from engine.checkpoint.kafka_files import write_epochs
from engine.errors import (
    OffsetError,
    Overloaded,
    Recovering,
    StorageError,
    StorageFull,
    StorageOffline,
)
from engine.fs import names
from engine.fs.directories import replace_atomically
from engine.log.log import Log
from engine.log.maintenance import Maintenance
from engine.log.open.loader import LoadRequest
from engine.log.results import CopySource, Fetched, ReadEnd
from engine.manager.directory import DataDirectory
from engine.manager.topics import Topic
from engine.records.scan import iter_headers
from engine.topic_keys import MIB
from engine.types import AppendOrigin, FetchIsolation, LogStartReason, TopicPartition


class WantedMoves:
    """At most one move for each partition. All methods need the manager's admin lock."""

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, tuple[DataDirectory, Path]] = {}

    def adopt(self, found: Mapping[TopicPartition, tuple[DataDirectory, Path]]) -> None:
        """Take over the moves that a start has found."""
        self._wanted = dict(found)

    def targets(self) -> dict[TopicPartition, Path]:
        """Return the target directory of each partition."""
        return {log: target.path for log, (target, _) in self._wanted.items()}

    def want(self, topic: Topic, log: TopicPartition, target: DataDirectory) -> Path:
        """Return the directory of a move, created durably unless it exists.

        It replaces a move to another target. Raises Overloaded, StorageError.
        """
        known, path = self._wanted.get(log, (None, Path()))
        if known is target:
            return path
        self.give_up([log])
        path = target.path / names.future_directory_name(log, uuid.uuid4().hex)
        try:
            target.partitions.make_directory(topic, path)
        except (Overloaded, StorageFull):
            target.deletion.discard(path)
            raise
        target.sync()
        self._wanted[log] = target, path
        return path

    def end(self, log: TopicPartition) -> None:
        """Note that the move has ended; its directory was renamed or removed."""
        self._wanted.pop(log, None)

    def give_up(self, logs: Iterable[TopicPartition]) -> None:
        """Cancel moves that are not running, and remove their directories if the disk works."""
        for log in logs:
            if log in self._wanted:
                target, path = self._wanted.pop(log)
                with contextlib.suppress(StorageOffline):  # without an original a start removes it
                    target.deletion.discard(path)


_LOG = logging.getLogger(__name__)

CHUNK_BYTES: Final = MIB
"""How much is copied at a time, unless one batch is larger."""

MOST_BEGINNINGS: Final = 5
"""How often a copy starts again because the original was truncated or its start was deleted."""


MoveListener: TypeAlias = Callable[[int, int, int], None]
"""Called with the first offset of a copy, its end, and the log end, both exclusive."""


def ignore_progress(first_offset: int, copied_offset: int, end_offset: int) -> None:
    """Ignore the progress."""


class Move:
    """One move, for one thread; a context manager.

    On exit an unfinished copy is removed, unless the next start should finish it.
    """

    def __init__(
        self,
        log: Log,
        topic: Topic,
        source: DataDirectory,
        target: DataDirectory,
        *,
        path: Path,
        logs: Callable[[], Iterable[Log]],
        stopping: threading.Event,
    ) -> None:
        """Prepare to move `log`; `path` is the directory of the copy, which may have content.

        `logs` returns all logs, whose checkpoint lines must be kept.
        """
        self._log = log
        self._logs = logs
        self._topic = topic
        self._source = source
        self._target = target
        self._stopping = stopping
        self._unique_id = names.unique_id_of(path.name)
        self._path = path
        self._copy: Log | None = None
        self._log_id = log.reader.log_id
        self._start = 0  # nothing below is copied
        self._is_decided = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._target.arriving = ()
        if error is not None and not isinstance(error, Exception):
            return
        self._let_go()
        if self._is_decided or self._stopping.is_set():
            return  # finished, or left to the next start
        try:
            self._target.deletion.discard(self._path)
        except StorageError:
            _LOG.exception("%s was not removed; the next start continues the move", self._path)

    # -- steps ---------------------------------------------------------------------------------

    def copy(self, progress: MoveListener) -> None:
        """Make a durable copy, with checkpoint lines, that only lacks the latest appends."""
        for _ in range(MOST_BEGINNINGS):
            try:
                copy = self._begin()
                while self._copy_chunk(copy, self._read):
                    progress(*self._progress(copy))
                    if self._stopping.is_set():
                        raise Recovering(
                            f"{self._log.topic_partition} was not moved: closing; the next start "
                            "continues the move"
                        )
            except OffsetError as error:  # records were deleted, or the log was truncated
                _LOG.info("copying %s again: %s", self._log.topic_partition, error)
                continue
            if self._log.reader.log_id != self._log_id:
                _LOG.info("copying %s again: it was truncated", self._log.topic_partition)
                continue
            copy.durability.flush()
            start = self._log.watermarks.log_start_offset
            if start < self._start:
                copy.maintenance.begin_in_archive(start)
            else:
                copied_start = min(start, copy.watermarks.high_watermark)
                copy.delete_records(copied_start, LogStartReason.LEADER_OFFSET_INCREMENTED)
            progress(*self._progress(copy))
            self._target.arriving = (copy,)
            self._target.write_checkpoints(self._logs)
            return
        raise Recovering(f"{self._log.topic_partition} changes faster than it can be copied")

    def _progress(self, copy: Log) -> tuple[int, int, int]:
        copied_offset = copy.watermarks.log_end_offset
        end_offset = max(copied_offset, self._log.watermarks.log_end_offset)
        return copy.reader.first_segment_base_offset, copied_offset, end_offset

    def finish(self) -> None:
        """Switch the log to the copy; its old directory is removed later."""
        retired = self._source.path / names.delete_directory_name(
            self._log.topic_partition, self._unique_id
        )
        release = self._log.maintenance.relocate(retired, self._complete, self._give_name)
        self._target.arriving = ()
        self._copy = None  # it is the log's now
        self._source.deletion.remove_later(retired, release)
        _LOG.info("%s was moved to %s", self._log.topic_partition, self._target.path)

    # -- the copy ------------------------------------------------------------------------------

    def _begin(self) -> Log:
        log = self._log
        self._log_id = log.reader.log_id
        self._let_go()
        self._target.partitions.empty(self._path)
        self._target.partitions.make_directory(self._topic, self._path)
        first_offset = self._first_offset()
        # segment.bytes may have been lowered since, and every batch must fit into a segment.
        largest = max(segment.size_bytes for segment in log.reader.segments)
        config = replace(log.config, segment_bytes=max(log.config.segment_bytes, largest))
        is_gapless = self._topic.is_gapless(config)
        request = LoadRequest(
            self._path, config, 0, first_offset, was_clean=True, is_gapless=is_gapless
        )
        context = self._target.context
        with context.health.appending:
            self._copy = Log.open(context, log.topic_partition, log.topic_id, request)
        return self._copy

    def _first_offset(self) -> int:
        """Return the base offset of the batch that holds the log start, or that of the disk."""
        self._start = start = self._log.reader.local_log_start_offset
        first = self._read(start, max_bytes=1)
        return min([start, *(header.base_offset for _, header in iter_headers(first.data))])

    def _read(self, offset: int, max_bytes: int) -> Fetched:
        fetched = self._log.reader.read(
            offset, max_bytes=max_bytes, isolation=FetchIsolation.LOG_END
        )
        assert fetched is not None, "it may wait for the disk"
        return fetched

    def _copy_chunk(self, copy: Log, read: Callable[[int, int], Fetched]) -> bool:
        """Copy some batches; return whether there are more."""
        limit_bytes = min(CHUNK_BYTES, copy.config.segment_bytes)
        fetched = read(max(copy.watermarks.log_end_offset, self._start), limit_bytes)
        if fetched.data:
            copy.append(fetched.data, origin=AppendOrigin.REPLICATION)
        return fetched.ended_by is not ReadEnd.LOG_BOUND

    def _let_go(self) -> None:
        if self._copy is not None:
            self._copy.maintenance.close_handles()
            self._copy = None

    # -- while the log is locked ------------------------------------------------------------------

    def _complete(self, still: CopySource) -> Maintenance:
        """Copy the remaining batches, the leader epochs and the producer state."""
        copy = self._copy
        assert copy is not None, "copied before"
        if self._log.reader.log_id != self._log_id:
            raise Recovering(f"{self._log.topic_partition} was truncated while it was moved")
        while self._copy_chunk(copy, still.read):
            pass
        if copy.watermarks.log_end_offset < still.end_offset:
            copy.roll(still.end_offset)  # a truncation left the log end above its last batch
        copy.durability.flush()
        copy.close()
        fs = self._target.context.fs
        with self._target.health.trying:
            path = self._path / names.snapshot_name(still.end_offset)
            replace_atomically(fs, path, still.snapshot)
            if still.windows:
                replace_atomically(fs, self._path / names.PRODUCER_WINDOWS, still.windows)
            write_epochs(fs, self._path / names.LEADER_EPOCH_CHECKPOINT, still.epochs)
        self._copy = there = self._open_complete(still)
        self._is_decided = True  # from here on only a start decides which one is the log
        return there.maintenance

    def _open_complete(self, still: CopySource) -> Log:
        """Open the copy as after a clean stop; if space or files are lacking, nothing has moved."""
        end = still.end_offset
        config = self._log.config
        is_gapless = self._topic.is_gapless(config)
        request = LoadRequest(
            self._path,
            config,
            end,
            still.log_start_offset,
            True,
            end,
            is_gapless=is_gapless,
            begins_in_archive=config.remote_storage_enable,
        )
        context = self._target.context
        with context.health.appending:
            return Log.open(context, self._log.topic_partition, self._log.topic_id, request)

    def _give_name(self, there: Maintenance) -> None:
        """Give the copy the partition's name, durably; the original was renamed before."""
        self._source.sync()  # first, or a power cut could leave two with that name
        there.rename_directory(self._target.partitions.path_of(self._log.topic_partition))
        self._target.sync()
