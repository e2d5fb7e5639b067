"""The two batches that only compaction writes: with some of the records, and with none.

Both keep base offset, last offset, producer, epoch and sequence of the batch they replace, so that
duplicates are still recognised. Kafka's `MemoryRecords.buildRetainedRecordsInto` and
`DefaultRecordBatch.writeEmptyHeader`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.cleaner.reading import StoredRecord
from engine.records.batch import stamp_crc
from engine.records.builder import encode_batch
from engine.records.compiled import new_builder
from engine.records.compression import compress
from engine.records.header import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Codec,
    TimestampType,
    pack_header,
)
from engine.records.record import Record
from engine.types import NO_TIMESTAMP

_KINDS_MASK: Final = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK


def empty_batch(header: BatchHeader) -> bytearray:
    """Return the header alone, without records, codec and delete horizon."""
    return _assembled(
        header._replace(
            attributes=header.attributes & _KINDS_MASK,
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        ),
        bytearray(HEADER_BYTES),
    )


def rewritten_batch(
    header: BatchHeader, records: Sequence[StoredRecord], horizon_ms: int | None
) -> bytearray:
    """Return the batch with only these of its records, ascending, at least one.

    Every record keeps offset, time and content. The delete horizon, if there is one, takes the
    place of the base timestamp, and times count from there.
    """
    attributes = header.attributes & (CODEC_MASK | _KINDS_MASK)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in records))
    new = header._replace(
        attributes=attributes if horizon_ms is None else attributes | DELETE_HORIZON_MASK,
        base_timestamp=records[0].timestamp if horizon_ms is None else horizon_ms,
        max_timestamp=max_timestamp,
        records_count=len(records),
    )
    if new.base_timestamp < 0:  # which the compiled builder reads as "no timestamp"
        return encode_batch(
            new,
            (Record(one.offset, one.timestamp, one.key, one.value, one.headers) for one in records),
        )
    batch = _encoded(new, records)
    if header.codec is not Codec.NONE:
        batch[HEADER_BYTES:] = compress(header.codec, batch[HEADER_BYTES:])
    return _assembled(new, batch)


def _encoded(header: BatchHeader, records: Sequence[StoredRecord]) -> bytearray:
    """Return the uncompressed records after 61 bytes for the header.

    The compiled builder takes the base timestamp from the first record. If the batch has a delete
    horizon, a placeholder with that time comes first and is cut off again.
    """
    builder = new_builder()
    append = builder.append
    start = HEADER_BYTES
    base_offset = header.base_offset
    if header.attributes & DELETE_HORIZON_MASK:
        append(0, header.base_timestamp, None, None, [])
        start = builder.size()
    for record in records:
        headers = record.headers
        if type(headers) is not list:
            headers = list(headers)
        append(record.offset - base_offset, record.timestamp, record.key, record.value, headers)
    batch = builder.build()
    del batch[HEADER_BYTES:start]
    return batch


def _assembled(header: BatchHeader, batch: bytearray) -> bytearray:
    """Return the batch with this header in front of its records, in place."""
    size_bytes = len(batch)
    batch[:HEADER_BYTES] = pack_header(header._replace(length=size_bytes - LOG_OVERHEAD_BYTES))
    stamp_crc(batch, 0, size_bytes)
    return batch
