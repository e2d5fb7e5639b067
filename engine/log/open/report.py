"""What a load found wrong and what it did about it: in the log, in the figures, for the owner."""

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
    """Grows while one log is loaded; `recovery` is what there is of it so far."""

    def __init__(self, directory: Path, recorder: Recorder, *, was_clean: bool) -> None:
        self.recovery = Recovery(was_clean)
        self._directory = directory
        self._recorder = recorder

    @property
    def _log(self) -> TopicPartition:
        return parse_partition_directory(self._directory.name).topic_partition

    def remaining(self, segments: int) -> None:
        """Tell how many segments are still to be scanned."""
        self._recorder.recovering(self._log, segments=segments)

    def scanned(self, segment: Segment, result: SegmentRecovery) -> None:
        """Tell what the scan of one segment found and cut."""
        damaged = result.tail is Tail.DAMAGED
        if result.truncated_bytes:
            level = logging.ERROR if damaged else logging.WARNING
            _LOG.log(
                level,
                "%s: cut %d bytes behind byte %d: %s",
                segment.records.path,
                result.truncated_bytes,
                result.scanned_bytes,
                result.reason,
            )
        elif damaged:
            _LOG.error(
                "%s is damaged behind byte %d: %s",
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
        """Count segments that lay behind the end of the log."""
        removed = self.recovery.removed_segments + count
        self.recovery = replace(self.recovery, removed_segments=removed)

    def lost(self, what: str) -> None:
        """Tell that records are missing, or offsets wrong; of several faults the first is kept."""
        _LOG.error("%s: %s", self._directory, what)
        self.recovery = replace(self.recovery, damage=self.recovery.damage or what)

    def compare_with_promises(
        self, end_offset: int, *, recovery_point: int, high_watermark: int
    ) -> None:
        """Tell if the log ends before what was once durable and shown, or behind a clean end."""
        promised = max(recovery_point, high_watermark)
        if end_offset < promised:
            self.lost(
                f"the log ends at {end_offset}, and {promised} was on disk: records are missing"
            )
        elif self.recovery.was_clean and 0 < recovery_point < end_offset:
            # The offset of the last batch is not under its checksum, and no batch contradicts it.
            self.lost(
                f"the log ends at {end_offset}, and it was stopped at {recovery_point}: "
                "the last offset, or that checkpoint, is wrong"
            )
