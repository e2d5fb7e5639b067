"""The local side of a partition: a log of the engine in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from app.store.local.executors import Workers
from app.store.port import Partition, RunLookUp
from engine.config import LogConfig
from engine.log.log import Log
from engine.log.results import Fetched, LogTag
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, TimestampAndOffset


def _of_log(name: str) -> Any:  # noqa: ANN401  # the annotation of what it becomes says it
    """Return a property that reads the log; an attrgetter, because every request reads ten."""
    return property(attrgetter(f"log.{name}"))


class LocalPartition(Partition):
    """One partition whose log is open here. Reads that need the disk run on reader threads."""

    __slots__ = ("_workers", "log")

    def __init__(self, log: Log, workers: Workers) -> None:
        super().__init__(log.topic_partition, log.topic_id, identity=log)
        self.log = log
        self._workers = workers

    log_id: str = _of_log("reader.log_id")
    leader_epoch: int = _of_log("reader.leader_epoch")
    tag: LogTag = _of_log("reader.tag")
    watermarks: Watermarks = _of_log("watermarks")
    recovery_point: int = _of_log("durability.recovery_point")
    config: LogConfig = _of_log("config")

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

    async def max_timestamp(self, run: RunLookUp) -> TimestampAndOffset | None:
        return await run(self.log.reader.max_timestamp)

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
