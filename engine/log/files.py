"""The files of one log: its segments, their unsynced parts, and their removal.

Knows nothing of producers, epochs or watermarks. Every method needs the log lock, except
`SyncOrder.run`: an order is created under the lock and run without it, because a sync takes
milliseconds. Mirrors Kafka's `LocalLog`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.tidelog_files import SegmentGap, note_gap
from engine.clock import Clock
from engine.config import EngineConfig, LogConfig
from engine.errors import InvalidRequestValue
from engine.fs import names
from engine.fs.health import DirectoryHealth
from engine.fs.port import FileSystem, OpenDirectory, OpenFileSystem
from engine.log.analyse import Incoming
from engine.log.damage import KnownDamage
from engine.metrics import Recorder
from engine.records.header import BatchHeader
from engine.scheduler import Scheduler
from engine.segment.indexes import SealedFiles
from engine.segment.segment import Segment, SegmentCut
from engine.segment.segments import Segments
from engine.state.producer_table import SharedRoom
from engine.types import INT64_MAX, AbortedTransaction, OffsetMetadata


@dataclass(frozen=True, slots=True)
class LogContext:
    """Shared by all logs of one data directory."""

    fs: FileSystem
    clock: Clock
    scheduler: Scheduler
    recorder: Recorder
    health: DirectoryHealth
    config: EngineConfig
    sealed_files: SealedFiles
    """The open sealed segments of all data directories."""
    damage: KnownDamage
    """The damaged places of the data directory's logs."""
    sealed_room: SharedRoom = field(default_factory=lambda: SharedRoom("max_sealed_segments"))
    """The remaining number of sealed segments, for all data directories."""
    producer_room: SharedRoom = field(default_factory=lambda: SharedRoom("max_producers"))
    """The remaining number of producer ids, for all data directories."""
    random: random.Random = field(default_factory=random.Random)
    """For segment.jitter.ms, which keeps many logs from rolling at the same moment."""

    def draw_jitter_ms(self, config: LogConfig) -> int:
        """Return a random reduction of segment.ms for one segment."""
        limit = min(config.segment_jitter_ms, config.segment_ms)
        return self.random.randrange(limit) if limit else 0


_LOG = logging.getLogger(__name__)


class SyncOrder(NamedTuple):
    """The files to sync before the log end at the order's creation may be committed."""

    segments: tuple[Segment, ...]
    """The last one was the active segment; it may have grown or been sealed since."""
    has_new_names: bool
    """Whether the name of a new segment file may not be on disk yet."""

    def is_covered_by(self, file_system: OpenFileSystem) -> bool:
        """Whether a sync of that whole file system does the same as `run`."""
        files = [segment.records.file for segment in self.segments]
        return all(file.device == file_system.device and not file.is_preallocated for file in files)

    def run(self, directory: OpenDirectory | None) -> None:
        """Sync the segments, and the directory if a name is new. Needs no log lock."""
        for segment in self.segments:
            segment.records.sync()
        if directory is not None:
            directory.sync_all()


