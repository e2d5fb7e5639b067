"""Encodes records that have a value and nothing else: no key, no headers, and all the same time.

Such a record is its value in a frame that only the length of the value and the offset delta decide.
Frames come from tables and one `join` copies everything, so no code runs per record; the compiled
codec takes half as long again, most of it for the checksum, which `stamp_crc` computes faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from engine.records.batch import stamp_crc
from engine.records.header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    TRANSACTIONAL_MASK,
    BatchHeader,
    pack_header,
)
from engine.records.varint import encode_varint, size_of_varint
from engine.types import NO_LEADER_EPOCH, Buffer

MIN_RECORDS: Final = 32
"""For fewer, tables are not faster."""

_ONE_BYTE_DELTAS: Final = 1 << 6
MAX_RECORDS: Final = 1 << 13
"""The offset deltas of more records take three bytes."""

MAX_VALUE_BYTES: Final = 1 << 12
"""Larger values would fill the tables; their frames cost little beside them."""

_NO_KEY: Final = encode_varint(-1)
_NO_HEADERS: Final = encode_varint(0)
_NO_ATTRIBUTES: Final = b"\0"
_NO_TIME_DELTA: Final = encode_varint(0)
_PIECES: Final = 4
"""Of each record: the frame before the offset delta, the delta, the frame after it, the value."""


Producer: TypeAlias = tuple[int, int, int, bool]
"""Producer id, epoch and base sequence, and whether it is a transaction."""


class _Before(dict[int, bytes]):
    """By the length of a value, the bytes before an offset delta, after the record before."""

    def __init__(self, delta_bytes: int) -> None:
        super().__init__()
        fixed = (_NO_ATTRIBUTES, _NO_TIME_DELTA, _NO_KEY, _NO_HEADERS)
        self._fixed_bytes = sum(map(len, fixed)) + delta_bytes

    def __missing__(self, value_bytes: int) -> bytes:
        size_bytes = self._fixed_bytes + size_of_varint(value_bytes) + value_bytes
        before = _NO_HEADERS + encode_varint(size_bytes) + _NO_ATTRIBUTES + _NO_TIME_DELTA
        self[value_bytes] = before
        return before


class _After(dict[int, bytes]):
    """By the length of a value, the bytes between an offset delta and the value."""

    def __missing__(self, value_bytes: int) -> bytes:
        after = self[value_bytes] = _NO_KEY + encode_varint(value_bytes)
        return after


_DELTAS: Final = [
    *(encode_varint(delta) for delta in range(_ONE_BYTE_DELTAS)),
    *(
        bytes((2 * delta & 0x7F | 0x80, 2 * delta >> 7))
        for delta in range(_ONE_BYTE_DELTAS, MAX_RECORDS)
    ),
]
_BEFORE: Final = (_Before(1), _Before(2))
_AFTER: Final = _After()


def build_keyless(
    values: Sequence[Buffer | None],
    timestamp: int,
    producer: Producer,
) -> bytearray | None:
    """Return an uncompressed batch of records with these values and this time, from offset 0.

    None unless tables can encode them: a null, a large value, too few or too many records.
    """
    producer_id, producer_epoch, base_sequence, is_transactional = producer
    count = len(values)
    if not MIN_RECORDS <= count <= MAX_RECORDS:
        return None
    try:
        lengths = list(map(len, values))  # type: ignore[arg-type]  # a null is a TypeError
    except TypeError:
        return None
    distinct = set(lengths)
    if max(distinct) > MAX_VALUE_BYTES:
        return None
    pieces = _pieces(cast("Sequence[Buffer]", values), lengths, is_uniform=len(distinct) == 1)
    batch = bytearray().join(pieces)
    batch[:HEADER_BYTES] = pack_header(
        BatchHeader(
            base_offset=0,
            length=len(batch) - LOG_OVERHEAD_BYTES,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_2,
            crc=0,
            attributes=TRANSACTIONAL_MASK if is_transactional else 0,
            last_offset_delta=count - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            records_count=count,
        )
    )
    stamp_crc(batch, 0, len(batch))
    return batch


def _pieces(values: Sequence[Buffer], lengths: list[int], *, is_uniform: bool) -> list[Buffer]:
    """Return what a batch is joined from, with room for its header."""
    count = len(values)
    few, many = lengths[:_ONE_BYTE_DELTAS], lengths[_ONE_BYTE_DELTAS:]
    if is_uniform:
        length = lengths[0]
        before = [_BEFORE[0][length]] * len(few) + [_BEFORE[1][length]] * len(many)
        after = [_AFTER[length]] * count
    else:
        before = [*map(_BEFORE[0].__getitem__, few), *map(_BEFORE[1].__getitem__, many)]
        after = [*map(_AFTER.__getitem__, lengths)]
    pieces: list[Buffer] = [_NO_HEADERS] * (_PIECES * count + 1)
    pieces[0:-1:_PIECES] = before
    pieces[1:-1:_PIECES] = _DELTAS[:count]
    pieces[2:-1:_PIECES] = after
    pieces[3:-1:_PIECES] = values
    pieces[0] = bytes(HEADER_BYTES) + before[0][len(_NO_HEADERS) :]  # no record before it
    return pieces
