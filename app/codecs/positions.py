"""The next offset of each partition of a topic as text that knows its logs.

`<topic id>;<partition>.<leader epoch>:<next offset>,…`: what a client remembers of a topic whose
log was replaced since is recognised. Of old clients, partitions and offsets alone are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from engine.types import INT32_MAX, INT64_MAX

_POSITION: Final = re.compile(
    r"(?P<partition>0|[1-9][0-9]{0,9})(?:\.(?P<epoch>0|[1-9][0-9]{0,9}))?"
    r":(?P<offset>0|[1-9][0-9]{0,18})"
)


class Position(NamedTuple):
    """Where to go on in one partition."""

    partition: int
    next_offset: int
    leader_epoch: int | None
    """The epoch of the log; None if it is not known."""


class Positions(NamedTuple):
    """Where to go on in a topic."""

    topic_id: str
    """Empty if it is not known."""
    of: Mapping[int, Position]


def encode_positions(topic_id: str, positions: Iterable[Position]) -> str:
    """Return the text for partitions and their next offsets."""
    shown = ",".join(f"{one.partition}.{one.leader_epoch}:{one.next_offset}" for one in positions)
    return f"{topic_id};{shown}"


def parse_positions(text: str) -> Positions | None:
    """Return the next offset of each partition; None for what is none."""
    topic_id, _, listed = text.rpartition(";")
    positions: dict[int, Position] = {}
    for one in listed.split(","):
        found = _POSITION.fullmatch(one)
        if found is None:
            return None
        epoch = found["epoch"]
        position = Position(
            int(found["partition"]), int(found["offset"]), None if epoch is None else int(epoch)
        )
        largest = max(position.partition, position.leader_epoch or 0)
        is_double = position.partition in positions
        if is_double or largest > INT32_MAX or position.next_offset > INT64_MAX:
            return None
        positions[position.partition] = position
    return Positions(topic_id, positions)
