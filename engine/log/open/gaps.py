"""Which gaps between segments are intended, so that no records were lost."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from engine.checkpoint.gaps import SegmentGap, read_gaps
from engine.errors import CorruptCheckpoint
from engine.fs.port import FileSystem
from engine.state.epochs import LeaderEpochCache

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownGaps:
    """The intended gaps of one log."""

    is_gapless: bool = False
    """Whether all intended gaps are known, because the log was never compacted."""
    noted: Collection[SegmentGap] = ()
    epoch_starts: Collection[int] = ()

    @classmethod
    def read(
        cls, fs: FileSystem, path: Path | None, epochs: LeaderEpochCache, *, is_gapless: bool
    ) -> Self:
        """Return the gaps recorded in the file at `path`, if it exists, and in the epochs.

        A damaged file allows every gap.
        """
        epoch_starts = {entry.start_offset for entry in epochs.entries}
        if path is None:
            return cls(is_gapless, (), epoch_starts)
        try:
            noted = read_gaps(fs, path)
        except CorruptCheckpoint as error:
            _LOG.warning("%s: missing offsets will not be noticed: %s", path.parent, error)
            return cls(False, (), epoch_starts)
        return cls(is_gapless, noted, epoch_starts)

    def may_follow(self, base_offset: int, end_offset: int) -> bool:
        """Whether a segment may begin at `base_offset` after one that ends at `end_offset`.

        Compaction leaves gaps, and a follower's offsets may jump. A truncation inside a batch
        removes the whole batch, and the next epoch begins at the truncation offset.
        """
        return (
            base_offset == end_offset
            or not self.is_gapless
            or SegmentGap(end_offset, base_offset) in self.noted
            or base_offset in self.epoch_starts
        )
