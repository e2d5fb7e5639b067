"""The producer snapshots in one partition directory: which there are, written, synced, removed.

`<offset>.snapshot` holds the producer state below that offset. The set in memory is what counts: a
snapshot taken out of it is never loaded again, whenever its file goes. Not thread-safe, except
`open`: the log's lock guards it. A torn snapshot is found out by its checksum.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from engine.errors import CorruptSnapshot
from engine.fs.atomic import replace_atomically
from engine.fs.names import DELETED_SUFFIX, PRODUCER_WINDOWS, base_offset_of, snapshot_name
from engine.fs.port import File, FileSystem
from engine.state.producer_entry import ProducerEntry
from engine.state.producer_snapshot import decode_snapshot, ensure_below
from engine.state.producer_windows import (
    WINDOWS_HEADER_BYTES,
    Windows,
    decode_windows,
    encode_windows,
    with_windows,
)

_LOG = logging.getLogger(__name__)


class SnapshotFiles:
    """The snapshots found when this is made, and every change since."""

    def __init__(self, fs: FileSystem, directory: Path, found: Iterable[int] | None = None) -> None:
        """Begin with those that were just `found`, ascending; else look for them."""
        self.fs = fs
        self._directory = directory
        self._offsets: list[int] = []
        self._windows_digest = b""
        if found is None:
            self.rescan()
        else:
            self._offsets += found

    def rescan(self) -> None:
        """Believe what lies in the directory now."""
        names = self.fs.list_directory(self._directory)
        offsets = ((base_offset_of(name), name) for name in names)
        self._offsets = sorted(
            offset
            for offset, name in offsets
            if offset is not None and name == snapshot_name(offset)
        )

    @property
    def offsets(self) -> tuple[int, ...]:
        """All snapshots, ascending."""
        return tuple(self._offsets)

    @property
    def newest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    def read(self, offset: int) -> bytes:
        """Return the content of a snapshot."""
        return self.fs.read_bytes(self._path(offset))

    def write(self, offset: int, content: bytes, *, sync: bool) -> None:
        """Write a snapshot; with `sync` it and its name survive a power cut.

        Kafka writes it under its final name too: a crash leaves a file that fails its checksum, and
        loading then falls back to the one before.
        """
        path = self._path(offset)
        with self.fs.open(path, create=True) as file:
            file.truncate(0)
            try:
                file.append(content)
            except OSError:
                self.fs.remove(path)  # it would pass for damaged
                raise
            if sync:
                file.sync_all()
        if sync:
            self.fs.sync_directory(self._directory)
        self.note(offset)

    def note(self, offset: int) -> None:
        """Know of a snapshot that is in the directory."""
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def load(self, now_ms: int) -> tuple[int, Sequence[ProducerEntry]] | None:
        """Return the newest readable snapshot, with the batches before those it has.

        A snapshot that is damaged is reported, removed, and the one before it tried.
        """
        while (offset := self.newest) is not None:
            try:
                entries = decode_snapshot(self.read(offset), loaded_ms=now_ms)
                ensure_below(entries, offset)
            except (CorruptSnapshot, FileNotFoundError) as error:
                _LOG.warning("%s: dropping snapshot %d: %s", self._directory, offset, error)
                self.delete(offset)
                continue
            windows = self._read_windows()
            return offset, [with_windows(entry, windows) for entry in entries]
        return None

    def _read_windows(self) -> Windows:
        """Return what the file of duplicate windows holds: nothing if it is missing or damaged."""
        try:
            return decode_windows(self.fs.read_bytes(self._directory / PRODUCER_WINDOWS))
        except FileNotFoundError:
            return {}
        except CorruptSnapshot as error:
            _LOG.warning("%s: older repetitions are not recognised: %s", self._directory, error)
            return {}

    def write_windows(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace the file of duplicate windows, durably, if it would be another one.

        Needs no lock; one thread at a time.
        """
        content = encode_windows(entries)
        digest = content[:WINDOWS_HEADER_BYTES]  # the checksum is in it
        if content and digest != self._windows_digest:
            replace_atomically(self.fs, self._directory / PRODUCER_WINDOWS, content)
            self._windows_digest = digest

    def open(self, offset: int) -> File | None:
        """Open a snapshot to sync it; None if it is gone. Its name is the directory's to sync.

        The caller need not hold the log's lock.
        """
        try:
            return self.fs.open(self._path(offset), read_only=True)
        except FileNotFoundError:
            return None  # retention or truncation came first

    def delete(self, offset: int) -> None:
        """Remove a snapshot at once; it may be missing."""
        self._forget(offset)
        self.fs.remove(self._path(offset), missing_ok=True)

    def retire(self, offset: int) -> Path | None:
        """Forget a snapshot and return its file, renamed `.deleted`, for the caller to remove.

        Returns None if there is no file.
        """
        self._forget(offset)
        path = self._path(offset)
        if not self.fs.exists(path):
            return None
        retired = path.with_name(path.name + DELETED_SUFFIX)
        self.fs.rename(path, retired)
        return retired

    def delete_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Remove the snapshots that belong to no segment.

        The newest of those stays if no segment begins after it: a clean shutdown wrote it.
        """
        strays = [offset for offset in self._offsets if offset not in segment_base_offsets]
        if strays and strays[-1] >= max(segment_base_offsets, default=0):
            strays.pop()
        for offset in strays:
            self.delete(offset)

    def overlook_above(self, offset: int) -> None:
        """Take no notice of newer snapshots from now on; their files stay."""
        self._offsets = [one for one in self._offsets if one <= offset]

    def move_to(self, directory: Path) -> None:
        """Look for the files under their new parent: the partition directory was renamed."""
        self._directory = directory

    def _forget(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        return self._directory / snapshot_name(offset)
