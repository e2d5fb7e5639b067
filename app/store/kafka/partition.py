"""A partition of the cluster: what is known of it, its appends, and its reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.store.kafka.appends import PartitionAppends
from app.store.kafka.marks import Marks
from app.store.kafka.reads import PartitionReads
from app.store.port import Partition, Run, RunLookUp, Settle
from engine.config import LogConfig
from engine.guard import WouldBlock
from engine.log.results import Appended, Fetched, LogTag
from engine.records.budget import DecodeBudget
from engine.state.producer_entry import ProducerEntry
from engine.state.watermarks import Watermarks
from engine.types import Buffer, FetchIsolation, TimestampAndOffset, TopicPartition


class KafkaPartition(Partition):
    """One partition whose log brokers keep; it delegates to its parts."""

    __slots__ = ("_appends", "_config", "_log_id", "_reads", "marks")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: str,
        *,
        config: LogConfig,
        marks: Marks,
        appends: PartitionAppends,
        reads: PartitionReads,
    ) -> None:
        super().__init__(topic_partition, topic_id, identity=(topic_id, topic_partition.partition))
        self._log_id = f"{topic_id}.0"  # elections raise the epoch, and offsets keep their records
        self._config = config
        self.marks = marks
        self._appends = appends
        self._reads = reads

    def configure(self, config: LogConfig) -> None:
        """Publish the configuration as it was read last."""
        self._config = config

    @property
    def log_id(self) -> str:
        return self._log_id

    @property
    def leader_epoch(self) -> int:
        return self.marks.leader_epoch

    @property
    def watermarks(self) -> Watermarks:
        return self.marks.watermarks

    @property
    def recovery_point(self) -> int:
        return self.marks.watermarks.high_watermark

    @property
    def config(self) -> LogConfig:
        return self._config
