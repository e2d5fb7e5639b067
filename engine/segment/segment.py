"""One segment: the `.log` file of a range of offsets and the indexes derived from it.

Offsets in the indexes are 32 bits wide and relative to the segment's base offset, so a segment
rolls before an offset would be too far away. Appending, truncating, sealing and renaming need the
log lock; locating and reading need no lock. Mirrors Kafka's `LogSegment`; recovery is in
`engine.segment.recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from engine.config import LogConfig
from engine.errors import CorruptBatch, CorruptIndex, SegmentOverflow, StoredDataCorrupt
from engine.fs import names
from engine.fs.port import FileSystem
from engine.index.sparse import Kept
from engine.records.header import HEADER_BYTES, MAGIC_2, BatchHeader, parse_header
from engine.records.scan import iter_headers, scan_batches
from engine.segment.file_records import BatchPosition, FileRecords, NotCached
from engine.segment.indexes import Resting, SegmentIndexes
from engine.segment.proofs import IndexProofs
from engine.types import INT32_MAX, NO_TIMESTAMP, Buffer, OffsetPosition, TimestampOffset


class RollParams(NamedTuple):
    """The append and the limits that decide whether a segment rolls; Kafka's `RollParams`."""

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp: int
    max_offset: int
    size_bytes: int
    now_ms: int


MAX_CACHED_READ_BYTES: Final = 1024 * 1024
"""Larger reads go to a worker, even from the page cache: 10,000 checksums take about 3 ms."""

NO_MAXIMUM: Final = TimestampOffset(NO_TIMESTAMP, -1)


class SegmentCut(NamedTuple):
    """How much of a segment stays."""

    offset: int
    """Batches that hold this offset or a later one are removed."""
    position: int
    """The new end of the log file."""
    maximum: TimestampOffset
    """`Segment.maximum` of the remaining batches."""
    last: BatchHeader | None
    """The header of the last remaining batch, if any."""
    offsets: Kept[OffsetPosition]
    times: Kept[TimestampOffset]
    """What stays of the two indexes: the cut itself reads nothing of them."""


