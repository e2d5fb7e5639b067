"""The local side of a partition: a log of the engine in this process.

What an operator does to a log may sync, list directories or wait for a lock, and runs on the
threads for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from app.errors import InvalidBody
from app.limits.executors import Workers
from app.store.local.commits import Commits
from app.store.local.transactions import Ended, Ending, Transactions
from app.store.port import ArchiveMarks, LogSize, Partition, Run, RunLookUp, Settle
from engine.background.mover import MoveReport
from engine.cleaner.cleaner import CleaningReport
from engine.cleaner.selection import CleanableRange
from engine.config import LogConfig
from engine.errors import OffsetBeyondLogEnd, OffsetError, StorageError
from engine.log.log import Log
from engine.log.read.segment_files import FileKind, SegmentFile
from engine.log.results import (
    Appended,
    DamagedPlace,
    Fetched,
    Listing,
    LogTag,
    RemovedSegment,
    RollResult,
)
from engine.records.budget import DecodeBudget
from engine.records.header import parse_header
from engine.runtime import Runtime
from engine.state.producer_entry import ProducerEntry
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, TimestampAndOffset


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
        return await self._workers.read(work, holder, in_archive=self.is_archived(base_offset))

    async def read_file(
        self, file: SegmentFile, position: int, max_bytes: int, holder: str
    ) -> Buffer:
        """Return at least one byte of an open file from `position` on, and about `max_bytes`.

        Raises LogReplaced once the log is cut, SegmentNotFound, StoredDataCorrupt, StorageOffline.
        """
        work = partial(self._log.reader.read_file, file, position, max_bytes)
        in_archive = self.is_archived(file.segment.base_offset)
        return await self._workers.read(work, holder, in_archive=in_archive)

    def is_archived(self, offset: int) -> bool:
        """Whether only the archive has an offset, so that a read of it may have to wait."""
        return offset < self._log.reader.first_segment_base_offset

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


def _of_log(name: str) -> Any:  # noqa: ANN401  # the annotation of what it becomes says it
    """Return a property that reads the log; an attrgetter, because every request reads ten."""
    return property(attrgetter(f"log.{name}"))


FILE_TIME_SLACK_MS: Final = 2_000
"""File systems round the times of files, and the kernel's clock for them lags."""


