"""Segments that leave the disk because the archive has them, and stay part of the log. KIP-405.

Before a segment is removed from the disk, its objects are read back and compared with the files,
and the manifest that names them is read back too. From then on reads take it from the archive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from weakref import WeakSet

import crc32c

from engine.archive.archived_segments import ArchivedSegments
from engine.archive.manifest import LOG, SNAPSHOT, Manifest, ObjectRef, Piece
from engine.archive.store import ArchiveDamaged, ObjectStore
from engine.archive.upkeep import BadObject, checked
from engine.log.log import Log
from engine.log.maintenance import DueForRelease
from engine.log.read.segment_files import FileKind, SegmentFile
from engine.segment.index_checks import ensure_aborts_known
from engine.segment.segment import Segment
from engine.segment.segments import SegmentSnapshot

_LOG = logging.getLogger(__name__)

Release: TypeAlias = Callable[[Log, DueForRelease], bool]
"""Removes segments from the disk that are then read from the archive; `LogManager.release`."""

CHUNK_BYTES: Final = 1024 * 1024
"""How much of a file is read at once."""

MAX_AT_ONCE: Final = 8
"""How many segments of one log are released at a visit, so that other logs get their turn."""


class Tier:
    """The archived segments of one log. One thread visits it at a time."""

    def __init__(
        self,
        store: ObjectStore,
        segments: ArchivedSegments,
        log: Log,
        folder: str,
        wait: Callable[[int], None],
    ) -> None:
        self._store = store
        self._segments = segments
        self._log = log
        self._directory = Path(folder)
        self._wait = wait
        self._shown: dict[str, Segment] = {}
        """By the name of the object with the log file."""
        self.damaged: frozenset[str] = frozenset()
        """The log objects of segments that are to be uploaded again: some object of theirs was
        read back, and is not what the disk has."""
        self._different: WeakSet[Segment] = WeakSet()
        """Segments whose log file is not what was uploaded; they are not compared again."""

    def show(self, manifest: Manifest, *, is_own: bool) -> None:
        """Let reads find what the manifest has below the first segment on the disk.

        Nothing is missing between two of its segments if `is_own`: this directory wrote it. Another
        one may have had other records there, before its archive was taken over.
        """
        log = self._log
        first = log.reader.first_segment_base_offset
        if log.watermarks.log_start_offset >= first:
            return
        # One that reaches into the disk's part was truncated since.
        pieces = [one for one in manifest.pieces if one.is_sealed and one.end_offset <= first]
        log.maintenance.show_archived(self._snapshot(pieces if is_own else _chain(pieces, first)))
        # A crash may have lost that the log start was raised, not that the archive knows it.
        start = max(log.watermarks.log_start_offset, manifest.log_start_offset)
        log.delete_records(min(first, start))

    def _snapshot(self, pieces: Sequence[Piece]) -> SegmentSnapshot:
        """Return the segments of these pieces, the same ones as long as they are the same."""
        shown: dict[str, Segment] = {}
        for piece in pieces:
            name = piece.objects[LOG].name
            known = self._shown.get(name)
            shown[name] = known or self._segments.segment(self._directory, piece, self._log.config)
        self._shown = shown
        return SegmentSnapshot(tuple(one.base_offset for one in pieces), tuple(shown.values()))

    def release(self, read_back: Callable[[], Manifest], release: Release) -> None:
        """Remove from the disk what local retention no longer keeps, if the archive has it.

        `read_back` reads the manifest from the store. Raises StoreUnavailable, ArchiveDamaged,
        EngineError.
        """
        log = self._log
        due = log.maintenance.due_for_release()
        if not due.segments:
            return
        pieces = {one.base_offset: one for one in read_back().pieces if one.is_sealed}
        backed: list[Segment] = []
        for segment in due.segments[:MAX_AT_ONCE]:
            piece = pieces.get(segment.base_offset)
            if piece is None or segment in self._different or not self._is_same(segment, piece):
                break
            backed.append(segment)
        if not backed:
            return
        last = backed[-1].base_offset
        archived = self._snapshot([one for one in pieces.values() if one.base_offset <= last])
        if release(log, DueForRelease(tuple(backed), due.truncations, archived)):
            _LOG.info("%s: only the archive has segment %d", log.topic_partition, last)

    def _is_same(self, segment: Segment, piece: Piece) -> bool:
        """Whether the objects, read back, have the content of the segment's files.

        ArchiveDamaged if the log file differs from what was uploaded. Anything else that differs
        has the segment uploaded again.
        """
        ensure_aborts_known(segment)  # reads of the archive trust the transaction index
        for kind, ref in piece.objects.items():
            if kind == SNAPSHOT:
                continue  # a start uses it, and keeps those that it needs on the disk
            file = self._log.reader.open_file(segment.base_offset, FileKind(kind))
            if file.segment is not segment:
                return False  # replaced since: the next visit plans again
            is_equal = self._checksum(file) == ref.crc32c
            if kind == LOG and not is_equal:
                self._different.add(segment)
                raise ArchiveDamaged(
                    f"{segment} is not what was uploaded as {ref.name}: it stays on the disk; "
                    "`tidelog verify` says whether the disk has damaged it"
                )
            if not is_equal or not self._is_intact(ref):  # an index may have been rebuilt
                self.damaged |= {piece.objects[LOG].name}
                _LOG.warning("%s is not as it was uploaded: it is uploaded again", ref.name)
                return False
        return True

    def _checksum(self, file: SegmentFile) -> int:
        checksum = 0
        for position in range(0, file.size_bytes, CHUNK_BYTES):
            data = self._log.reader.copy_file(file, position, CHUNK_BYTES)
            checksum = crc32c.crc32c(data, checksum)
        return checksum

    def _is_intact(self, ref: ObjectRef) -> bool:
        """Whether the object, read back, is what was uploaded."""
        try:
            for data in checked(self._store, ref):
                self._wait(len(data))
        except BadObject:
            return False
        return True


def _chain(pieces: Sequence[Piece], first_offset: int) -> Sequence[Piece]:
    """Return the pieces that follow each other without a gap up to `first_offset`."""
    start = len(pieces)
    while start > 0 and pieces[start - 1].end_offset == first_offset:
        start -= 1
        first_offset = pieces[start].base_offset
    return pieces[start:]
