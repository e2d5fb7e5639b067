"""Segments that only the archive has, as segments of a log that is read like any other.

Their files are objects. The log file is read by ranges, through the cache that all partitions
share; its batches have checksums of their own. An index is read whole when it is opened, compared
with the checksum in the manifest, and stays in memory while its segment's files are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import crc32c

from engine.archive.manifest import LOG, ObjectRef, Piece
from engine.archive.range_cache import RangeCache
from engine.config import LogConfig
from engine.errors import ArchiveUnavailable
from engine.fs import names
from engine.fs.port import File, FileSystem, IndexFile
from engine.segment.indexes import SealedFiles
from engine.segment.segment import Segment
from engine.types import Buffer

MAX_OPEN: Final = 16
"""Archived segments whose indexes are in memory, some 5 MiB each for segments of 1 GiB; beyond it
those that were opened first are read again."""


class ArchivedSegments:
    """Makes the segments of all partitions. Thread-safe."""

    def __init__(self, cache: RangeCache) -> None:
        self._cache = cache
        self._open = SealedFiles(MAX_OPEN)

    def segment(self, directory: Path, piece: Piece, config: LogConfig) -> Segment:
        """Return a sealed segment that is whole in the archive.

        Reads nothing of it, unless the manifest is of the first version. `directory` only names it
        in messages. Its transaction index counts as verified: that was done before it left the
        disk.
        """
        files = _Files(self._cache, piece)
        segment = Segment(
            # a segment that is only read asks for these four methods, and for no other
            cast("FileSystem", files),
            directory,
            piece.base_offset,
            config,
            now_ms=piece.archived_ms,
            is_resting=True,
        )
        if piece.max_timestamp_offset >= 0:
            segment.observe_maximum(piece.max_timestamp, piece.max_timestamp_offset)
        elif piece.max_timestamp >= 0:
            segment.load_maximum()  # a manifest of the first version does not tell the offset
        segment.proofs.unproven_aborts_bytes = 0
        segment.resting.allow(self._open)
        return segment


class _Files:
    """The files of one archived segment: what `Segment` asks of a file system to read them."""

    def __init__(self, cache: RangeCache, piece: Piece) -> None:
        self._cache = cache
        self._piece = piece
        stem = Path(names.log_name(piece.base_offset)).stem
        self._objects: Mapping[str, ObjectRef] = {
            f"{stem}.{kind}": ref for kind, ref in piece.objects.items()
        }

    def exists(self, path: Path) -> bool:
        return path.name in self._objects

    def size_bytes(self, path: Path) -> int:
        return self._piece.size_bytes if path.suffix == f".{LOG}" else self._ref(path).size_bytes

    def open(self, path: Path, **_: object) -> File:
        is_log = path.suffix == f".{LOG}"
        file = _LogFile(self._cache, path, self._piece) if is_log else self._in_memory(path)
        return cast("File", file)  # which is only read

    def open_index(self, path: Path, *_: object, **__: object) -> IndexFile:
        return cast("IndexFile", self._in_memory(path))  # which is only read

    def _in_memory(self, path: Path) -> _InMemory:
        ref = self._ref(path)
        content = bytes(self._cache.read(ref, 0, ref.size_bytes))
        if crc32c.crc32c(content) != ref.crc32c:
            raise ArchiveUnavailable(
                f"{ref.name} is damaged in the archive: its checksum is not {ref.crc32c}"
            )
        return _InMemory(path, content)

    def _ref(self, path: Path) -> ObjectRef:
        ref = self._objects.get(path.name)
        if ref is None:
            raise ArchiveUnavailable(f"the archive has no {path.name}")
        return ref


class _LogFile:
    """A log file in the archive. Nothing is opened for it, so nothing is closed."""

    def __init__(self, cache: RangeCache, path: Path, piece: Piece) -> None:
        self._cache = cache
        self._ref = piece.objects[LOG]
        self._piece = piece
        self.path = path
        self.size_bytes = piece.size_bytes

    def read_at(self, position: int, length: int) -> Buffer:
        return self._cache.read(self._ref, position, length)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        return self._cache.peek(self._ref, position, length)

    read_aside = read_at  # the page cache of the disk has no part in it

    def modified_ms(self) -> int:
        return self._piece.archived_ms

    def version(self) -> str:
        return self._piece.version or f"{self._ref.crc32c:x}-{self._ref.size_bytes:x}"

    def close(self) -> None: ...


class _InMemory:
    """The content of an index file."""

    is_new = False

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self._content = content
        self.size_bytes = self.reserved_bytes = len(content)

    def load(self, position: int, length: int) -> bytes:
        return self._content[position : position + length]

    read_at = load

    def close(self) -> None: ...
