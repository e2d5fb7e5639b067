"""The producers of one log: who may append what, whose transactions are open, and since where.

An append asks `judge`, which reads and changes nothing; only when the bytes are in the log does it
call `apply`. State is derived: `truncate_and_reload` and `observe` rebuild it from the newest
snapshot and the batches after it.

Mirrors Kafka's `ProducerStateManager` with two differences. Idle producers expire from the later of
a record's time and the moment it was appended or loaded. Several batches of one client's append are
a duplicate together or not at all.

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
from engine.state.producer_snapshot import (
    encode_snapshot,
    in_table_order,
)
from engine.state.producer_table import ProducerTable
from engine.state.producer_windows import windows_of
from engine.state.shared_room import SharedRoom
from engine.state.snapshot_files import SnapshotFiles
from engine.state.transactions import OpenTransaction, Transactions
from engine.state.verdict import (
    NOTHING_TO_APPLY,
    Accepted,
    Staging,
    Verdict,
    duplicate_of,
    ensure_repeatable,
)
from engine.state.verification import VerificationGuard, Verifications
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
    """All producers of one log, and the snapshots of them in its directory.

    A new one knows which snapshots there are and has loaded none. `map_end_offset` is the exclusive
    end of what has been applied: every append moves it, with a producer id or without.
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
        transaction_verification: bool = False,
        snapshots: Iterable[int] | None = None,
    ) -> None:
        """Begin with the snapshots that were just found, ascending; without, look for them.

        Beyond `max_producers` the one that has been idle for longest is forgotten. What clients
        add is taken from `room`.
        """
        self.map_end_offset = 0
        self.last_snapshot_offset = 0
        self.expiration_ms = expiration_ms
        self.transaction_verification = transaction_verification
        self.highest_producer_id = NO_PRODUCER_ID
        self._directory = directory
        self._clock = clock
        self._files = SnapshotFiles(fs, directory, snapshots)
        self._max_producers = max_producers
        self._room = room
        self._entries = ProducerTable(max_producers)
        self._transactions = Transactions()
        self._verifications = Verifications()

    # An append: judge, write, apply.

    def judge(
        self,
        headers: Sequence[BatchHeader],
        origin: AppendOrigin,
        *,
        start: OffsetMetadata = UNKNOWN_OFFSET_METADATA,
        markers: Mapping[int, EndMarker] = _NO_MARKERS,
        guard: VerificationGuard | None = None,
    ) -> Verdict:
        """Decide on the batches of one append, whose offsets are assigned; changes nothing.

        `start` is where the first batch will lie; without a segment in it, transactions opened here
        know their offset only. `markers` holds the content of control batches, by their index in
        `headers`.

        A client's append is a Duplicate if all its batches are remembered and adjoin. (In Kafka the
        first one found decides, which is the same for the single batch it allows.)

        Raises SequenceGap, ProducerFenced, CoordinatorFenced or InvalidTransactionState; for a
        client's append InvalidRequestValue if more batches are one producer's than are remembered,
        Overloaded if more transactions would be open than producers may be known, or if the logs
        together know too many.
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
                    if self.transaction_verification and origin is not AppendOrigin.REPLICATION:
                        self._verifications.ensure_proved(
                            staging.entry(header.producer_id), header, guard
                        )
                    lowest_sequence = self._verifications.lowest_sequence(header.producer_id)
                    staging.stage_data(header, lowest_sequence)
            staging.bytes_before += header.size_bytes
        accepted = staging.accepted()
        if origin is AppendOrigin.CLIENT:
            self._ensure_room(accepted)
        return accepted

    def is_repetition(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether `judge` will find that a client's append is a Duplicate."""
        return duplicate_of(self._entries, headers) is not None

    def apply(self, accepted: Accepted) -> Sequence[CompletedTransaction]:
        """Publish what was judged; the batches are in the log.

        Returns the transactions that their markers ended, in order, each for `decide`.
        """
        if accepted.entries:
            self._note_ids(accepted.entries)
            self._entries.publish(accepted.entries)
            for transaction in accepted.opened:
                self._transactions.open(transaction)
            for producer_id in accepted.transactional_ids:
                self._verifications.clear(producer_id)
        return accepted.completed

    def aborted_by(self, accepted: Accepted) -> list[AbortedTransaction]:
        """Return the entries for the transaction index that what was judged will make."""
        if not accepted.completed:  # as of nearly all appends
            return []
        if not any(completed.is_aborted for completed in accepted.completed):
            return []
        transactions = self._transactions.copy()
        for transaction in accepted.opened:
            transactions.open(transaction)
        decided = [transactions.decide(completed) for completed in accepted.completed]
        return [aborted for aborted in decided if aborted is not None]

    def decide(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """Count a transaction as decided; returns its entry for the transaction index, if aborted.

        It holds the last stable offset down until its marker lies below the high watermark.
        """
        return self._transactions.decide(completed)

    def observe(
        self, header: BatchHeader, marker: EndMarker | None = None
    ) -> AbortedTransaction | None:
        """Apply one batch that is in the log already, as recovery, reload and followers do.

        Returns the entry for the transaction index if the batch is the marker of an abort.
        """
        aborted = None
        if header.producer_id > NO_PRODUCER_ID:
            markers = _NO_MARKERS if marker is None else {0: marker}
            verdict = self.judge((header,), AppendOrigin.REPLICATION, markers=markers)
            assert isinstance(verdict, Accepted)  # only a client's append can be a duplicate
            for completed in self.apply(verdict):
                aborted = self.decide(completed)
        self.map_end_offset = header.next_offset
        return aborted

    # What moves around the log moves the state.

    def on_high_watermark(self, high_watermark: int) -> None:
        """Stop holding back the transactions whose marker lies below the high watermark."""
        self._transactions.forget_decided_below(high_watermark)

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget decided transactions below the log start; producers stay until they expire."""
        self._transactions.forget_decided_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        newest = self._files.newest
        self.last_snapshot_offset = log_start_offset if newest is None else newest

    def expire(self, now_ms: int) -> int:
        """Forget idle producers and stale verifications; returns how many producers went."""
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.is_expired(now_ms, self.expiration_ms)
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        self._verifications.expire(now_ms, self.expiration_ms)
        return len(expired)

    def forget_idle(self, last: Idle) -> None:
        """Forget the producers that have been idle for as long as this one, or longer."""
        for entry in tuple(self._entries.values()):
            if entry.idle <= last and entry.transaction_first_offset is None:
                del self._entries[entry.producer_id]

    def truncate_fully(self, offset: int) -> None:
        """Forget everything, snapshots included; the log goes on at `offset`."""
        self._clear()
        for snapshot in self._files.offsets:
            self._files.delete(snapshot)
        self.last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_and_reload(self, log_start_offset: int, end_offset: int, now_ms: int) -> None:
        """Bring the state back to at most `end_offset`, from the newest snapshot that fits.

        Afterwards `map_end_offset` may be below `end_offset`: the caller feeds the batches between
        to `observe`. Snapshots beyond the end, or of nothing in the log, are removed.
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
        """Return a state beside this one, to be rebuilt; it knows the snapshots up to an offset.

        Those at or below `above` are of nothing in the log. Needs no lock.
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
        """Take over what `at_most` made and its caller rebuilt; newer snapshots are removed.

        Verifications that are under way go on, and no producer id becomes free again.
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
        """Know of what `rebuilt` wrote, whether or not `go_back_to` follows."""
        for snapshot in rebuilt.snapshots:
            self._files.note(snapshot)

    def load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        """Start from the newest readable snapshot, or from nothing at the log start.

        A snapshot that is damaged is reported, removed, and the one before it tried.
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
        """Write the state below `map_end_offset`, unless a snapshot at least that new was taken.

        Returns the offset that names it. Without `sync` a power cut may lose it; loading then
        starts from the one before.
        """
        if self.map_end_offset <= self.last_snapshot_offset:
            return None
        self._files.write(self.map_end_offset, self.encoded(), sync=sync)
        self.last_snapshot_offset = self.map_end_offset
        return self.last_snapshot_offset

    def recent(self) -> tuple[ProducerEntry, ...]:
        """Return all that is known of every producer, for `write_windows` and `encode_windows`."""
        return tuple(self._entries.values())

    def write_windows(self, entries: Iterable[ProducerEntry]) -> None:
        """Make the last batches of these producers durable: a snapshot holds one of each.

        Needs no lock; one thread at a time.
        """
        self._files.write_windows(entries)

    def encoded(self) -> bytes:
        """Return the state as a snapshot has it."""
        return encode_snapshot(in_table_order(self._entries.values()))

    def open_snapshot(self, offset: int) -> File | None:
        """Open a snapshot to sync it, if it still exists. Needs no lock."""
        return self._files.open(offset)

    def overlook_snapshots_above(self, offset: int) -> None:
        """Take no notice of newer snapshots; their files stay, for whoever is not looking back."""
        self._files.overlook_above(offset)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The offsets of all snapshots, ascending."""
        return self._files.offsets

    def rescan_snapshots(self) -> None:
        """Take notice of all that lie in the directory now."""
        self._files.rescan()

    def delete_snapshot(self, offset: int) -> None:
        """Remove a snapshot at once; it may be missing."""
        self._files.delete(offset)

    def snapshot_for_deletion(self, offset: int) -> Path | None:
        """Forget a snapshot; returns its renamed file for the caller to remove later, if any."""
        return self._files.retire(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Remove the snapshots of no segment, except the newest if no segment begins after it."""
        self._files.delete_strays(segment_base_offsets)

    def move_to(self, directory: Path) -> None:
        """Use the files under their new parent: the partition directory was renamed."""
        self._directory = directory
        self._files.move_to(directory)

    # Verification of transactions, where somebody else decides whether they may begin.

    def start_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int
    ) -> VerificationGuard | None:
        """Return the guard that the first batch of a transaction must carry; None if it is open."""
        entry = self._entries.get(producer_id)
        if entry is not None and entry.transaction_first_offset is not None:
            return None
        return self._verifications.start(
            producer_id,
            sequence=sequence,
            producer_epoch=producer_epoch,
            now_ms=self._clock.now_ms(),
        )

    # Questions.

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known."""
        return not self._entries

    @property
    def first_unstable_offset(self) -> OffsetMetadata | None:
        """Where the oldest transaction begins that is open, or decided above the high watermark."""
        return self._transactions.first_unstable

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return what is known of one producer."""
        return self._entries.get(producer_id)

    def active_producers(self, now_ms: int) -> tuple[ProducerEntry, ...]:
        """Return every producer that is not expired, by producer id."""
        return tuple(
            entry
            for _, entry in sorted(self._entries.items())
            if not entry.is_expired(now_ms, self.expiration_ms)
        )

    def check_invariants(self) -> None:
        """Fail unless entries and open transactions tell the same story."""
        self._entries.check_invariants(self._transactions.ongoing, self.highest_producer_id)

    def _ensure_room(self, accepted: Accepted) -> None:
        """Refuse transactions for which others would have to be forgotten, and too many ids."""
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
        """Make what a snapshot held the live state; open transactions know their offset only."""
        by_age = sorted(entries, key=lambda entry: entry.last_timestamp)
        self._note_ids([entry.producer_id for entry in entries])
        self._entries.clear()
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
