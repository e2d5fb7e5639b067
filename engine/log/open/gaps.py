"""Between which segments offsets may be missing although nothing was lost."""

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
    """What is known of the gaps of one log."""

    is_gapless: bool = False
    """Whether only the gaps below may be there: the log was never compacted."""
    noted: Collection[SegmentGap] = ()
    epoch_starts: Collection[int] = ()

    @classmethod
    def read(
        cls, fs: FileSystem, path: Path | None, epochs: LeaderEpochCache, *, is_gapless: bool
    ) -> Self:
        """Return what the file at `path`, if there is one, and the epochs tell.

        A damaged file permits every gap.
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
        """Whether a segment may begin there after one that ends here, and nothing be lost.

        Compaction leaves gaps, and a follower jumps. A truncation may end the log inside a batch,
        which goes whole: the next epoch begins where the log ended.
        """
        return (
            base_offset == end_offset
            or not self.is_gapless
            or SegmentGap(end_offset, base_offset) in self.noted
            or base_offset in self.epoch_starts
        )
