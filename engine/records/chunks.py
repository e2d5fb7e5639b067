"""Decodes the records of a batch in chunks, on demand.

The compiled codec decodes them. Where it fails, the Python decoder continues or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias

from engine.records.batch import BatchView
from engine.records.budget import DecodeBudget
from engine.records.compiled import DECODING_ERRORS, CompiledRecord, iterate
from engine.records.header import MAGIC_2
from engine.records.parts import PART_BYTES, Part, parts_of
from engine.records.record import Record, decode_records
from engine.types import Buffer

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
