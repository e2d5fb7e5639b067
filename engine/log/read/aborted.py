"""What a `read_committed` reader gets: no aborted batch, no marker, nothing to filter itself.

Kafka hands its consumers the raw batches and a list of aborted transactions. Here the batches are
left out whole before they go out, so that a reader needs no state. Whether a transaction was
aborted is told by its marker if the reader has that too, otherwise by the indexes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from engine.errors import InvalidRequest, Overloaded
from engine.records.batch import BatchView
from engine.records.control import parse_end_marker
from engine.records.scan import iter_headers
from engine.segment.abort_proofs import ensure_aborts_known
from engine.segment.file_records import NotCached
from engine.segment.segment import Segment
from engine.types import AbortedTransaction, Buffer


class Told(NamedTuple):
    """What some batches tell of their transactions."""

    aborted: list[AbortedTransaction]
    """Those whose marker is among the batches; as far as the batches reach."""
    waiting: set[int]
    """The producers whose last transaction ends later."""


def transactions_in(data: Buffer) -> Told:
    """Return what the batches of `data`, which are intact, tell of their transactions."""
    told = Told([], set())
    ended: dict[int, int] = {}
    view = memoryview(data)
    for position, header in iter_headers(view):
        producer_id, offset = header.producer_id, header.last_offset
        if header.is_control:
            try:
                marker = parse_end_marker(BatchView(view, position))
            except InvalidRequest:
                continue  # the index tells what it was
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
    """Return the aborted transactions that touch [start_offset, end_offset).

    `segments` are those from the first one read on: a transaction is noted where its marker lies.
    If only the transactions of some `producers` matter that end later, the search goes no further
    than to their markers. An index found on disk is proven first, which reads its segment: about
    `max_check_bytes` are read, then Overloaded is raised, and the next search goes on from there.

    Raises CorruptIndex if an index found on disk is not true, and NotCached if `cached_only` and a
    file has to be read.
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
                    "the indexes of aborted transactions are being checked after the start",
                    limit="max_index_check_bytes",
                )
            checked_bytes += segment.size_bytes
            ensure_aborts_known(segment)
        last_markers = segment.proofs.last_markers  # before the entries: what ends here is in them
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
