"""The parameters of the decision to roll a segment."""

from __future__ import annotations

from typing import NamedTuple


class RollParams(NamedTuple):
    """The append and the limits that decide whether a segment rolls; Kafka's `RollParams`."""

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp: int
    max_offset: int
    size_bytes: int
    now_ms: int
