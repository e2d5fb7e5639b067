"""The archive of one partition: uploads what is missing, then writes the manifest that names it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary, ref

import crc32c

from engine.archive.archived_segments import ArchivedSegments
from engine.archive.documents import Documents, Overtaken
from engine.archive.manifest import (
    LOG,
    MAX_GROWTH,
    SNAPSHOT,
    Manifest,
    ObjectRef,
    Piece,
    folder_of,
    manifest_prefix,
)
from engine.archive.plan import Plan, Upload, epoch_at, forgotten, plan, with_piece
from engine.archive.store import ArchiveDamaged, ObjectStore
from engine.archive.tier import CHUNK_BYTES, Release, Tier
from engine.archive.upkeep import load_manifest
from engine.clock import Clock
from engine.config import ArchiveConfig
from engine.errors import LogReplaced, SegmentNotFound
from engine.fs import names
from engine.fs.port import FileSystem
from engine.log.log import Log
from engine.log.read.segment_files import FileKind, SegmentFile
from engine.log.results import Committed
from engine.metrics import Recorder
from engine.segment.segment import Segment
from engine.types import Buffer

_LOG = logging.getLogger(__name__)

VISIT_BYTES: Final = 256 * 1024 * 1024
"""After so many bytes a visit ends although there are more, so that other partitions get their turn
and the manifest names what is uploaded: a crash repeats about so much."""

KEEP_REPLACED_MS: Final = 3_600_000
"""How long the pieces of an active segment stay once the sealed one replaces them: a restore that
has read the manifest before may need them."""

_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


class ByteRate:
    """A limit of bytes per second for all threads together; `engine.throttle` is for one."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_ms = bytes_per_second / 1000
        self._lock = Lock()
        self._free_ms = 0.0

    def pause_ms(self, size_bytes: int) -> float:
        """Count bytes; return how many ms the caller should wait before the next ones."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._free_ms = max(self._free_ms, now_ms) + size_bytes / self._bytes_per_ms
            return self._free_ms - now_ms


@dataclass(frozen=True, slots=True)
class Tools:
    """What the archives of all partitions share."""

    store: ObjectStore
    fs: FileSystem
    clock: Clock
    config: ArchiveConfig
    recorder: Recorder
    writer: int
    is_new_owner: bool
    wait: Callable[[int], None]
    """Called after each chunk with its bytes; waits for the rate, raises when stopping."""
    sequence: Iterator[int]
    segments: ArchivedSegments
    release: Release


class ArchiveState(NamedTuple):
    """How far a partition is archived."""

    archived_offset: int
    end_base_offset: int
    """The segment of the last archived batch; -1 if none is."""
    end_position: int
    """The end of that batch in the segment's file."""
    caught_up_ms: int | None
    """Everything that was committed at this monotonic time is archived; None if it never was."""


