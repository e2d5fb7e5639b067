"""The producer snapshots in one partition directory: their bytes, and which of them are valid.

A header of ten bytes, then 46 bytes per producer. Only the newest batch of a producer is stored, so
after a reload only retries of that batch are recognised, until newer batches or the duplicate
windows fill up the state. Mirrors Kafka's `ProducerStateManager.writeSnapshot`;
docs/formats/producer-snapshot.md.

`<offset>.snapshot` holds the producer state below that offset. The set in memory decides: a
snapshot that was removed from it is never loaded again, even while its file exists. Not
thread-safe, except `open`: the log lock guards it. The checksum detects a torn snapshot.
"""

from __future__ import annotations

import logging
import struct
from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from engine.errors import CorruptSnapshot
from engine.fs.directories import replace_atomically
from engine.fs.names import DELETED_SUFFIX, PRODUCER_WINDOWS, base_offset_of, snapshot_name
from engine.fs.port import File, FileSystem
from engine.records.checksum import crc32c
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.producer_table import (
    WINDOWS_HEADER_BYTES,
    Windows,
    decode_windows,
    encode_windows,
    with_windows,
)
from engine.types import NO_PRODUCER_ID, NO_SEQUENCE, UNKNOWN_OFFSET

VERSION: Final = 1

HEADER: Final = struct.Struct(
    ">"
    "h"  # version
    "I"  # crc    CRC-32C of everything after this field
    "i"  # count  entries that follow
)
ENTRY: Final = struct.Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # last_sequence             -1 when no batch is known
    "q"  # last_offset               -1 when no batch is known
    "i"  # offset_delta              of that batch
    "q"  # last_timestamp            of that batch, or of the last marker if that came later
    "i"  # coordinator_epoch         -1 before the first marker
    "q"  # transaction_first_offset  -1 when no transaction is open
)
CHECKED_POSITION: Final = struct.calcsize(">hI")

_COUNT = struct.Struct(">i")

assert HEADER.size == 10, "the header of a snapshot is fixed by the format"
assert ENTRY.size == 46, "an entry of a snapshot is fixed by the format"
assert HEADER.size == CHECKED_POSITION + _COUNT.size, "the checksum covers the count"


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of a snapshot with these entries, in this order."""
    packed = [_pack(entry) for entry in entries]
    checked = _COUNT.pack(len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(checked)) + checked


def decode_snapshot(content: bytes, *, loaded_ms: int) -> tuple[ProducerEntry, ...]:
    """Return the entries of a snapshot in file order, with `seen_ms` set to `loaded_ms`.

    Raises CorruptSnapshot for an unknown version, a wrong checksum or size, or a negative producer
    id.
    """
    if len(content) < HEADER.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(content)} bytes has no header")
    version, stored, count = HEADER.unpack_from(content)
    if version != VERSION:
        raise CorruptSnapshot(f"unknown version {version} of a producer snapshot")
    computed = crc32c(memoryview(content)[CHECKED_POSITION:])
    if computed != stored:
        raise CorruptSnapshot(f"crc {stored:#010x} stored, {computed:#010x} computed")
    if len(content) != HEADER.size + count * ENTRY.size:
        raise CorruptSnapshot(f"{count} producers do not fit into {len(content)} bytes")
    body = memoryview(content)[HEADER.size :]
    entries = tuple(_unpack(fields, loaded_ms) for fields in ENTRY.iter_unpack(body))
    if any(entry.producer_id <= NO_PRODUCER_ID for entry in entries):
        raise CorruptSnapshot("a producer snapshot holds a negative producer id")
    return entries


def ensure_below(entries: Iterable[ProducerEntry], end_offset: int) -> None:
    """Raise CorruptSnapshot if an entry has an offset of `end_offset` or more: another log's."""
    for entry in entries:
        written = entry.batches[-1].last_offset if entry.batches else UNKNOWN_OFFSET
        if max(written, entry.transaction_first_offset or UNKNOWN_OFFSET) >= end_offset:
            raise CorruptSnapshot(f"producer {entry.producer_id} has written beyond {end_offset}")


def in_table_order(entries: Iterable[ProducerEntry]) -> list[ProducerEntry]:
    """Return the entries in the order of a Java hash table, which is Kafka's file order.

    It only depends on the producer ids, so equal states give equal files. (Kafka's order also
    depends on the table's earlier size, which readers must not rely on.)
    """
    ordered = sorted(entries, key=lambda entry: entry.producer_id)
    capacity = 16
    while len(ordered) > capacity * 3 // 4:
        capacity *= 2
    ordered.sort(key=lambda entry: _java_hash(entry.producer_id) & (capacity - 1))
    return ordered


def _java_hash(producer_id: int) -> int:
    folded = (producer_id ^ (producer_id >> 32)) & 0xFFFFFFFF
    return folded ^ (folded >> 16)


def _pack(entry: ProducerEntry) -> bytes:
    newest = entry.batches[-1] if entry.batches else None
    opened = entry.transaction_first_offset
    return ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        newest.last_sequence if newest else NO_SEQUENCE,
        newest.last_offset if newest else UNKNOWN_OFFSET,
        newest.offset_delta if newest else 0,
        entry.last_timestamp,
        entry.coordinator_epoch,
        opened if opened is not None else UNKNOWN_OFFSET,
    )


def _unpack(fields: tuple[int, ...], loaded_ms: int) -> ProducerEntry:
    (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        last_timestamp,
        coordinator_epoch,
        transaction_first_offset,
    ) = fields
    batch = BatchMetadata(last_sequence, last_offset, offset_delta, last_timestamp)
    return ProducerEntry(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=last_timestamp,
        transaction_first_offset=transaction_first_offset
        if transaction_first_offset >= 0
        else None,
        batches=(batch,) if last_offset >= 0 else (),
        seen_ms=loaded_ms,
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