class Segment:
    """The batches from `base_offset` to the next segment."""

    __slots__ = (
        "__weakref__",
        "_created_ms",
        "_fs",
        "_jitter_ms",
        "_maximum",
        "_rolling_timestamp",
        "_room_bytes",
        "_room_config",
        "_room_entries",
        "_room_until_ms",
        "_unindexed_bytes",
        "base_offset",
        "directory",
        "index_interval_bytes",
        "indexes",
        "proofs",
        "records",
        "resting",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
        is_new: bool = False,
        is_resting: bool = False,
    ) -> None:
        """Open or create the log file; a resting file and the indexes are opened on first use."""
        self._fs = fs
        self.directory = directory
        self.base_offset = base_offset
        path = directory / (names.log_name(base_offset) + suffix)
        space = config.initial_file_bytes if is_new else 0
        options = {"create": is_new, "exclusive": is_new}
        file = None if is_resting else fs.open(path, **options, preallocate_bytes=space)
        self.records = FileRecords(file, fs, path)
        if self.records.size_bytes > INT32_MAX:
            self.records.close()
            what = f"{self.records.size_bytes} bytes exceed a segment's positions of 31 bits"
            raise self.records.damaged(what, INT32_MAX)
        self.indexes = SegmentIndexes(
            fs, directory, base_offset, config.segment_index_bytes, suffix=suffix
        )
        self.resting = Resting(self.records, self.indexes)
        self.proofs = IndexProofs(self.records, base_offset)
        self.index_interval_bytes = config.index_interval_bytes  # the minimum between two entries
        self._jitter_ms = jitter_ms
        self._created_ms = now_ms
        self._rolling_timestamp: int | None = None
        self._maximum = NO_MAXIMUM
        self._unindexed_bytes = 0
        # The room, see `has_room`; written under the log lock.
        self._room_config: LogConfig | None = None
        self._room_bytes = self._room_entries = 0
        self._room_until_ms = -1

    def __repr__(self) -> str:
        return f"Segment({self.records.path}, {self.size_bytes} bytes)"

    @property
    def size_bytes(self) -> int:
        """The bytes of whole batches in the log file."""
        return self.records.size_bytes

    # -- appending ---------------------------------------------------------------------------

    def append(
        self, data: Buffer, largest_offset: int, maximum_timestamp: int, offset_of_maximum: int
    ) -> int:
        """Write batches at the end and return their position.

        `offset_of_maximum` is the last offset of the first batch that has `maximum_timestamp`.
        Raises SegmentOverflow if `largest_offset` is too far from the base offset. If anything is
        raised, file and indexes are unchanged. The log lock is held. A crash may leave a part of
        the bytes, which recovery cuts.
        """
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            raise SegmentOverflow(
                f"offset {largest_offset} is too far from base offset {self.base_offset}",
                segment=str(self.records.path),
                offset=largest_offset,
            )
        # Before the write, because it may need a file or space, and nothing may fail after the
        # write.
        needs_entry = self._unindexed_bytes > self.index_interval_bytes
        if needs_entry:
            self.indexes.reserve_next()
        maximum = self._maximum
        position = self.records.append(data)
        try:
            if maximum_timestamp > maximum.timestamp:  # of equal ones the first stays
                self._maximum = TimestampOffset(maximum_timestamp, offset_of_maximum)
            if needs_entry:
                self.index_position(OffsetPosition(largest_offset, position))
        except BaseException:
            self._maximum = maximum
            self.records.truncate(position)  # or the next start would find the refused batch
            raise
        if position == 0:
            self._rolling_timestamp = maximum_timestamp
        self._unindexed_bytes += len(data)
        self._room_bytes -= len(data)
        return position

    def index_position(self, entry: OffsetPosition) -> None:
        """Add an entry to the offset index, and the maximum so far to the time index.

        If one of them is full, nothing is added, and look-ups read the headers after the last
        entry. That happens in recovery, which needs more entries than the appends if they had
        several batches, or if the topic's index settings changed. If one index raises, the other is
        unchanged.
        """
        self._add_entry(entry, self._maximum)
        self._unindexed_bytes = 0
        self._room_entries -= 1

    def _add_entry(self, entry: OffsetPosition, maximum: TimestampOffset) -> None:
        if not self.indexes.is_full:
            self.indexes.time.ensure_takes(maximum.timestamp, maximum.offset)
            before = self.indexes.offset.count
            self.indexes.offset.append(entry.offset, entry.position)
            try:
                self.indexes.time.maybe_append(maximum.timestamp, maximum.offset)
            except OSError:
                self.indexes.offset.keep_first(before)
                raise

    def should_roll(self, params: RollParams) -> bool:
        """Whether the append that `params` describes must go into a new segment."""
        size = self.records.size_bytes
        if size > params.max_segment_bytes - params.size_bytes:
            return True
        if size > 0 and self._waited_ms(params) > params.max_segment_ms - self._jitter_ms:
            return True
        return self.indexes.is_full or not 0 <= params.max_offset - self.base_offset <= INT32_MAX

    def has_room(
        self, size_bytes: int, max_timestamp: int, last_offset: int, config: LogConfig
    ) -> bool:
        """Whether a batch can be appended without a roll, and opens, creates and stats no file.

        False may mean that this is not known. `size_bytes`, `max_timestamp` in ms and `last_offset`
        are the batch's; `config` is the log's. The log lock is held.

        The answer costs nine questions, whose answers change once in thousands of appends. So a
        segment that is asked leases what no question needs to be asked for: bytes, entries of the
        indexes, and the time until which it does not roll. `append` uses them up, and what changes
        the answers takes the lease back: see `take_back_room`.
        """
        return (
            self._room_config is config
            and size_bytes <= self._room_bytes
            and self._room_entries > 0
            and max_timestamp <= self._room_until_ms
            and last_offset - self.base_offset <= INT32_MAX
        )

    def lease_room(self, config: LogConfig) -> None:
        """Lease room to the following appends, if it is known. The segment is at hand.

        The log lock is held.
        """
        rolling_timestamp, indexes = self._rolling_timestamp, self.indexes
        # A segment whose first batch has no time rolls by the clock, not by the batches' times.
        if rolling_timestamp is None or rolling_timestamp < 0 or not indexes.are_open:
            return
        self._room_config = config
        self._room_bytes = config.segment_bytes - self.records.size_bytes
        self._room_entries = indexes.free_entries
        self._room_until_ms = rolling_timestamp + config.max_segment_ms - self._jitter_ms

    def take_back_room(self) -> None:
        """End the lease: files are closed, cut or replaced, or the leader epoch changes."""
        self._room_config = None

    @property
    def is_at_hand(self) -> bool:
        """Whether an append without a roll would not open, create or stat a file."""
        records, indexes = self.records, self.indexes
        if records.is_resting or (self._rolling_timestamp is None and records.size_bytes):
            return False
        needs_entry = self._unindexed_bytes > self.index_interval_bytes
        return indexes.are_open if needs_entry else indexes.are_known

    def _waited_ms(self, params: RollParams) -> int:
        """Return the record time since the first append; the wall-clock time if it had none."""
        if self._rolling_timestamp is None:
            _, header = next(self.records.headers(0, self.records.size_bytes))
            self._rolling_timestamp = header.max_timestamp
        if self._rolling_timestamp >= 0:
            return params.max_timestamp - self._rolling_timestamp
        return params.now_ms - self._created_ms

    # -- reading -----------------------------------------------------------------------------

    def locate(
        self, offset: int, end: int | None = None, *, cached_only: bool = False
    ) -> BatchPosition | None:
        """Return the first batch that ends at or after `offset`, before position `end`.

        None means that this segment has no such batch. Needs no lock. Raises as `look_up`.
        """
        return self._find(offset, end, cached_only=cached_only)[2]

    def look_up(
        self, offset: int, end: int | None = None, *, cached_only: bool = False
    ) -> tuple[OffsetPosition, BatchPosition | None]:
        """Return the index entry for an offset, and what `locate` returns.

        Raises StoredDataCorrupt, NotCached, or CorruptIndex if the offset index is wrong. A gap in
        place of the offset is what compaction leaves, or a batch at the entry whose offset went
        back: the batches before it tell.
        """
        entry, start, found = self._find(offset, end, cached_only=cached_only)
        if start > 0 and (found is None or found.base_offset > offset):
            before = self.indexes.offset.floor_by_position(start - 1).position
            until = self.records.size_bytes if end is None else end
            for at, _ in self.records.ascending_headers(
                before, until, next_offset=self.base_offset, cached_only=cached_only
            ):
                if found is not None and at >= found.position:
                    break
        return entry, found

    def _find(
        self, offset: int, end: int | None, *, cached_only: bool
    ) -> tuple[OffsetPosition, int, BatchPosition | None]:
        """Return the index entry for an offset, where the search began, and what it found."""
        end = self.records.size_bytes if end is None else end
        if cached_only and not self.indexes.offset_stays_open():
            raise NotCached
        index = self.indexes.offset
        entry = index.lookup(offset)
        start = entry.position
        if start >= end:
            # The entry may point past `end`, which may be older than the index; use an earlier one.
            start = index.floor_by_position(end - 1).position
        self.proofs.ensure_batch_at(start, index, cached_only=cached_only)
        found = self.records.batch_at_or_after(
            offset, start, end, next_offset=self.base_offset, cached_only=cached_only
        )
        if found is not None and found.position == start > 0 and found.base_offset > offset:
            what = f"points past {offset}, to {found.base_offset}"
            if self.proofs.was_found(start):
                raise self.proofs.disproved(index.path, what)
            raise self.records.damaged(f"{index.path.name} {what}", start, offset)
        return entry, start, found

    def end_of_batches(
        self, first: BatchPosition, limit: int, end: int, *, cached_only: bool = False
    ) -> OffsetPosition:
        """Return the end of the batches from `first` on that fit before position `limit`.

        `first` always fits. The result is the offset to continue from and the position of the next
        batch. `end` is the end of this segment's readable batches.
        """
        result = OffsetPosition(first.last_offset + 1, first.end)
        index = self.indexes.offset
        start = first.position
        if limit > first.end:  # else only the next header is read
            start = max(start, index.floor_by_position(limit - 1).position)
        if first.position < start < end:
            self.proofs.ensure_batch_at(start, index, cached_only=cached_only)
        for at, header in self.records.ascending_headers(
            start, end, next_offset=self.base_offset, cached_only=cached_only
        ):
            batch_end = at + header.size_bytes
            if batch_end > limit and at > first.position:
                offset = self.records.first_offset(at, header, cached_only=cached_only)
                return OffsetPosition(offset, at)
            result = OffsetPosition(header.next_offset, batch_end)
            if batch_end >= limit:
                break
        return result

    def read(
        self, position: int, end: int, *, cached_only: bool = False, sought: int = -1
    ) -> tuple[Buffer, int]:
        """Return the batches in [position, end), each verified, and the offset after the last one.

        `sought` is the requested offset; if the first batch is damaged, the error names it. Raises
        StoredDataCorrupt instead of returning a damaged batch, and NotCached if the disk is needed
        or the range is too large to verify for a caller that must not wait.
        """
        if cached_only and end - position > MAX_CACHED_READ_BYTES:
            raise NotCached
        length = end - position
        following_bytes = min(HEADER_BYTES, max(0, self.size_bytes - end))
        data = memoryview(
            self.records.read(position, length + following_bytes, cached_only=cached_only)
        )
        batches = data[:length]
        scan = scan_batches(batches)
        next_offset = sought if scan.next_offset is None else scan.next_offset
        if scan.valid_bytes < length:
            raise self.records.damaged(str(scan.reason), position + scan.valid_bytes, next_offset)
        if following_bytes:
            following = self._base_offset_of(data[length:], end, cached_only=cached_only)
            if (
                following is not None
                and following < next_offset
                and not self._fills_the_gap(end, next_offset, cached_only=cached_only)
            ):
                what = f"offsets up to {next_offset - 1}, but {following} is next"
                *_, (at, last) = iter_headers(batches)  # those before it fit together
                raise self.records.damaged(what, position + at, last.base_offset if at else sought)
        return batches, next_offset

    def _fills_the_gap(self, position: int, next_offset: int, *, cached_only: bool) -> bool:
        """Whether the batch at `position` would end at the following one if it began at an offset.

        Two neighbours whose offsets overlap do not tell which of them is wrong, since no checksum
        covers a base offset. The batch after them does, where compaction has left no gap.
        """
        headers = self.records.headers(position, self.size_bytes, cached_only=cached_only)
        try:
            _, header = next(headers)
            at, following = next(headers)
            end_offset = self.records.first_offset(at, following, cached_only=cached_only)
        except (StopIteration, StoredDataCorrupt):
            return False
        return end_offset - (header.next_offset - header.base_offset) == next_offset

    def _base_offset_of(self, header: Buffer, position: int, *, cached_only: bool) -> int | None:
        """Return the base offset in the header at `position`; None if it cannot be a batch."""
        try:
            found = parse_header(header)
        except CorruptBatch:
            return None
        if found.magic == MAGIC_2:
            return found.base_offset
        return self.records.base_offset_at(position, cached_only=cached_only)

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of the batches in [start, end) of the file."""
        end = self.size_bytes if end is None else end
        return self.records.headers(start, end, sought=self.base_offset)

    def read_next_offset(self) -> int:
        """Return the offset after the last batch, reading from the last index entry on.

        A descending offset, which is damage, is ignored, so that it does not cost the log.
        """
        next_offset = self.base_offset
        for _, header in self.headers(self.indexes.offset.last_entry.position):
            next_offset = max(next_offset, header.next_offset)
        return next_offset

    # -- times -------------------------------------------------------------------------------

    @property
    def maximum(self) -> TimestampOffset:
        """The largest record timestamp so far, and the last offset of the first batch that has it.

        Written under the log lock, or before other threads can use the segment, and replaced as a
        whole, because readers take no lock.
        """
        return self._maximum

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp in ms; without one, the file's modification time."""
        timestamp = self.maximum.timestamp
        return timestamp if timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        return self.records.file.modified_ms()

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the files' modification time to that of the files they replace."""
        self._fs.set_modified_ms(self.records.path, modified_ms)
        self._fs.set_modified_ms(self.indexes.offset_path, modified_ms)
        self._fs.set_modified_ms(self.indexes.time_path, modified_ms)

    # -- seal, truncate, close ---------------------------------------------------------------

    def mark_indexes_made(self) -> None:
        """Record that this process has just rebuilt the indexes."""
        self.proofs.trust_index()
        self.proofs.unproven_aborts_bytes = 0

    def reset_for_recovery(self) -> None:
        """Drop everything derived from the log file."""
        self.take_back_room()
        self.indexes.reset()
        self._maximum = NO_MAXIMUM
        self._rolling_timestamp = None
        self._unindexed_bytes = 0

    def replace_entries(
        self, entries: Sequence[tuple[OffsetPosition, TimestampOffset]], maximum: TimestampOffset
    ) -> None:
        """Replace all index entries by those of a complete scan. The log lock is held."""
        self.take_back_room()
        self.indexes.reset_sparse()
        self._maximum = maximum
        for entry, maximum_so_far in entries:
            self._add_entry(entry, maximum_so_far)
        self.proofs.trust_index()

    def load_maximum(self) -> None:
        """Load the maximum from the last entry of the time index.

        No other thread can use the segment yet.
        """
        entry = self.indexes.time.last_entry
        self._maximum = entry if entry.timestamp >= 0 else NO_MAXIMUM

    def observe_maximum(self, timestamp: int, offset: int) -> None:
        """Update the maximum with a batch's largest timestamp; of equal ones the first stays."""
        if timestamp > self._maximum.timestamp:
            self._maximum = TimestampOffset(timestamp, offset)

    def seal(self) -> None:
        """Add the last entry to the time index and trim the files, after the last append."""
        self.take_back_room()
        self._note_maximum()
        self.indexes.trim()
        self.records.truncate(self.records.size_bytes)  # cuts a preallocated tail

    def _note_maximum(self) -> None:
        maximum = self._maximum
        if maximum.timestamp >= 0:
            self.indexes.time.maybe_append(maximum.timestamp, maximum.offset, skip_full=True)

    def make_active(self) -> None:
        """Give the indexes room for appends again; resting ones get it with the first append."""
        self.resting.forbid()
        self.indexes.resize()

    def truncate(self, cut: SegmentCut, *, now_ms: int) -> None:
        """Truncate the segment according to the result of `plan_cut`.

        The log lock is held. A crash may restore some of the bytes.
        """
        self.take_back_room()
        self.resting.forbid()
        self.indexes.offset.truncate(cut.offsets)
        self.indexes.time.truncate(cut.times)
        self.indexes.transaction.truncate_to_offset(cut.offset)
        self.indexes.resize()
        if cut.position < self.records.size_bytes:
            self.records.truncate(cut.position)
            self.proofs.forget_from(cut.position)
        if self.records.size_bytes == 0:
            self._created_ms = now_ms
            self._rolling_timestamp = None
        self._unindexed_bytes = 0
        self._maximum = cut.maximum

    def flush(self) -> None:
        """Return once the batches and all indexes would survive a power cut."""
        self.records.sync()
        self.indexes.sync()

    def close(self) -> None:
        """Add the last entry to the time index, then trim, sync and close the files.

        Afterwards the segment would survive a power cut.
        """
        self.take_back_room()
        self.resting.forbid()
        self._note_maximum()
        self.indexes.close()
        if not self.records.is_resting:  # a resting file is synced and trimmed
            self.records.truncate(self.records.size_bytes)
            self.records.sync()  # also that a preallocated tail is gone, before a stop is clean
        self.records.close()

    def close_handles(self) -> None:
        """Close the files without writing: their directory is offline."""
        self.take_back_room()
        self.indexes.close_handles()
        self.records.close()

    def change_suffix(self, new: str) -> None:
        """Rename the segment's files: their suffix is replaced by `new`."""
        target = self.directory / (names.log_name(self.base_offset) + new)
        with self.records.renaming():
            self._fs.rename(self.records.path, target)
            self.records.path = target
        self.indexes.change_suffix(new)

    def check_invariants(self) -> None:
        """Fail if room is leased that an answer to the questions would not give."""
        config, size_bytes = self._room_config, self._room_bytes
        if config is None or size_bytes <= 0 or self._room_entries <= 0:
            return
        assert self.is_at_hand, "a file would be opened"
        end = self.base_offset + INT32_MAX
        until_ms, limit_ms = self._room_until_ms, config.max_segment_ms
        params = RollParams(limit_ms, config.segment_bytes, until_ms, end, size_bytes, 0)
        assert not self.should_roll(params), (self, params)

    def remove_files(self) -> None:
        """Remove the files by name; readers that have them open can continue."""
        self.indexes.remove_files()
        self.records.close_if_resting()
        self._fs.remove(self.records.path, missing_ok=True)

    def move_to(self, directory: Path) -> None:
        """Use the files under a renamed directory; call it inside both `renaming` guards."""
        self.directory = directory
        self.records.path = directory / self.records.path.name
        self.indexes.move_to(directory)


def locate_surely(segment: Segment, offset: int) -> BatchPosition | None:
    """As `Segment.locate`, but if the index is wrong, scan from the first byte."""
    try:
        return segment.locate(offset)
    except CorruptIndex:
        return segment.records.batch_at_or_after(
            offset, 0, segment.size_bytes, next_offset=segment.base_offset
        )
