"""The file of duplicate windows: what Kafka's snapshot leaves out of a producer's last batches.

`tidelog-producer-windows` in a partition directory; docs/formats/producer-snapshot.md. A snapshot
holds the last batch of each producer, and a repetition may reach back five. The file holds all that
are remembered, of the producers with more than one. It is believed of a producer only if the batch
that the snapshot has is among them: they are of one log and one history then, whichever of the two
files is newer. Ours; Kafka leaves files that it does not know alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from crc32c import crc32c

from engine.errors import CorruptSnapshot
from engine.state.producer_entry import CACHED_BATCHES, BatchMetadata, ProducerEntry

VERSION: Final = 1

HEADER: Final = struct.Struct(
    ">"
    "h"  # version
    "I"  # crc    CRC-32C of everything after this field
    "i"  # count  batches that follow
)
BATCH: Final = struct.Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # last_sequence
    "q"  # last_offset
    "i"  # offset_delta
    "q"  # timestamp
)
WINDOWS_HEADER_BYTES: Final = HEADER.size
CHECKED_POSITION: Final = struct.calcsize(">hI")
_COUNT = struct.Struct(">i")

assert HEADER.size == CHECKED_POSITION + _COUNT.size, "the checksum covers the count"

Windows: TypeAlias = Mapping[tuple[int, int], Sequence[BatchMetadata]]
"""The batches by producer id and epoch, in append order."""


def encode_windows(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of the file; none if all there is to tell is in the snapshot."""
    packed = [
        BATCH.pack(entry.producer_id, entry.producer_epoch, *batch)
        for entry in entries
        if len(entry.batches) > 1
        for batch in entry.batches
    ]
    if not packed:
        return b""
    checked = _COUNT.pack(len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(checked)) + checked


def decode_windows(content: bytes) -> Windows:
    """Return what the file holds; CorruptSnapshot if it is not as `encode_windows` writes it."""
    if len(content) < HEADER.size:
        raise CorruptSnapshot(f"a file of duplicate windows has {len(content)} bytes")
    version, stored, count = HEADER.unpack_from(content)
    if version != VERSION or stored != crc32c(memoryview(content)[CHECKED_POSITION:]):
        raise CorruptSnapshot("the version or the checksum of the duplicate windows is wrong")
    if len(content) != HEADER.size + count * BATCH.size:
        raise CorruptSnapshot(f"{count} batches do not fit into {len(content)} bytes")
    windows: dict[tuple[int, int], list[BatchMetadata]] = {}
    for producer_id, epoch, *batch in BATCH.iter_unpack(memoryview(content)[HEADER.size :]):
        windows.setdefault((producer_id, epoch), []).append(BatchMetadata(*batch))
    return windows


def windows_of(entries: Iterable[ProducerEntry]) -> Windows:
    """Return what is known of the last batches of these producers."""
    return {(entry.producer_id, entry.producer_epoch): entry.batches for entry in entries}


def with_windows(entry: ProducerEntry, windows: Windows) -> ProducerEntry:
    """Return what is known of a producer, with the batches before those that it has."""
    window = windows.get((entry.producer_id, entry.producer_epoch), ())
    if entry.batches and len(entry.batches) < CACHED_BATCHES:
        oldest = entry.batches[0]
        for index, batch in enumerate(window):
            if batch[:3] == oldest[:3]:  # a snapshot may have another time: that of a marker
                batches = (*window[: index + 1], *entry.batches[1:])
                return entry._replace(batches=batches[-CACHED_BATCHES:])
    return entry