@dataclass(slots=True)
class LocalLog:
    """The segments of a directory; the bytes of those in `_unsynced` may not be on disk."""

    context: LogContext
    directory: Path
    config: LogConfig
    segments: Segments
    _unsynced: list[Segment] = field(default_factory=list)
    has_new_names: bool = False

    @property
    def active(self) -> Segment:
        return self.segments.active

    def end_metadata(self, offset: int) -> OffsetMetadata:
        """Return `offset`, the log end, with its position: the end of the active segment."""
        active = self.segments.active
        return OffsetMetadata(offset, active.base_offset, active.size_bytes)

    def append(
        self,
        incoming: Incoming,
        headers: Sequence[BatchHeader],
        aborted: Sequence[AbortedTransaction],
    ) -> OffsetMetadata:
        """Write the batches and return the new log end; if it raises, nothing is written.

        Transaction index entries for their abort markers come first, because after the batches
        nothing may fail. Readers cannot reach those transactions before the batches are written.
        """
        active = self.segments.active
        if aborted:
            active.indexes.transaction.append(*aborted)
        last_offset = headers[-1].last_offset
        try:
            position = active.append(
                incoming.buffer,
                last_offset,
                incoming.max_timestamp,
                headers[incoming.batch_of_max_timestamp].last_offset,
            )
        except BaseException:
            if aborted:
                with self.context.health.writing:
                    active.indexes.transaction.truncate_to_offset(aborted[0].last_offset)
            raise
        return OffsetMetadata(last_offset + 1, active.base_offset, position + len(incoming.buffer))

    def distrust_above(self, recovery_point: int) -> None:
        """Sync what is above the recovery point with the next order: a crashed process wrote it.

        And the segment that ends there: a roll may have cut its preallocated tail since.
        """
        self._unsynced = list(self.segments.overlapping(recovery_point - 1, INT64_MAX)[:-1])
        self.has_new_names = True

    def open_segment(self, base_offset: int) -> Segment:
        """Create the files of a new active segment and add it to the map."""
        segment = self._create_segment(base_offset)
        self.segments.add(segment)
        return segment

    def _create_segment(self, base_offset: int) -> Segment:
        segment = Segment(
            self.context.fs,
            self.directory,
            base_offset,
            self.config,
            now_ms=self.context.clock.now_ms(),
            jitter_ms=self.context.draw_jitter_ms(self.config),
            is_new=True,
        )
        self.has_new_names = True
        return segment

    def roll(self, base_offset: int) -> Segment:
        """Seal the active segment and open one at `base_offset`; return the new segment.

        If the active segment is empty and has that base offset already, which happens when its
        indexes are full, it stays and its indexes are emptied. Kafka replaces its files, but then a
        power cut may remove both names, and only the name tells where an empty log ends. Raises
        InvalidRequestValue below the active segment.
        """
        active = self.segments.active
        if base_offset < active.base_offset or (
            base_offset == active.base_offset and active.size_bytes
        ):
            raise InvalidRequestValue(
                f"cannot roll {self.directory} to {base_offset}: the active segment begins at "
                f"{active.base_offset} with {active.size_bytes} bytes"
            )
        if base_offset == active.base_offset:
            active.reset_for_recovery()
            return active
        self._remove_leftovers(base_offset)
        active.seal()
        segment = self.open_segment(base_offset)  # without space it raises, and nothing has changed
        self._unsynced.append(active)
        return segment

    def note_gap(self, end_offset: int, base_offset: int) -> None:
        """Record durably that the gap before a new segment is intended."""
        gap = SegmentGap(end_offset, base_offset)
        note_gap(self.context.fs, self.directory / names.SEGMENT_GAPS, gap)

    def _remove_leftovers(self, base_offset: int) -> None:
        """Remove files that a crash left under the new segment's names."""
        for name in (
            names.log_name(base_offset),
            names.index_name(base_offset),
            names.time_index_name(base_offset),
            names.txn_index_name(base_offset),
        ):
            path = self.directory / name
            if self.context.fs.exists(path):
                _LOG.warning("removing %s, which has the name of a new segment", path)
                self.context.fs.remove(path)

    def retire(self, segment: Segment) -> None:
        """Rename a segment's files to `.deleted` now, and remove them later.

        Readers of the open files continue.
        """
        self._outlive_names(segment)
        segment.change_suffix(names.DELETED_SUFFIX)
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        self.remove_later(segment.remove_files, f"segment {segment.base_offset}")

    def begin_removal(self, oldest: Segment, end_offset: int) -> None:
        """Remove the oldest segment from the map; rename it, as the first of a removal.

        `retire` follows once those are removed durably.
        """
        self.segments.remove(oldest.base_offset)
        self._outlive_names(oldest)
        oldest.change_suffix(names.removal_suffix(end_offset))

    def _outlive_names(self, segment: Segment) -> None:
        """Keep open files open of a segment that is about to be renamed and removed.

        If they rest, no reader used them recently; one that needs them can open them until then.
        """
        segment.resting.forbid()
        if not segment.records.is_resting:
            segment.indexes.outlive_names()

    def remove_segments(self, segments: Sequence[Segment]) -> None:
        """Take segments out of the map, so that look-ups no longer find them, and retire them."""
        for segment in segments:
            self.segments.remove(segment.base_offset)
        for segment in segments:
            self.retire(segment)

    def remove_later(self, removal: Callable[[], None], what: str) -> None:
        """Run `removal` after file.delete.delay.ms."""
        name = f"remove {what} of {self.directory.name}"
        self.context.scheduler.once(
            name, self.config.file_delete_delay_ms, partial(self._removing, removal)
        )

    def _removing(self, removal: Callable[[], None]) -> None:
        if not self.context.health.is_offline:
            with self.context.health.writing:
                removal()

    def sync_order(self) -> SyncOrder:
        """Return what to sync so that everything appended until now is on disk."""
        return SyncOrder((*self._unsynced, self.segments.active), self.has_new_names)

    def synced(self, order: SyncOrder) -> None:
        """Note that `order` ran; later appends and rolls are still unsynced.

        So is a segment that was sealed beside it, even without an append: the sync may have missed
        that its preallocated tail was cut.
        """
        if self._unsynced:
            done = set(map(id, order.segments[:-1]))
            self._unsynced = [segment for segment in self._unsynced if id(segment) not in done]
        if order.has_new_names and self.segments.active is order.segments[-1]:
            self.has_new_names = False

    def rest_sealed(self, segments: Sequence[Segment]) -> None:
        """Close the files of sealed segments, if they are synced."""
        kept = {id(segment) for segment in (*self._unsynced, self.segments.active)}
        for segment in segments:
            if id(segment) not in kept and self.segments.get(segment.base_offset) is segment:
                segment.resting.allow(self.context.sealed_files)

    def truncate(self, cut: SegmentCut, directory: OpenDirectory) -> None:
        """Cut every batch that holds `cut.offset` or more; the last segment left becomes active.

        Segments are removed from the last one on, each durably before the next and before the cut,
        so that a crash leaves a prefix of the log.
        """
        for segment in self.segments.above(cut.offset)[::-1]:
            self.remove_segments((segment,))
            directory.sync_all()
        self.segments.active.truncate(cut, now_ms=self.context.clock.now_ms())

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Replace old segments by complete and synced `.cleaned` ones.

        The outputs become `.swap` from the last to the first, so that a start after a crash can
        tell a complete set from an incomplete one; see `engine.log.open.found_files`. Kafka's
        `LocalLog.replaceSegments`.
        """
        ascending = sorted(new, key=lambda segment: segment.base_offset)
        for segment in reversed(ascending):
            segment.change_suffix(names.SWAP_SUFFIX)
        self.context.fs.sync_directory(self.directory)
        self.segments.replace(ascending, old)
        for segment in sorted(old, key=lambda segment: segment.base_offset):
            self.retire(segment)
        self.context.fs.sync_directory(self.directory)  # so that none comes back
        for segment in ascending:
            segment.change_suffix("")
        self.context.fs.sync_directory(self.directory)

    def end_at(self, offset: int, last: BatchHeader | None, *, notes_gap: bool) -> None:
        """Make the log end at `offset` for the next start too, although its batches end earlier.

        The name of an empty segment records it. `last` is the header of the log's last batch.
        """
        active = self.segments.active
        end_offset = active.base_offset
        if last is not None and active.size_bytes:
            end_offset = last.next_offset
        if end_offset >= offset:
            return
        # First, or a power cut could restore the batch that was cut, or an index entry for it, in a
        # segment that is no longer the last one, where recovery does not look. Entries that were
        # cut stay in the index file until it is trimmed.
        active.seal()
        active.flush()
        if last is not None and notes_gap:
            self.note_gap(last.next_offset, offset)
        if active.size_bytes:
            self.roll(offset)
        else:
            self.retire(active)
            self.segments.replace([self._create_segment(offset)], [active])

    def sync_end(self, directory: OpenDirectory) -> None:
        """Sync the cut, so that a power cut cannot restore batches or index entries."""
        self.segments.active.flush()
        directory.sync_all()

    def restart_at(self, offset: int, directory: OpenDirectory) -> None:
        """Remove everything and continue with one empty segment at `offset`.

        Segments are removed from the last one on, each durably before the next, so that a crash
        leaves a prefix of the log. The map always has an active segment.
        """
        old = self.segments.snapshot.segments
        for segment in reversed(old[1:]):
            self.retire(segment)
            directory.sync_all()
        self.retire(old[0])
        self.segments.replace([self._create_segment(offset)], old)

    def rename_directory(self, directory: Path) -> None:
        """Rename the directory; readers find the files under the old or the new name."""
        with ExitStack() as held:
            for segment in self.segments:
                held.enter_context(segment.records.renaming())
                held.enter_context(segment.indexes.renaming())
            self.context.fs.rename(self.directory, directory)
            self.directory = directory
            for segment in self.segments:
                segment.move_to(directory)

    def close(self) -> None:
        """Trim the files to their content and close them."""
        for segment in self.segments:
            segment.close()

    def close_handles(self) -> None:
        """Close the files without writing: the directory is offline or being deleted."""
        for segment in self.segments:
            segment.close_handles()
