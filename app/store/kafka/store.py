"""A Kafka cluster as the store: its topics, group offsets and documents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Final

from prometheus_client.metrics_core import Metric

from app.settings import Settings
from app.store.kafka.appends import PartitionAppends, ProduceRequests
from app.store.kafka.cluster import Cluster
from app.store.kafka.connection import Metadata
from app.store.kafka.documents import KafkaDocuments
from app.store.kafka.groups import KafkaGroupOffsets
from app.store.kafka.log import Logs
from app.store.kafka.marks import Marks
from app.store.kafka.metrics import KafkaMetrics
from app.store.kafka.partition import KafkaPartition
from app.store.kafka.topics import KafkaTopics, TopicConfig
from app.store.local.documents import read_documents
from app.store.port import Store
from engine.clock import Clock
from engine.fs.port import FileSystem
from engine.types import TopicPartition

MAX_OFFLINE_SHOWN: Final = 100
"""Partitions without a leader that are named in the readiness report; it counts all."""


class KafkaStore(Store):
    """The logs of a cluster. Belongs to the event loop."""

    topics: KafkaTopics
    groups: KafkaGroupOffsets
    documents: KafkaDocuments

    backend = "kafka"
    durability = "replicated"

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        fs: FileSystem,
        on_moved: Callable[[Hashable], None],
        has_readers: Callable[[Hashable], bool],
        on_gone: Callable[[str], None],
    ) -> None:
        """`on_gone` gets the name of a topic whose handles are not valid any more."""
        self._settings = settings
        self._metrics = KafkaMetrics()
        self._cluster = Cluster(settings, self._take)
        self._requests = ProduceRequests(settings, self._cluster, self._metrics)
        self.topics = KafkaTopics(
            settings,
            self._cluster,
            make_partition=self._make_partition,
            on_gone=on_gone,
            wake=on_moved,
        )
        self._logs = Logs(
            settings,
            self._cluster,
            self._metrics,
            wake=on_moved,
            has_readers=has_readers,
            on_replaced=self.topics.replace,
        )
        self.follow = self._logs.follow
        self.groups = KafkaGroupOffsets(self._cluster, self.topics.all)
        place = TopicPartition(settings.kafka_documents_topic, 0)
        appends = self._appends(place, Marks(place, _ignore))
        self.documents = KafkaDocuments(
            settings,
            cluster=self._cluster,
            topics=self.topics,
            appends=appends,
            clock=clock,
            read_local=partial(read_documents, fs, settings.data_directory),
        )

    async def _take(self, metadata: Metadata) -> None:
        await self.topics.take(metadata)

    def _make_partition(
        self, topic_partition: TopicPartition, topic_id: str, config: TopicConfig
    ) -> KafkaPartition:
        log = self._logs.log(topic_partition, topic_id)
        appends = self._appends(topic_partition, log.marks)
        return KafkaPartition(log, appends, config.config, self._settings.url_prefix)

    def _appends(self, topic_partition: TopicPartition, marks: Marks) -> PartitionAppends:
        return PartitionAppends(
            topic_partition,
            cluster=self._cluster,
            requests=self._requests,
            marks=marks,
            timeout_ms=self._settings.commit_timeout_ms,
        )

    async def open(self) -> None:
        """Read the metadata and the documents."""
        await self._cluster.open()
        await self.documents.open()

    async def close(self) -> None:
        """Wait for the answers to appends, and close the connections."""
        await self._requests.close()
        await self.documents.close()
        self._logs.close()
        await self._cluster.close()

    def progress(self) -> Mapping[str, int]:
        """Return nothing to recover: the brokers have the logs."""
        return {"opened_logs": 0, "total_logs": 0, "loaded_group_logs": 0, "total_group_logs": 0}

    def failure(self) -> str | None:
        return self._cluster.problem

    def report(self) -> Mapping[str, object]:
        """Return how many partitions have no leader."""
        offline = self.topics.offline()
        if not offline:
            return {}
        shown = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "file": str(one),
                "problem": "the partition has no leader at present",
            }
            for one in offline[:MAX_OFFLINE_SHOWN]
        ]
        return {"offline_logs_count": len(offline), "offline_logs": shown}

    def commit_buckets(self) -> list[tuple[float, float]]:
        """Return how long brokers have taken to answer a produce."""
        return self._metrics.produce_buckets()

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.collect()


def _ignore(_log: Hashable) -> None:
    """Do nothing: the documents follow their topic themselves."""
