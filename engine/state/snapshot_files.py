"""The producer snapshots in one partition directory: list, read, write, sync, remove.

`<offset>.snapshot` holds the producer state below that offset. The set in memory decides: a
snapshot that was removed from it is never loaded again, even while its file exists. Not
thread-safe, except `open`: the log lock guards it. The checksum detects a torn snapshot.
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
    """The snapshots that were found, and later changes."""

    def __init__(self, fs: FileSystem, directory: Path, found: Iterable[int] | None = None) -> None:
        """Start with the `found` snapshots, ascending; without them, list the directory."""
        self.fs = fs
        self._directory = directory
        self._offsets: list[int] = []
        self._windows_digest = b""
        if found is None:
            self.rescan()
        else:
            self._offsets += found

    def rescan(self) -> None:
        """List the directory again."""
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
        """Write a snapshot; with `sync`, file and name survive a power cut.

        Like Kafka, it writes under the final name: after a crash the checksum fails, and loading
        uses the previous snapshot.
        """
        path = self._path(offset)
        with self.fs.open(path, create=True) as file:
            file.truncate(0)
            try:
                file.append(content)
                if sync:
                    file.sync_all()
            except OSError:
                self.fs.remove(path)  # it would count as damaged, now or after a power cut
                raise
        if sync:
            self.fs.sync_directory(self._directory)
        self.note(offset)

    def note(self, offset: int) -> None:
        """Add a snapshot that is in the directory."""
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def load(self, now_ms: int) -> tuple[int, Sequence[ProducerEntry]] | None:
        """Return the newest readable snapshot, with the batches of the duplicate windows.

        A damaged snapshot is reported and removed, and the previous one is tried.
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
        """Return the content of the duplicate windows file; empty if it is missing or damaged."""
        try:
            return decode_windows(self.fs.read_bytes(self._directory / PRODUCER_WINDOWS))
        except FileNotFoundError:
            return {}
        except CorruptSnapshot as error:
            _LOG.warning("%s: older retries are not recognised: %s", self._directory, error)
            return {}

    def write_windows(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace the duplicate windows file durably, if its content changes.

        Needs no lock; one thread at a time.
        """
        content = encode_windows(entries)
        digest = content[:WINDOWS_HEADER_BYTES]  # the checksum is in it
        if content and digest != self._windows_digest:
            replace_atomically(self.fs, self._directory / PRODUCER_WINDOWS, content)
            self._windows_digest = digest

    def open(self, offset: int) -> File | None:
        """Open a snapshot to sync it; None if it is gone. The caller syncs the directory.

        The log lock is not needed.
        """
        try:
            return self.fs.open(self._path(offset), read_only=True)
        except FileNotFoundError:
            return None  # retention or truncation came first

    def delete(self, offset: int) -> None:
        """Remove a snapshot now; a missing one is ignored."""
        self._forget(offset)
        self.fs.remove(self._path(offset), missing_ok=True)

    def retire(self, offset: int) -> Path | None:
        """Drop a snapshot; return its file, renamed `.deleted`, for the caller to remove.

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
        """Remove snapshots without a segment.

        The newest of them stays if no segment begins after it: a clean shutdown wrote it.
        """
        strays = [offset for offset in self._offsets if offset not in segment_base_offsets]
        if strays and strays[-1] >= max(segment_base_offsets, default=0):
            strays.pop()
        for offset in strays:
            self.delete(offset)

    def overlook_above(self, offset: int) -> None:
        """Ignore newer snapshots from now on; their files stay."""
        self._offsets = [one for one in self._offsets if one <= offset]

    def move_to(self, directory: Path) -> None:
        """Use the files in the renamed partition directory."""
        self._directory = directory

    def _forget(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        return self._directory / snapshot_name(offset)
