"""Counters, histograms and their export to Prometheus.

Names follow Kafka's beans; docs/metrics.md lists both.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.types import TopicPartition

BUCKETS_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    5.0, 30.0,
)  # fmt: skip


_NO_DURATIONS: Final = (0,) * (len(BUCKETS_SECONDS) + 1)


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
        """Return cumulative counts as Prometheus expects them."""
        bounds = [*map(str, BUCKETS_SECONDS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


_TopicCounts: TypeAlias = list[int]
"""Of a topic: records and bytes that were appended, bytes that were read. Guarded by the lock."""


def _no_counts() -> _TopicCounts:
    return [0, 0, 0]


class Counts(NamedTuple):
    """Sums of everything, since the start."""

    requests: int
    append_requests: int
    records_in: int
    bytes_in: int
    bytes_out: int
    append_seconds: tuple[int, ...]
    """Durations of appends: counts by bucket, not cumulative."""
    flush_seconds: tuple[int, ...]

    def since(self, before: Counts) -> Counts:
        """Return what came since an earlier count."""
        return Counts(
            self.requests - before.requests,
            self.append_requests - before.append_requests,
            self.records_in - before.records_in,
            self.bytes_in - before.bytes_in,
            self.bytes_out - before.bytes_out,
            _less(self.append_seconds, before.append_seconds),
            _less(self.flush_seconds, before.flush_seconds),
        )


def _less(now: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
    return tuple(one - other for one, other in zip(now, then, strict=True))


APPENDS: Final = frozenset(
    {
        "appendRecords",
        "appendTopicRecords",
        "appendBatches",
        "ingest",
        "ingestWithToken",
        "ingestOtlp",
        "ingestHec",
        "kafkaRestProduceToTopic",
        "kafkaRestProduceToPartition",
    }
)
"""Operations whose durations are those of appends."""


class _Constant(Collector):
    """One family that never changes."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


CERTIFICATE_EXPIRY: Final = (
    "certificate_expiry_timestamp_seconds",
    "When the TLS certificate ends, Unix time; NaN without TLS",
)


