"""Finds the deliveries in stored batches, and decodes only the batches that can have some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.codecs.delivery_headers import STATE_HEADER, State
from app.operations.deliveries.table import Entry
from engine.records.batch import BatchView
from engine.records.chunks import records_of
from engine.records.header import CODEC_MASK, MAGIC_2
from engine.records.scan import iter_headers
from engine.types import Buffer

_NAME: Final = STATE_HEADER.encode()


def entries_in(
    data: Buffer, partition: int, start_offset: int, *, limit_bytes: int
) -> Iterator[Entry]:
    """Yield the deliveries in whole batches that begin at or after an offset.

    Batches with a producer, control batches and batches in old formats have none. Of the others,
    an uncompressed one that does not contain the header's name is not decoded. Raises CorruptBatch,
    InvalidRecord.
    """
    content = data if isinstance(data, bytes | bytearray) else bytes(data)
    named_at = content.find(_NAME)
    for position, header in iter_headers(content):
        if header.magic != MAGIC_2 or header.has_producer_id or header.base_offset < start_offset:
            continue
        if not header.attributes & CODEC_MASK:
            if 0 <= named_at < position:
                named_at = content.find(_NAME, position)
            if not position < named_at < position + header.size_bytes:
                continue
        yield from _entries_of(BatchView(content, position), partition, limit_bytes)


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
