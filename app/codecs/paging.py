"""How a client continues: page tokens of lists, and the next offsets of a topic's partitions.

A page token is the last name of a page. The offsets are text that knows its logs,
`<topic id>;<partition>.<leader epoch>:<next offset>,…`: what a client remembers of a topic whose
log was replaced since is recognised. Of old clients, partitions and offsets alone are understood.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from app.errors import MalformedRequest
from engine.types import INT32_MAX, INT64_MAX

MAX_PAGE_ENTRIES: Final = 1_000
"""Entries of one page of a list, whatever is asked for."""


def encode_token(name: str) -> str:
    """Return the token of the page that begins after this name."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def decode_token(token: str) -> str:
    """Return the name in a token; raises MalformedRequest."""
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise malformed_token() from None


def malformed_token() -> MalformedRequest:
    """Return the error of an invalid token."""
    return MalformedRequest(
        "page_token is not the next_page_token of a list response", parameter="page_token"
    )


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
