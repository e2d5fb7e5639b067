"""Where the fields of many records lie, found for all of them at once.

A record of a batch v2 is a chain of zigzag varints:

    length  attributes(1)  timestamp_delta  offset_delta  key_length key  value_length value
    headers_count [headers]

Only the step from record to record has to be walked one by one, in Python; everything else is NumPy
over all records of a group of batches. Nothing is believed: a field must end where the next begins,
so damaged bytes are found here and never become values, with the checksum or without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_tidelog.batches import BatchFrame

Int64s: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

_LONGEST_VARINT_SHIFT: Final = 63

# What the seven bits of a first octet stand for, and the sign they give to those that follow.
_SEVEN_BITS: Final[Int64s] = np.arange(256, dtype=np.int64) & 127
_ZIGZAG: Final[Int64s] = (_SEVEN_BITS >> 1) ^ -(_SEVEN_BITS & 1)
_SIGN: Final[Int64s] = 1 - 2 * (_SEVEN_BITS & 1)
_LONGEST_LENGTH_SHIFT: Final = 28


class RecordError(ValueError):
    """Bytes inside a batch that cannot be its records."""


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Positions, lengths and numbers of the records of a group, one array element per record.

    Positions count from the start of the buffer; a length of -1 is a null.
    """

    positions: Int64s
    ends: Int64s
    offsets: Int64s
    timestamps: Int64s
    """Milliseconds."""
    timestamp_types: Int64s
    """0 create time, 1 log append time, as in Spark's Kafka source."""
    key_positions: Int64s
    key_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s
    header_counts: Int64s
    header_positions: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, chosen: slice | NDArray[np.intp]) -> Self:
        """Return the chosen records."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class HeaderFields:
    """The headers of all records in a row; those of record i are `bounds[i]` to `bounds[i + 1]`."""

    bounds: Int64s
    key_positions: Int64s
    key_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s


def locate_records(
    data: bytes | bytearray, frames: Sequence[BatchFrame], payloads: Sequence[tuple[int, int]]
) -> RecordFields:
    """Find every record of the batches, whose uncompressed payloads lie in `data`.

    Raises RecordError unless the payloads are exactly the records that the batch headers announce.
    """
    counts = np.array([frame.records_count for frame in frames], np.int64)
    try:
        positions, ends = _walk(data, frames, payloads)
        found = _locate(np.frombuffer(data, np.uint8), positions, ends)
    except IndexError as error:
        raise RecordError("a record runs beyond the end of its batch") from error
    timestamp_deltas, offset_deltas, rest = found
    _verify_offsets(offset_deltas, frames, counts)
    offsets = _spread([frame.base_offset for frame in frames], counts) + offset_deltas
    timestamps = _spread([frame.base_timestamp for frame in frames], counts) + timestamp_deltas
    types = _spread([frame.has_append_time for frame in frames], counts)
    if types.any():
        append_times = _spread([frame.max_timestamp for frame in frames], counts)
        timestamps = np.where(types == 1, append_times, timestamps)
    return RecordFields(positions, ends, offsets, timestamps, types, *rest)


def locate_headers(octets: Bytes, records: RecordFields) -> HeaderFields:
    """Find every header of the records; raises RecordError where one ends elsewhere than those."""
    counts = records.header_counts
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    found = [np.zeros(int(bounds[-1]), np.int64) for _ in range(4)]
    cursors = records.header_positions.copy()
    remaining = np.flatnonzero(counts > 0)
    nth = 0
    try:
        # One pass for the first header of every record that has one, one for the second, and so on.
        while remaining.size:
            slots = bounds[remaining] + nth
            lengths, keys = _read_varints(octets, cursors[remaining])
            value_lengths, values = _read_varints(octets, keys + lengths)
            cursors[remaining] = values + np.maximum(value_lengths, 0)
            for array, part in zip(found, (keys, lengths, values, value_lengths), strict=True):
                array[slots] = part
            nth += 1
            remaining = remaining[counts[remaining] > nth]
    except IndexError as error:
        raise RecordError("a header runs beyond the end of its batch") from error
    _verify_headers(records, bounds, found, cursors)
    return HeaderFields(bounds, *found)


def _walk(
    data: bytes | bytearray, frames: Sequence[BatchFrame], payloads: Sequence[tuple[int, int]]
) -> tuple[Int64s, Int64s]:
    """Return where each record begins, its length included, and where it ends."""
    begins: list[int] = []
    lasts: list[int] = []
    for frame, (position, end) in zip(frames, payloads, strict=True):
        before = len(begins)
        _walk_payload(data, position, end, begins)
        if len(begins) - before != frame.records_count:
            raise RecordError(
                f"{len(begins) - before} records where the header says {frame.records_count}"
            )
        lasts.append(len(begins) - 1)
    positions = np.fromiter(begins, np.int64, len(begins))
    # A record ends where the next begins, the last of a batch where its payload does.
    ends = np.empty_like(positions)
    ends[:-1] = positions[1:]
    ends[lasts] = [end for _, end in payloads]
    return positions, ends


def _walk_payload(data: bytes | bytearray, position: int, end: int, begins: list[int]) -> None:
    """Append the position of each record: the only loop over records, so kept to the bone."""
    append = begins.append
    while position < end:
        append(position)
        low = data[position]
        if low < 128:
            position += 1 + (low >> 1)
            continue
        high = data[position + 1]
        if high < 128:
            # 2 + ((low & 127 | high << 7) >> 1), with fewer steps
            position += (low >> 1) + (high << 6) - 62
            continue
        length, shift, at = low & 127 | (high & 127) << 7, 14, position + 2
        while (octet := data[at]) >= 128:
            if shift > _LONGEST_LENGTH_SHIFT:
                raise RecordError("the length of a record has more than five bytes")
            length |= (octet & 127) << shift
            shift += 7
            at += 1
        position = at + 1 + ((length | octet << shift) >> 1)
    if position != end:
        raise RecordError("the last record runs beyond the end of its batch")


def _locate(
    octets: Bytes, positions: Int64s, ends: Int64s
) -> tuple[Int64s, Int64s, tuple[Int64s, ...]]:
    """Return timestamp deltas, offset deltas and the positions and lengths of what follows them."""
    sizes, cursors = _read_varints(octets, positions)
    is_sound = cursors + sizes == ends
    timestamp_deltas, cursors = _read_varints(octets, cursors + 1)
    offset_deltas, cursors = _read_varints(octets, cursors)
    key_lengths, key_positions = _read_varints(octets, cursors)
    value_lengths, value_positions = _read_varints(
        octets, key_positions + np.maximum(key_lengths, 0)
    )
    counts, header_positions = _read_varints(octets, value_positions + np.maximum(value_lengths, 0))
    is_sound &= (key_lengths >= -1) & (key_lengths <= sizes)
    is_sound &= (value_lengths >= -1) & (value_lengths <= sizes)
    # A header takes two bytes at least; without headers the record ends here.
    room = ends - header_positions
    is_sound &= (counts >= 0) & (2 * counts <= room) & ((counts > 0) | (room == 0))
    if not is_sound.all():
        index = int(np.argmin(is_sound))
        raise RecordError(f"record {index} of the group does not hold together")
    rest = (key_positions, key_lengths, value_positions, value_lengths, counts, header_positions)
    return timestamp_deltas, offset_deltas, rest


def _read_varints(octets: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Return the zigzag varints at the positions, and where they end; may raise IndexError."""
    first = octets[positions]
    remaining = np.flatnonzero(first >= 128)
    if not remaining.size:
        return _ZIGZAG[first], positions + 1
    if remaining.size == first.size:
        second = octets[positions + 1]
        if second.max() < 128:
            return _ZIGZAG[first] + _SIGN[first] * (second.astype(np.int64) << 6), positions + 2
    values = (first & 127).astype(np.int64)
    after = positions + 1
    shift = 7
    while remaining.size:
        if shift > _LONGEST_VARINT_SHIFT:
            raise RecordError("a varint has more than ten bytes")
        octet = octets[after[remaining]]
        values[remaining] |= (octet & 127).astype(np.int64) << shift
        after[remaining] += 1
        shift += 7
        remaining = remaining[octet >= 128]
    return (values >> 1) ^ -(values & 1), after


