"""The records of the topic of leases: claims, and now and then a group's whole state.

A record's key says what it is, so that compaction keeps the last of each kind: `["claim", group,
worker]` or `["state", group]`, as JSON. A claim without a value leaves. A state is that of a group
after all claims below an offset; the claims from there on follow it, or lie just before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from app.operations.leases.group import KnownTopic, Renewal
from engine.records.batch import BatchView
from engine.records.builder import NewRecord
from engine.records.scan import iter_headers
from engine.types import Buffer, TopicPartition

_CLAIM: Final = "claim"
_STATE: Final = "state"


class Claim(NamedTuple):
    """What a worker of a group asked for."""

    offset: int
    time_ms: int
    group: str
    worker: str
    renewal: Renewal | None
    """None if it leaves."""


class State(NamedTuple):
    """A group after all claims below an offset."""

    group: str
    before_offset: int
    dump: Buffer
    """Of `GroupLeases`."""


class _Renewal(msgspec.Struct):
    topics: Mapping[str, KnownTopic]
    ttl_ms: int
    released: Sequence[tuple[str, int]] = ()


class _State(msgspec.Struct):
    before_offset: int
    leases: msgspec.Raw


_renewal = msgspec.json.Decoder(_Renewal)
_state = msgspec.json.Decoder(_State)
_key = msgspec.json.Decoder(list[str])


def claim_record(group: str, worker: str, renewal: Renewal | None, now_ms: int) -> NewRecord:
    """Return the record of a claim; the log stamps its own time, unless it was made by others."""
    key = msgspec.json.encode([_CLAIM, group, worker])
    if renewal is None:
        return now_ms, key, None, ()
    value = _Renewal(renewal.topics, renewal.ttl_ms, renewal.released)
    return now_ms, key, msgspec.json.encode(value), ()


def state_record(state: State, now_ms: int) -> NewRecord:
    """Return the record of a group's state."""
    value = _State(state.before_offset, msgspec.Raw(state.dump))
    return now_ms, msgspec.json.encode([_STATE, state.group]), msgspec.json.encode(value), ()


def decode_records(
    data: Buffer, from_offset: int, limit_bytes: int
) -> Iterator[Claim | State | ValueError]:
    """Yield what the records of whole batches say, from an offset on.

    A record that says nothing is a ValueError: somebody else has written it, and no claim. Raises
    as `BatchView.records`.
    """
    for position, _ in iter_headers(data):
        for record in BatchView(data, position).records(limit_bytes=limit_bytes):
            if record.offset >= from_offset:
                try:
                    yield _decoded(record.offset, record.timestamp, record.key, record.value)
                except (ValueError, msgspec.MsgspecError) as error:
                    yield ValueError(f"offset {record.offset}: {error}")


def _decoded(offset: int, time_ms: int, key: Buffer | None, value: Buffer | None) -> Claim | State:
    match _key.decode(b"" if key is None else key):
        case [kind, group, worker] if kind == _CLAIM:
            if value is None:
                return Claim(offset, time_ms, group, worker, None)
            one = _renewal.decode(value)
            released = [TopicPartition(*place) for place in one.released]
            return Claim(offset, time_ms, group, worker, Renewal(one.topics, one.ttl_ms, released))
        case [kind, group] if kind == _STATE and value is not None:
            state = _state.decode(value)
            return State(group, state.before_offset, state.leases)
        case other:
            raise ValueError(f"{other!r:.100} is not the key of a claim")
