"""A reader's consistent view of a log, taken without a lock."""

from __future__ import annotations

from typing import NamedTuple

from engine.segment.segments import SegmentSnapshot
from engine.state.watermarks import Watermarks


class LogView(NamedTuple):
    """Matching segments and watermarks."""

    segments: SegmentSnapshot
    marks: Watermarks
    leader_epoch: int
    truncations: int
    """The value of `LogState.truncations` when the view was taken: even."""
