"""Reports what a load found and repaired, to the service's log, the metrics and the caller."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from engine.fs.names import parse_partition_directory
from engine.log.results import Recovery
from engine.metrics import Recorder
from engine.records.scan import Tail
from engine.segment.recovery import SegmentRecovery
from engine.segment.segment import Segment
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


class RecoveryReport:
    """The report of one load; `recovery` is the result so far."""

    def __init__(self, directory: Path, recorder: Recorder, *, was_clean: bool) -> None:
        self.recovery = Recovery(was_clean)
        self._directory = directory
        self._recorder = recorder

    @property
    def _log(self) -> TopicPartition:
        return parse_partition_directory(self._directory.name).topic_partition

    def remaining(self, segments: int) -> None:
        """Report how many segments have yet to be scanned."""
        self._recorder.recovering(self._log, segments=segments)

    def scanned(self, segment: Segment, result: SegmentRecovery) -> None:
        """Report what the scan of one segment found and cut."""
        damaged = result.tail is Tail.DAMAGED
        if result.truncated_bytes:
            level = logging.ERROR if damaged else logging.WARNING
            _LOG.log(
                level,
                "%s: cut %d bytes after byte %d: %s",
                segment.records.path,
                result.truncated_bytes,
                result.scanned_bytes,
                result.reason,
            )
        elif damaged:
            _LOG.error(
                "%s is damaged after byte %d: %s",
                segment.records.path,
                result.scanned_bytes,
                result.reason,
            )
        self._recorder.recovered(
            self._log,
            scanned_bytes=result.scanned_bytes,
            truncated_bytes=result.truncated_bytes,
            damaged=damaged,
        )
        before = self.recovery
        self.recovery = replace(
            before,
            recovered_segments=before.recovered_segments + 1,
            scanned_bytes=before.scanned_bytes + result.scanned_bytes,
            truncated_bytes=before.truncated_bytes + result.truncated_bytes,
            damage=result.reason if damaged else before.damage,
        )

    def removed(self, count: int) -> None:
        """Count removed segments after the end of the log."""
        removed = self.recovery.removed_segments + count
        self.recovery = replace(self.recovery, removed_segments=removed)

    def lost(self, what: str) -> None:
        """Report missing records or wrong offsets; only the first fault is kept."""
        _LOG.error("%s: %s", self._directory, what)
        self.recovery = replace(self.recovery, damage=self.recovery.damage or what)

    def compare_with_promises(
        self, end_offset: int, *, recovery_point: int, high_watermark: int
    ) -> None:
        """Report if the log ends below what was durable and visible, or above its clean end."""
        promised = max(recovery_point, high_watermark)
        if end_offset < promised:
            self.lost(
                f"the log ends at {end_offset}, but {promised} was on disk: records are missing"
            )
        elif self.recovery.was_clean and 0 < recovery_point < end_offset:
            # No checksum covers the offset of the last batch, and no later batch contradicts it.
            self.lost(
                f"the log ends at {end_offset}, but it was stopped at {recovery_point}: "
                "the last offset, or that checkpoint, is wrong"
            )
