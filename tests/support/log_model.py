"""A log as a plain list of batches: what must be read from one to which the same was done.

Slow, and without a clever thought: every question walks the list. It keeps the very bytes of each
batch, for nothing but compaction may change one that is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from engine.records.batch import BatchView
from engine.records.header import BatchHeader
from engine.types import FetchIsolation

REMEMBERED_BATCHES = 5
"""How many batches of a producer are recognised when they come again."""

Content = tuple[int, int, bytes | None, bytes | None]
"""Offset, time, key and value of a record."""


@dataclass(eq=False)
class Stored:
    """One batch in the log; `data` as it is read."""

    data: bytes
    header: BatchHeader
    records: list[Content]
    ended_at: int | None = None
    """Where the marker of its transaction lies."""
    is_aborted: bool = False

    @classmethod
    def of(cls, data: bytes) -> Stored:
        view = BatchView(data)
        view.ensure_intact()
        records = [(one.offset, one.timestamp, one.key, one.value) for one in view.records()]
        return cls(data, view.header, records)

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset

    @property
    def is_data_of_transaction(self) -> bool:
        return self.header.is_transactional and not self.header.is_control

    def is_marker_of(self, producer_id: int) -> bool:
        return self.header.is_control and self.header.producer_id == producer_id

    @property
    def is_abort(self) -> bool:
        """Whether a marker aborts; the type is in the key of its record, after the version."""
        _, _, key, _ = self.records[0]
        return key == b"\0\0\0\0"

    @property
    def horizon_ms(self) -> int | None:
        """When its tombstones, or its marker, may go."""
        return self.header.base_timestamp if self.header.has_delete_horizon else None


@dataclass
class LogModel:
    """Everything that was appended and not taken back; also what lies below the log start."""

    batches: list[Stored] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int = 0
    end: int = 0
    leader_epoch: int = 0
    remembered: dict[int, list[Stored]] = field(default_factory=dict)
    """By producer: the batches whose retry must be recognised; it may recognise more."""
    compacted_away: list[Stored] = field(default_factory=list)
    """Batches of transactions that compaction removed whole."""
    published: dict[tuple[int, int], Content] = field(default_factory=dict)
    """What readers were shown, by leader epoch of the log and offset."""

    # -- what is done to it ------------------------------------------------------------------

    def append(self, data: bytes) -> Stored:
        """Put one batch, as it was stamped, at the end."""
        batch = Stored.of(data)
        header = batch.header
        assert (header.base_offset, header.leader_epoch) == (self.end, self.leader_epoch)
        self.batches.append(batch)
        self.end = batch.next_offset
        if header.has_producer_id and not header.is_control:
            before = self.remembered.get(header.producer_id, [])
            same = [one for one in before if one.header.producer_epoch == header.producer_epoch]
            self.remembered[header.producer_id] = [*same, batch][-REMEMBERED_BATCHES:]
        return batch

    def append_marker(self, data: bytes, *, is_abort: bool) -> None:
        """Put the end of its producer's transaction at the end."""
        marker = self.append(data)
        producer_id = marker.header.producer_id
        for batch in self._open_batches(producer_id):
            batch.ended_at, batch.is_aborted = marker.base_offset, is_abort
        if marker.header.producer_epoch > self._newest_of(producer_id).header.producer_epoch:
            self.remembered.pop(producer_id, None)

    def commit(self) -> None:
        """Show readers everything."""
        self.show_up_to(self.end)

    def show_up_to(self, offset: int) -> None:
        """Raise the high watermark; what an offset means in one epoch never changes."""
        for batch in self.batches:
            if self.high_watermark <= batch.base_offset < offset:
                for record in batch.records:
                    place = (self.leader_epoch, record[0])
                    assert self.published.setdefault(place, record) == record
        self.high_watermark = offset

    def truncate_to(self, offset: int) -> None:
        """Take the end back; a batch that holds the offset goes whole."""
        if offset >= self.end:
            return
        self.cut_at(offset)
        self.end = self.high_watermark = offset
        self.log_start = min(self.log_start, offset)
        self.leader_epoch += 1
        self.forget_producers()

    def cut_at(self, end: int) -> None:
        """Lose the batches that do not end there; transactions that ended above are open again."""
        lost = [batch for batch in self.batches if batch.next_offset > end]
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        for batch in lost:
            self.reopen_transactions(batch)

    def reopen_transactions(self, lost: Stored) -> None:
        """Let a transaction whose marker is lost end with its producer's next, if there is one."""
        later = [one for one in self.batches if one.base_offset > lost.base_offset]
        marker = next((one for one in later if one.is_marker_of(lost.header.producer_id)), None)
        for batch in (*self.batches, *self.compacted_away):
            if batch.ended_at == lost.base_offset:
                batch.ended_at = None if marker is None else marker.base_offset
                batch.is_aborted = marker is not None and marker.is_abort

    def forget_producers(self, *, keeps_windows: bool = False) -> None:
        """Remember what snapshots and the batches above the log start tell for sure.

        A snapshot has the last batch of a producer. The file of windows has those before it that
        were remembered: it `keeps_windows` over a restart and a move.
        """
        before = {one.base_offset for sent in self.remembered.values() for one in sent}
        self.remembered.clear()
        for batch in self.batches:
            header = batch.header
            if header.is_control:
                newest = self.remembered.get(header.producer_id)
                if newest and newest[0].header.producer_epoch < header.producer_epoch:
                    del self.remembered[header.producer_id]
            elif header.has_producer_id and batch.base_offset >= self.log_start:
                older = self.remembered.get(header.producer_id, []) if keeps_windows else []
                kept = [
                    one
                    for one in older
                    if one.header.producer_epoch == header.producer_epoch
                    and one.base_offset in before
                ]
                self.remembered[header.producer_id] = [*kept, batch][-REMEMBERED_BATCHES:]

    def copy(self) -> LogModel:
        """Return a model to go on with, beside this one."""
        batches = {id(one): replace(one) for one in (*self.batches, *self.compacted_away)}
        return replace(
            self,
            batches=[batches[id(one)] for one in self.batches],
            remembered={
                producer_id: [batches.get(id(one), one) for one in sent]
                for producer_id, sent in self.remembered.items()
            },
            compacted_away=[batches[id(one)] for one in self.compacted_away],
            published=dict(self.published),
        )

    # -- producers ---------------------------------------------------------------------------

    def next_sequence(self, producer_id: int) -> tuple[int, int]:
        """Return the epoch and sequence with which the producer goes on."""
        epoch = sequence = 0
        for batch in self.batches:
            header = batch.header
            if header.producer_id != producer_id:
                continue
            if header.is_control:
                sequence = 0 if header.producer_epoch > epoch else sequence
            else:
                sequence = header.base_sequence + header.last_offset_delta + 1
            epoch = header.producer_epoch
        return epoch, sequence

    def may_be_refused(self, producer_id: int) -> bool:
        """Whether a marker may be all that a start found of the producer: its epoch, no sequence.

        As in Kafka, such a producer has to begin with sequence 0.
        """
        _, sequence = self.next_sequence(producer_id)
        gone = {one.header.producer_id for one in self.compacted_away}
        if producer_id in gone and producer_id not in self.remembered:
            return True  # a snapshot may know what no batch tells any more
        has_marker = any(
            batch.header.is_control and batch.header.producer_id == producer_id
            for batch in self.batches
        )
        return has_marker and sequence > 0 and producer_id not in self.remembered

    def is_in_transaction(self, producer_id: int) -> bool:
        return bool(self._open_batches(producer_id))

    def _open_batches(self, producer_id: int) -> list[Stored]:
        return [
            batch
            for batch in self.batches
            if batch.header.producer_id == producer_id
            and batch.is_data_of_transaction
            and batch.ended_at is None
        ]

    def _newest_of(self, producer_id: int) -> Stored:
        return next(
            batch
            for batch in reversed(self.batches)
            if batch.header.producer_id == producer_id and not batch.header.is_control
        )

    # -- readers -----------------------------------------------------------------------------

    @property
    def last_stable_offsets(self) -> set[int]:
        """Return where a reader of what is committed may have to stop.

        The second one holds if the state was rebuilt from the log start on: a transaction then
        begins with its first batch that is still there. The third one if the state remembers where
        a transaction began of which compaction left nothing, and whose end was cut off since.
        """
        undecided = self._undecided(self.batches)
        present = [batch for batch in undecided if batch.next_offset > self.log_start]
        return {
            min([self.high_watermark, *(max(self.log_start, one.base_offset) for one in some)])
            for some in (undecided, present, undecided + self._undecided(self.compacted_away))
        }

    def _undecided(self, batches: list[Stored]) -> list[Stored]:
        """Return those of transactions that have no end which readers can see."""
        return [
            batch
            for batch in batches
            if batch.is_data_of_transaction
            and (batch.ended_at is None or batch.ended_at >= self.high_watermark)
        ]

    def due(self, offset: int, bound: int, end_offset: int | None = None) -> list[Stored]:
        """Return the batches to be read from `offset` on: whole, below the bound."""
        return [
            batch
            for batch in self.batches
            if offset < batch.next_offset <= bound
            and (end_offset is None or offset < end_offset > batch.base_offset)
        ]

    def first_record(self, is_meant: Callable[[Content], bool]) -> Content | None:
        """Return the first such record at or above the log start; markers are records too."""
        return next(filter(is_meant, self.present_records()), None)

    def has_emptied_batch(self, timestamp_ms: int, *, end_offset: int) -> bool:
        """Whether a batch below that offset claims the time and has no such record any more."""
        return any(
            batch.base_offset < end_offset
            and batch.header.max_timestamp >= timestamp_ms
            and all(timestamp < timestamp_ms for _, timestamp, _, _ in batch.records)
            for batch in self.batches
        )

    def present_records(self) -> Iterator[Content]:
        """Yield what lies at or above the log start, committed or not."""
        for batch in self.batches:
            for record in batch.records:
                if record[0] >= self.log_start:
                    yield record


def delivered(batches: list[Stored], isolation: FetchIsolation) -> list[Stored]:
    """Leave out what a reader of this isolation is not given."""
    if isolation is not FetchIsolation.TXN_COMMITTED:
        return batches
    return [batch for batch in batches if not (batch.header.is_control or batch.is_aborted)]
