"""Where one record ends and the next begins: a chain of lengths, followed step by step.

A step of Python for each record is the slow way. Batches know nothing of each other, so where there
are many of them one step of NumPy moves on in all: 128 batches of 64 KiB, abreast, take a tenth of
the time. Either way is followed to the end of every payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyspark_tidelog.records.batches import BatchFrame
from pyspark_tidelog.records.varints import Bytes, Int64s, RecordError, read_varints

# With fewer batches abreast, one by one is faster.
_FEWEST_ABREAST: Final = 24

# Batches of very different sizes leave most of the room empty that steps abreast take.
_MOST_ROOM: Final = 4

# Length, attributes, time, offset, key, value, headers: a byte each.
_SMALLEST_RECORD_BYTES: Final = 7

_LONGEST_LENGTH_SHIFT: Final = 28


def _steps_by_octets() -> Int64s:
    """Return how far the next record is, by the first two octets of one, low octet first.

    0 is for lengths of three octets and more, for negative ones, and for those that have an octet
    more than they need: of all others the step tells how many octets the length has.
    """
    low, high = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    steps = np.where(low < 0x80, 1 + (low >> 1), 2 + ((low & 0x7F | high << 7) >> 1))
    steps[(low >= 0x80) & ((high >= 0x80) | (high == 0)) | (low & 1 == 1)] = 0
    return steps.astype(np.int64)


_STEPS: Final[Int64s] = _steps_by_octets()
_LONGEST_STEP_OF_ONE_OCTET: Final = 64


def find_records(
    data: bytes | bytearray, frames: Sequence[BatchFrame], payloads: Sequence[tuple[int, int]]
) -> tuple[Int64s, Int64s]:
    """Return where each record begins, behind its length, and where it ends.

    Raises RecordError unless every payload is as many records as its batch announces, one after the
    other; may raise IndexError where one runs beyond the buffer.
    """
    counts: Int64s = np.array([frame.records_count for frame in frames], np.int64)
    starts, stops = np.array(payloads, np.int64).T
    octets: Bytes = np.frombuffer(data, np.uint8)
    is_plain = False
    if _are_for_walking_abreast(counts, stops - starts):
        positions, is_plain = _walk_abreast(octets, counts, starts, stops)
    else:
        positions = _walk_one_by_one(data, counts, payloads)
    # A record ends where the next begins, the last of a batch where its payload does.
    ends = np.empty_like(positions)
    ends[:-1] = positions[1:]
    ends[np.cumsum(counts) - 1] = stops
    if is_plain:
        return positions + 1 + (ends - positions > _LONGEST_STEP_OF_ONE_OCTET), ends
    lengths, begins = read_varints(octets, positions)
    is_sound = begins + lengths == ends
    if not is_sound.all():
        raise RecordError(f"record {int(np.argmin(is_sound))} of the group does not hold together")
    return begins, ends


def _are_for_walking_abreast(counts: Int64s, sizes: Int64s) -> bool:
    """Tell whether walking abreast pays; not with counts that cannot be true."""
    total, longest = int(counts.sum()), int(counts.max())
    return (
        _FEWEST_ABREAST * longest <= total
        and len(counts) * longest <= _MOST_ROOM * total
        and bool((counts * _SMALLEST_RECORD_BYTES <= sizes).all())
    )


def _walk_abreast(
    octets: Bytes, counts: Int64s, starts: Int64s, stops: Int64s
) -> tuple[Int64s, bool]:
    """Return where the records begin, batch by batch; a step for each record of the longest.

    And whether that is all there is to know: every payload ends where its last record does, and
    every length was one or two octets, in the shortest form.
    """
    # The longest batches first: those that still have records are then always the first ones.
    order = np.argsort(-counts, kind="stable")
    widths = np.searchsorted(-counts[order], -np.arange(counts.max()), side="left")
    words = np.ndarray((len(octets) - 1,), "<u2", octets, 0, (1,))  # two octets from every one on
    found = np.empty((len(widths), len(counts)), np.int64)
    at = starts[order]
    is_plain = True
    for row, width in zip(found, widths.tolist(), strict=True):
        abreast = at[:width]
        row[:width] = abreast
        steps = _STEPS[words[abreast]]
        if np.count_nonzero(steps) < width:
            is_plain = False
            rest = np.flatnonzero(steps == 0)
            lengths, after = read_varints(octets, abreast[rest])
            steps[rest] = after + lengths - abreast[rest]
        abreast += steps
    has_record = np.arange(len(widths)) < counts[:, np.newaxis]
    positions = found[:, np.argsort(order)].T[has_record]
    return positions, is_plain and bool((at == stops[order]).all())


def _walk_one_by_one(
    data: bytes | bytearray, counts: Int64s, payloads: Sequence[tuple[int, int]]
) -> Int64s:
    """Do the same in Python."""
    found: list[int] = []
    for count, (position, end) in zip(counts.tolist(), payloads, strict=True):
        before = len(found)
        _walk_payload(data, position, end, found)
        if len(found) - before != count:
            raise RecordError(f"{len(found) - before} records where the header says {count}")
    return np.fromiter(found, np.int64, len(found))


def _walk_payload(data: bytes | bytearray, position: int, end: int, found: list[int]) -> None:
    """Append the position of each record: the only loop over records, so kept to the bone."""
    append = found.append
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
