"""The files of one log: its segments, what of them is not yet on disk, and how they go away.

Knows nothing of producers, epochs or watermarks. Every method needs the log lock, except those of
the two work orders, which are made under the lock and run without it: a sync takes milliseconds.
Mirrors Kafka's `LocalLog`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from engine.checkpoint.gaps import SegmentGap, note_gap
from engine.config import LogConfig
from engine.errors import InvalidRequestValue
from engine.fs import names
from engine.fs.port import OpenDirectory
from engine.log.append.analyse import Incoming
from engine.log.context import LogContext
from engine.records.header import BatchHeader
from engine.segment.segment import Segment, SegmentCut
from engine.segment.segments import Segments
from engine.types import INT64_MAX, AbortedTransaction, OffsetMetadata

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncOrder:
    """What must reach the disk before the log end of the moment it was made is committed."""

    segments: tuple[Segment, ...]
    """The last one is the active segment of that moment."""
    active_bytes: int
    """How much of that one there was; it may have been appended to, and sealed, since."""
    has_new_names: bool
    """Whether a segment file was created whose name may not be on disk yet."""

    def run(self, directory: OpenDirectory | None) -> None:
        """Return once all of it would survive a power cut, with new names in there. No lock."""
        for segment in self.segments:
            segment.records.sync()
        if directory is not None:
            directory.sync_all()


@dataclass(slots=True)
class LocalLog:
    """Segments in a directory; `_unsynced` are sealed ones whose bytes may not be on disk."""

    context: LogContext
    directory: Path
    config: LogConfig
    segments: Segments
    _unsynced: list[Segment] = field(default_factory=list)
    _has_new_names: bool = False

    @property
    def active(self) -> Segment:
        return self.segments.active

    def end_metadata(self, offset: int) -> OffsetMetadata:
        """Return `offset`, the log end, with its place: the end of the active segment."""
        active = self.segments.active
        return OffsetMetadata(offset, active.base_offset, active.size_bytes)

    def append(
        self,
        incoming: Incoming,
        headers: Sequence[BatchHeader],
        aborted: Sequence[AbortedTransaction],
    ) -> OffsetMetadata:
        """Write the batches and return their end; if that fails nothing is written.

        The entries of the transactions they abort come first: after the batches nothing may fail.
        Until the batches are there no reader gets as far as those transactions.
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
        """Sync everything above the recovery point with the next order: a dead process wrote it."""
        self._unsynced = list(self.segments.overlapping(recovery_point, INT64_MAX)[:-1])
        self._has_new_names = True

    def open_segment(self, base_offset: int) -> Segment:
        """Create the files of a new active segment and put it into the map."""
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
        self._has_new_names = True
        return segment

    def roll(self, base_offset: int) -> Segment:
        """Seal the active segment and open one at `base_offset`; return the new one.

        An empty active segment of that base offset stays and has its indexes emptied, which happens
        when they report that they are full. Kafka replaces its files; then a power cut may leave
        neither the old name nor the new one, and only that name tells where an empty log ends.
        Raises InvalidRequestValue below the active segment.
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
        segment = self.open_segment(base_offset)  # may find no space: then nothing has happened
        self._unsynced.append(active)
        return segment

    def note_gap(self, end_offset: int, base_offset: int) -> None:
        """Record, durably, that nothing was lost in the gap before a segment that is to begin."""
        gap = SegmentGap(end_offset, base_offset)
        note_gap(self.context.fs, self.directory / names.SEGMENT_GAPS, gap)

    def _remove_leftovers(self, base_offset: int) -> None:
        """Remove files that a crash left under the new segment's name: it must not adopt them."""
        for name in (
            names.log_name(base_offset),
            names.index_name(base_offset),
            names.time_index_name(base_offset),
            names.txn_index_name(base_offset),
        ):
            path = self.directory / name
            if self.context.fs.exists(path):
                _LOG.warning("%s is in the way of a new segment and is removed", path)
                self.context.fs.remove(path)

    def retire(self, segment: Segment) -> None:
        """Rename a segment's files `.deleted` now and remove them later.

        Readers continue: the open files outlive their names.
        """
        self._outlive_names(segment)
        segment.change_suffix(names.DELETED_SUFFIX)
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        self.remove_later(segment.remove_files, f"segment {segment.base_offset}")

    def begin_removal(self, oldest: Segment, end_offset: int) -> None:
        """Take the oldest segment out of the map; its names say that all below the end are to go.

        `retire` follows once those are gone durably.
        """
        self.segments.remove(oldest.base_offset)
        self._outlive_names(oldest)
        oldest.change_suffix(names.removal_suffix(end_offset))

    def _outlive_names(self, segment: Segment) -> None:
        """Keep the files open of a segment that is about to lose its names, if they are open.

        If they rest, nobody was in it lately: who is still finds them until they are removed.
        """
        segment.resting.forbid()
        if not segment.records.is_resting:
            segment.indexes.outlive_names()

    def remove_segments(self, segments: Sequence[Segment]) -> None:
        """Take segments out of the map, so that look-ups stop, and retire them."""
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
        active = self.segments.active
        return SyncOrder((*self._unsynced, active), active.size_bytes, self._has_new_names)

    def synced(self, order: SyncOrder) -> None:
        """Note that `order` ran; what was appended or rolled since is still unsynced."""
        if self._unsynced:
            *sealed, active = order.segments
            done = set(map(id, sealed))
            if active.size_bytes == order.active_bytes:  # else the sync may have missed the rest
                done.add(id(active))
            self._unsynced = [segment for segment in self._unsynced if id(segment) not in done]
        if order.has_new_names and self.segments.active is order.segments[-1]:
            self._has_new_names = False

    def rest_sealed(self, segments: Sequence[Segment]) -> None:
        """Let go of the files of those that take no appends, as far as they are on the disk."""
        kept = {id(segment) for segment in (*self._unsynced, self.segments.active)}
        for segment in segments:
            if id(segment) not in kept and self.segments.get(segment.base_offset) is segment:
                segment.resting.allow(self.context.sealed_files)

    def truncate(self, cut: SegmentCut, directory: OpenDirectory) -> None:
        """Cut every batch that holds `cut.offset` or more; the last segment left becomes active.

        The last segment goes first, each durably before the next and before the cut: a crash
        meanwhile leaves a beginning of the log.
        """
        for segment in self.segments.above(cut.offset)[::-1]:
            self.remove_segments((segment,))
            directory.sync_all()
        self.segments.active.truncate(cut, now_ms=self.context.clock.now_ms())

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put complete and synced `.cleaned` segments in the place of old ones.

        The outputs become `.swap` from the last to the first, so that a start after a crash can
        tell a complete set from an incomplete one; see `engine.log.open.leftovers`. Kafka's
        `LocalLog.replaceSegments`.
        """
        ascending = sorted(new, key=lambda segment: segment.base_offset)
        for segment in reversed(ascending):
            segment.change_suffix(names.SWAP_SUFFIX)
        self.context.fs.sync_directory(self.directory)
        self.segments.replace(ascending, old)
        for segment in sorted(old, key=lambda segment: segment.base_offset):
            self.retire(segment)
        self.context.fs.sync_directory(self.directory)  # or one could come back beside an output
        for segment in ascending:
            segment.change_suffix("")
        self.context.fs.sync_directory(self.directory)

    def end_at(self, offset: int, last: BatchHeader | None, *, notes_gap: bool) -> None:
        """Make the next start find that the log ends at `offset`, where batches end before it.

        The name of an empty segment says so. `last` is the header of the last batch of the log.
        """
        active = self.segments.active
        end_offset = active.base_offset
        if last is not None and active.size_bytes:
            end_offset = last.next_offset
        if end_offset >= offset:
            return
        # First, or a power cut could leave the batch that was cut beside it, or an index that leads
        # to it: of a segment that is not the last nobody expects that. What was cut off an index is
        # in the file until it is trimmed.
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
        """Return once what was cut off, index entries too, would stay away after a power cut."""
        self.segments.active.flush()
        directory.sync_all()

    def restart_at(self, offset: int, directory: OpenDirectory) -> None:
        """Remove everything and go on with one empty segment at `offset`.

        The last one goes first, each durably before the next: a crash meanwhile leaves a beginning
        of the log. At no instant is the map without an active segment.
        """
        old = self.segments.snapshot.segments
        for segment in reversed(old[1:]):
            self.retire(segment)
            directory.sync_all()
        self.retire(old[0])
        self.segments.replace([self._create_segment(offset)], old)

    def rename_directory(self, directory: Path) -> None:
        """Give the directory another name; readers find what they open under one of the two."""
        with ExitStack() as held:
            for segment in self.segments:
                held.enter_context(segment.records.renaming())
                held.enter_context(segment.indexes.renaming())
            self.context.fs.rename(self.directory, directory)
            self.directory = directory
            for segment in self.segments:
                segment.move_to(directory)

    def close(self) -> None:
        """Trim the files to their content and let go of them."""
        for segment in self.segments:
            segment.close()

    def close_handles(self) -> None:
        """Let go of the files without writing: the directory is offline or being deleted."""
        for segment in self.segments:
            segment.close_handles()
