"""Finds the deliveries in stored batches, and decodes only the batches that can have some."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from app.codecs.delivery_headers import STATE_CHARACTERS, STATE_HEADER, Seal, State
from app.operations.deliveries.table import Entry
from app.store.port import Partition
from engine.errors import CorruptBatch, InvalidRecord, TooLarge
from engine.records.batch import BatchView
from engine.records.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    Codec,
)
from engine.records.parts import records_of
from engine.records.varint import encode_varint
from engine.types import NO_PRODUCER_ID, Buffer

_LOG = logging.getLogger(__name__)

_NAME: Final = STATE_HEADER.encode()
_MARK: Final = encode_varint(len(_NAME)) + _NAME + encode_varint(STATE_CHARACTERS)
"""How the header begins in an uncompressed record."""


class Scanned(NamedTuple):
    """The log that is searched."""

    partition: int
    seal: Seal
    codec: Codec
    """The codec of the service's own batches in this log."""
    limit_bytes: int
    """The limit of one decompressed batch."""

    @classmethod
    def of(cls, partition: Partition, secret: bytes, limit_bytes: int) -> Self:
        seal = Seal(secret, partition.topic_id)
        return cls(partition.number, seal, partition.own_codec, limit_bytes)


def entries_in(data: Buffer, start_offset: int, log: Scanned) -> Iterator[Entry]:
    """Yield the deliveries in whole batches that begin at or after an offset.

    Only batches that the service can have built are decoded: without a producer, in the present
    format, uncompressed with the bytes of the header, or in the codec that the topic's batches get.
    A client's compressed batch would cost its decompression at each start. A batch that cannot be
    understood costs its own deliveries and nothing else.
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
        if attributes & CODEC_MASK not in {Codec.NONE, log.codec}:
            continue
        if not attributes & CODEC_MASK:
            if 0 <= marked_at < batch_at:
                marked_at = content.find(_MARK, batch_at)
            if not batch_at < marked_at < position:
                continue
        try:
            yield from _entries_of(BatchView(content, batch_at), log)
        except (CorruptBatch, InvalidRecord, TooLarge) as error:
            _LOG.warning(
                "deliveries in the batch at offset %d of partition %d may be forgotten: %s",
                base_offset,
                log.partition,
                error,
            )


def _entries_of(batch: BatchView, log: Scanned) -> Iterator[Entry]:
    found: Entry | None = None
    for record in records_of(batch, limit_bytes=log.limit_bytes):
        for name, content in record.headers:
            if name != STATE_HEADER:
                continue
            state = State.unpack(content, log.seal, record.key, record.value)
            if state is not None:
                if found is not None:
                    yield found
                found = Entry(
                    state.digest,
                    state.fingerprint,
                    record.offset,
                    record.timestamp,
                    state.records_count,
                    state.accepted_ms // 1000,
                    log.partition,
                    state.partitions,
                )
        if found is None or found.base_offset + found.records_count <= record.offset:
            continue
        if found.timestamp < record.timestamp:
            found = found._replace(timestamp=record.timestamp)
    if found is not None:
        yield found
