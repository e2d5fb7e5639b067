"""Metrics as a port: the engine reports events, the implementation counts them.

The names follow Kafka's beans; app/telemetry/metrics.py maps them to Prometheus. Gauges of a log
(size, offsets, segments) are read from the log at each scrape, so they cost nothing here.
"""

from __future__ import annotations

from typing import Protocol

from engine.types import TopicPartition


class Recorder(Protocol):
    """Receives the engine's events. Methods are called from any thread and must not raise."""

    def appended(self, log: TopicPartition, *, records: int, size_bytes: int) -> None:
        """Count records and bytes that a client appended."""

    def read(self, log: TopicPartition, *, size_bytes: int) -> None:
        """Count bytes of whole batches handed to a reader."""

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        """Count one commit or flush of a log (Kafka's LogFlushRateAndTimeMs)."""

    def rolled(self, log: TopicPartition) -> None:
        """Count a new active segment."""

    def recovering(self, log: TopicPartition, *, segments: int) -> None:
        """Report how many segments of a log have yet to be scanned (remainingSegmentsToRecover)."""

    def recovered(
        self, log: TopicPartition, *, scanned_bytes: int, truncated_bytes: int, damaged: bool
    ) -> None:
        """Count one segment scanned after an unclean stop, and the bytes cut from it."""

    def records_missing(self, log: TopicPartition, *, count: int) -> None:
        """Count offsets that a checkpoint has as on disk, and the log lacks at its start."""

    def corrupt_data_found(self, log: TopicPartition) -> None:
        """Count damage found by a read."""

    def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None:
        """Count segments removed by retention or a deletion."""

    def directory_offline(self, directory: str) -> None:
        """Count a data directory that went offline."""

    def compacted(
        self,
        log: TopicPartition,
        *,
        read_bytes: int,
        written_bytes: int,
        duration_ms: int,
        map_utilization: float,
    ) -> None:
        """Report a round of compaction; the last argument is the used share of the offset map.

        Kafka's cleaner-recopy-percent, max-clean-time-secs, max-buffer-utilization-percent.
        """

    def cleaner_looked(self, *, dirty_ratio: float, delay_ms: int) -> None:
        """Report a check of all compacted logs: the greatest share of dirty bytes, 0 to 1.

        `delay_ms` is how long a record has waited past max.compaction.lag.ms. Kafka's
        max-dirty-percent, max-compaction-delay-secs, time-since-last-run-ms.
        """

    def uncleanable(self, directory: str, *, logs: int, size_bytes: int) -> None:
        """Report how many logs of a data directory are uncleanable, and their dirty bytes."""

    def cleaner_io(self, *, size_bytes: int) -> None:
        """Count bytes that compaction reads or writes (Kafka's Throttler, cleaner-io)."""

    def moved(self, log: TopicPartition, *, succeeded: bool) -> None:
        """Count a finished move to another data directory."""

    def cleaner_died(self) -> None:
        """Count a cleaner thread that ended before it was stopped (DeadThreadCount)."""

    def scrubbed(self, log: TopicPartition, *, size_bytes: int, damaged: int) -> None:
        """Count bytes that the scrubber verified, and damaged places in them."""

    def archived(self, log: TopicPartition, *, size_bytes: int) -> None:
        """Count one piece of a segment that was uploaded to the archive, and its bytes."""

    def archive_failed(self, log: TopicPartition) -> None:
        """Count a partition that a pass of the archive could not archive."""


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

    def records_missing(self, log: TopicPartition, *, count: int) -> None: ...

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

    def archived(self, log: TopicPartition, *, size_bytes: int) -> None: ...

    def archive_failed(self, log: TopicPartition) -> None: ...
