"""The transaction index: the aborted transactions whose marker is in one segment.

A file of 34-byte entries in the order of the markers, created with the first one; most segments
have none. Kafka's `TransactionIndex` and `AbortedTxn`; docs/formats/transaction-index.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from engine.errors import CorruptIndex
from engine.fs.port import File, FileSystem
from engine.types import UNKNOWN_OFFSET, AbortedTransaction

ENTRY: Final = Struct(
    ">"
    "h"  # version, 0
    "q"  # producer_id
    "q"  # first_offset of the transaction
    "q"  # last_offset: the offset of the abort marker
    "q"  # last_stable_offset when the marker was appended
)
VERSION: Final = 0

assert ENTRY.size == 34, "the entry is fixed by the file format"


class AbortedSearch(NamedTuple):
    """The entries of one segment's index for a range of offsets."""

    aborted: list[AbortedTransaction]
    is_complete: bool
    """Whether later segments cannot add to it."""


class TransactionIndex:
    """The aborted transactions of one segment; the file is created with the first.

    One writer at a time (the log's lock), and any number of readers. An entry that a crash left
    incomplete is ignored, and cut off by the next append.
    """

    def __init__(
        self, fs: FileSystem, path: Path, base_offset: int, *, read_only: bool = False
    ) -> None:
        self.path = path
        """The path of the file, which may not exist yet; set it when a parent directory was
        renamed."""
        self.base_offset = base_offset
        self._fs = fs
        self._is_closed = False
        self._last_offset = UNKNOWN_OFFSET  # since opening, as in Kafka
        self._file: File | None = None
        if fs.exists(path):
            self._file = fs.open(path, read_only=read_only)

    def append(self, *aborted: AbortedTransaction) -> None:
        """Add aborted transactions; ValueError unless their markers ascend.

        Adds all of them, or none if it raises.
        """
        last_offset = self._last_offset
        for entry in aborted:
            if entry.last_offset <= last_offset:
                raise ValueError(
                    f"marker {entry.last_offset} does not follow {last_offset} in {self.path}"
                )
            last_offset = entry.last_offset
        file = self._opened()
        torn_bytes = file.size_bytes % ENTRY.size
        if torn_bytes:
            file.truncate(file.size_bytes - torn_bytes)
        file.append(b"".join(map(_packed, aborted)))
        self._last_offset = last_offset

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> AbortedSearch:
        """Return the aborted transactions that overlap [fetch_offset, upper_bound_offset)."""
        found = []
        for aborted in self.entries():
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return AbortedSearch(found, is_complete=True)
        return AbortedSearch(found, is_complete=False)

    def entries(self) -> Iterator[AbortedTransaction]:
        """Yield the entries in order; CorruptIndex for an unknown version."""
        for position, version, *offsets in self._raw_entries():
            if version != VERSION:
                raise CorruptIndex(
                    f"{self.path} has an entry of version {version} at {position}",
                    file=str(self.path),
                )
            yield AbortedTransaction(*offsets)

    def content_below(self, offset: int) -> bytes:
        """Return a copy of the entries with markers below an offset: a valid index of its own."""
        below = takewhile(lambda entry: entry[4] < offset, self._raw_entries())
        size_bytes = sum(ENTRY.size for _ in below)
        return b"" if self._file is None else self._file.read_at(0, size_bytes)

    @property
    def size_bytes(self) -> int:
        """The length of the file, 0 if it is missing."""
        return self._file.size_bytes if self._file else 0

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the first entry whose marker is at or after `offset`, and all after it."""
        if self._file is None:
            return
        for position, _, _, _, last_offset, _ in self._raw_entries():
            if last_offset >= offset:
                self._file.truncate(position)
                self._last_offset = UNKNOWN_OFFSET
                return

    def reset(self) -> None:
        """Drop all entries."""
        if self._file is not None:
            self._file.truncate(0)
        self._last_offset = UNKNOWN_OFFSET

    def sanity_check(self) -> None:
        """Raise CorruptIndex if an entry cannot belong to this segment."""
        for aborted in self.entries():
            if aborted.last_offset < self.base_offset:
                raise CorruptIndex(
                    f"{self.path} has marker {aborted.last_offset} before its base offset",
                    file=str(self.path),
                )

    def sync(self) -> None:
        """Return once every entry would survive a power cut; does nothing without a file.

        The caller syncs the directory of a new file. Needs no lock.
        """
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file without syncing. May be called again."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()

    def close_handles(self) -> None:
        """As `close`, which writes nothing either."""
        self.close()

    def rename(self, target: Path) -> None:
        """Rename the file if it exists; otherwise it will be created under the new name."""
        source, self.path = self.path, target
        if self._file is not None:
            self._fs.rename(source, target)

    def delete(self) -> None:
        """Close the file and remove it, if it exists."""
        self.close()
        self._fs.remove(self.path, missing_ok=True)

    def _opened(self) -> File:
        if self._is_closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        return self._file

    def _raw_entries(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield (position, version, producer id, first, last, last stable offset)."""
        if self._is_closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None:
            return
        content = self._file.read_at(0, self._file.size_bytes)
        for position in range(0, len(content) - ENTRY.size + 1, ENTRY.size):
            yield position, *ENTRY.unpack_from(content, position)


def _packed(aborted: AbortedTransaction) -> bytes:
    return ENTRY.pack(
        VERSION,
        aborted.producer_id,
        aborted.first_offset,
        aborted.last_offset,
        aborted.last_stable_offset,
    )
