"""What a `read_committed` reader gets: no aborted batch, no marker, nothing to filter itself.

Kafka hands its consumers the raw batches and a list of aborted transactions. Here the batches are
left out whole before they go out, so that a reader needs no state. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.records.scan import iter_headers
from engine.segment.abort_proofs import ensure_aborts_known
from engine.segment.segment import Segment
from engine.types import AbortedTransaction, Buffer


def aborted_in(
    segments: Sequence[Segment], start_offset: int, end_offset: int, *, cached_only: bool = False
) -> list[AbortedTransaction]:
    """Return the aborted transactions that touch [start_offset, end_offset).

    `segments` are those from the first one read on: a transaction is noted where its marker lies.
    Raises CorruptIndex if an index found on disk is not true, and NotCached.
    """
    found: list[AbortedTransaction] = []
    for segment in segments:
        ensure_aborts_known(segment, cached_only=cached_only)
        search = segment.indexes.transaction.collect(start_offset, end_offset)
        found += search.aborted
        if search.is_complete:
            break
    return found


def has_transactions(data: Buffer) -> bool:
    """Whether any batch belongs to a transaction or ends one."""
    return any(
        header.is_transactional or header.is_control for _, header in iter_headers(memoryview(data))
    )


def without_undelivered(data: Buffer, aborted: Iterable[AbortedTransaction]) -> Buffer:
    """Return the batches of `data` without control batches and those of `aborted`.

    Nothing is copied if all of them stay.
    """
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for transaction in aborted:
        by_producer.setdefault(transaction.producer_id, []).append(transaction)
    view = memoryview(data)
    kept: list[memoryview] = []
    start = end = 0
    for position, header in iter_headers(view):
        is_aborted = header.is_transactional and any(
            transaction.first_offset <= header.base_offset <= transaction.last_offset
            for transaction in by_producer.get(header.producer_id, ())
        )
        if header.is_control or is_aborted:
            kept.append(view[start:position])
            start = position + header.size_bytes
        end = position + header.size_bytes
    if not kept:
        return data
    return b"".join((*kept, view[start:end]))
