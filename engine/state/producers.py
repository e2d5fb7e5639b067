"""The producer state of one log: sequences, epochs, and open transactions.

An append first calls `judge`, which changes nothing, and after the write `apply`. The state is
derived: `truncate_and_reload` and `observe` rebuild it from the newest snapshot and the batches
after it.

Mirrors Kafka's `ProducerStateManager` with two differences. The idle time of a producer begins at
the later of its last record's timestamp and its last append or loading. Several batches of one
append are a duplicate only together.

Not thread-safe: the log's lock guards everything but `open_snapshot`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from engine.clock import Clock
from engine.errors import Overloaded
from engine.fs.port import File, FileSystem
from engine.records.control import EndMarker
from engine.records.header import BatchHeader
from engine.state.producer_entry import Idle, ProducerEntry
from engine.state.producer_snapshots import (
    SnapshotFiles,
    encode_snapshot,
    in_table_order,
)
from engine.state.producer_table import ProducerTable, SharedRoom, windows_of
from engine.state.producer_verdict import (
    NOTHING_TO_APPLY,
    Accepted,
    Staging,
    Verdict,
    duplicate_of,
    ensure_repeatable,
)
from engine.state.transactions import OpenTransaction, Transactions
from engine.types import (
    NO_PRODUCER_ID,
    UNKNOWN_OFFSET_METADATA,
    AbortedTransaction,
    AppendOrigin,
    CompletedTransaction,
    OffsetMetadata,
)

_logger = logging.getLogger(__name__)

_NO_MARKERS: Final[Mapping[int, EndMarker]] = MappingProxyType({})


class ProducerStates:
    """The producers of one log, and their snapshots in its directory.

    The constructor lists the snapshots and loads none. `map_end_offset` is the exclusive end of the
    applied batches; every append moves it, with or without a producer id.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        *,
        clock: Clock,
        expiration_ms: int,
        max_producers: int = sys.maxsize,
        room: SharedRoom | None = None,
        snapshots: Iterable[int] | None = None,
    ) -> None:
        """Start with the `found` snapshots, ascending; without them, list the directory.

        Beyond `max_producers` the longest idle producer expires. Producers that clients add are
        counted in `room`.
        """
        self.map_end_offset = 0
        self.last_snapshot_offset = 0
        self.expiration_ms = expiration_ms
        self.highest_producer_id = NO_PRODUCER_ID
        self._directory = directory
        self._clock = clock
        self._files = SnapshotFiles(fs, directory, snapshots)
        self._max_producers = max_producers
        self._room = room
        self._entries = ProducerTable(max_producers)
        self._transactions = Transactions()

    # An append: judge, write, apply.

    def judge(
        self,
        headers: Sequence[BatchHeader],
        origin: AppendOrigin,
        *,
        start: OffsetMetadata = UNKNOWN_OFFSET_METADATA,
        markers: Mapping[int, EndMarker] = _NO_MARKERS,
    ) -> Verdict:
        """Check the batches of one append, with assigned offsets; changes nothing.

        `start` is the location of the first batch; without a segment in it, new transactions only
        have an offset. `markers` holds the content of control batches, by their index in `headers`.

        A client's append is a Duplicate if all its batches are remembered and consecutive. (Kafka
        decides by the first batch, which is the same for the single batch it allows.)

        Raises SequenceGap, ProducerFenced, CoordinatorFenced or InvalidTransactionState; for a
        client's append InvalidRequestValue if one producer has more batches in it than are
        remembered, Overloaded if there are more open transactions than the limit of producers, or
        if the limit of all logs is reached.
        """
        for header in headers:
            if header.producer_id > NO_PRODUCER_ID:
                break
        else:
            return NOTHING_TO_APPLY
        if origin is AppendOrigin.CLIENT:
            ensure_repeatable(headers)
            duplicate = duplicate_of(self._entries, headers)
            if duplicate is not None:
                return duplicate
        staging = Staging(self._entries, origin, start=start, now_ms=self._clock.now_ms())
        for index, header in enumerate(headers):
            if header.producer_id > NO_PRODUCER_ID:
                if header.is_control:
                    staging.stage_marker(header, markers.get(index))
                else:
                    staging.stage_data(header)
            staging.bytes_before += header.size_bytes
        accepted = staging.accepted()
        if origin is AppendOrigin.CLIENT:
            self._ensure_room(accepted)
        return accepted

    def is_repetition(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether a client's append is a Duplicate."""
        return duplicate_of(self._entries, headers) is not None

    def apply(self, accepted: Accepted) -> Sequence[CompletedTransaction]:
        """Publish the result of `judge`, after the batches were written.

        Returns the transactions that their markers ended, in order; call `decide` for each.
        """
        if accepted.entries:
            self._note_ids(accepted.entries)
            self._entries.publish(accepted.entries)
            for transaction in accepted.opened:
                self._transactions.open(transaction)
        return accepted.completed

    def aborted_by(self, accepted: Accepted) -> list[AbortedTransaction]:
        """Return the transaction index entries for an accepted append."""
        if not accepted.completed:  # as in nearly all appends
            return []
        if not any(completed.is_aborted for completed in accepted.completed):
            return []
        transactions = self._transactions.copy()
        for transaction in accepted.opened:
            transactions.open(transaction)
        decided = [transactions.decide(completed) for completed in accepted.completed]
        return [aborted for aborted in decided if aborted is not None]

    def decide(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """Mark a transaction as decided; return its transaction index entry if it was aborted.

        It bounds the last stable offset until its marker is below the high watermark.
        """
        return self._transactions.decide(completed)

    def observe(
        self, header: BatchHeader, marker: EndMarker | None = None
    ) -> AbortedTransaction | None:
        """Apply one batch that is in the log already, for recovery, reload and followers.

        Returns the transaction index entry if the batch is an abort marker.
        """
        aborted = None
        if header.producer_id > NO_PRODUCER_ID:
            markers = _NO_MARKERS if marker is None else {0: marker}
            verdict = self.judge((header,), AppendOrigin.REPLICATION, markers=markers)
            assert isinstance(verdict, Accepted)  # duplicates are only detected for clients
            for completed in self.apply(verdict):
                aborted = self.decide(completed)
        self.map_end_offset = header.next_offset
        return aborted

    # Changes of the log's offsets.

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop decided transactions whose marker is below the high watermark."""
        self._transactions.forget_decided_below(high_watermark)

    def on_log_start(self, log_start_offset: int) -> None:
        """Drop decided transactions below the log start; producers stay until they expire."""
        self._transactions.forget_decided_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        newest = self._files.newest
        self.last_snapshot_offset = log_start_offset if newest is None else newest

    def expire(self, now_ms: int) -> int:
        """Remove idle producers; return how many."""
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.is_expired(now_ms, self.expiration_ms)
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def forget_idle(self, last: Idle) -> None:
        """Remove the producers that have been idle for at least as long as `last`."""
        for entry in tuple(self._entries.values()):
            if entry.idle <= last and entry.transaction_first_offset is None:
                del self._entries[entry.producer_id]

    def truncate_fully(self, offset: int) -> None:
        """Remove all state and snapshots; the log continues at `offset`."""
        self._clear()
        for snapshot in self._files.offsets:
            self._files.delete(snapshot)
        self.last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_and_reload(self, log_start_offset: int, end_offset: int, now_ms: int) -> None:
        """Reset the state to the newest snapshot at or below `end_offset`.

        Afterwards `map_end_offset` may be below `end_offset`: the caller passes the batches in
        between to `observe`. Snapshots outside the log are removed.
        """
        for snapshot in self._files.offsets:
            if snapshot > end_offset or snapshot <= log_start_offset:
                self._files.delete(snapshot)
        if self.map_end_offset == end_offset:
            self.on_log_start(log_start_offset)
        else:
            before = self.recent()
            self._clear()
            self.load_from_snapshot(log_start_offset, now_ms)
            self._entries.reach_back(windows_of(before))

    def at_most(self, end_offset: int, *, above: int) -> ProducerStates:
        """Return a separate state to rebuild, with the snapshots up to an offset.

        Snapshots at or below `above` are ignored. Needs no lock.
        """
        return ProducerStates(
            self._files.fs,
            self._directory,
            clock=self._clock,
            expiration_ms=self.expiration_ms,
            max_producers=self._max_producers,
            room=self._room,
            snapshots=[one for one in self._files.offsets if above < one <= end_offset],
        )

    def go_back_to(self, rebuilt: ProducerStates) -> None:
        """Replace this state by one from `at_most` that was rebuilt; remove newer snapshots.

        The highest producer id does not fall.
        """
        for snapshot in self._files.offsets:
            if snapshot not in rebuilt.snapshots:
                self._files.delete(snapshot)
        self._files = rebuilt._files
        rebuilt._entries.reach_back(windows_of(self.recent()))
        self._entries = rebuilt._entries
        self._transactions = rebuilt._transactions
        self._note_ids(self._entries)
        self.map_end_offset = rebuilt.map_end_offset
        self.last_snapshot_offset = rebuilt.last_snapshot_offset

    def note_snapshots_of(self, rebuilt: ProducerStates) -> None:
        """Add the snapshots that `rebuilt` wrote, even if `go_back_to` does not follow."""
        for snapshot in rebuilt.snapshots:
            self._files.note(snapshot)

    def load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        """Load the newest readable snapshot, or start empty at the log start.

        A damaged snapshot is reported and removed, and the previous one is tried.
        """
        loaded = self._files.load(now_ms)
        if loaded is None:
            self.map_end_offset = self.last_snapshot_offset = log_start_offset
        else:
            self.map_end_offset, entries = loaded
            self.last_snapshot_offset = self.map_end_offset
            self._adopt(entries)

    # Snapshots on disk.

    def take_snapshot(self, *, sync: bool) -> int | None:
        """Write the state below `map_end_offset`, unless a snapshot at least that new exists.

        Returns the offset in its name. Without `sync` a power cut may lose it; loading then uses
        the previous one.
        """
        if self.map_end_offset <= self.last_snapshot_offset:
            return None
        self._files.write(self.map_end_offset, self.encoded(), sync=sync)
        self.last_snapshot_offset = self.map_end_offset
        return self.last_snapshot_offset

    def recent(self) -> tuple[ProducerEntry, ...]:
        """Return the entries of all producers, for `write_windows` and `encode_windows`."""
        return tuple(self._entries.values())

    def write_windows(self, entries: Iterable[ProducerEntry]) -> None:
        """Write the duplicate windows of these producers durably.

        Needs no lock; one thread at a time.
        """
        self._files.write_windows(entries)

    def encoded(self) -> bytes:
        """Return the state as the bytes of a snapshot."""
        return encode_snapshot(in_table_order(self._entries.values()))

    def open_snapshot(self, offset: int) -> File | None:
        """Open a snapshot to sync it, if it exists. Needs no lock."""
        return self._files.open(offset)

    def overlook_snapshots_above(self, offset: int) -> None:
        """Ignore newer snapshots; their files stay."""
        self._files.overlook_above(offset)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The offsets of all snapshots, ascending."""
        return self._files.offsets

    def rescan_snapshots(self) -> None:
        """List the snapshots in the directory again."""
        self._files.rescan()

    def delete_snapshot(self, offset: int) -> None:
        """Remove a snapshot now; a missing one is ignored."""
        self._files.delete(offset)

    def snapshot_for_deletion(self, offset: int) -> Path | None:
        """Drop a snapshot; return its renamed file, if any, for the caller to remove later."""
        return self._files.retire(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Remove snapshots without a segment, except the newest if no segment begins after it."""
        self._files.delete_strays(segment_base_offsets)

    def move_to(self, directory: Path) -> None:
        """Use the files in the renamed partition directory."""
        self._directory = directory
        self._files.move_to(directory)

    # Questions.

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known."""
        return not self._entries

    @property
    def first_unstable_offset(self) -> OffsetMetadata | None:
        """The start of the oldest transaction that is open, or decided above the high watermark."""
        return self._transactions.first_unstable

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of one producer, if known."""
        return self._entries.get(producer_id)

    def active_producers(self, now_ms: int) -> tuple[ProducerEntry, ...]:
        """Return every producer that is not expired, by producer id."""
        return tuple(
            entry
            for _, entry in sorted(self._entries.items())
            if not entry.is_expired(now_ms, self.expiration_ms)
        )

    def check_invariants(self) -> None:
        """Fail unless entries and open transactions agree."""
        self._entries.check_invariants(self._transactions.ongoing, self.highest_producer_id)

    def _ensure_room(self, accepted: Accepted) -> None:
        """Raise Overloaded if open transactions or producer ids would exceed their limits."""
        opened = len(accepted.opened)
        if opened and self._transactions.open_count + opened > self._max_producers:
            raise Overloaded(
                f"{self._max_producers} producers have open transactions in this log",
                limit="max_producers_per_partition",
            )
        if self._room is not None:
            new = accepted.entries.keys() - self._entries.keys()
            if new:
                self._room.take(len(new))

    def _adopt(self, entries: Sequence[ProducerEntry]) -> None:
        """Use a snapshot, for there are no entries; open transactions only have an offset."""
        by_age = sorted(entries, key=lambda entry: entry.last_timestamp)
        self._note_ids([entry.producer_id for entry in entries])
        self._entries.publish({entry.producer_id: entry for entry in by_age})
        for entry in self._entries.values():
            if entry.transaction_first_offset is not None:
                first = OffsetMetadata(entry.transaction_first_offset)
                self._transactions.open(OpenTransaction(first, entry.producer_id))

    def _note_ids(self, producer_ids: Collection[int]) -> None:
        self.highest_producer_id = max((self.highest_producer_id, *producer_ids))

    def _clear(self) -> None:
        self._entries.clear()
        self._transactions.clear()
