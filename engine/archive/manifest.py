"""The manifest of a partition: which objects hold it, and what was removed lately.

A segment lies in the bucket as a chain of *pieces*: ranges of its `.log` file, each one object,
from its first byte on without a gap. A sealed segment becomes one piece with its indexes and the
producer snapshot at its end, which replaces the pieces of the time when it was active. What left
the log stays listed under `removed` until its time is over, so that a restore to an earlier time
finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, Self

import msgspec

from engine.archive.documents import Document
from engine.archive.store import ArchiveDamaged
from engine.types import EpochOffset

LOG: Final = "log"
"""The kind of the object with record batches; the others are indexes and the snapshot."""
SNAPSHOT: Final = "snapshot"

MAX_GROWTH: Final = 64
"""How many moments of an active segment are kept when it is sealed."""

LOGS: Final = "logs/"
"""The prefix of the objects of all logs."""
_NAME: Final = re.compile(
    r"logs/[A-Za-z0-9_-]{22}/[0-9]+/"
    r"[0-9]{10}-[0-9]{20}-[0-9]{10}-(?P<writer>[0-9]+)-[0-9]+\.[a-z]+"
)


def folder_of(topic_id: str, partition: int | None = None) -> str:
    """Return the prefix of all objects of a topic, or of one partition."""
    return f"{LOGS}{topic_id}/" + ("" if partition is None else f"{partition}/")


def manifest_prefix(topic_id: str, partition: int) -> str:
    """Return the prefix of the versions of a partition's manifest."""
    return f"{folder_of(topic_id, partition)}manifest-"


def topic_id_of(name: str) -> str:
    """Return the topic id in the name of an object of a log."""
    return name.removeprefix(LOGS).partition("/")[0]


def writer_of(name: str) -> int | None:
    """Return the number of the writer that made an object of a partition; None for others."""
    match = _NAME.fullmatch(name)
    return int(match["writer"]) if match else None


class ObjectRef(NamedTuple):
    """An object, its length and the CRC-32C of its content."""

    name: str
    size_bytes: int
    crc32c: int


class Growth(NamedTuple):
    """How far a segment was archived at a moment when it was still active."""

    archived_ms: int
    end_offset: int
    size_bytes: int
    """The length of the segment's `.log` file up to that offset."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a segment's `.log` file; whole batches."""

    base_offset: int
    """The name of the segment."""
    position: int
    """Where the range begins in the file."""
    size_bytes: int
    first_offset: int
    end_offset: int
    """Exclusive."""
    leader_epoch: int
    """The epoch of the last offset, -1 if unknown: another one there means another record."""
    max_timestamp: int
    """The largest timestamp in the segment when it was archived, in ms; -1 without one."""
    archived_ms: int
    is_sealed: bool
    """Whether it is a whole segment that was complete."""
    version: str
    """The version of the file that was read; compaction makes another one."""
    objects: Mapping[str, ObjectRef]
    """The objects by kind."""
    growth: tuple[Growth, ...] = ()
    max_timestamp_offset: int = -1
    """The offset of the first batch with that timestamp: its last one; -1 if unknown."""

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


@dataclass(frozen=True, slots=True)
class Removed:
    """A piece that was removed from the log, or replaced by another piece."""

    piece: Piece
    removed_ms: int
    is_replaced: bool
    """Whether another piece has the same bytes, so that no restore needs this one."""


class LogStart(NamedTuple):
    """The log start from a moment on."""

    since_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The archived part of one partition."""

    topic: str
    topic_id: str
    partition: int
    log_starts: tuple[LogStart, ...] = ()
    """Ascending; the last is the present one."""
    epochs: tuple[EpochOffset, ...] = ()
    gaps: str = ""
    """The content of `tidelog-segment-gaps`, as it is: damaged, it allows every gap."""
    pieces: tuple[Piece, ...] = ()
    """Ascending, without overlap; pieces of one segment follow each other without a gap."""
    removed: tuple[Removed, ...] = ()
    end_offset: int = 0
    """The high watermark of that time: after a truncation it may lie above the last batch."""
    archived_ms: int = 0
    """When everything below the archived offset was in the archive, and nothing else committed."""

    @property
    def archived_offset(self) -> int:
        """The exclusive end of what is archived."""
        last = self.pieces[-1].end_offset if self.pieces else self.log_start_offset
        return max(last, self.end_offset)

    @property
    def log_start_offset(self) -> int:
        return self.log_starts[-1].offset if self.log_starts else 0

    def chains(self) -> dict[int, tuple[Piece, ...]]:
        """Return the pieces of each segment, by its base offset."""
        by_segment = groupby(self.pieces, attrgetter("base_offset"))
        return {base: tuple(chain) for base, chain in by_segment}

    def object_names(self) -> set[str]:
        """Return the names of all objects that it needs, removed ones included."""
        pieces = (*self.pieces, *(one.piece for one in self.removed))
        return {ref.name for piece in pieces for ref in piece.objects.values()}

    def at(self, until_ms: int) -> Manifest:
        """Return what the archive held at a moment: later pieces are gone, removed ones back."""
        restored = [self._before(piece, until_ms) for piece in self._alive_at(until_ms)]
        pieces = sorted(
            (piece for piece in restored if piece is not None),
            key=attrgetter("base_offset", "position"),
        )
        starts = [one for one in self.log_starts if one.since_ms <= until_ms]
        return replace(
            self,
            log_starts=tuple(starts or self.log_starts[:1]),
            epochs=(),  # those of then are in the batches
            pieces=tuple(pieces),
            removed=(),
            end_offset=0,
            archived_ms=min(until_ms, self.archived_ms),
        )

    def _alive_at(self, until_ms: int) -> Iterable[Piece]:
        for one in self.removed:
            if not one.is_replaced and one.removed_ms > until_ms:
                yield one.piece
        yield from self.pieces

    @staticmethod
    def _before(piece: Piece, until_ms: int) -> Piece | None:
        """Return the piece as it was; None if it was not there."""
        if piece.archived_ms <= until_ms:
            return piece
        grown = [one for one in piece.growth if one.archived_ms <= until_ms]
        if not grown:
            return None
        _, end_offset, size_bytes = grown[-1]
        log = {LOG: piece.objects[LOG]}  # of which the first bytes are wanted
        return replace(
            piece, end_offset=end_offset, size_bytes=size_bytes, is_sealed=False, objects=log
        )

    @classmethod
    def of(cls, document: Document, name: str) -> Self:
        """Parse a manifest; ArchiveDamaged."""
        try:
            manifest = msgspec.convert(document.fields, cls)
        except msgspec.ValidationError as error:
            raise ArchiveDamaged(f"{name} is not the manifest of a partition: {error}") from error
        manifest.ensure_sound(name)
        return manifest

    def fields(self) -> Mapping[str, object]:
        """Return the manifest as the fields of a document."""
        fields: Mapping[str, object] = msgspec.to_builtins(self)
        return fields

    def ensure_sound(self, name: str) -> None:
        """Raise ArchiveDamaged unless the pieces ascend and each segment's chain has no gap."""
        end_offset = 0
        for base_offset, chain in self.chains().items():
            position = 0
            for piece in chain:
                is_next = piece.position == position and piece.first_offset >= end_offset
                if not is_next or LOG not in piece.objects:
                    raise ArchiveDamaged(f"{name}: the pieces of segment {base_offset} do not fit")
                position, end_offset = piece.end_position, piece.end_offset
