"""Splits a batch into parts: whole records of at most a megabyte, or one larger record.

A few KB can decompress to millions of records or of empty headers, which take gigabytes as objects.
Callers that decode one part at a time use little memory, and decode only what they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.errors import InvalidRecord
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget
from engine.records.compression import decompressed_pieces
from engine.records.header import Codec
from engine.records.varint import decode_varint
from engine.types import Buffer

PART_BYTES: Final = 1024 * 1024


class Part(NamedTuple):
    """A run of encoded records of one batch."""

    payload: Buffer
    records_count: int
    is_bounded: bool = True
    """Whether it is small, or one whole record, so that the compiled codec may decode it."""


def parts_of(
    batch: BatchView, *, limit_bytes: int, budget: DecodeBudget | None = None
) -> Iterator[Part]:
    """Yield the records of a batch of magic 2 in parts, decompressing on demand.

    A part may hold bytes that are not records; decoding it raises then. Raises `InvalidRecord` for
    bytes after the last record, and as `decompressed_pieces`.
    """
    left = batch.header.records_count
    codec = batch.header.codec
    if codec is Codec.NONE:
        yield from split(batch.payload, left)
        return
    held = bytearray()
    for piece in decompressed_pieces(codec, batch.payload, limit_bytes, budget):
        held += piece
        position = 0
        while left and len(held) - position > PART_BYTES:
            end, count = whole_records(held, position, left)
            if not count:
                break
            yield Part(bytes(memoryview(held)[position:end]), count)
            position, left = end, left - count
        del held[:position]
    if held or left:
        yield from split(memoryview(held), left)


def split(payload: memoryview, records_count: int) -> Iterator[Part]:
    """Yield the records in parts, each a view.

    The last part holds all remaining bytes, however many, if no whole record follows.
    """
    position, left = 0, records_count
    while len(payload) - position > PART_BYTES and left > 0:
        end, count = whole_records(payload, position, left)
        if not count:
            break
        yield Part(payload[position:end], count)
        position, left = end, left - count
    if left:
        rest = payload[position:]
        yield Part(rest, left, len(rest) <= PART_BYTES)
    elif position < len(payload):
        raise InvalidRecord(f"{len(payload) - position} bytes follow the last record")


def whole_records(data: Buffer, position: int, max_count: int) -> tuple[int, int]:
    """Return the end of the part that begins at `position`, and its number of records.

    The number is 0 if the first record is incomplete or has no valid length. Only the lengths of
    records are read.
    """
    size = len(data)
    part_end = position + PART_BYTES
    stop = min(part_end, size)
    before, count = position, 0
    while count < max_count and position < stop:
        before = position
        count += 1
        first = data[position]
        if first < 0x80:  # lengths of one and two bytes are decoded inline
            position += 1 + (first >> 1)
        elif position + 1 < size and (second := data[position + 1]) < 0x80:
            position += 2 + ((first & 0x7F | second << 7) >> 1)
        else:
            position = _long_record_end(data, position)
    if position > size or (position > part_end and count > 1):
        return before, count - 1
    return position, count


def _long_record_end(data: Buffer, position: int) -> int:
    """Return the end of a record; past the end of the data if it has no valid length."""
    try:
        length, start = decode_varint(data, position)
    except InvalidRecord:
        return len(data) + 1
    return start + length if length >= 0 else len(data) + 1