class LocalPartition(Partition):
    """One partition whose log is open here.

    Reads that need the disk run on reader threads; what is appended waits for the flusher's round.
    """

    __slots__ = (
        "_commits",
        "_committer",
        "_runtime",
        "_transactions",
        "_workers",
        "log",
        "maintenance",
    )

    def __init__(
        self,
        log: Log,
        *,
        runtime: Runtime,
        workers: Workers,
        commits: Commits,
        transactions: Transactions,
        url_prefix: str,
    ) -> None:
        super().__init__(log.topic_partition, log.topic_id, log, url_prefix)
        self.log = log
        self.maintenance = Maintenance(log, runtime, workers, commits)
        """What only a log in this process can be asked for."""
        self._runtime = runtime
        self._workers = workers
        self._committer = runtime.committer
        self._commits = commits
        self._transactions = transactions

    is_local = True

    log_id: str = _of_log("reader.log_id")
    leader_epoch: int = _of_log("reader.leader_epoch")
    log_epoch = leader_epoch
    tag: LogTag = _of_log("reader.tag")
    watermarks: Watermarks = _of_log("watermarks")
    recovery_point: int = _of_log("durability.recovery_point")
    config: LogConfig = _of_log("config")

    def log_id_at(self, leader_epoch: int) -> str:
        return f"{self.topic_id}.{leader_epoch}"

    @property
    def archive(self) -> ArchiveMarks | None:
        archiver = self._runtime.archiver
        if archiver is None and not self.config.remote_storage_enable:
            return None
        known = archiver and archiver.partitions.get(self.log.topic_partition)
        offset = known.state.archived_offset if known else -1
        local_start = self.log.reader.local_log_start_offset
        return ArchiveMarks(offset if offset >= 0 else None, local_start)

    @property
    def _begins_in_archive(self) -> bool:
        """Whether a look-up in the whole log may have to wait for the archive."""
        return self.maintenance.is_archived(self.log.watermarks.log_start_offset)

    def content_version(
        self, start_offset: int, end_offset: int, fetched: Fetched | None
    ) -> str | None:
        segments = None if fetched is None else fetched.segments
        return self.log.reader.content_version(start_offset, end_offset, segments)

    async def refresh(self) -> None:
        """Do nothing: the log is in this process."""

    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
        holder: str = "",
    ) -> Fetched:
        work = partial(
            self.log.reader.read,
            offset,
            max_bytes=max_bytes,
            isolation=isolation,
            end_offset=end_offset,
            minimum_one_batch=minimum_one_batch,
        )
        in_archive = self.maintenance.is_archived(offset)
        fetched = await self._workers.read(work, holder, in_archive=in_archive)
        assert fetched is not None, "only a read of cached bytes may find nothing"
        return fetched

    def read_now(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
        waits: bool = False,  # noqa: ARG002  # what is in memory is current
    ) -> Fetched | None:
        """Read what is in memory, on this thread."""
        return self.log.reader.read(
            offset,
            max_bytes=max_bytes,
            isolation=isolation,
            end_offset=end_offset,
            minimum_one_batch=minimum_one_batch,
            cached_only=True,
        )

    async def offset_for_time(self, time_ms: int, run: RunLookUp) -> TimestampAndOffset | None:
        look_up = partial(self.log.reader.offset_for_time, time_ms)
        return await run(look_up, in_archive=self._begins_in_archive)

    async def offset_appended_since(self, time_ms: int) -> int:
        listing = await self.maintenance.listing()
        for segment in listing.segments:
            if segment.modified_ms >= time_ms - FILE_TIME_SLACK_MS:
                return segment.base_offset
        return listing.watermarks.log_end_offset

    async def max_timestamp(self, run: RunLookUp) -> TimestampAndOffset | None:
        return await run(self.log.reader.max_timestamp, in_archive=self._begins_in_archive)

    @property
    def damage(self) -> Sequence[DamagedPlace]:
        """The places in this log that are known to be damaged."""
        log = self.log.topic_partition
        return [one for one in self._runtime.manager.damage if one.log == log]

    async def size(self) -> LogSize:
        return LogSize(self.log.reader.size_bytes, self.log.reader.segments_count)

    async def extent_bytes(
        self, start_offset: int, end_offset: int, isolation: FetchIsolation
    ) -> int:
        look = partial(self.log.reader.extent_bytes, start_offset, end_offset, isolation)
        in_archive = self.maintenance.is_archived(start_offset)
        return await self._workers.read(look, in_archive=in_archive)

    async def splits(
        self,
        start_offset: int,
        end_offset: int,
        isolation: FetchIsolation,
        *,
        parts: int,
        max_offsets: int | None,
        at_most: int,
    ) -> Sequence[tuple[int, int, int]]:
        look = partial(
            self.log.reader.splits,
            start_offset,
            end_offset,
            isolation,
            parts=parts,
            max_offsets=max_offsets,
            at_most=at_most,
        )
        in_archive = self.maintenance.is_archived(start_offset)
        return await self._workers.read(look, in_archive=in_archive)

    async def append(
        self,
        make: Callable[[], Buffer],
        *,
        acks: str,
        checked: bool,
        run: Run,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
        budget: DecodeBudget | None = None,
    ) -> Appended:
        """Make the batches and append them, both on the thread that `run` takes."""

        def work() -> Appended:
            return self._committer.append(
                self.log,
                make(),
                acks_all=acks == "all",
                checked=checked,
                expected_end_offset=expected_end_offset,
                expected_tag=expected_tag,
                budget=budget,
            )

        return await run(work)

    def append_now(
        self,
        data: Buffer,
        *,
        acks: str,
        checked: bool,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
    ) -> Appended:
        """Append on this thread; `commit_soon` or a wait for the commit requests the round."""
        acks_all = acks == "all"
        if acks_all:
            self._commits.is_due = True
        return self._committer.append(
            self.log,
            data,
            acks_all=acks_all,
            wakes=False,
            nonblocking=True,
            checked=checked,
            expected_end_offset=expected_end_offset,
            expected_tag=expected_tag,
        )

    async def committed(self, end_offset: int) -> None:
        waiting = self._commits.wait(self.log, end_offset)
        if waiting is not None:
            await waiting

    def when_committed(self, end_offset: int, settle: Settle) -> bool:
        return self._commits.when(self.log, end_offset, settle)

    def commit_soon(self) -> None:
        self._commits.ask()

    async def producers(self) -> Sequence[ProducerEntry]:
        return await self._workers.administer(self.log.producers.active)

    async def delete_records(self, before_offset: int) -> None:
        manager = self._runtime.manager
        await self._workers.administer(partial(manager.delete_records, self.log, before_offset))

    async def end_transaction(self, ending: Ending) -> Ended:
        """End a producer's open transaction; return once its marker is on disk.

        Raises as `Transactions.end` and `committed`.
        """
        ended = await self._transactions.end(self.log, ending)
        await self.committed(ended.marker_offset + 1)
        return ended

    def abandon(self, error: Exception) -> None:
        self._commits.abandon([self.log], error)
