"""Filters aborted and control batches out of `read_committed` reads.

Kafka sends consumers the raw batches and a list of aborted transactions. tidelog leaves out whole
batches instead, so that readers need no state. A transaction's marker says whether it was aborted,
if the read includes it; otherwise the transaction indexes say it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from engine.errors import InvalidRequest, Overloaded
from engine.records.batch import BatchView
from engine.records.control import parse_end_marker
from engine.records.scan import iter_headers
from engine.segment.file_records import NotCached
from engine.segment.index_checks import ensure_aborts_known
from engine.segment.segment import Segment
from engine.types import AbortedTransaction, Buffer


class Told(NamedTuple):
    """The transactions of some batches."""

    aborted: list[AbortedTransaction]
    """The aborted transactions whose marker is among the batches; each first offset is a lower
    bound."""
    waiting: set[int]
    """The producers with a transaction that ends after these batches."""


def transactions_in(data: Buffer) -> Told:
    """Return the transactions of the batches in `data`, which must be intact."""
    told = Told([], set())
    ended: dict[int, int] = {}
    view = memoryview(data)
    for position, header in iter_headers(view):
        producer_id, offset = header.producer_id, header.last_offset
        if header.is_control:
            try:
                marker = parse_end_marker(BatchView(view, position))
            except InvalidRequest:
                continue  # the index says whether it was an abort
            if marker is None:
                continue
            if marker.is_abort:
                first = ended.get(producer_id, -1) + 1
                told.aborted.append(AbortedTransaction(producer_id, first, offset, offset + 1))
            ended[producer_id] = offset
            told.waiting.discard(producer_id)
        elif header.is_transactional:
            told.waiting.add(producer_id)
    return told


def aborted_in(
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    *,
    producers: Collection[int] | None = None,
    cached_only: bool = False,
    max_check_bytes: int | None = None,
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [start_offset, end_offset).

    `segments` begins with the first one read, because a transaction is indexed in the segment of
    its marker. With `producers`, only their transactions matter, and the search ends at their
    markers. An index that was found on disk is verified first, which reads its whole segment: after
    about `max_check_bytes` Overloaded is raised, and the next search continues from there.

    Raises CorruptIndex if an index found on disk is wrong, and NotCached if `cached_only` and a
    file must be read.
    """
    found: list[AbortedTransaction] = []
    waiting = None if producers is None else set(producers)
    checked_bytes = 0
    for segment in segments:
        is_unproven = segment.proofs.unproven_aborts_bytes > 0
        if cached_only and (is_unproven or not segment.indexes.has_no_aborts):
            raise NotCached
        if is_unproven:
            if max_check_bytes is not None and checked_bytes >= max_check_bytes:
                raise Overloaded(
                    "the transaction indexes are being verified after the start",
                    limit="max_index_check_bytes",
                )
            checked_bytes += segment.size_bytes
            ensure_aborts_known(segment)
        last_markers = segment.proofs.last_markers  # before the entries are read
        search = segment.indexes.transaction.collect(start_offset, end_offset)
        found += search.aborted
        if waiting is not None:
            waiting = {one for one in waiting if last_markers.get(one, -1) < end_offset}
        if search.is_complete or waiting == set():
            break
    return found


def has_transactions(data: Buffer) -> bool:
    """Whether any batch belongs to a transaction or ends one."""
    return any(
        header.is_transactional or header.is_control for _, header in iter_headers(memoryview(data))
    )


def without_undelivered(data: Buffer, aborted: Iterable[AbortedTransaction]) -> Buffer:
    """Return the batches of `data` without control batches and those of `aborted`.

    Returns `data` itself if all of them stay.
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
