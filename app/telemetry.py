"""What is counted, and how it is told to Prometheus.

Names follow Kafka's beans (`kafka.log:type=Log,name=Size` is `tidelog_log_size_bytes`). Gauges of
a log are read when somebody scrapes, so they cost an append nothing.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from engine.log.log import Log
from engine.types import TopicPartition

BUCKETS_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    5.0, 30.0,
)  # fmt: skip


class Histogram:
    """Durations in fixed buckets. Not thread-safe: its owner guards it."""

    __slots__ = ("counts", "sum_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts as Prometheus wants them."""
        bounds = [*map(str, BUCKETS_SECONDS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class Telemetry:
    """The engine's recorder and the service's own counters, as one Prometheus collector.

    `answered` belongs to the event loop; the recorder's methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._topics: Counter[tuple[str, str]] = Counter()
        self._events: Counter[str] = Counter()
        self._flushes = Histogram()
        self._logs: Callable[[], Iterable[Log]] = tuple
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def watch_logs(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Read the gauges of these logs at each scrape."""
        self._logs = logs

    def gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Read this value at each scrape."""
        self._gauges[name] = (documentation, value)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count one answer of the service."""
        self._requests[operation, status] += 1
        self._durations[operation].observe(seconds)

    # What the engine reports; see engine.metrics.Recorder.

    def appended(self, log: TopicPartition, *, records: int, size_bytes: int) -> None:
        with self._lock:
            self._topics["records_in", log.topic] += records
            self._topics["bytes_in", log.topic] += size_bytes

    def read(self, log: TopicPartition, *, size_bytes: int) -> None:
        with self._lock:
            self._topics["bytes_out", log.topic] += size_bytes

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        with self._lock:
            self._flushes.observe(duration_ms / 1000)

    def rolled(self, log: TopicPartition) -> None:
        self._count("segments_rolled")

    def recovered(
        self, log: TopicPartition, *, scanned_bytes: int, truncated_bytes: int, damaged: bool
    ) -> None:
        self._count("recovered_segments")
        self._count("recovered_bytes", scanned_bytes)
        self._count("truncated_bytes", truncated_bytes)
        self._count("damaged_segments", int(damaged))

    def corrupt_data_found(self, log: TopicPartition) -> None:
        self._count("corrupt_reads")

    def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None:
        self._count("segments_deleted", count)
        self._count("bytes_deleted", size_bytes)

    def directory_offline(self, directory: str) -> None:
        self._count("offline_directories")

    def _count(self, event: str, amount: int = 1) -> None:
        with self._lock:
            self._events[event] += amount

    # The collector.

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; called by Prometheus' registry."""
        yield from self._collect_requests()
        yield from self._collect_engine()
        for name, (documentation, value) in self._gauges.items():
            yield GaugeMetricFamily(f"tidelog_{name}", documentation, value=value())
        yield from self._collect_logs()

    def _collect_requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "tidelog_requests", "Answers by operation and status", labels=["operation", "status"]
        )
        for (operation, status), count in list(self._requests.items()):
            requests.add_metric([operation, str(status)], count)
        yield requests
        durations = HistogramMetricFamily(
            "tidelog_request_seconds", "From the request's head to its answer", labels=["operation"]
        )
        for operation, histogram in list(self._durations.items()):
            durations.add_metric([operation], histogram.buckets(), histogram.sum_seconds)
        yield durations

    def _collect_engine(self) -> Iterator[Metric]:
        with self._lock:
            topics, events = self._topics.copy(), self._events.copy()
            flush_buckets, flush_sum = self._flushes.buckets(), self._flushes.sum_seconds
        for kind, documentation in _TOPIC_COUNTERS.items():
            family = CounterMetricFamily(f"tidelog_{kind}", documentation, labels=["topic"])
            for (counted, topic), count in topics.items():
                if counted == kind:
                    family.add_metric([topic], count)
            yield family
        for event, documentation in _EVENT_COUNTERS.items():
            yield CounterMetricFamily(f"tidelog_{event}", documentation, value=events[event])
        yield HistogramMetricFamily(
            "tidelog_log_flush_seconds",
            "Time to sync one log (Kafka's LogFlushRateAndTimeMs)",
            buckets=flush_buckets,
            sum_value=flush_sum,
        )

    def _collect_logs(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(
                f"tidelog_log_{name}", documentation, labels=["topic", "partition"]
            )
            for name, documentation in _LOG_GAUGES.items()
        }
        for log in self._logs():
            labels = [log.topic_partition.topic, str(log.topic_partition.partition)]
            marks = log.watermarks
            families["size_bytes"].add_metric(labels, log.size_bytes)
            families["start_offset"].add_metric(labels, marks.log_start_offset)
            families["high_watermark"].add_metric(labels, marks.high_watermark)
            families["last_stable_offset"].add_metric(labels, marks.last_stable_offset)
            families["end_offset"].add_metric(labels, marks.log_end_offset)
            families["recovery_point"].add_metric(labels, log.recovery_point)
        yield from families.values()


_TOPIC_COUNTERS: Final = {
    "records_in": "Records appended (Kafka's MessagesInPerSec)",
    "bytes_in": "Bytes of batches appended (Kafka's BytesInPerSec)",
    "bytes_out": "Bytes of batches read (Kafka's BytesOutPerSec)",
}

_EVENT_COUNTERS: Final = {
    "segments_rolled": "New active segments",
    "segments_deleted": "Segments that retention or a deletion took away",
    "bytes_deleted": "Bytes of those segments",
    "recovered_segments": "Segments scanned after an unclean stop",
    "recovered_bytes": "Bytes scanned after an unclean stop",
    "truncated_bytes": "Bytes cut from torn or damaged tails",
    "damaged_segments": "Segments whose tail was damaged, not merely torn",
    "corrupt_reads": "Damage met while reading",
    "offline_directories": "Data directories that take no more writes (OfflineLogDirectoryCount)",
}

_LOG_GAUGES: Final = {
    "size_bytes": "Bytes of all segments (Kafka's Size)",
    "start_offset": "First offset (Kafka's LogStartOffset)",
    "high_watermark": "End of what is flushed and readable, exclusive",
    "last_stable_offset": "End of what read_committed sees, exclusive",
    "end_offset": "End of the log, exclusive (Kafka's LogEndOffset)",
    "recovery_point": "Start-up believes what lies below",
}
