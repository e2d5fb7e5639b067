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
import crc32c
import numpy as np
import pyarrow as pa

from pyspark_tidelog.batches import ATTRIBUTES_POSITION, HEADER, LOG_OVERHEAD_BYTES
from pyspark_tidelog.errors import TidelogError
from pyspark_tidelog.records import Bytes, Int64s

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
    crc = crc32c.crc32c(bytes(memoryview(batch)[ATTRIBUTES_POSITION:]))
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
    count = len(records)
    keys, values = _strings(records.keys), _strings(records.values)
    tails = _tails(records.headers, count)
    fields: list[_Varints | _Strings] = [
        _Varints(records.timestamps - records.timestamps[0]),
        _Varints(np.arange(count, dtype=np.int64)),
        _Varints(keys.announced),
        keys,
        _Varints(values.announced),
        values,
        tails,
    ]
    bodies = np.sum([field.sizes for field in fields], axis=0) + 1  # the attributes, always 0
    lengths = _Varints(bodies)
    ends = np.cumsum(lengths.sizes + bodies)
    out: Bytes = np.zeros(int(ends[-1]), np.uint8)
    places = ends - bodies - lengths.sizes
    lengths.write(out, places)
    places = places + lengths.sizes + 1
    for field in fields:
        field.write(out, places)
        places = places + field.sizes
    return out.tobytes()


class _Varints:
    """One signed number a record, written as a zigzag varint."""

    def __init__(self, numbers: Int64s) -> None:
        self._zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.sizes: Int64s = np.ones(len(numbers), np.int64)
        for shift in range(7, 64, 7):
            longer = self._zigzag >= np.uint64(1 << shift)
            if not longer.any():
                break
            self.sizes += longer

    def write(self, out: Bytes, places: Int64s) -> None:
        for nth in range(int(self.sizes.max())):
            rows = np.flatnonzero(self.sizes > nth)
            octets = (self._zigzag[rows] >> np.uint64(7 * nth)) & np.uint64(0x7F)
            octets |= np.where(self.sizes[rows] > nth + 1, 0x80, 0).astype(np.uint64)
            out[places[rows] + nth] = octets.astype(np.uint8)


class _Strings:
    """One byte string a record, copied; of a null nothing."""

    def __init__(self, octets: Bytes, starts: Int64s, sizes: Int64s, announced: Int64s) -> None:
        self._octets = octets
        self._starts = starts
        self.sizes = sizes
        self.announced = announced
        """The lengths that stand before the strings: -1 for a null."""

    def write(self, out: Bytes, places: Int64s) -> None:
        total = int(self.sizes.sum())
        before = np.cumsum(self.sizes) - self.sizes
        steps = np.arange(total)
        out[np.repeat(places - before, self.sizes) + steps] = self._octets[
            np.repeat(self._starts - before, self.sizes) + steps
        ]


def _strings(array: pa.Array) -> _Strings:
    octets, starts, lengths = string_places(array)
    announced = lengths.copy()
    if array.null_count:
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        lengths = np.where(is_null, 0, lengths)
        announced = np.where(is_null, -1, announced)
    return _Strings(octets, starts, lengths, announced)


def _tails(headers: Sequence[bytes] | None, count: int) -> _Strings:
    if headers is None:
        octets = np.frombuffer(_NO_HEADERS, np.uint8)
        starts, sizes = np.zeros(count, np.int64), np.ones(count, np.int64)
    else:
        octets = np.frombuffer(b"".join(headers), np.uint8)
        sizes = np.array([len(one) for one in headers], np.int64)
        starts = np.cumsum(sizes) - sizes
    return _Strings(octets, starts, sizes, sizes)


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
