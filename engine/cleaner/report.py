"""The report of a cleaning, for the caller and the service's log."""

from __future__ import annotations

from dataclasses import dataclass

from engine.types import TopicPartition


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """One or more rounds on one log; sizes are those of the segments that were rewritten."""

    log: TopicPartition
    first_dirty_offset: int
    end_offset: int
    """Exclusive: below it every key has at most one record. A full map ends a round early."""
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_read: int
    records_kept: int
    records_without_key: int
    """Records without a key, which compaction drops."""
    keys_count: int
    """Different keys in the dirty part."""
    duration_ms: int

    def followed_by(self, later: CleaningReport) -> CleaningReport:
        """Return the report of both rounds; the later one rewrote what the earlier one wrote."""
        return CleaningReport(
            self.log,
            self.first_dirty_offset,
            later.end_offset,
            max(self.segments_before, later.segments_before),
            later.segments_after,
            max(self.bytes_before, later.bytes_before),
            later.bytes_after,
            self.records_read + later.records_read,
            later.records_kept,
            self.records_without_key + later.records_without_key,
            self.keys_count + later.keys_count,
            self.duration_ms + later.duration_ms,
        )

    def __str__(self) -> str:
        return (
            f"{self.log}: compacted offsets {self.first_dirty_offset} to {self.end_offset}, "
            f"{self.bytes_before} bytes in {self.segments_before} segments are now "
            f"{self.bytes_after} in {self.segments_after}, {self.records_kept} of "
            f"{self.records_read} records stay ({self.duration_ms} ms)"
        )
