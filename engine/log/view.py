"""What a reader sees of a log: one moment of it, taken without a lock."""

from __future__ import annotations

from typing import NamedTuple

from engine.segment.segments import SegmentSnapshot
from engine.state.watermarks import Watermarks


class LogView(NamedTuple):
    """Segments and offsets that belong together."""

    segments: SegmentSnapshot
    marks: Watermarks
    leader_epoch: int
    truncations: int
    """What `LogState.truncations` was: even."""
