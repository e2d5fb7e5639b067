"""The local side of a partition: a log of the engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from app.limits.executors import Workers
from app.store.local.commits import Commits
from app.store.local.maintenance import Maintenance
from app.store.local.transactions import Ended, Ending, Transactions
from app.store.port import LogSize, Partition, Run, RunLookUp, Settle
from engine.config import LogConfig
from engine.log.log import Log
from engine.log.results import Appended, Fetched, LogTag
from engine.records.budget import DecodeBudget
from engine.runtime import Runtime
from engine.state.producer_entry import ProducerEntry
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, TimestampAndOffset


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
        fetched = await self._workers.read(work, holder)
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
        return await run(partial(self.log.reader.offset_for_time, time_ms))

    async def offset_appended_since(self, time_ms: int) -> int:
        listing = await self.maintenance.listing()
        for segment in listing.segments:
            if segment.modified_ms >= time_ms - FILE_TIME_SLACK_MS:
                return segment.base_offset
        return listing.watermarks.log_end_offset

    async def max_timestamp(self, run: RunLookUp) -> TimestampAndOffset | None:
        return await run(self.log.reader.max_timestamp)

    async def size(self) -> LogSize:
        return LogSize(self.log.reader.size_bytes, self.log.reader.segments_count)

    async def extent_bytes(
        self, start_offset: int, end_offset: int, isolation: FetchIsolation
    ) -> int:
        look = partial(self.log.reader.extent_bytes, start_offset, end_offset, isolation)
        return await self._workers.read(look)

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
        return await self._workers.read(look)

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
