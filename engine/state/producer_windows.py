"""The file of duplicate windows: the recent batches that Kafka's snapshots leave out.

`tidelog-producer-windows` in a partition directory; docs/formats/producer-snapshot.md. A snapshot
holds the last batch of each producer, but a retry may be up to five batches old. This file holds
all remembered batches of the producers with more than one. A producer's batches are only used if
the batch in the snapshot is among them: then both files describe the same history, whichever is
newer. The format is tidelog's; Kafka ignores files that it does not know.
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
    """Return the bytes of the file; empty if a snapshot holds everything."""
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
    """Return the content of the file; CorruptSnapshot if it is malformed."""
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
    """Return the remembered batches of these producers."""
    return {(entry.producer_id, entry.producer_epoch): entry.batches for entry in entries}


def with_windows(entry: ProducerEntry, windows: Windows) -> ProducerEntry:
    """Return a producer's entry with its older batches from the windows added."""
    window = windows.get((entry.producer_id, entry.producer_epoch), ())
    if entry.batches and len(entry.batches) < CACHED_BATCHES:
        oldest = entry.batches[0]
        for index, batch in enumerate(window):
            if batch[:3] == oldest[:3]:  # the time may be that of a marker
                batches = (*window[: index + 1], *entry.batches[1:])
                return entry._replace(batches=batches[-CACHED_BATCHES:])
    return entry
