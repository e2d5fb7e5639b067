"""What an operator does to one log of the engine; only a log in this process can be asked for it.

Everything here may sync, list directories or wait for a lock, and runs on the threads for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from app.errors import InvalidBody
from app.limits.executors import Workers
from app.store.local.commits import Commits
from engine.background.mover import MoveReport
from engine.cleaner.cleaner import CleaningReport
from engine.cleaner.selection import CleanableRange
from engine.errors import OffsetBeyondLogEnd, OffsetError, StorageError
from engine.log.log import Log
from engine.log.read.segment_files import FileKind, SegmentFile
from engine.log.results import Listing, LogTag, RemovedSegment, RollResult
from engine.records.header import parse_header
from engine.runtime import Runtime
from engine.types import Buffer


class Maintenance:
    """The segments, files and place of one log, and what changes them."""

    def __init__(self, log: Log, runtime: Runtime, workers: Workers, commits: Commits) -> None:
        self._log = log
        self._runtime = runtime
        self._workers = workers
        self._commits = commits

    @property
    def directory(self) -> Path:
        """The data directory in which the log lies now."""
        return self._log.directory.parent

    async def listing(self) -> Listing:
        """Return all segments, oldest first, and the log's offsets of the same moment."""
        return await self._workers.administer(self._log.reader.listing)

    async def open_file(self, base_offset: int, kind: FileKind, holder: str) -> SegmentFile:
        """Return a file of the segment that begins at `base_offset`, as far as it is committed.

        Raises SegmentNotFound.
        """
        work = partial(self._log.reader.open_file, base_offset, kind)
        return await self._workers.read(work, holder)

    async def read_file(
        self, file: SegmentFile, position: int, max_bytes: int, holder: str
    ) -> Buffer:
        """Return at least one byte of an open file from `position` on, and about `max_bytes`.

        Raises LogReplaced once the log is cut, SegmentNotFound, StoredDataCorrupt, StorageOffline.
        """
        work = partial(self._log.reader.read_file, file, position, max_bytes)
        return await self._workers.read(work, holder)

    async def roll(self) -> RollResult:
        """Seal the active segment and open the next, durably; an empty one stays."""

        def roll() -> RollResult:
            result = self._log.roll()
            self._commit()
            return result

        return await self._workers.administer(roll)

    async def flush(self) -> int:
        """Put everything on disk, indexes and snapshots too; return the recovery point."""

        def flush() -> int:
            recovery_point = self._log.durability.flush()
            self._tell()
            return recovery_point

        return await self._workers.administer(flush)

    async def run_retention(self, *, dry_run: bool) -> Sequence[RemovedSegment]:
        """Remove the segments that are due, or only return which they are."""
        work = partial(self._log.maintenance.run_retention, dry_run=dry_run)
        return await self._workers.administer(work)

    async def held_by_time(self) -> tuple[int, int] | None:
        """Return base offset and largest time of the segment that a time in the future keeps."""
        return await self._workers.administer(self._log.maintenance.held_by_time)

    async def truncate(self, to_offset: int, expected: LogTag) -> None:
        """Truncate the log, if its end is still the expected one.

        Raises PreconditionFailed, OffsetBeyondLogEnd, and InvalidBody if records below the offset
        would be removed too.
        """
        log = self._log

        def truncate() -> None:
            # Waiting appends are answered first: the high watermark is lower afterwards.
            self._commit()
            if log.reader.tag == expected:
                _ensure_between_batches(log, to_offset)
            manager = self._runtime.manager
            log_end_offset = manager.truncate(log, to_offset, expected_tag=expected)
            if to_offset > log_end_offset:
                marks = log.watermarks
                raise OffsetBeyondLogEnd(
                    f"offset {to_offset} is beyond the log end {log_end_offset}",
                    offset=to_offset,
                    log_start_offset=marks.log_start_offset,
                    high_watermark=marks.high_watermark,
                    last_stable_offset=marks.last_stable_offset,
                    log_end_offset=marks.log_end_offset,
                )
            self._tell()

        await self._workers.administer(truncate)

    async def compact(self) -> CleaningReport:
        """Compact now, however little is dirty; raises PolicyViolation unless it may be."""
        return await self._workers.compact(partial(self._runtime.cleaner.clean_now, self._log))

    async def compaction_range(self) -> CleanableRange:
        """Return what `compact` would clean; raises PolicyViolation."""
        return await self._workers.administer(partial(self._runtime.cleaner.preview, self._log))

    async def move_to(self, directory: Path) -> MoveReport:
        """Have the log lie in another data directory; raises as `PartitionMover.start`."""
        work = partial(self._runtime.mover.start, self._log.topic_partition, directory)
        return await self._workers.administer(work)

    async def last_move(self) -> MoveReport | None:
        """Return how the last move is going; None if there was none."""
        work = partial(self._runtime.mover.report, self._log.topic_partition)
        return await self._workers.administer(work)

    def _commit(self) -> None:
        self._commits.committed([(self._log, self._log.durability.commit())])

    def _tell(self) -> None:
        """Complete the waits for what is committed now."""
        self._commits.committed([(self._log, self._log.watermarks.high_watermark)])


def _ensure_between_batches(log: Log, to_offset: int) -> None:
    """Raise InvalidBody if the offset is inside a batch, which the engine would remove whole.

    Its first records may belong to another client. A corrupt batch may be cut at any offset: it
    cannot be read anyway.
    """
    try:
        found = log.reader.look_at(to_offset)
    except (OffsetError, StorageError):
        return
    if found.first_offset is None:
        return
    base_offset = max(found.first_offset, found.watermarks.log_start_offset)
    header = parse_header(found.data)
    if base_offset >= to_offset or not header.records_count:
        return
    next_offset = header.next_offset
    raise InvalidBody(
        f"the records from offset {base_offset} to {next_offset - 1} are one batch, which cannot "
        f"be split: truncate to {base_offset} or {next_offset}",
        batch_base_offset=base_offset,
        batch_next_offset=next_offset,
    )
