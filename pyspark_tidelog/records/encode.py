"""Records into transactional record batches v2, column by column: the decoder's counterpart.

A record is a chain of zigzag varints and byte strings (see `records`). Sizes and places of all
fields of all records are computed first, then every field is written for all records at once: no
Python object is made for a key or a value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_tidelog.errors import TidelogError
from pyspark_tidelog.records.batches import ATTRIBUTES_POSITION, HEADER, LOG_OVERHEAD_BYTES
from pyspark_tidelog.records.checksums import crc32c
from pyspark_tidelog.records.varints import Bytes, Int64s

TRANSACTIONAL_MASK: Final = 0x10

# The service and every broker take batches of 1 MiB unless told otherwise; a record more than fits
# here is a batch of its own.
TARGET_BATCH_BYTES: Final = 512 << 10
_RECORD_OVERHEAD_BYTES: Final = 24

_NO_HEADERS: Final = b"\x00"

_COMPRESSORS: Final[Mapping[str, tuple[int, Callable[[bytes], Any] | None]]] = {
    "none": (0, None),
    "gzip": (1, cramjam.gzip.compress),
    "lz4": (3, cramjam.lz4.compress),
    "zstd": (4, cramjam.zstd.compress),
}
CODECS: Final = tuple(_COMPRESSORS)


class Producer(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of equal length, of one partition."""

    keys: pa.Array
    """Binary, as values are; a null is a null."""
    values: pa.Array
    timestamps: Int64s
    """Milliseconds."""
    headers: Sequence[bytes] | None = None
    """Encoded by `encode_headers`; None where no record has any."""

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, rows: Int64s) -> Records:
        """Return some of the records, in the order of `rows`."""
        indices = pa.array(rows)
        return Records(
            self.keys.take(indices),
            self.values.take(indices),
            self.timestamps[rows],
            None if self.headers is None else [self.headers[row] for row in rows],
        )

    def slice(self, start: int, end: int) -> Records:
        """Return the records from `start` up to `end`, without a copy."""
        return Records(
            self.keys.slice(start, end - start),
            self.values.slice(start, end - start),
            self.timestamps[start:end],
            None if self.headers is None else self.headers[start:end],
        )


def in_batches(records: Records, target_bytes: int = TARGET_BATCH_BYTES) -> list[Records]:
    """Cut records where a batch is full; one that is larger than a batch stands alone."""
    sizes = _lengths(records.keys) + _lengths(records.values) + _RECORD_OVERHEAD_BYTES
    if records.headers is not None:
        sizes = sizes + np.array([len(one) for one in records.headers], np.int64)
    ends = np.cumsum(sizes)
    parts: list[Records] = []
    start = 0
    while start < len(records):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + target_bytes, side="right"))
        end = max(end, start + 1)
        parts.append(records.slice(start, end))
        start = end
    return parts


def encode_batch(
    records: Records, producer: Producer, *, base_sequence: int, codec: str = "none"
) -> bytes:
    """Return one batch of a transaction; the log gives it its offset when it is appended."""
    number, compress = _COMPRESSORS[codec]
    payload = _encode_records(records)
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
        int(records.timestamps[0]),
        int(records.timestamps.max()),
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
    """Return a record's headers as they stand at its end; raises TidelogError for a null key."""
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


def _encode_records(records: Records) -> bytes:
    """Return the records one after the other: numbers by NumPy, bytes between them by Arrow."""
    count = len(records)
    keys, key_lengths = _announced(records.keys)
    values, value_lengths = _announced(records.values)
    times = _Varints(records.timestamps - records.timestamps[0])
    offsets = _Varints(np.arange(count, dtype=np.int64))
    before_key, before_value = _Varints(key_lengths), _Varints(value_lengths)
    attributes = _Varints(np.zeros(count, np.int64))
    tails, tail_bytes = _tails(records.headers)
    numbers = (attributes, times, offsets, before_key, before_value)
    bodies = sum((one.sizes for one in numbers), _lengths(keys) + _lengths(values) + tail_bytes)
    head = _interleaved((_Varints(bodies), attributes, times, offsets, before_key))
    middle = _interleaved((before_value,))
    joined = pc.binary_join_element_wise(head, keys, middle, values, tails, b"")
    octets, starts, lengths = string_places(joined)
    return octets[starts[0] : starts[-1] + lengths[-1]].tobytes()


class _Varints:
    """One signed number a record, as a zigzag varint."""

    def __init__(self, numbers: Int64s) -> None:
        self._zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.sizes: Int64s = np.ones(len(numbers), np.int64)
        for shift in range(7, 64, 7):
            longer = self._zigzag >= np.uint64(1 << shift)
            if not longer.any():
                break
            self.sizes += longer

    def write(self, out: Bytes, places: Int64s) -> None:
        """Write each number at its place; all take one byte, few take more."""
        rest = self._zigzag
        rows: slice | Int64s = slice(None)
        for nth in range(int(self.sizes.max())):
            if nth:
                rows = np.flatnonzero(self.sizes > nth)
                rest = self._zigzag[rows] >> np.uint64(7 * nth)
            more = (self.sizes[rows] > nth + 1).astype(np.uint8) << np.uint8(7)
            out[places[rows] + nth] = (rest & np.uint64(0x7F)).astype(np.uint8) | more


def _interleaved(columns: Sequence[_Varints]) -> pa.Array:
    """Return the numbers of each record behind each other, as one byte string a record."""
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


def _announced(array: pa.Array) -> tuple[pa.Array, Int64s]:
    """Return the strings, empty for a null, and the lengths to write before them: -1 for a null."""
    if not array.null_count:
        return array, _lengths(array)
    filled = array.fill_null(b"")
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    return filled, np.where(is_null, -1, _lengths(filled))


def _tails(headers: Sequence[bytes] | None) -> tuple[pa.Array | bytes, Int64s | int]:
    """Return what ends each record, and its length: the number of headers and these."""
    if headers is None:
        return _NO_HEADERS, len(_NO_HEADERS)
    return pa.array(headers, pa.binary()), np.array([len(one) for one in headers], np.int64)


def string_places(array: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    """Return the bytes of a binary array, and where in them each string starts and how long it is.

    What a null has there is of no meaning.
    """
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