def _spread(numbers: Sequence[int], counts: Int64s) -> Int64s:
    """Give every record the number of its batch."""
    return np.repeat(np.array(numbers, np.int64), counts)


def _verify_offsets(deltas: Int64s, frames: Sequence[BatchFrame], counts: Int64s) -> None:
    """Raise RecordError unless offsets rise inside each batch and stay inside its range."""
    spans = _spread([frame.next_offset - frame.base_offset for frame in frames], counts)
    if ((deltas < 0) | (deltas >= spans)).any():
        raise RecordError("an offset lies outside of its batch")
    rises = np.diff(deltas) > 0
    rises[np.cumsum(counts)[:-1] - 1] = True  # from one batch to the next the deltas start again
    if not rises.all():
        raise RecordError("offsets do not rise inside a batch")


def _verify_headers(
    records: RecordFields, bounds: Int64s, found: Sequence[Int64s], cursors: Int64s
) -> None:
    _keys, key_lengths, _values, value_lengths = found
    has_room = np.repeat(records.ends - records.positions, np.diff(bounds))
    is_sound = (key_lengths >= 0) & (key_lengths <= has_room)
    is_sound &= (value_lengths >= -1) & (value_lengths <= has_room)
    if not is_sound.all() or not (cursors == records.ends).all():
        raise RecordError("the headers of a record do not end where the record does")
