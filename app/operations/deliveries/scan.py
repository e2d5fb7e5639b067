"""Finds the deliveries in stored batches, and decodes only the batches that can have some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.codecs.delivery_headers import STATE_CHARACTERS, STATE_HEADER, State
from app.operations.deliveries.table import Entry
from engine.records.batch import BatchView
from engine.records.chunks import records_of
from engine.records.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
)
from engine.records.varint import encode_varint
from engine.types import NO_PRODUCER_ID, Buffer

_NAME: Final = STATE_HEADER.encode()
_MARK: Final = encode_varint(len(_NAME)) + _NAME + encode_varint(STATE_CHARACTERS)
"""How the header begins in an uncompressed record."""


def entries_in(
    data: Buffer, partition: int, start_offset: int, *, limit_bytes: int
) -> Iterator[Entry]:
    """Yield the deliveries in whole batches that begin at or after an offset.

    Batches with a producer and batches in old formats have none. An uncompressed batch without the
    bytes of the header is not decoded. Raises CorruptBatch, InvalidRecord.
    """
    content = data if isinstance(data, bytes | bytearray) else bytes(data)
    marked_at = content.find(_MARK)
    position, last = 0, len(content) - HEADER_BYTES
    while position <= last:
        # A log may have millions of batches: only these fields of each are looked at.
        base_offset, length, _, magic, _, attributes, _, _, _, producer_id, *_ = HEADER.unpack_from(
            content, position
        )
        batch_at, position = position, position + LOG_OVERHEAD_BYTES + max(0, length)
        if magic != MAGIC_2 or producer_id != NO_PRODUCER_ID or base_offset < start_offset:
            continue
        if not attributes & CODEC_MASK:
            if 0 <= marked_at < batch_at:
                marked_at = content.find(_MARK, batch_at)
            if not batch_at < marked_at < position:
                continue
        yield from _entries_of(BatchView(content, batch_at), partition, limit_bytes)


def _entries_of(batch: BatchView, partition: int, limit_bytes: int) -> Iterator[Entry]:
    found: Entry | None = None
    for record in records_of(batch, limit_bytes=limit_bytes):
        for name, content in record.headers:
            if name == STATE_HEADER and (state := State.unpack(content)) is not None:
                if found is not None:
                    yield found
                found = Entry(
                    state.digest,
                    state.fingerprint,
                    record.offset,
                    record.timestamp,
                    state.records_count,
                    state.accepted_ms // 1000,
                    partition,
                    state.partitions,
                )
        if found is None or found.base_offset + found.records_count <= record.offset:
            continue
        if found.timestamp < record.timestamp:
            found = found._replace(timestamp=record.timestamp)
    if found is not None:
        yield found