class Telemetry:
    """The engine's recorder and the service's own counters, as one Prometheus collector.

    `answered`, `explained` and `tail_ended` belong to the event loop; the recorder's methods may be
    called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._problems: Counter[str] = Counter()
        self._ingest_refusals: Counter[str] = Counter()
        self._tail_ends: Counter[str] = Counter()
        self._topics: defaultdict[str, _TopicCounts] = defaultdict(_no_counts)
        self._minute: defaultdict[str, _TopicCounts] = defaultdict(_no_counts)
        """What was appended since `take_minute`, and nothing of what was read."""
        self._sums = _no_counts()
        self._events: Counter[str] = Counter()
        self._flushes = Histogram()
        self._cleaner: dict[str, float] = {}
        self._cleaner_looked_at = monotonic()
        self._uncleanable: dict[str, tuple[int, int]] = {}
        self._recovering: Counter[TopicPartition] = Counter()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._counters: dict[str, tuple[str, Callable[[], float]]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def include(self, collector: Collector) -> None:
        """Show what this collector yields, too, at each scrape."""
        self._registry.register(collector)

    def info(self, name: str, documentation: str, facts: dict[str, str]) -> None:
        """Show facts as the labels of a gauge that is always 1, as Prometheus' own do."""
        family = InfoMetricFamily(f"tidelog_{name}", documentation, value=facts)
        self._registry.register(_Constant(family))

    def gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Read this value at each scrape."""
        self._gauges[name] = (documentation, value)

    def counter(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Read this value, which only grows, at each scrape."""
        self._counters[name] = (documentation, value)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count one answer of the service."""
        self._requests[operation, status] += 1
        self._durations[operation].observe(seconds)

    def explained(self, code: str) -> None:
        """Count one problem document by its code."""
        self._problems[code] += 1

    def ingest_refused(self, reason: str) -> None:
        """Count one request to an ingest URL by why it was refused."""
        self._ingest_refusals[reason] += 1

    def tail_ended(self, reason: str) -> None:
        """Count one tail by why it ended."""
        self._tail_ends[reason] += 1

    def counts(self) -> Counts:
        """Return the sums of everything; for the event loop."""
        with self._lock:
            sums, flushes = tuple(self._sums), tuple(self._flushes.counts)
        appends = [self._durations[name].counts for name in APPENDS if name in self._durations]
        return Counts(
            self._requests.total(),
            sum(map(sum, appends)),
            sums[0],
            sums[1],
            sums[2],
            tuple(map(sum, zip(*appends, strict=True))) or _NO_DURATIONS,
            flushes,
        )

    def take_minute(self) -> Mapping[str, Sequence[int]]:
        """Return records and bytes appended to each topic since the last call."""
        with self._lock:
            taken, self._minute = self._minute, defaultdict(_no_counts)
        return taken

    @property
    def uncleanable_count(self) -> int:
        """The compacted logs that are not compacted until a restart."""
        with self._lock:
            return sum(logs for logs, _ in self._uncleanable.values())

    # What the engine reports; see engine.metrics.Recorder.

    def appended(self, log: TopicPartition, *, records: int, size_bytes: int) -> None:
        with self._lock:
            for counts in (self._topics[log.topic], self._minute[log.topic], self._sums):
                counts[0] += records
                counts[1] += size_bytes

    def read(self, log: TopicPartition, *, size_bytes: int) -> None:
        with self._lock:
            self._topics[log.topic][2] += size_bytes
            self._sums[2] += size_bytes

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        with self._lock:
            self._flushes.observe(duration_ms / 1000)

    def rolled(self, log: TopicPartition) -> None:
        self._count("segments_rolled")

    def recovering(self, log: TopicPartition, *, segments: int) -> None:
        with self._lock:
            self._recovering[log] = segments

    def recovered(
        self, log: TopicPartition, *, scanned_bytes: int, truncated_bytes: int, damaged: bool
    ) -> None:
        self._count("recovered_segments")
        self._count("recovered_bytes", scanned_bytes)
        self._count("truncated_bytes", truncated_bytes)
        self._count("damaged_segments", int(damaged))

    def records_missing(self, log: TopicPartition, *, count: int) -> None:
        self._count("missing_records", count)

    def corrupt_data_found(self, log: TopicPartition) -> None:
        self._count("corrupt_reads")

    def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None:
        self._count("segments_deleted", count)
        self._count("bytes_deleted", size_bytes)

    def directory_offline(self, directory: str) -> None:
        self._count("offline_directories")

    def compacted(
        self,
        log: TopicPartition,
        *,
        read_bytes: int,
        written_bytes: int,
        duration_ms: int,
        map_utilization: float,
    ) -> None:
        with self._lock:
            self._events["compactions"] += 1
            self._cleaner |= {
                "recopy_percent": 100 * written_bytes / read_bytes if read_bytes else 0.0,
                "max_clean_time_secs": duration_ms / 1000,
                "max_buffer_utilization_percent": 100 * map_utilization,
            }

    def cleaner_looked(self, *, dirty_ratio: float, delay_ms: int) -> None:
        with self._lock:
            self._cleaner_looked_at = monotonic()
            self._cleaner |= {
                "max_dirty_percent": 100 * dirty_ratio,
                "max_compaction_delay_secs": delay_ms / 1000,
            }

    def uncleanable(self, directory: str, *, logs: int, size_bytes: int) -> None:
        with self._lock:
            self._uncleanable[directory] = (logs, size_bytes)

    def cleaner_io(self, *, size_bytes: int) -> None:
        self._count("cleaner_io_bytes", size_bytes)

    def cleaner_died(self) -> None:
        self._count("cleaner_dead_threads")

    def scrubbed(self, log: TopicPartition, *, size_bytes: int, damaged: int) -> None:
        self._count("scrubbed_bytes", size_bytes)
        self._count("scrub_damage", damaged)

    def moved(self, log: TopicPartition, *, succeeded: bool) -> None:
        self._count("moves" if succeeded else "failed_moves")

    def archived(self, log: TopicPartition, *, size_bytes: int) -> None:
        self._count("archive_uploads")
        self._count("archive_uploaded_bytes", size_bytes)

    def archive_failed(self, log: TopicPartition) -> None:
        self._count("archive_failures")

    def _count(self, event: str, amount: int = 1) -> None:
        with self._lock:
            self._events[event] += amount

    # The collector.

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; called by Prometheus' registry."""
        yield from self._collect_requests()
        yield from self._collect_engine()
        yield from self._collect_cleaner()
        for name, (documentation, value) in self._gauges.items():
            yield GaugeMetricFamily(f"tidelog_{name}", documentation, value=value())
        for name, (documentation, value) in self._counters.items():
            yield CounterMetricFamily(f"tidelog_{name}", documentation, value=value())

    def _collect_requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "tidelog_requests", "Responses by operation and status", labels=["operation", "status"]
        )
        for (operation, status), count in list(self._requests.items()):
            requests.add_metric([operation, str(status)], count)
        yield requests
        problems = CounterMetricFamily(
            "tidelog_problems", "Error responses, by the code of the problem", labels=["code"]
        )
        for code, count in list(self._problems.items()):
            problems.add_metric([code], count)
        yield problems
        ingest_refusals = CounterMetricFamily(
            "tidelog_ingest_refused", "Refused requests to ingest URLs", labels=["reason"]
        )
        for reason, count in list(self._ingest_refusals.items()):
            ingest_refusals.add_metric([reason], count)
        yield ingest_refusals
        tail_ends = CounterMetricFamily(
            "tidelog_tail_ends", "Tails that ended, by the reason", labels=["reason"]
        )
        for reason, count in list(self._tail_ends.items()):
            tail_ends.add_metric([reason], count)
        yield tail_ends
        durations = HistogramMetricFamily(
            "tidelog_request_seconds",
            "From the request's head to its response",
            labels=["operation"],
        )
        for operation, histogram in list(self._durations.items()):
            durations.add_metric([operation], histogram.buckets(), histogram.sum_seconds)
        yield durations

    def _collect_engine(self) -> Iterator[Metric]:
        with self._lock:
            remaining = self._recovering.total()
            topics = [(name, tuple(counts)) for name, counts in self._topics.items()]
            events = self._events.copy()
            flush_buckets, flush_sum = self._flushes.buckets(), self._flushes.sum_seconds
        for place, (kind, documentation) in enumerate(_TOPIC_COUNTERS.items()):
            family = CounterMetricFamily(f"tidelog_{kind}", documentation, labels=["topic"])
            for counted in topics:
                family.add_metric([counted[0]], counted[1][place])
            yield family
        for event, documentation in _EVENT_COUNTERS.items():
            yield CounterMetricFamily(f"tidelog_{event}", documentation, value=events[event])
        yield GaugeMetricFamily(
            "tidelog_remaining_segments_to_recover",
            "While starting: segments not yet scanned of logs that are being opened",
            value=remaining,
        )
        yield HistogramMetricFamily(
            "tidelog_log_flush_seconds",
            "Time to sync one log (Kafka's LogFlushRateAndTimeMs)",
            buckets=flush_buckets,
            sum_value=flush_sum,
        )

    def _collect_cleaner(self) -> Iterator[Metric]:
        with self._lock:
            figures, uncleanable = dict(self._cleaner), dict(self._uncleanable)
            idle_ms = 1000 * (monotonic() - self._cleaner_looked_at)
        figures["time_since_last_run_ms"] = idle_ms
        for name, documentation in _CLEANER_GAUGES.items():
            value = figures.get(name, 0.0)
            yield GaugeMetricFamily(f"tidelog_cleaner_{name}", documentation, value=value)
        labels = ["log_directory"]
        partitions, stuck = (
            GaugeMetricFamily(f"tidelog_cleaner_{name}", documentation, labels=labels)
            for name, documentation in _UNCLEANABLE_GAUGES.items()
        )
        for directory, (logs, size_bytes) in uncleanable.items():
            partitions.add_metric([directory], logs)
            stuck.add_metric([directory], size_bytes)
        yield partitions
        yield stuck