class _Checksums:
    """Compares what is read with the checksums of pieces, which cover ranges of it."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._left = deque(pieces)
        self._checksum = 0
        self._is_equal = True

    @property
    def are_equal(self) -> bool:
        """Whether all ranges were read, and had the bytes that were archived."""
        return self._is_equal and not self._left

    def end_of_range(self, position: int) -> int:
        """Return where a read from `position` has to end, so that `add` gets it."""
        return self._left[0].end_position if self._left else position + CHUNK_BYTES

    def add(self, position: int, data: Buffer) -> None:
        """Note the bytes at `position`."""
        if self._left:
            self._checksum = crc32c.crc32c(data, self._checksum)
            piece = self._left[0]
            if position + len(data) == piece.end_position:
                self._is_equal &= self._checksum == piece.objects[LOG].crc32c
                self._left.popleft()
                self._checksum = 0


class PartitionArchive:
    """The archive of one log. One thread visits it at a time; `state` is for all threads."""

    def __init__(self, tools: Tools, log: Log) -> None:
        self.log: Final = log
        self._tools = tools
        topic, partition = log.topic_partition
        self._folder = folder_of(log.topic_id, partition)
        self._documents = Documents(tools.store, manifest_prefix(log.topic_id, partition))
        self._empty = Manifest(topic, log.topic_id, partition)
        self._tier = Tier(tools.store, tools.segments, log, self._folder, tools.wait)
        self._written: Manifest | None = None
        self._is_marked = False
        """Whether this writer has written a manifest since it became the owner."""
        self._versions: WeakKeyDictionary[Segment, str] = WeakKeyDictionary()
        self._read_from: dict[int, tuple[ref[Segment], int]] = {}
        """The segments that pieces were read from, by base offset, and the number of truncations
        then."""
        self.has_more = False
        """Whether the last visit ended before everything was archived, for the others' sake."""
        self._seen: object = None
        """What the log looked like at the last visit that archived all of it."""
        self.state = ArchiveState(-1, -1, 0, None)

    @property
    def is_behind(self) -> bool:
        """Whether something is committed that is not archived."""
        return self.state.archived_offset < self.log.watermarks.high_watermark

    @property
    def lag_bytes(self) -> int:
        """The bytes that are committed and not archived; needs no disk."""
        state, high = self.state, self.log.watermarks.high
        if high.is_offset_only or not self.is_behind:
            return 0
        done = state.end_base_offset
        behind = 0
        for segment in self.log.reader.segments:
            if done <= segment.base_offset <= high.segment_base_offset:
                is_last = segment.base_offset == high.segment_base_offset
                behind += high.position if is_last else segment.size_bytes
                behind -= state.end_position if segment.base_offset == done else 0
        return max(0, behind)

    def visit(self) -> None:
        """Archive everything that is committed now, and delete what nothing needs any more.

        Raises StoreUnavailable, ArchiveFenced, ArchiveDamaged, and what reading a log raises; what
        was uploaded until then counts once the next visit has written a manifest.
        """
        try:
            self._visit()
        except Overtaken as error:
            _LOG.warning("%s: %s; reading it again", self.log.topic_partition, error)
            self._written = self._seen = None
            self._visit()

    def _visit(self) -> None:
        tools = self._tools
        written = self._written
        if written is None:
            written = self._load()
            # first: without it a plan would miss what the disk lacks
            self._tier.show(written, is_own=self._is_marked)
        now_ms, begun_ms = tools.clock.now_ms(), tools.clock.monotonic_ms()
        seen = self._glance()
        if seen == self._seen and not written.removed:
            self.state = self.state._replace(caught_up_ms=begun_ms)
            self._tier.release(self._read_back, tools.release)
            return
        committed = self.log.reader.committed(self._version_of)
        decided = plan(committed, written, now_ms, self._tier.damaged)
        manifest = replace(decided.manifest, gaps=self._gaps())
        manifest, is_complete = self._upload_all(decided, committed, manifest)
        manifest, garbage = forgotten(
            manifest, now_ms, keep_ms=tools.config.keep_ms, keep_replaced_ms=KEEP_REPLACED_MS
        )
        if is_complete:
            manifest = replace(manifest, end_offset=committed.high_watermark, archived_ms=now_ms)
        self._write(manifest)
        tools.store.delete(garbage)
        if is_complete:
            self._seen = seen
            self.state = self.state._replace(caught_up_ms=begun_ms)
        self._tier.release(self._read_back, tools.release)

    def _read_back(self) -> Manifest:
        """Return the manifest as the store has it; ArchiveDamaged if it is not the one written."""
        topic_id, partition = self.log.topic_id, self.log.topic_partition.partition
        found = load_manifest(self._tools.store, topic_id, partition)
        if found is None or found != self._written:
            raise ArchiveDamaged(f"{self._folder}: the manifest is not the one that was written")
        return found

    def _glance(self) -> object:
        """Return what differs whenever the archive has something to do; cheap."""
        marks = self.log.watermarks
        ends = marks.log_start_offset, marks.high_watermark, marks.leader_epoch
        return ends, self.log.reader.segments, self._tier.damaged

    def _load(self) -> Manifest:
        document = self._documents.load()
        tools = self._tools
        self._is_marked = not tools.is_new_owner
        if document is None:
            return self._empty
        self._is_marked = self._is_marked or document.writer == tools.writer
        name = self._documents.name_of(document.number)
        self._written = Manifest.of(document, name)
        return self._written

    def _version_of(self, segment: Segment) -> str:
        version = self._versions.get(segment)
        if version is None:
            version = self._versions[segment] = segment.records.file.version()
        return version

    def _gaps(self) -> str:
        while True:
            directory = self.log.directory
            content = b""
            with suppress(FileNotFoundError):
                content = self._tools.fs.read_bytes(directory / names.SEGMENT_GAPS)
            if self.log.directory == directory:  # else it was moved, and the file with it
                return content.decode("latin-1")

    def _upload_all(
        self, decided: Plan, committed: Committed, manifest: Manifest
    ) -> tuple[Manifest, bool]:
        """Upload the missing pieces, oldest first; return whether none is missing now."""
        self.has_more = False
        size_bytes = 0
        for upload in decided.uploads:
            if size_bytes >= VISIT_BYTES:
                self.has_more = True
                return manifest, False
            try:
                piece, goes_on = self._upload(upload, committed)
            except (SegmentNotFound, LogReplaced):
                return manifest, False  # the log has changed: the next visit plans again
            manifest = with_piece(manifest, piece, goes_on=goes_on, max_growth=MAX_GROWTH)
            size_bytes += piece.size_bytes
        return manifest, True

    def _upload(self, upload: Upload, committed: Committed) -> tuple[Piece, bool]:
        """Upload one piece; return whether the segment still begins with those before it."""
        segment, position, first_offset, chain = upload
        reader, tools = self.log.reader, self._tools
        epoch = epoch_at(committed.epochs, segment.end_offset - 1)
        file = reader.open_file(segment.base_offset, FileKind.LOG)
        is_same = file.truncations == committed.truncations
        if not is_same or (segment.version and self._version_of(file.segment) != segment.version):
            raise LogReplaced("the segment has changed since", log=str(self.log.topic_partition))
        # The leader epochs tell whether a piece is of this log, but only above the log start.
        is_doubtful = committed.is_compacted or first_offset <= committed.log_start_offset
        if is_doubtful and position and not self._begins_with(file, chain):
            position, first_offset = 0, segment.base_offset
        sequence = next(tools.sequence)
        stem = (
            f"{self._folder}{max(epoch, 0):010d}-{segment.base_offset:020d}-{position:010d}"
            f"-{tools.writer}-{sequence}"
        )
        objects: dict[str, ObjectRef] = {}
        if segment.is_sealed:
            for kind, whole in self._companions(file, segment.end_offset).items():
                objects[kind] = self._put(f"{stem}.{kind}", [whole], len(whole))
        size_bytes = segment.size_bytes - position
        seen = _Checksums(piece for piece in chain if piece.end_position > position)
        content = self._content(file, position, segment.size_bytes, seen)
        objects[LOG] = self._put(f"{stem}.{LOG}", content, size_bytes)
        self._read_from[segment.base_offset] = ref(file.segment), file.truncations
        tools.recorder.archived(self.log.topic_partition, size_bytes=size_bytes)
        piece = Piece(
            segment.base_offset,
            position,
            size_bytes,
            first_offset,
            segment.end_offset,
            epoch,
            segment.max_timestamp,
            tools.clock.now_ms(),
            segment.is_sealed,
            segment.version,
            objects,
            max_timestamp_offset=segment.max_timestamp_offset,
        )
        return piece, seen.are_equal

    def _begins_with(self, file: SegmentFile, chain: Sequence[Piece]) -> bool:
        """Whether an active segment begins with its archived pieces.

        It may have been truncated, or sealed, compacted and, by a truncation, made active again
        since. One that this process has read before is the same.
        """
        known, truncations = self._read_from.get(file.segment.base_offset, (None, 0))
        if known is not None and known() is file.segment and truncations == file.truncations:
            return True
        seen = _Checksums(chain)
        for _ in self._content(file, 0, chain[-1].end_position, seen):
            pass
        return seen.are_equal

    def _companions(self, log_file: SegmentFile, end_offset: int) -> Mapping[str, bytes]:
        """Return the indexes of a sealed segment, and the snapshot at its end if it is there."""
        found: dict[str, bytes] = {}
        for kind in _INDEXES:
            with suppress(SegmentNotFound):  # no transaction index
                file = self.log.reader.open_file(log_file.segment.base_offset, kind)
                if file.segment is not log_file.segment:
                    raise LogReplaced(
                        "the segment was compacted", log=str(self.log.topic_partition)
                    )
                found[kind.value] = file.content or b""
        path = self.log.directory / names.snapshot_name(end_offset)
        with suppress(FileNotFoundError):
            found[SNAPSHOT] = self._tools.fs.read_bytes(path)
        return found

    def _content(
        self, file: SegmentFile, position: int, end: int, seen: _Checksums
    ) -> Iterator[Buffer]:
        while position < end:
            stop = min(end, position + CHUNK_BYTES, seen.end_of_range(position))
            data = self.log.reader.copy_file(file, position, stop - position)
            assert data, "a committed part is not shorter than it was"
            seen.add(position, data)
            position += len(data)
            self._tools.wait(len(data))
            yield data

    def _put(self, name: str, content: Iterable[Buffer], size_bytes: int) -> ObjectRef:
        checksum = 0

        def counted() -> Iterator[Buffer]:
            nonlocal checksum
            for data in content:
                checksum = crc32c.crc32c(data, checksum)
                yield data

        self._tools.store.put(name, counted(), size_bytes)
        return ObjectRef(name, size_bytes, checksum)

    def _write(self, manifest: Manifest) -> None:
        """Write a manifest, unless it says nothing new."""
        known = self._written or self._empty
        is_new = replace(manifest, archived_ms=known.archived_ms) != known
        if is_new or not self._is_marked:
            self._written = None  # if this fails, it may have been written all the same
            self._documents.write(self._tools.writer, manifest.fields())
            self._is_marked = True
            self._written = manifest
        last = manifest.pieces[-1] if manifest.pieces else None
        self.state = self.state._replace(
            archived_offset=manifest.archived_offset,
            end_base_offset=last.base_offset if last else -1,
            end_position=last.end_position if last else 0,
        )
