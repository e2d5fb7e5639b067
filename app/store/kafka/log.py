"""One log of the cluster: its offsets, its reads, and what its leader can be asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import DescribeProducersResponse, ProducerState
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from app.errors import CommitTimedOut
from app.settings import Settings
from app.store.kafka.cluster import RETRY_SECONDS, Cluster
from app.store.kafka.errors import ensure_done, milliseconds
from app.store.kafka.marks import Marks
from app.store.kafka.metrics import KafkaMetrics
from app.store.kafka.read.followers import Followers
from app.store.kafka.read.log_reader import LogReader
from app.store.kafka.read.page import Wanted
from app.store.kafka.read.reads import OFFSETS_LANE, Reads
from app.store.kafka.read.requests import MAX_TIMESTAMP, ensure_read
from app.store.port import Settle
from engine.config import LogConfig
from engine.log.read.fetch import deletion_target, ensure_in_range
from engine.log.results import Fetched
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.types import (
    UNKNOWN_OFFSET,
    FetchIsolation,
    TimestampAndOffset,
    TopicPartition,
)

T = TypeVar("T")

ASSUMED_BYTES: Final = 1024
"""The size of an offset, where the cluster does not show the sizes of logs."""


class KafkaLog:
    """One log: one object as long as offsets keep their records. Belongs to the event loop."""

    def __init__(
        self,
        reads: Reads,
        topic_partition: TopicPartition,
        topic_id: str,
        *,
        on_moved: Callable[[Hashable], None],
        on_abandoned: Callable[[LogReader], None],
        on_replaced: Callable[[], None],
    ) -> None:
        """`on_moved` gets the log when readers may see more; `on_replaced` as in `LogReader`."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.marks = Marks(self, on_moved)
        self.reader = LogReader(
            reads,
            topic_partition,
            topic_id,
            identity=self,
            marks=self.marks,
            on_replaced=on_replaced,
        )
        self._reads = reads
        self._on_abandoned = on_abandoned
        self._waiting: set[asyncio.Task[None]] = set()
        """The waits of `when_committed`."""

    async def refresh(self) -> None:
        """Learn all offsets as they are now."""
        await self.reader.refresh()

    async def read(self, wanted: Wanted) -> Fetched:
        """Return whole batches; raises as `Partition.read`."""
        return await self.reader.read(wanted)

    def read_now(self, wanted: Wanted, *, waits: bool = False) -> Fetched | None:
        """Return what `read` would, if a shared fetch has brought it; as `Partition.read_now`."""
        return self.reader.read_now(wanted, waits=waits)

    # -- look-ups ----------------------------------------------------------------------------

    async def offset_for_time(self, time_ms: int) -> TimestampAndOffset | None:
        """Return the first record at or after a time, below the high watermark."""
        return await self._look_up(time_ms)

    async def max_timestamp(self) -> TimestampAndOffset | None:
        """Return the record with the greatest time, below the high watermark."""
        return await self._look_up(MAX_TIMESTAMP)

    async def _look_up(self, timestamp: int) -> TimestampAndOffset | None:
        async def ask() -> TimestampAndOffset | None:
            leader = await self.reader.verified_leader()
            log = self.topic_partition
            found = await self._reads.look_up(leader.node, log, leader.epoch, timestamp)
            ensure_read(found.error_code)
            if found.offset < 0:
                return None
            epoch = int(found.leader_epoch)
            return TimestampAndOffset(
                int(found.timestamp), int(found.offset), epoch if epoch >= 0 else None
            )

        return await self._retry(ask)

    async def offset_appended_since(self, time_ms: int, config: LogConfig) -> int:
        """Return an offset below which everything was appended before a time.

        Clients choose the times of records, unless the brokers do or bound them: otherwise that is
        the log start.
        """
        slack_ms = 0 if config.uses_append_time else config.message_timestamp_before_max_ms
        await self.refresh()
        marks = self.marks.watermarks
        if slack_ms >= time_ms:
            return marks.log_start_offset
        found = await self._look_up(time_ms - slack_ms)
        return marks.high_watermark if found is None else found.offset

    # -- ranges ------------------------------------------------------------------------------

    async def size_bytes(self) -> int:
        """Return the bytes of all batches; an estimate where the cluster does not show them."""
        marks = self.marks.watermarks

        async def ask() -> int:
            node = self.reader.leader().node
            topic, partition = self.topic_partition
            asked = DescribableLogDirTopic(topic=TopicName(topic), partitions=(i32(partition),))
            request = DescribeLogDirsRequest(topics=(asked,))
            response = await self._reads.cluster.send(
                node, request, DescribeLogDirsResponse, lane=OFFSETS_LANE
            )
            sizes = [
                int(one.partition_size)
                for directory in response.results
                for found in directory.topics
                for one in found.partitions
                if not one.is_future_key
            ]
            return sum(sizes) or ASSUMED_BYTES * (marks.high_watermark - marks.log_start_offset)

        return await self._retry(ask)

    async def extent_bytes(
        self, start_offset: int, end_offset: int, isolation: FetchIsolation
    ) -> int:
        """Return about how many bytes a range has: offsets count as if they were equally large."""
        await self._ensure_range(start_offset, end_offset, isolation)
        return self._share(await self.size_bytes(), start_offset, end_offset)

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
        """Return a range in parts with the same number of offsets, as `Partition.splits`."""
        await self._ensure_range(start_offset, end_offset, isolation)
        count = end_offset - start_offset
        if max_offsets is not None:
            parts = max(parts, -(-count // max_offsets))
        parts = max(1, min(parts, count))
        size_bytes = await self.size_bytes()
        cuts = (start_offset + count * number // parts for number in range(min(parts, at_most) + 1))
        return [(start, end, self._share(size_bytes, start, end)) for start, end in pairwise(cuts)]

    async def _ensure_range(self, start: int, end: int, isolation: FetchIsolation) -> None:
        await self.refresh()
        marks = self.marks.watermarks
        ensure_in_range(start, marks)
        ensure_in_range(end, marks, marks.bound(isolation).offset)

    def _share(self, size_bytes: int, start: int, end: int) -> int:
        marks = self.marks.watermarks
        offsets = max(1, marks.log_end_offset - marks.log_start_offset)
        return -(-size_bytes * (end - start) // offsets)

    # -- producers ---------------------------------------------------------------------------

    async def producers(self) -> Sequence[ProducerEntry]:
        """Return the producers that the leader remembers, by id."""

        async def ask() -> Sequence[ProducerEntry]:
            node = self.reader.leader().node
            topic, partition = self.topic_partition
            asked = TopicRequest(name=TopicName(topic), partition_indexes=(i32(partition),))
            request = DescribeProducersRequest(topics=(asked,))
            response = await self._reads.cluster.send(
                node, request, DescribeProducersResponse, lane=OFFSETS_LANE
            )
            entries: list[ProducerEntry] = []
            for one in (one for found in response.topics for one in found.partitions):
                ensure_done(one.error_code, one.error_message)
                entries += map(_entry, one.active_producers)
            return sorted(entries)

        return await self._retry(ask)

    # -- what is committed, and what is taken away ---------------------------------------------

    async def delete_records(self, before_offset: int) -> None:
        """Give up the records below an offset; raises as `Partition.delete_records`."""
        await self.refresh()
        target = deletion_target(before_offset, self.marks.watermarks)
        timeout_ms = self._reads.cluster.request_timeout_ms

        async def ask() -> None:
            node = self.reader.leader().node
            topic, partition = self.topic_partition
            asked = DeleteRecordsPartition(partition_index=i32(partition), offset=i64(target))
            request = DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=TopicName(topic), partitions=(asked,)),),
                timeout=milliseconds(timeout_ms // 2),
            )
            response = await self._reads.cluster.send(
                node, request, DeleteRecordsResponse, lane="admin"
            )
            for one in (one for found in response.topics for one in found.partitions):
                # A replica that is down learns of it later.
                if one.error_code is not ErrorCode.request_timed_out:
                    ensure_done(one.error_code)

        await self._reads.cluster.retry(ask, timeout_ms)
        await self.refresh()

    async def committed(self, end_offset: int) -> None:
        """Wait until everything below an offset is committed; raises CommitTimedOut."""
        try:
            async with asyncio.timeout(self._reads.commit_timeout_ms / 1000):
                while self.marks.watermarks.high_watermark < end_offset:
                    await self.refresh()
                    if self.marks.watermarks.high_watermark < end_offset:
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise CommitTimedOut(
                f"the cluster has not confirmed {self.topic_partition} in time"
            ) from None

    def when_committed(self, end_offset: int, settle: Settle) -> bool:
        """Call `settle` as `Partition.when_committed`."""
        if self.marks.watermarks.high_watermark >= end_offset:
            return False
        task = asyncio.get_running_loop().create_task(self._settle(end_offset, settle))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return True

    async def _settle(self, end_offset: int, settle: Settle) -> None:
        try:
            await self.committed(end_offset)
        except Exception as error:  # noqa: BLE001  # any error is reported
            settle(error)
        else:
            settle(None)

    def abandon(self, error: Exception) -> None:  # noqa: ARG002  # they find out when they read
        """Wake the readers: the topic is deleted."""
        self._on_abandoned(self.reader)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._reads.cluster.retry(attempt, self._reads.timeout_ms)


def _entry(producer: ProducerState) -> ProducerEntry:
    """Return a producer: one batch of unknown offsets stands for all sequences of the epoch.

    The leader says the last sequence, and accepts none before those below it.
    """
    last_sequence, timestamp = int(producer.last_sequence), int(producer.last_timestamp)
    batch = BatchMetadata(last_sequence, UNKNOWN_OFFSET, last_sequence, timestamp)
    first = int(producer.current_txn_start_offset)
    return ProducerEntry(
        int(producer.producer_id),
        int(producer.producer_epoch),
        int(producer.coordinator_epoch),
        timestamp,
        None if first < 0 else first,
        (batch,) if last_sequence >= 0 else (),
        timestamp,
    )


class Logs:
    """Makes the logs of a store, which share its requests. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        metrics: KafkaMetrics,
        *,
        wake: Callable[[Hashable], None],
        has_readers: Callable[[Hashable], bool],
        on_replaced: Callable[[TopicPartition], None],
    ) -> None:
        """`wake` and `has_readers` are the tail's; `on_replaced` as in `LogReader`."""
        self._reads = Reads(settings, cluster, metrics)
        self._followers = Followers(cluster, wake=wake, has_readers=has_readers)
        self._on_replaced = on_replaced

    def log(self, topic_partition: TopicPartition, topic_id: str) -> KafkaLog:
        """Return a new log."""
        return KafkaLog(
            self._reads,
            topic_partition,
            topic_id,
            on_moved=self._moved,
            on_abandoned=self._followers.abandon,
            on_replaced=partial(self._on_replaced, topic_partition),
        )

    def follow(self, log: Hashable) -> None:
        """Follow a log as long as readers wait for it."""
        assert isinstance(log, KafkaLog), "the identity of a partition here is its log"
        self._followers.follow(log.reader)

    def _moved(self, log: Hashable) -> None:
        assert isinstance(log, KafkaLog), "the identity of a partition here is its log"
        self._followers.moved(log.reader)

    def close(self) -> None:
        """End all fetches that wait."""
        self._followers.close()
