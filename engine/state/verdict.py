"""Checks one append against producer state: accepted with staged changes, or a duplicate.

Pure: live entries are only read. Each batch is checked against the changes staged by the batches
before it. Mirrors the use of `ProducerAppendInfo` in Kafka's `UnifiedLog`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from engine.errors import InvalidRequestValue
from engine.records.control import EndMarker
from engine.records.header import BatchHeader
from engine.state.producer_append import judge_data, judge_marker
from engine.state.producer_entry import CACHED_BATCHES, BatchMetadata, ProducerEntry
from engine.state.transactions import OpenTransaction
from engine.types import AppendOrigin, CompletedTransaction, OffsetMetadata


class Accepted(NamedTuple):
    """The changes to apply once the append is written."""

    entries: Mapping[int, ProducerEntry]
    opened: Sequence[OpenTransaction]
    completed: Sequence[CompletedTransaction]


class Duplicate(NamedTuple):
    """The append is in the log already, at these inclusive offsets and with this timestamp."""

    first_offset: int
    last_offset: int
    timestamp: int


Verdict: TypeAlias = Accepted | Duplicate

NOTHING_TO_APPLY: Final = Accepted({}, (), ())


def duplicate_of(
    live: Mapping[int, ProducerEntry], headers: Sequence[BatchHeader]
) -> Duplicate | None:
    """Return the earlier append of exactly these batches, if all are remembered and consecutive.

    If only some are, a Duplicate would lose the others; the sequence check refuses them.
    """
    remembered: list[BatchMetadata] = []
    for header in headers:
        entry = live.get(header.producer_id)
        batch = entry.duplicate_of(header) if entry else None
        if batch is None:
            return None
        if remembered and batch.first_offset != remembered[-1].last_offset + 1:
            return None
        remembered.append(batch)
    newest = remembered[-1]
    return Duplicate(remembered[0].first_offset, newest.last_offset, newest.timestamp)


def ensure_repeatable(headers: Sequence[BatchHeader]) -> None:
    """Raise InvalidRequestValue if one producer has more batches than duplicate detection keeps."""
    if len(headers) <= CACHED_BATCHES:
        return
    counts = Counter(header.producer_id for header in headers if header.has_producer_id)
    for producer_id, count in counts.items():
        if count > CACHED_BATCHES:
            raise InvalidRequestValue(
                f"an append holds at most {CACHED_BATCHES} batches of one producer, not {count}: "
                "a retry of more would not be recognised",
                producer_id=producer_id,
            )


class Staging:
    """The staged changes of one append.

    `bytes_before` is the size of the previous batches: a new transaction records its position in
    the segment, if `start` gives the position of the append.
    """

    __slots__ = (
        "_completed",
        "_entries",
        "_live",
        "_now_ms",
        "_opened",
        "_origin",
        "_start",
        "bytes_before",
    )

    def __init__(
        self,
        live: Mapping[int, ProducerEntry],
        origin: AppendOrigin,
        *,
        start: OffsetMetadata,
        now_ms: int,
    ) -> None:
        self.bytes_before = 0
        self._live = live
        self._origin = origin
        self._start = start
        self._now_ms = now_ms
        self._entries: dict[int, ProducerEntry] = {}
        self._opened: list[OpenTransaction] = []
        self._completed: list[CompletedTransaction] = []

    def entry(self, producer_id: int) -> ProducerEntry:
        """Return the producer's state after the previous batches; an unknown one has no epoch."""
        staged = self._entries.get(producer_id) or self._live.get(producer_id)
        return staged or ProducerEntry(producer_id)

    def stage_data(self, header: BatchHeader) -> None:
        """Check a data batch and stage its step. Raises what `judge_data` raises."""
        step = judge_data(self.entry(header.producer_id), header, self._origin, self._now_ms)
        if step.opens_transaction:
            first = self._place(header.base_offset)
            self._opened.append(OpenTransaction(first, header.producer_id))
        self._entries[header.producer_id] = step.entry

    def stage_marker(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """Check a control batch and stage its step. Raises what `judge_marker` raises."""
        entry = self.entry(header.producer_id)
        step = judge_marker(entry, header, marker, self._origin, self._now_ms)
        if step.completed is not None:
            self._completed.append(step.completed)
        self._entries[header.producer_id] = step.entry

    def accepted(self) -> Accepted:
        """Return all staged changes."""
        return Accepted(self._entries, self._opened, self._completed)

    def _place(self, offset: int) -> OffsetMetadata:
        if self._start.is_offset_only:
            return OffsetMetadata(offset)
        position = self._start.position + self.bytes_before
        return OffsetMetadata(offset, self._start.segment_base_offset, position)
