"""Records to batches of magic 2; Kafka's `MemoryRecordsBuilder`.

`build_batch` is the fast path for new records; columns are faster still. `encode_batch` writes
records under a given header, including delete horizon, control bit and offset gaps, for compaction
and markers. `recompress_batch` changes only the codec.

A record that has a value and nothing else, no key, no headers, and the same time as all others, is
its value in a frame that only the length of the value and the offset delta decide. Frames come from
tables and one `join` copies everything, so no code runs per record; the compiled codec takes half
as long again, most of it for the checksum, which `stamp_crc` computes faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, repeat
from typing import Final, TypeAlias, cast

from engine.errors import InvalidRequestValue
from engine.records.batch import BatchView, stamp_crc, stamp_offset_and_epoch
from engine.records.compiled import CompiledBuilder, new_builder
from engine.records.compression import DEFAULT_DECOMPRESSED_LIMIT_BYTES, compress
from engine.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Codec,
    TimestampType,
    pack_header,
    parse_header,
)
from engine.records.record import Headers, Record, encode_record
from engine.records.varint import encode_varint, size_of_varint
from engine.types import (
    INT32_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
)

MIN_RECORDS: Final = 32
"""For fewer, tables are not faster."""

_ONE_BYTE_DELTAS: Final = 1 << 6
MAX_RECORDS: Final = 1 << 13
"""The offset deltas of more records take three bytes."""

MAX_VALUE_BYTES: Final = 1 << 12
"""Larger values would fill the tables; their frames cost little beside them."""

_NO_KEY: Final = encode_varint(-1)
_NO_HEADERS: Final = encode_varint(0)
_NO_ATTRIBUTES: Final = b"\0"
_NO_TIME_DELTA: Final = encode_varint(0)
_PIECES: Final = 4
"""Of each record: the frame before the offset delta, the delta, the frame after it, the value."""


Producer: TypeAlias = tuple[int, int, int, bool]
"""Producer id, epoch and base sequence, and whether it is a transaction."""


class _Before(dict[int, bytes]):
    """By the length of a value, the bytes before an offset delta, after the record before."""

    def __init__(self, delta_bytes: int) -> None:
        super().__init__()
        fixed = (_NO_ATTRIBUTES, _NO_TIME_DELTA, _NO_KEY, _NO_HEADERS)
        self._fixed_bytes = sum(map(len, fixed)) + delta_bytes

    def __missing__(self, value_bytes: int) -> bytes:
        size_bytes = self._fixed_bytes + size_of_varint(value_bytes) + value_bytes
        before = _NO_HEADERS + encode_varint(size_bytes) + _NO_ATTRIBUTES + _NO_TIME_DELTA
        self[value_bytes] = before
        return before


class _After(dict[int, bytes]):
    """By the length of a value, the bytes between an offset delta and the value."""

    def __missing__(self, value_bytes: int) -> bytes:
        after = self[value_bytes] = _NO_KEY + encode_varint(value_bytes)
        return after


_DELTAS: Final = [
    *(encode_varint(delta) for delta in range(_ONE_BYTE_DELTAS)),
    *(
        bytes((2 * delta & 0x7F | 0x80, 2 * delta >> 7))
        for delta in range(_ONE_BYTE_DELTAS, MAX_RECORDS)
    ),
]
_BEFORE: Final = (_Before(1), _Before(2))
_AFTER: Final = _After()


def build_keyless(
    values: Sequence[Buffer | None],
    timestamp: int,
    producer: Producer,
) -> bytearray | None:
    """Return an uncompressed batch of records with these values and this time, from offset 0.

    None unless tables can encode them: a null, a large value, too few or too many records.
    """
    producer_id, producer_epoch, base_sequence, is_transactional = producer
    count = len(values)
    if not MIN_RECORDS <= count <= MAX_RECORDS:
        return None
    try:
        lengths = list(map(len, values))  # type: ignore[arg-type]  # a null is a TypeError
    except TypeError:
        return None
    distinct = set(lengths)
    if max(distinct) > MAX_VALUE_BYTES:
        return None
    pieces = _pieces(cast("Sequence[Buffer]", values), lengths, is_uniform=len(distinct) == 1)
    batch = bytearray().join(pieces)
    batch[:HEADER_BYTES] = pack_header(
        BatchHeader(
            base_offset=0,
            length=len(batch) - LOG_OVERHEAD_BYTES,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_2,
            crc=0,
            attributes=TRANSACTIONAL_MASK if is_transactional else 0,
            last_offset_delta=count - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            records_count=count,
        )
    )
    stamp_crc(batch, 0, len(batch))
    return batch


def _pieces(values: Sequence[Buffer], lengths: list[int], *, is_uniform: bool) -> list[Buffer]:
    """Return what a batch is joined from, with room for its header."""
    count = len(values)
    few, many = lengths[:_ONE_BYTE_DELTAS], lengths[_ONE_BYTE_DELTAS:]
    if is_uniform:
        length = lengths[0]
        before = [_BEFORE[0][length]] * len(few) + [_BEFORE[1][length]] * len(many)
        after = [_AFTER[length]] * count
    else:
        before = [*map(_BEFORE[0].__getitem__, few), *map(_BEFORE[1].__getitem__, many)]
        after = [*map(_AFTER.__getitem__, lengths)]
    pieces: list[Buffer] = [_NO_HEADERS] * (_PIECES * count + 1)
    pieces[0:-1:_PIECES] = before
    pieces[1:-1:_PIECES] = _DELTAS[:count]
    pieces[2:-1:_PIECES] = after
    pieces[3:-1:_PIECES] = values
    pieces[0] = bytes(HEADER_BYTES) + before[0][len(_NO_HEADERS) :]  # no record before it
    return pieces


NewRecord: TypeAlias = tuple[int, Buffer | None, Buffer | None, Headers]
"""A record without an offset: timestamp in ms or -1, key, value, headers."""

HeaderList: TypeAlias = list[tuple[str, bytes | None]]
"""The headers of a record as the compiled builder takes them."""


class RecordColumns:
    """At least one new record, all with a time, as a column for every field.

    The column of headers has a list for each record; records may share a list. None means no
    headers.
    """

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(
        self,
        timestamps: Sequence[int],
        keys: Sequence[Buffer | None],
        values: Sequence[Buffer | None],
        headers: Sequence[HeaderList] | None = None,
    ) -> None:
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.headers = headers

    @classmethod
    def of(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """Return the records of all parts, in order."""
        headers: list[HeaderList] | None = None
        if any(part.headers is not None for part in parts):
            headers = [*chain.from_iterable([part.headers or [[]] * len(part) for part in parts])]
        return cls(
            list(chain.from_iterable([part.timestamps for part in parts])),
            list(chain.from_iterable([part.keys for part in parts])),
            list(chain.from_iterable([part.values for part in parts])),
            headers,
        )

    @property
    def are_keyless(self) -> bool:
        """Whether no record has a key or a header, and all have the same time."""
        count, times = len(self.values), self.timestamps
        return (
            self.headers is None
            and self.keys.count(None) == count
            and times.count(times[0]) == count
        )

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[NewRecord]:
        columns = (self.timestamps, self.keys, self.values)
        if self.headers is None:
            return zip(*columns, repeat(()))
        return zip(*columns, self.headers, strict=True)


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytearray:
    """Return one batch of the records at consecutive offsets; empty bytes for no records.

    The first record's timestamp is the base, the largest the maximum. Raises `InvalidRequestValue`
    for a negative timestamp other than -1, for 2**31 bytes or more, and for inconsistent producer
    fields, as Kafka's builder does on close.
    """
    if is_transactional and producer_id == NO_PRODUCER_ID:
        raise InvalidRequestValue("a transactional batch needs a producer id")
    if producer_id != NO_PRODUCER_ID and (producer_epoch < 0 or base_sequence < 0):
        raise InvalidRequestValue("a producer id needs an epoch and a base sequence")
    producer = producer_id, producer_epoch, base_sequence, is_transactional
    builder = new_builder(*producer)
    if isinstance(records, RecordColumns):
        batch = None
        if records.are_keyless:
            batch = build_keyless(records.values, records.timestamps[0], producer)
        if batch is None:
            batch = _build_columns(builder, records)
    else:
        remaining = iter(records)
        first = next(remaining, None)
        if first is None:
            return bytearray()
        if first[0] == NO_TIMESTAMP:  # the compiled builder reads it as "no record yet"
            batch = _build_untimed(builder, [first, *remaining])
        else:
            batch = _build_all(builder, chain((first,), remaining))
    if codec is Codec.NONE and timestamp_type is TimestampType.CREATE_TIME:
        if base_offset or leader_epoch != NO_LEADER_EPOCH:  # else the builder has written both
            stamp_offset_and_epoch(batch, 0, base_offset, leader_epoch)
        return batch
    header = parse_header(batch)
    attributes = header.attributes | codec
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_MASK
    return _assemble(
        header._replace(base_offset=base_offset, leader_epoch=leader_epoch, attributes=attributes),
        compress(codec, memoryview(batch)[HEADER_BYTES:], level),
    )


def encode_batch(
    header: BatchHeader, records: Iterable[Record], *, level: int | None = None
) -> bytearray:
    """Return a batch of exactly these records, with a header like the given one.

    Length, checksum and count are computed; every other field stays. So offsets may have gaps, and
    times are relative to the base timestamp, even if that is a delete horizon. Raises
    `InvalidRequestValue` if the offsets do not ascend within the header's range.
    """
    parts = []
    lowest = header.base_offset
    for record in records:
        if not lowest <= record.offset <= header.last_offset:
            raise InvalidRequestValue(
                f"offset {record.offset} does not ascend from {lowest} to {header.last_offset}"
            )
        lowest = record.offset + 1
        parts.append(
            encode_record(
                record.offset - header.base_offset,
                record.timestamp - header.base_timestamp,
                record.key,
                record.value,
                record.headers,
            )
        )
    payload = compress(header.codec, b"".join(parts), level) if parts else b""
    return _assemble(header._replace(records_count=len(parts)), payload)


def recompress_batch(
    batch: BatchView,
    codec: Codec,
    *,
    level: int | None = None,
    limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
) -> bytearray:
    """Return the same batch with another codec or compression level.

    Raises as `BatchView.uncompressed`.
    """
    payload = compress(codec, batch.uncompressed(limit_bytes=limit_bytes), level)
    attributes = batch.header.attributes & ~CODEC_MASK | codec
    return _assemble(batch.header._replace(attributes=attributes), payload)


def _build_all(builder: CompiledBuilder, records: Iterable[NewRecord]) -> bytearray:
    """Encode the records one by one; this loop dominates the cost of building a batch."""
    append = builder.append
    for delta, (timestamp, key, value, headers) in enumerate(records):
        if timestamp < NO_TIMESTAMP:
            raise InvalidRequestValue(f"timestamp {timestamp} is negative and not -1")
        append(delta, timestamp, key, value, headers if type(headers) is list else list(headers))
    _ensure_size(builder.size())
    return builder.build()


def _build_columns(builder: CompiledBuilder, records: RecordColumns) -> bytearray:
    """Encode the records without a Python loop, which would take half as long again."""
    columns = (records.timestamps, records.keys, records.values)
    headers: Iterable[HeaderList] = repeat([]) if records.headers is None else records.headers
    deque(map(builder.append, count(), *columns, headers), maxlen=0)
    _ensure_size(builder.size())
    return builder.build()


def _build_untimed(builder: CompiledBuilder, records: Sequence[NewRecord]) -> bytearray:
    """Encode records whose first timestamp is missing: all deltas are relative to -1."""
    header = parse_header(_build_all(builder, records))
    max_timestamp = max(timestamp for timestamp, *_ in records)
    return encode_batch(
        header._replace(base_timestamp=NO_TIMESTAMP, max_timestamp=max_timestamp),
        (
            Record(offset, timestamp, _to_bytes(key), _to_bytes(value), headers)
            for offset, (timestamp, key, value, headers) in enumerate(records)
        ),
    )


def _to_bytes(content: Buffer | None) -> bytes | None:
    return None if content is None else bytes(content)


def _assemble(header: BatchHeader, payload: Buffer) -> bytearray:
    """Return header and payload as one batch, with the correct length and checksum."""
    size_bytes = HEADER_BYTES + len(payload)
    _ensure_size(size_bytes)
    batch = bytearray(size_bytes)
    batch[:HEADER_BYTES] = pack_header(header._replace(length=size_bytes - LOG_OVERHEAD_BYTES))
    batch[HEADER_BYTES:] = payload
    stamp_crc(batch, 0, size_bytes)
    return batch


def _ensure_size(size_bytes: int) -> None:
    """Raise if the size does not fit into the length field."""
    if size_bytes - LOG_OVERHEAD_BYTES > INT32_MAX:
        raise InvalidRequestValue(f"{size_bytes} bytes are too many for one batch")
