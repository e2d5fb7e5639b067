"""What decides whether a segment must be rolled before an append."""

from __future__ import annotations

from typing import NamedTuple


class RollParams(NamedTuple):
    """What decides whether a segment must be rolled before an append; Kafka's `RollParams`."""

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp: int
    max_offset: int
    size_bytes: int
    now_ms: int
