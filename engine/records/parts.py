"""Splits a batch into parts: whole records of at most a megabyte, or one larger record.

A few KB can decompress to millions of records or of empty headers, which take gigabytes as objects.
Callers that decode one part at a time use little memory, and decode only what they need. The
compiled codec decodes them. Where it fails, the Python decoder continues or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from engine.errors import InvalidRecord
from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget
from engine.records.compiled import DECODING_ERRORS, CompiledRecord, iterate
from engine.records.compression import decompressed_pieces
from engine.records.header import MAGIC_2, Codec
from engine.records.record import Record, decode_records
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


Records: TypeAlias = Sequence[CompiledRecord | Record]

CHUNK_RECORDS: Final = 128
"""Enough to amortize a call, few enough to stay in the processor's cache."""


def records_of(
    batch: BatchView, *, limit_bytes: int, budget: DecodeBudget | None = None
) -> Iterator[CompiledRecord | Record]:
    """Yield the records of a batch in any format.

    Raises as `BatchView.records`, and DecodeBudgetSpent once the budget is spent.
    """
    if batch.header.magic != MAGIC_2:
        yield from batch.records(limit_bytes=limit_bytes, budget=budget)
    elif batch.header.records_count:
        for part in parts_of(batch, limit_bytes=limit_bytes, budget=budget):
            if budget is not None:
                budget.check()
            for chunk in part_chunks(batch, part):
                yield from chunk


def part_chunks(batch: BatchView, part: Part) -> Iterator[Records]:
    """Yield the records of a part; only a small one, because the compiled codec needs a copy."""
    if len(part.payload) <= PART_BYTES:
        return payload_chunks(batch, part.payload, part.records_count)
    return _checked(batch, part.payload, part.records_count)


def payload_chunks(batch: BatchView, payload: Buffer, records_count: int) -> Iterator[Records]:
    """Yield the `records_count` records of a payload."""
    given = 0
    try:
        # `chain`, because `iter()` must not be called on the codec's iterator.
        quick = chain(iterate(batch.buffer, payload, records_count) if records_count else ())
        while chunk := list(islice(quick, CHUNK_RECORDS)):
            yield chunk
            given += len(chunk)
    except DECODING_ERRORS:
        yield from _checked(batch, payload, records_count, given)


def _checked(
    batch: BatchView, payload: Buffer, records_count: int, given: int = 0
) -> Iterator[Records]:
    """Yield the records after the `given` ones, or raise what is wrong with them."""
    header = batch.header._replace(records_count=records_count)
    return in_chunks(islice(decode_records(payload, header), given, None))


def in_chunks(records: Iterator[Record]) -> Iterator[Records]:
    """Yield the records in chunks."""
    while chunk := list(islice(records, CHUNK_RECORDS)):
        yield chunk