_TOPIC_COUNTERS: Final = {
    "records_in": "Records appended (Kafka's MessagesInPerSec)",
    "bytes_in": "Bytes of batches appended (Kafka's BytesInPerSec)",
    "bytes_out": "Bytes of batches read (Kafka's BytesOutPerSec)",
}

_EVENT_COUNTERS: Final = {
    "segments_rolled": "New active segments",
    "segments_deleted": "Segments removed by retention or a deletion",
    "bytes_deleted": "Bytes of those segments",
    "recovered_segments": "Segments scanned after an unclean stop",
    "recovered_bytes": "Bytes scanned after an unclean stop",
    "truncated_bytes": "Bytes cut from torn or damaged tails",
    "damaged_segments": "Segments whose tail was damaged, not merely torn",
    "missing_records": "Offsets that a checkpoint had as on disk, and no log at the start",
    "corrupt_reads": "Damage found by reads",
    "scrubbed_bytes": "Bytes that the scrubber verified",
    "scrub_damage": "Damaged places that the scrubber found, counted in each pass",
    "offline_directories": "Data directories that are offline (OfflineLogDirectoryCount)",
    "compactions": "Rounds of compaction",
    "moves": "Partitions that were moved to another data directory",
    "failed_moves": "Moves that failed",
    "cleaner_io_bytes": "Bytes that compaction read and wrote (Kafka's Throttler, cleaner-io)",
    "archive_uploads": "Pieces of segments that were uploaded to the archive",
    "archive_uploaded_bytes": "Bytes of those",
    "archive_failures": "Partitions that a pass of the archive could not archive",
    "cleaner_dead_threads": "Cleaner threads that ended before they were stopped (DeadThreadCount)",
}

_CLEANER_GAUGES: Final = {
    "recopy_percent": "Share of read bytes that the last compaction wrote (cleaner-recopy-percent)",
    "max_clean_time_secs": "Duration of the last compaction",
    "max_buffer_utilization_percent": "Share of the offset map that the last compaction used",
    "max_dirty_percent": "Greatest share of dirty bytes in a compacted log",
    "max_compaction_delay_secs": "How long a record has waited past max.compaction.lag.ms",
    "time_since_last_run_ms": "Time since the cleaner last looked for dirty logs",
}
"""Named as Kafka's gauges of LogCleaner and LogCleanerManager."""

_UNCLEANABLE_GAUGES: Final = {
    "uncleanable_partitions_count": "Logs that are not compacted until restart",
    "uncleanable_bytes": "Dirty bytes of those logs",
}
