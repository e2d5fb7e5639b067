"""Encodes and decodes producer snapshots; see docs/formats/producer-snapshot.md.

A header of ten bytes, then 46 bytes per producer. Only the newest batch of a producer is stored, so
after a reload only retries of that batch are recognised, until newer batches or the duplicate
windows fill up the state. Pure; mirrors Kafka's `ProducerStateManager.writeSnapshot`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from engine.errors import CorruptSnapshot
from engine.records.checksum import crc32c
from engine.state.producer_entry import BatchMetadata, ProducerEntry
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
