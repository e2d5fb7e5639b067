"""Which batches of a Fetch response a reader gets: whole ones, within its bounds.

A broker cuts its response after a number of bytes, mostly inside a batch. The batches themselves
stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from kio.schema.fetch.v13.response import AbortedTransaction as KafkaAborted

from engine.errors import StoredDataCorrupt
from engine.log.read.aborted import has_transactions, without_undelivered
from engine.records.header import (
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    MIN_LENGTH,
    UP_TO_MAGIC_BYTES,
)
from engine.records.scan import iter_headers
from engine.types import INT64_MAX, AbortedTransaction, Buffer

_FRAME: Final = Struct(">qi4xb")
"""Base offset, length and magic."""
_DELTA: Final = Struct(">i")


class Taken(NamedTuple):
    """The first batches of a response; `next_offset` is exclusive."""

    size_bytes: int
    first_offset: int | None
    """The base offset of the first batch; None without one."""
    next_offset: int
    is_full: bool = False
    """Whether the next batch is there, but does not fit."""
    is_at_end: bool = False
    """Whether the next batch begins at or after the end offset."""


def take(
    records: Buffer,
    offset: int,
    *,
    max_bytes: int,
    end_offset: int | None = None,
    minimum_one_batch: bool = True,
) -> Taken:
    """Return how much of a response to a fetch from `offset` a reader gets.

    Raises StoredDataCorrupt if the response does not consist of batches.
    """
    stop = INT64_MAX if end_offset is None else end_offset
    first: int | None = None
    position, next_offset, last = 0, offset, len(records) - UP_TO_MAGIC_BYTES
    while position <= last:
        # A response may have many thousand batches: only these fields of each are looked at.
        base_offset, length, magic = _FRAME.unpack_from(records, position)
        if length < MIN_LENGTH or base_offset < 0:
            raise _not_batches(offset, position)
        end = position + LOG_OVERHEAD_BYTES + length
        if end > len(records):
            break
        if base_offset >= stop:
            return Taken(position, first, next_offset, is_at_end=True)
        if end > max_bytes and not (minimum_one_batch and first is None):
            return Taken(position, first, next_offset, is_full=True)
        if first is None:
            first = base_offset
        next_offset = base_offset + 1  # older formats have the offset of the last record
        if magic == MAGIC_2:
            next_offset += _DELTA.unpack_from(records, position + LAST_OFFSET_DELTA_POSITION)[0]
        position = end
    return Taken(position, first, next_offset)


def delivered(data: Buffer, aborted: Iterable[KafkaAborted]) -> Buffer:
    """Return what a `read_committed` reader gets: no control batches, no aborted records.

    The broker names the aborted transactions by producer and first offset; each ends at the next
    marker of its producer.
    """
    if not has_transactions(data):
        return data
    markers: dict[int, list[int]] = {}
    for _, header in iter_headers(memoryview(data)):
        if header.is_control:
            markers.setdefault(header.producer_id, []).append(header.last_offset)
    return without_undelivered(data, (_bounded(one, markers) for one in aborted))


def _bounded(transaction: KafkaAborted, markers: dict[int, list[int]]) -> AbortedTransaction:
    producer_id, first = int(transaction.producer_id), int(transaction.first_offset)
    ends = (offset for offset in markers.get(producer_id, ()) if offset >= first)
    last = next(ends, INT64_MAX)
    return AbortedTransaction(producer_id, first, last, last)


def _not_batches(offset: int, position: int) -> StoredDataCorrupt:
    return StoredDataCorrupt(
        f"what the broker sent for offset {offset} is not a batch at byte {position}",
        file="",
        position=position,
        offset=offset,
    )
