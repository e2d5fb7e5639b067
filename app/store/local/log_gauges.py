"""Gauges of logs and data directories, computed at a scrape: appends pay nothing.

The number of partitions with their own series is bounded (`max_metric_partitions`); the sums of
topics include all partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from engine.clock import Clock
from engine.fs.port import FileSystem, Space
from engine.log.log import Log
from engine.manager.manager import LogManager

MAX_TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000
"""Kafka's transaction.max.timeout.ms, which cannot be changed here."""


class Figures(NamedTuple):
    """One log at a scrape; the fields are those of the gauges, in their order."""

    size_bytes: int
    segments: int
    start_offset: int
    high_watermark: int
    last_stable_offset: int
    end_offset: int
    recovery_point: int
    unflushed_bytes: int
    producers: int


def space_of(fs: FileSystem, directory: Path) -> Space | None:
    """Return the size and free bytes of a directory's file system; None if it cannot be read."""
    try:
        return fs.space(directory)
    except OSError:
        return None


class LogGauges:
    """What the logs and their directories are like now, as Prometheus' families."""

    def __init__(
        self,
        manager: LogManager,
        *,
        fs: FileSystem,
        clock: Clock,
        max_partitions: int,
    ) -> None:
        self._manager = manager
        self._fs = fs
        self._clock = clock
        self._max_partitions = max_partitions

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        progress = self._manager.recovery_progress
        yield GaugeMetricFamily(
            "tidelog_remaining_logs_to_recover",
            "While starting: logs not open yet",
            progress.total_logs - progress.opened_logs,
        )
        yield from self._collect_logs()
        yield from self._collect_offline_logs()
        yield GaugeMetricFamily(
            "tidelog_damaged_places",
            "Damaged places that are known and damaged still",
            len(self._manager.damage),
        )
        yield from self._collect_directories()

    def _collect_directories(self) -> Iterator[Metric]:
        offline, total, free = families = _families(
            _DIRECTORY_GAUGES, "tidelog_log_directory_", ["log_directory"]
        )
        for health in self._manager.directories:
            labels = [str(health.directory)]
            offline.add_metric(labels, float(health.is_offline))
            space = space_of(self._fs, health.directory)
            if space is not None:  # otherwise no value: 0 would raise an alert
                total.add_metric(labels, space.total_bytes)
                free.add_metric(labels, space.free_bytes)
        yield from families

    def _collect_offline_logs(self) -> Iterator[Metric]:
        offline = self._manager.offline_logs
        yield GaugeMetricFamily(
            "tidelog_offline_logs", "Logs that could not be opened at the start", value=len(offline)
        )
        single = GaugeMetricFamily(
            "tidelog_log_offline",
            "1: the log could not be opened; see /readyz",
            labels=["topic", "partition"],
        )
        for log in offline[: self._max_partitions]:
            topic, partition = log.topic_partition
            single.add_metric([topic, str(partition)], 1)
        yield single

    def _collect_logs(self) -> Iterator[Metric]:
        now_ms = self._clock.now_ms()
        single = _families(_LOG_GAUGES, "tidelog_log_", ["topic", "partition"])
        sizes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        partitions = producers = late = unflushed_bytes = 0
        for log in self._manager.logs():
            figures = _figures(log)
            topic, partition = log.topic_partition
            if partitions < self._max_partitions:
                for family, value in zip(single, figures, strict=True):
                    family.add_metric([topic, str(partition)], value)
            partitions += 1
            producers += figures.producers
            unflushed_bytes += figures.unflushed_bytes
            late += has_late_transaction(log, now_ms)
            sums = sizes[topic]
            sums[0] += 1
            sums[1] += figures.size_bytes
            sums[2] += figures.segments
        yield from single
        topics = _families(_TOPIC_GAUGES, "tidelog_topic_", ["topic"])
        for topic, values in sizes.items():
            for family, value in zip(topics, values, strict=True):
                family.add_metric([topic], value)
        yield from topics
        totals = {
            "partitions": partitions,
            "partitions_without_series": max(0, partitions - self._max_partitions),
            "producers": producers,
            "partitions_with_late_transactions": late,
            "unflushed_bytes": unflushed_bytes,
        }
        for name, value in totals.items():
            yield GaugeMetricFamily(f"tidelog_{name}", _TOTALS[name], value=value)


def has_late_transaction(log: Log, now_ms: int) -> bool:
    """Whether a transaction is open for longer than Kafka allows one to be."""
    if log.watermarks.first_unstable is None:
        return False  # without the log's lock, for nearly every log
    return any(
        entry.is_late(now_ms, MAX_TRANSACTION_TIMEOUT_MS) for entry in log.producers.active()
    )


def _families(gauges: dict[str, str], prefix: str, labels: list[str]) -> list[GaugeMetricFamily]:
    return [
        GaugeMetricFamily(prefix + name, documentation, labels=labels)
        for name, documentation in gauges.items()
    ]


def _figures(log: Log) -> Figures:
    marks = log.watermarks
    return Figures(
        size_bytes=log.reader.size_bytes,
        segments=log.reader.segments_count,
        start_offset=marks.log_start_offset,
        high_watermark=marks.high_watermark,
        last_stable_offset=marks.last_stable_offset,
        end_offset=marks.log_end_offset,
        recovery_point=log.durability.recovery_point,
        unflushed_bytes=log.durability.uncommitted_bytes,
        producers=log.producers.count,
    )


_DIRECTORY_GAUGES: Final = {
    "offline": "1 if the data directory refuses writes (Kafka's LogDirectoryOffline)",
    "total_bytes": "Size of the file system of the data directory",
    "free_bytes": "Free bytes of that file system, for this process",
}

_LOG_GAUGES: Final = {
    "size_bytes": "Bytes of all segments (Kafka's Size)",
    "segments": "Number of segments (Kafka's NumLogSegments)",
    "start_offset": "First offset (Kafka's LogStartOffset)",
    "high_watermark": "High watermark: end of what is synced and readable, exclusive",
    "last_stable_offset": "Last stable offset: end of what read_committed sees, exclusive",
    "end_offset": "End of the log, exclusive (Kafka's LogEndOffset)",
    "recovery_point": "Recovery point: a restart does not scan below it",
    "unflushed_bytes": "Bytes above the high watermark, which readers do not see yet",
    "producers": "Producer ids in the log's state",
}

_TOPIC_GAUGES: Final = {
    "partitions": "Partitions of the topic",
    "size_bytes": "Bytes of all its segments",
    "segments": "Number of segments of all its partitions",
}

_TOTALS: Final = {
    "partitions": "Partitions of all topics (Kafka's PartitionCount)",
    "partitions_without_series": "Partitions beyond max_metric_partitions, only counted in sums",
    "producers": "Producer ids in the state of all logs (Kafka's ProducerIdCount)",
    "partitions_with_late_transactions": (
        "Logs with an overdue transaction (Kafka's PartitionsWithLateTransactionsCount)"
    ),
    "unflushed_bytes": "Bytes above the high watermark of all logs",
}
