"""The logs of the cluster: what reads them, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from app.settings import Settings
from app.store.kafka.cluster import Cluster
from app.store.kafka.log import KafkaLog
from app.store.kafka.metrics import KafkaMetrics
from app.store.kafka.read.followers import Followers
from app.store.kafka.read.reads import Reads
from engine.types import TopicPartition


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
