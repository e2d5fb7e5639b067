"""Record batches as a Kafka client makes them: encoded by aiokafka, decoded by aiokafka."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

HEADER_BYTES = 61
ATTRIBUTES_POSITION = 21
LOG_APPEND_TIME = 0x08
CONTROL = 0x20


class SentRecord(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode(records: Sequence[SentRecord], *, codec: int = 0, base_offset: int = 0) -> bytes:
    """Return one batch with the records at consecutive offsets from `base_offset` on."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, record in enumerate(records):
        headers = list(record.headers)
        assert builder.append(offset, record.timestamp, record.key, record.value, headers)
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    return bytes(batch)


def decoded(data: bytes) -> list[tuple[Any, ...]]:
    """Return offset, timestamp, timestamp type, key, value, headers of every record."""
    rows: list[tuple[Any, ...]] = []
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        if batch.is_control_batch:
            continue
        rows.extend(
            (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers))
            for r in batch
        )
    return rows


def numbered(count: int, *, size_bytes: int = 10, first: int = 0) -> list[SentRecord]:
    """Return records that tell themselves apart."""
    return [
        SentRecord(
            1_788_000_000_000 + number,
            b"key-%d" % number,
            (b"%d:" % number).ljust(size_bytes, b"x"),
        )
        for number in range(first, first + count)
    ]


def reframed(
    batch: bytes, *, payload: bytes | None = None, codec: int | None = None, attributes: int = 0
) -> bytes:
    """Return the batch with another payload, codec or further attributes, rightly summed."""
    content = batch[HEADER_BYTES:] if payload is None else payload
    framed = bytearray(batch[:HEADER_BYTES] + content)
    (flags,) = struct.unpack_from(">h", framed, ATTRIBUTES_POSITION)
    flags = (flags & ~7 | codec) if codec is not None else flags
    struct.pack_into(">i", framed, 8, len(framed) - 12)
    struct.pack_into(">h", framed, ATTRIBUTES_POSITION, flags | attributes)
    struct.pack_into(">I", framed, 17, crc32c.crc32c(bytes(framed[ATTRIBUTES_POSITION:])))
    return bytes(framed)
