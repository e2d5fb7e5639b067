"""Background work on a log: retention, compaction, reconfiguration, moves.

Retention removes only the oldest segments, without gaps: the first segment that must stay protects
all later ones. A segment that ends above the high watermark stays, whatever its age. The order of
the passes and the strictness of every comparison are those of Kafka's
`UnifiedLog.deleteOldSegments`. Segments that the archive has may leave the disk earlier, by
`local.retention.…`: they are released, and stay part of the log.

A round of cleaning takes a snapshot of the sealed segments, writes replacements next to them, and
swaps each in for its sources. Only truncation, retention and the renaming of the directory wait for
a swap. If one of those came first, the round ends with `CleaningAborted` and changes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from engine.config import LogConfig
from engine.fs import names
from engine.fs.port import OpenDirectory
from engine.log.durability import Durability
from engine.log.files import LogContext
from engine.log.read.fetch import ReadRequest
from engine.log.read.reader import LogReader
from engine.log.results import CopySource, RemovalReason, RemovedSegment
from engine.log.state import LogCore, LogState
from engine.segment.segment import Segment
from engine.segment.segments import NO_SEGMENTS, SegmentSnapshot
from engine.state.watermarks import Watermarks
from engine.types import FetchIsolation, LogStartReason


class CleaningAborted(Exception):
    """The log changed during the round, or the cleaner is stopping; nothing was replaced."""


class Compaction:
    """One round, for one thread. It uses the log's locks.

    `reshaping` is taken before `naming`, and `naming` before `lock`. Only the first two are held
    while the round waits for the disk.
    """

    def __init__(
        self,
        context: LogContext,
        state: LogState,
        *,
        lock: threading.Lock,
        naming: threading.Lock,
        reshaping: threading.Lock,
    ) -> None:
        self.context = context
        self._state = state
        self._lock = lock
        self._naming = naming
        self._reshaping = reshaping
        with lock:
            self._truncations = state.truncations
            self._directory = state.local.directory
            self.segments = state.local.segments.snapshot.segments
            """All segments when the round began, the active one last."""

    @property
    def is_stale(self) -> bool:
        """Whether the round can no longer be finished.

        True once the log was truncated, its directory renamed, or compaction switched off.
        """
        with self._naming:  # or a rename could be on disk and not yet in memory
            return (
                self._state.truncations != self._truncations
                or self._state.local.directory != self._directory
                or not self._state.local.config.is_compacted
            )

    def ensure_current(self) -> None:
        """Raise CleaningAborted if the round is stale."""
        if self.is_stale:
            raise CleaningAborted(f"{self._directory} was truncated, renamed or reconfigured")

    def create_output(self, base_offset: int) -> Segment:
        """Return an empty segment with `.cleaned` files, which a start would remove."""
        fs = self.context.fs
        names_of_files = (
            names.log_name,
            names.index_name,
            names.time_index_name,
            names.txn_index_name,
        )
        with self.writing():
            for name_of in names_of_files:
                name = name_of(base_offset) + names.CLEANED_SUFFIX
                fs.remove(self._directory / name, missing_ok=True)
            return Segment(
                fs,
                self._directory,
                base_offset,
                self._state.local.config,
                now_ms=self.context.clock.now_ms(),
                suffix=names.CLEANED_SUFFIX,
                is_new=True,
            )

    def discard(self, output: Segment) -> None:
        """Remove an output segment."""
        output.close_handles()
        with self.writing():
            output.remove_files()

    def finish(self, output: Segment, modified_ms: int) -> None:
        """Seal and sync a replacement segment."""
        with self.writing():
            output.seal()
            output.flush()
            output.indexes.rest()
            self.context.fs.set_modified_ms(output.records.path, modified_ms)

    def replace(self, output: Segment, sources: Sequence[Segment]) -> None:
        """Replace the sources by a finished segment, atomically for readers.

        After a power cut a start finds either all of the sources or the output. Raises
        CleaningAborted if one of the sources is no longer in the log.
        """
        state, directory = self._state, self._directory
        with self._reshaping:
            self.ensure_current()
            present = set(map(id, state.local.segments.snapshot.segments))
            if not present.issuperset(map(id, sources)):
                raise CleaningAborted(f"segments of {directory} were removed during the cleaning")
            with self.writing():
                opened = self.context.fs.open_directory(directory)
            with opened, self.context.health.writing:
                # The suffix marks the output as complete; it must be on disk before a source is
                # renamed.
                output.change_suffix(names.SWAP_SUFFIX)
                opened.sync_all()
                with self._lock:
                    state.swap_in(output, sources)
                # Before the output gets a live name: a source whose old name a power cut restored
                # would be a second segment with the same offsets.
                opened.sync_all()
                with self._lock:
                    output.change_suffix("")
                opened.sync_all()
                with self._lock:
                    state.local.rest_sealed([output])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard the writing of a replacement, which may fail for lack of space or open files.

        Any other failure takes the data directory offline, unless the log's directory is gone.
        """
        health = self.context.health
        health.ensure_online()
        try:
            yield
        except OSError as error:
            if self.is_stale:
                raise CleaningAborted(f"{self._directory} was renamed") from error
            with health.appending:
                raise


