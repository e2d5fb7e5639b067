"""Encodes Arrow columns as transactional record batches v2.

The sizes and positions of all fields are computed first; then each field is written for all records
at once. No Python object is created for a key or a value. `fields` shows the format of a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_tidelog.errors import TidelogError
from pyspark_tidelog.records.batches import (
    ATTRIBUTES_POSITION,
    HEADER,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_MASK,
    crc32c,
)
from pyspark_tidelog.records.varints import Bytes, Int64s

# By default the service and every broker accept batches of up to 1 MiB.
TARGET_BATCH_BYTES: Final = 512 << 10
_RECORD_OVERHEAD_BYTES: Final = 24

_NO_HEADERS: Final = b"\x00"


def _lz4(payload: bytes) -> bytes:
    """Return a frame of independent blocks: Kafka, and so the log, reads no others."""
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(payload)
    return bytes(compressor.finish())


_COMPRESSORS: Final[Mapping[str, tuple[int, Callable[[bytes], Any] | None]]] = {
    "none": (0, None),
    "gzip": (1, cramjam.gzip.compress),
    "lz4": (3, _lz4),
    "zstd": (4, cramjam.zstd.compress),
}
CODECS: Final = tuple(_COMPRESSORS)


class Producer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    producer_epoch: int


def in_batches(
    records: pa.RecordBatch, target_bytes: int = TARGET_BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the records in parts of the size of a batch; a larger record is a part of its own."""
    sizes = _lengths(records["key"]) + _lengths(records["value"]) + _RECORD_OVERHEAD_BYTES
    if "headers" in records.schema.names:
        sizes = sizes + _lengths(records["headers"])
    ends = np.cumsum(sizes)
    start = 0
    while start < len(records):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + target_bytes, side="right"))
        end = max(end, start + 1)
        yield records.slice(start, end - start)
        start = end


def encode_batch(
    records: pa.RecordBatch, producer: Producer, *, base_sequence: int, codec: str = "none"
) -> bytes:
    """Return one transactional batch; the log assigns its offset when it is appended.

    The columns of `records` are `key` and `value` (binary), `timestamp` (milliseconds), and
    `headers`, encoded by `encode_headers`, if any record has some.
    """
    number, compress = _COMPRESSORS[codec]
    timestamps: Int64s = records["timestamp"].to_numpy()
    payload = _encode_records(records, timestamps)
    if compress is not None:
        payload = bytes(compress(payload))
    header = struct.pack(
        HEADER,
        0,
        struct.calcsize(HEADER) - LOG_OVERHEAD_BYTES + len(payload),
        -1,
        2,
        0,
        number | TRANSACTIONAL_MASK,
        len(records) - 1,
        int(timestamps[0]),
        int(timestamps.max()),
        producer.producer_id,
        producer.producer_epoch,
        base_sequence,
        len(records),
    )
    batch = bytearray(header + payload)
    crc = crc32c(bytes(memoryview(batch)[ATTRIBUTES_POSITION:]))
    struct.pack_into(">I", batch, ATTRIBUTES_POSITION - 4, crc)
    return bytes(batch)


def encode_headers(pairs: Sequence[Mapping[str, Any]] | None) -> bytes:
    """Return a record's headers as they end the record; raise TidelogError for a null key."""
    if not pairs:
        return _NO_HEADERS
    parts = [_varint(len(pairs))]
    for pair in pairs:
        key, value = pair["key"], pair["value"]
        if key is None:
            raise TidelogError("column headers: the key of a header cannot be null")
        name = key.encode()
        parts += (_varint(len(name)), name)
        parts += (_varint(-1),) if value is None else (_varint(len(value)), bytes(value))
    return b"".join(parts)


def _encode_records(records: pa.RecordBatch, timestamps: Int64s) -> bytes:
    """Return the records one after the other: numbers by NumPy, bytes between them by Arrow."""
    count = len(records)
    keys, key_lengths = _without_nulls(records["key"])
    values, value_lengths = _without_nulls(records["value"])
    times = _Varints(timestamps - timestamps[0])
    offsets = _Varints(np.arange(count, dtype=np.int64))
    before_key, before_value = _Varints(key_lengths), _Varints(value_lengths)
    attributes = _Varints(np.zeros(count, np.int64))
    headers: pa.Array | bytes = _NO_HEADERS
    header_bytes: Int64s | int = len(_NO_HEADERS)
    if "headers" in records.schema.names:
        headers = records["headers"]
        header_bytes = _lengths(headers)
    numbers = (attributes, times, offsets, before_key, before_value)
    bodies = sum((one.sizes for one in numbers), _lengths(keys) + _lengths(values) + header_bytes)
    head = _interleaved((_Varints(bodies), attributes, times, offsets, before_key))
    middle = _interleaved((before_value,))
    joined = pc.binary_join_element_wise(head, keys, middle, values, headers, b"")
    octets, starts, lengths = string_places(joined)
    return octets[starts[0] : starts[-1] + lengths[-1]].tobytes()


class _Varints:
    """One signed number per record, as a zigzag varint."""

    def __init__(self, numbers: Int64s) -> None:
        self._zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.sizes: Int64s = np.ones(len(numbers), np.int64)
        for shift in range(7, 64, 7):
            longer = self._zigzag >= np.uint64(1 << shift)
            if not longer.any():
                break
            self.sizes += longer

    def write(self, out: Bytes, places: Int64s) -> None:
        """Write each number at its place."""
        rest = self._zigzag
        rows: slice | Int64s = slice(None)
        for nth in range(int(self.sizes.max())):
            if nth:
                rows = np.flatnonzero(self.sizes > nth)
                rest = self._zigzag[rows] >> np.uint64(7 * nth)
            more = (self.sizes[rows] > nth + 1).astype(np.uint8) << np.uint8(7)
            out[places[rows] + nth] = (rest & np.uint64(0x7F)).astype(np.uint8) | more


def _interleaved(columns: Sequence[_Varints]) -> pa.Array:
    """Return the numbers of each record as one byte string."""
    sizes = np.sum([column.sizes for column in columns], axis=0)
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    out: Bytes = np.empty(int(bounds[-1]), np.uint8)
    places = bounds[:-1].astype(np.int64)
    for column in columns:
        column.write(out, places)
        places += column.sizes
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _without_nulls(array: pa.Array) -> tuple[pa.Array, Int64s]:
    """Return the strings, empty for a null, and their encoded lengths, -1 for a null."""
    if not array.null_count:
        return array, _lengths(array)
    filled = array.fill_null(b"")
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    return filled, np.where(is_null, -1, _lengths(filled))


def string_places(array: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    """Return a binary array's bytes, and each string's start and length, undefined for nulls."""
    _validity, bounds, content = array.buffers()
    places = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
    octets = np.frombuffer(content if content is not None else b"", np.uint8)
    starts = places[:-1].astype(np.int64)
    return octets, starts, places[1:] - starts


def _lengths(array: pa.Array) -> Int64s:
    return string_places(array)[2]


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    octets = bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    octets.append(rest)
    return bytes(octets)
