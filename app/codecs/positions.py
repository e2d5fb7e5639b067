"""The next offset of each partition of a topic as text, such as `0:41,1:7`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from engine.types import INT32_MAX, INT64_MAX

_POSITION: Final = rb"(?:0|[1-9][0-9]{0,9}):(?:0|[1-9][0-9]{0,18})"
_POSITIONS: Final = re.compile(_POSITION + rb"(?:," + _POSITION + rb")*")


def encode_positions(positions: Iterable[tuple[int, int]]) -> bytes:
    """Return the text for partitions and their next offsets."""
    return b",".join(b"%d:%d" % position for position in positions)


def parse_positions(text: bytes) -> Mapping[int, int] | None:
    """Return the next offset of each partition; None for what `encode_positions` never returns."""
    if _POSITIONS.fullmatch(text) is None:
        return None
    pairs = [pair.split(b":") for pair in text.split(b",")]
    positions = {int(partition): int(offset) for partition, offset in pairs}
    is_sound = len(positions) == len(pairs) and max(positions) <= INT32_MAX
    return positions if is_sound and max(positions.values()) <= INT64_MAX else None
