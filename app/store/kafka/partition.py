"""A partition of the cluster: its configuration, its appends, and its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from zlib import crc32

from app.store.kafka.appends import PartitionAppends, split
from app.store.kafka.log import KafkaLog
from app.store.kafka.read.page import Wanted
from app.store.port import LogSize, RemotePartition, Run, RunLookUp, Sent, Settle
from engine.config import LogConfig
from engine.log.results import Appended, Fetched, LogTag
from engine.records.budget import DecodeBudget
from engine.state.producer_entry import ProducerEntry
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, TimestampAndOffset


class KafkaPartition(RemotePartition):
    """One partition whose log brokers keep; it delegates to its parts."""

    __slots__ = ("_appends", "_config", "_log_id", "_sending", "log")

    def __init__(
        self, log: KafkaLog, appends: PartitionAppends, config: LogConfig, url_prefix: str
    ) -> None:
        super().__init__(log.topic_partition, log.topic_id, log, url_prefix)
        self.log = log
        self._appends = appends
        self._config = config
        # Elections raise the leader's epoch, and the offsets keep their records.
        self._log_id = f"{log.topic_id}.0"
        self._sending: set[asyncio.Task[None]] = set()

    def configure(self, config: LogConfig) -> None:
        """Publish the configuration as it was read last."""
        self._config = config

    # -- where the log is --------------------------------------------------------------------

    @property
    def log_id(self) -> str:
        return self._log_id

    def log_id_at(self, leader_epoch: int) -> str:  # noqa: ARG002  # see `__init__`
        return self._log_id

    def content_version(
        self,
        start_offset: int,  # noqa: ARG002  # the brokers compact when they like
        end_offset: int,  # noqa: ARG002  # as above
        fetched: Fetched | None,
    ) -> str | None:
        return None if fetched is None else f"{crc32(fetched.data):08x}"

    @property
    def leader_epoch(self) -> int:
        return self.log.marks.leader_epoch

    @property
    def watermarks(self) -> Watermarks:
        return self.log.marks.watermarks

    @property
    def recovery_point(self) -> int:
        return self.log.marks.watermarks.high_watermark

    @property
    def config(self) -> LogConfig:
        return self._config

    async def refresh(self) -> None:
        await self.log.refresh()

    # -- what it holds -----------------------------------------------------------------------

    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
        holder: str = "",  # noqa: ARG002  # reads have their turns at the broker
    ) -> Fetched:
        return await self.log.read(
            Wanted(offset, max_bytes, isolation, end_offset, minimum_one_batch)
        )

    def read_now(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        end_offset: int | None = None,
        minimum_one_batch: bool = True,
        waits: bool = False,
    ) -> Fetched | None:
        """Return what a shared fetch has brought in this turn of the loop."""
        wanted = Wanted(offset, max_bytes, isolation, end_offset, minimum_one_batch)
        return self.log.read_now(wanted, waits=waits)

    async def offset_for_time(
        self,
        time_ms: int,
        run: RunLookUp,  # noqa: ARG002  # the broker looks it up
    ) -> TimestampAndOffset | None:
        return await self.log.offset_for_time(time_ms)

    async def offset_appended_since(self, time_ms: int) -> int:
        return await self.log.offset_appended_since(time_ms, self._config)

    async def max_timestamp(
        self,
        run: RunLookUp,  # noqa: ARG002  # as above
    ) -> TimestampAndOffset | None:
        return await self.log.max_timestamp()

    async def size(self) -> LogSize:
        return LogSize(await self.log.size_bytes(), None)

    async def extent_bytes(
        self, start_offset: int, end_offset: int, isolation: FetchIsolation
    ) -> int:
        return await self.log.extent_bytes(start_offset, end_offset, isolation)

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
        return await self.log.splits(
            start_offset,
            end_offset,
            isolation,
            parts=parts,
            max_offsets=max_offsets,
            at_most=at_most,
        )

    async def producers(self) -> Sequence[ProducerEntry]:
        return await self.log.producers()

    # -- what is added to it, or taken away ---------------------------------------------------

    async def append(
        self,
        make: Callable[[], Buffer],
        *,
        acks: str,
        checked: bool,
        run: Run,
        expected_end_offset: int | None = None,
        expected_tag: LogTag | None = None,
        budget: DecodeBudget | None = None,  # noqa: ARG002  # the broker looks into the batches
    ) -> Appended:
        """Have `run` make the batches, and append them; conditions are refused before."""
        assert expected_end_offset is None, "there are no conditions on this side"
        assert expected_tag is None, "there are no conditions on this side"
        batches = await run(lambda: split(make(), self._config, checked=checked))
        return await self._appends.append(batches, acks)

    def send(self, data: Buffer, *, acks: str, checked: bool, settle: Sent) -> None:
        task = asyncio.get_running_loop().create_task(
            self._send(data, acks=acks, checked=checked, settle=settle)
        )
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, data: Buffer, *, acks: str, checked: bool, settle: Sent) -> None:
        try:
            batches = split(data, self._config, checked=checked)
            appended: Appended | Exception = await self._appends.append(batches, acks)
        except Exception as error:  # noqa: BLE001  # any error is reported
            appended = error
        settle(appended)

    async def committed(self, end_offset: int) -> None:
        await self.log.committed(end_offset)

    def when_committed(self, end_offset: int, settle: Settle) -> bool:
        return self.log.when_committed(end_offset, settle)

    async def delete_records(self, before_offset: int) -> None:
        await self.log.delete_records(before_offset)

    def abandon(self, error: Exception) -> None:
        self.log.abandon(error)