class DueForRelease(NamedTuple):
    """The oldest segments on the disk, which only the archive is to have."""

    segments: tuple[Segment, ...]
    truncations: int
    """The value of `LogState.truncations` then."""
    archived: SegmentSnapshot = NO_SEGMENTS
    """What the archive has, these segments last; set by the archive once it has read them back."""


class Candidate(Protocol):
    """The attributes of a segment that retention uses."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...


Predicate: TypeAlias = Callable[[Candidate, Candidate | None], bool]
"""Whether a segment may be removed, given the next one."""

Rule: TypeAlias = Callable[[Sequence[Candidate]], Predicate]
"""Makes the predicate for the segments that earlier passes left."""


def removable(
    segments: Sequence[Candidate],
    config: LogConfig,
    marks: Watermarks,
    now_ms: int,
) -> list[RemovedSegment]:
    """Return the segments to remove now, oldest first: below the log start, by size, by age."""
    rules: list[tuple[RemovalReason, Rule]] = [
        (RemovalReason.LOG_START, lambda _: _below(marks.log_start_offset))
    ]
    if config.deletes:
        rules += [
            (RemovalReason.SIZE, lambda left: _over_size(left, config.retention_bytes)),
            (RemovalReason.TIME, lambda _: _older_than(config.retention_ms, now_ms)),
        ]
    removed: list[RemovedSegment] = []
    for reason, rule in rules:
        left = segments[len(removed) :]  # each pass gets what the previous one left
        for segment in _prefix(left, rule(left), marks):
            following = _following(segments, len(removed))
            next_offset = marks.log_end_offset if following is None else following.base_offset
            removed.append(
                RemovedSegment(
                    segment.base_offset,
                    next_offset,
                    segment.size_bytes,
                    segment.largest_timestamp,
                    reason,
                )
            )
    return removed


def releasable(
    segments: Sequence[Candidate], config: LogConfig, marks: Watermarks, now_ms: int
) -> int:
    """Return how many of the oldest segments on the disk may be in the archive only, by now.

    They are older than `local.retention.ms`, or beyond `local.retention.bytes`. No transaction is
    open in them, so that a reader's bound lies on the disk. Kafka's `deleteOldSegments` with
    remote storage, whose order and comparisons are those of `removable`.
    """
    if not config.remote_storage_enable:
        return 0
    on_disk = config.on_disk
    by_size = _prefix(segments, _over_size(segments, on_disk.retention_bytes), marks)
    left = segments[len(by_size) :]
    by_time = _prefix(left, _older_than(on_disk.retention_ms, now_ms), marks)
    following = segments[1 : len(by_size) + len(by_time) + 1]  # the last segment always stays
    return sum(one.base_offset <= marks.last_stable_offset for one in following)


def held_by_time(
    left: Sequence[Candidate], config: LogConfig, marks: Watermarks, now_ms: int
) -> Candidate | None:
    """Return the segment in which a record's time in the future keeps it, and all after it.

    `left` are the segments that `removable` leaves. None if retention by time is off, or if the
    oldest of them ends above the high watermark anyway.
    """
    if not config.deletes or config.retention_ms < 0 or not left:
        return None
    following = _following(left, 0)
    end_offset = marks.log_end_offset if following is None else following.base_offset
    is_held = left[0].largest_timestamp > now_ms and marks.high_watermark >= end_offset
    return left[0] if is_held else None


def _following(segments: Sequence[Candidate], index: int) -> Candidate | None:
    return segments[index + 1] if index + 1 < len(segments) else None


def _prefix(
    segments: Sequence[Candidate], predicate: Predicate, marks: Watermarks
) -> list[Candidate]:
    """Return the leading segments that are committed and match the predicate."""
    taken: list[Candidate] = []
    for index, segment in enumerate(segments):
        following = _following(segments, index)
        end_offset = marks.log_end_offset if following is None else following.base_offset
        # The predicate counts bytes, so it is only called for segments that may be removed.
        if marks.high_watermark < end_offset or not predicate(segment, following):
            break
        if following is None and segment.size_bytes == 0:
            break
        taken.append(segment)
    return taken


def _below(log_start_offset: int) -> Predicate:
    def predicate(_segment: Candidate, following: Candidate | None) -> bool:
        return following is not None and following.base_offset <= log_start_offset

    return predicate


def _over_size(segments: Sequence[Candidate], retention_bytes: int) -> Predicate:
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes

    def predicate(segment: Candidate, _following: Candidate | None) -> bool:
        nonlocal excess
        if retention_bytes < 0 or excess < segment.size_bytes:
            return False
        excess -= segment.size_bytes
        return True

    return predicate


def _older_than(retention_ms: int, now_ms: int) -> Predicate:
    def predicate(segment: Candidate, _following: Candidate | None) -> bool:
        return 0 <= retention_ms < now_ms - segment.largest_timestamp

    return predicate


_LOG = logging.getLogger(__name__)


class Maintenance:
    """Removes and replaces segments, and moves or renames the directory. Thread-safe."""

    def __init__(self, core: LogCore, reader: LogReader, durability: Durability) -> None:
        self._core = core
        self._reader = reader
        self._durability = durability
        self._is_removing = False
        self._held_base_offset: int | None = None
        """The segment that was reported to wait for its time."""

    @property
    def is_removing(self) -> bool:
        """Whether a removed first segment may still have its old name on disk."""
        return self._is_removing

    def held_by_time(self) -> tuple[int, int] | None:
        """Return base offset and largest time of the segment that a time in the future keeps."""
        core = self._core
        now_ms = core.context.clock.now_ms()
        with core.lock:
            core.ensure_open()
            state = core.state
            config, marks = state.local.config, state.watermarks
            segments = state.readable().segments
            with core.context.health.reading:
                due = removable(segments, config, marks, now_ms)
                held = held_by_time(segments[len(due) :], config, marks, now_ms)
                return None if held is None else (held.base_offset, held.largest_timestamp)

    def _report_held(
        self, left: Sequence[Segment], config: LogConfig, marks: Watermarks, now_ms: int
    ) -> None:
        held = held_by_time(left, config, marks, now_ms)
        if held is not None and held.base_offset != self._held_base_offset:
            _LOG.warning(
                "%s: retention by time waits for segment %d: a record's time, %d, is in the future",
                self._core.topic_partition,
                held.base_offset,
                held.largest_timestamp,
            )
        self._held_base_offset = None if held is None else held.base_offset

    def run_retention(self, *, dry_run: bool = False) -> list[RemovedSegment]:
        """Remove, or with `dry_run` only list, the segments that retention no longer keeps.

        First the oldest one is durably renamed; its name says how far the removal reaches. So a
        start after a power cut can finish it, whatever names the others have then.
        """
        core = self._core
        now_ms = core.context.clock.now_ms()
        with core.reshaping:
            with core.lock:
                context, state = core.context, core.state
                core.ensure_open()
                marks, segments = state.watermarks, state.readable().segments
                with context.health.reading:
                    removed = removable(segments, state.local.config, marks, now_ms)
                    self._report_held(segments[len(removed) :], state.local.config, marks, now_ms)
                if dry_run or not removed:
                    return removed
                with context.health.appending:  # first: without it nothing may be removed
                    directory = context.fs.open_directory(state.local.directory)
                if len(removed) == len(segments):
                    state.roll(marks.log_end_offset)
                end_offset = removed[-1].next_offset
                state.raise_log_start(end_offset, LogStartReason.SEGMENT_DELETION)
                on_disk = sum(one.base_offset in state.local.segments for one in removed)
            self._remove(on_disk, end_offset, directory)
        self._durability.flush_soon()
        count, size_bytes = len(removed), sum(segment.size_bytes for segment in removed)
        context.recorder.segments_deleted(core.topic_partition, count=count, size_bytes=size_bytes)
        return removed

    def due_for_release(self) -> DueForRelease:
        """Return the segments that only the archive should have by now, if it has them."""
        core = self._core
        now_ms = core.context.clock.now_ms()
        with core.lock:
            core.ensure_open()
            state = core.state
            segments = state.local.segments.snapshot.segments
            with core.context.health.reading:
                config, marks = state.local.config, state.watermarks
                count = releasable(segments, config, marks, now_ms)
            return DueForRelease(segments[:count], state.truncations)

    def release(self, due: DueForRelease) -> bool:
        """Remove segments from the disk that the archive has; the log start stays.

        From now on reads find `due.archived` below the first segment on the disk. Does nothing, and
        returns False, if the segments are not the oldest any more, or if the log was truncated
        meanwhile. On return the removal is durable. A crash during it leaves some of them. The
        checkpoint with the log start was written before: see `Checkpoints.release`.
        """
        core = self._core
        with core.reshaping:
            with core.lock:
                context, state = core.context, core.state
                core.ensure_open()
                segments = state.local.segments.snapshot.segments
                count = len(due.segments)
                if due.truncations != state.truncations or segments[:count] != due.segments:
                    return False
                with context.health.appending:
                    directory = context.fs.open_directory(state.local.directory)
                state.archived = due.archived  # first: reads find every segment at any time
            self._remove(count, segments[count].base_offset, directory)
        return True

    def _remove(self, count: int, end_offset: int, directory: OpenDirectory) -> None:
        """Remove the oldest segments, which end at `end_offset`; `reshaping` is held."""
        core = self._core
        context, state = core.context, core.state
        with directory:
            if not count:
                return  # only the archive had what retention has removed
            self._sync_names(directory)  # or a power cut could leave no segment
            with core.lock:
                core.ensure_open()
                self._is_removing = True  # first: checkpoints must keep the log start
                first = state.begin_removal(end_offset)
            self._sync_names(directory)
            self._is_removing = False
            for _ in range(1, count):
                with core.lock:
                    core.ensure_open()
                    state.remove_oldest()
            if count > 1:
                self._sync_names(directory)
            with core.lock, context.health.writing:
                core.ensure_open()
                state.local.retire(first)

    def show_archived(self, archived: SegmentSnapshot) -> None:
        """Let reads use these segments of the archive below those on the disk."""
        with self._core.lock:
            self._core.state.archived = archived

    def begin_in_archive(self, log_start_offset: int) -> None:
        """Let the log start lower: the archive has what is below the first segment on the disk."""
        with self._core.lock:
            state = self._core.state
            state.watermarks = state.watermarks.beginning_at(log_start_offset)

    def _sync_names(self, directory: OpenDirectory) -> None:
        with self._core.context.health.writing:
            directory.sync_all()

    def compaction(self) -> Compaction:
        """Begin a round of cleaning; see `engine.log.maintenance`."""
        core = self._core
        with core.lock:
            context, state = core.context, core.state
            core.ensure_open()
        return Compaction(
            context, state, lock=core.lock, naming=core.naming, reshaping=core.reshaping
        )

    def keep_order(self) -> None:
        """From now on sync each segment before the next one is created; required for compaction."""
        with self._core.lock:
            self._core.state.keeps_order = True
        self._durability.commit()

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        with self._core.lock:
            self._core.state.local.config = config

    def rename_directory(self, directory: Path) -> None:
        """Rename the log's directory; it is durable once the parent directory is synced."""
        core = self._core
        with core.reshaping, core.naming, core.lock, core.context.health.writing:
            core.state.rename_directory(directory)

    def relocate(
        self,
        retired: Path,
        complete: Callable[[CopySource], Maintenance],
        give_name: Callable[[Maintenance], None],
    ) -> Callable[[], None]:
        """Continue in another data directory; callers of the log only notice a pause.

        The log cannot change while `complete` completes the copy and opens it. Then its directory
        is renamed to `retired`; `give_name` makes that durable and gives the copy its final name.
        Returns a function that closes the old files, which readers may still use. If `give_name`
        fails, the next start uses the copy; until then this log refuses writes. Raises
        StorageError.
        """
        core = self._core
        with core.reshaping, core.syncing, core.naming, core.lock:
            core.ensure_open()
            old, context = core.state, core.context
            # Not `reader.read`: it may rebuild an index, which needs locks that are held already.
            still = old.stand_still(
                lambda offset, max_bytes: self._reader.fetch(
                    ReadRequest(offset, max_bytes, FetchIsolation.LOG_END)
                )
            )
            there = complete(still)
            with context.health.writing:
                old.rename_directory(retired)
            try:
                give_name(there)
            except BaseException:
                core.is_closed = True
                raise
            copy = there._core  # noqa: SLF001 - of the copy's Log, which is not used again
            core.context, core.state = copy.context, copy.state
            core.state.go_on_from(old)
        return old.local.close_handles

    def refuse_appends(self) -> None:
        """Raise TopicNotFound for every later append: the topic was deleted."""
        with self._core.lock:
            self._core.is_deleted = True

    def close_handles(self) -> None:
        """Close the files without writing anything; the log cannot be used afterwards."""
        core = self._core
        with core.naming, core.lock:
            core.is_closed = True
            core.state.local.close_handles()

    def check_invariants(self) -> None:
        """Fail unless segments, watermarks and producer state agree."""
        with self._core.lock:
            self._core.state.check_invariants()
