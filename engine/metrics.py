"""Metrics as a port: the engine reports, somebody else counts.

The names follow Kafka's beans; app/telemetry/metrics.py maps them to Prometheus. Gauges of a log
(size, offsets, segments) are read from the log at each scrape, so they cost nothing here.
"""

from __future__ import annotations

from typing import Protocol

from engine.types import TopicPartition


class Recorder(Protocol):
    """What the engine tells of itself. Methods are called from any thread and must not raise."""

    def appended(self, log: TopicPartition, *, records: int, size_bytes: int) -> None:
        """Count records and bytes that a client appended."""

    def read(self, log: TopicPartition, *, size_bytes: int) -> None:
        """Count bytes of whole batches handed to a reader."""

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        """Count one synced file set of a log (Kafka's LogFlushRateAndTimeMs)."""

    def rolled(self, log: TopicPartition) -> None:
        """Count a new active segment."""

    def recovering(self, log: TopicPartition, *, segments: int) -> None:
        """Note how many segments of a log are still to be scanned (remainingSegmentsToRecover)."""

    def recovered(
        self, log: TopicPartition, *, scanned_bytes: int, truncated_bytes: int, damaged: bool
    ) -> None:
        """Count one segment scanned after an unclean stop and what was cut from it."""

    def corrupt_data_found(self, log: TopicPartition) -> None:
        """Count damage met on the read path."""

    def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None:
        """Count segments that retention or a deletion took away."""

    def directory_offline(self, directory: str) -> None:
        """Count a data directory that takes no more writes."""

    def compacted(
        self,
        log: TopicPartition,
        *,
        read_bytes: int,
        written_bytes: int,
        duration_ms: int,
        map_utilization: float,
    ) -> None:
        """Note a round of compaction; the last is the share of the offset map that its keys took.

        Kafka's cleaner-recopy-percent, max-clean-time-secs, max-buffer-utilization-percent.
        """

    def cleaner_looked(self, *, dirty_ratio: float, delay_ms: int) -> None:
        """Note a look at all compacted logs: the greatest share of dirty bytes, 0 to 1.

        `delay_ms` is how long a record has waited past max.compaction.lag.ms. Kafka's
        max-dirty-percent, max-compaction-delay-secs, time-since-last-run-ms.
        """

    def uncleanable(self, directory: str, *, logs: int, size_bytes: int) -> None:
        """Note how many logs of a data directory were given up, and their dirty bytes."""

    def cleaner_io(self, *, size_bytes: int) -> None:
        """Count bytes that compaction reads or writes (Kafka's Throttler, cleaner-io)."""

    def moved(self, log: TopicPartition, *, succeeded: bool) -> None:
        """Count a move to another data directory that has come to its end."""

    def cleaner_died(self) -> None:
        """Count a thread of the cleaner that ended before it was stopped (DeadThreadCount)."""

    def scrubbed(self, log: TopicPartition, *, size_bytes: int, damaged: int) -> None:
        """Count bytes that the scrubber verified, and damaged places in them."""


class NullRecorder:
    """The recorder that records nothing."""

    def appended(self, log: TopicPartition, *, records: int, size_bytes: int) -> None: ...

    def read(self, log: TopicPartition, *, size_bytes: int) -> None: ...

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None: ...

    def rolled(self, log: TopicPartition) -> None: ...

    def recovering(self, log: TopicPartition, *, segments: int) -> None: ...

    def recovered(
        self, log: TopicPartition, *, scanned_bytes: int, truncated_bytes: int, damaged: bool
    ) -> None: ...

    def corrupt_data_found(self, log: TopicPartition) -> None: ...

    def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None: ...

    def directory_offline(self, directory: str) -> None: ...

    def compacted(
        self,
        log: TopicPartition,
        *,
        read_bytes: int,
        written_bytes: int,
        duration_ms: int,
        map_utilization: float,
    ) -> None: ...

    def cleaner_looked(self, *, dirty_ratio: float, delay_ms: int) -> None: ...

    def uncleanable(self, directory: str, *, logs: int, size_bytes: int) -> None: ...

    def cleaner_io(self, *, size_bytes: int) -> None: ...

    def moved(self, log: TopicPartition, *, succeeded: bool) -> None: ...

    def cleaner_died(self) -> None: ...

    def scrubbed(self, log: TopicPartition, *, size_bytes: int, damaged: int) -> None: ...
