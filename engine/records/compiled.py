"""The compiled record codec of `aiokafka.record`, made safe; the one place that names the library.

It decodes and encodes records several times faster than Python code, but trusts its input more than
a server may: it reads a number past the end of the buffer, accepts lengths of 64 bits, requires
header names in UTF-8, and reads a first timestamp of -1 as missing. So it only gets uncompressed
bytes in memory with padding after them. Callers must let `record` decide where the two decoders
differ.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias, cast

from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records

from engine.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    MAGIC_2,
    RECORDS_COUNT_POSITION,
    Codec,
)
from engine.types import INT64_MAX, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer

DECODING_ERRORS: Final = (CorruptRecordException, UnicodeDecodeError, OverflowError, MemoryError)
"""The errors of iteration over malformed bytes; MemoryError for a length near 2**63."""

_INT32: Final = struct.Struct(">i")
_FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1  # the low byte of the attributes
_WITHOUT_CODEC: Final = tuple(bytes([flags & ~CODEC_MASK]) for flags in range(256))
_PADDING: Final = bytes(64)
"""Zeros after the records, which end any number that is read past the end, at most 20 bytes."""


SizeOf: TypeAlias = Callable[
    [int, int, Buffer | None, Buffer | None, list[tuple[str, bytes | None]]], int
]


class CompiledRecord(Protocol):
    """A record of the compiled decoder, with the attributes of `Record`."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


class CompiledBuilder(Protocol):
    """The compiled encoder: takes records one by one, builds a batch of magic 2."""

    def append(
        self,
        offset: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: list[tuple[str, bytes | None]],
        /,
    ) -> object: ...
    def size(self) -> int: ...
    def size_in_bytes(
        self,
        offset: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: list[tuple[str, bytes | None]],
        /,
    ) -> int: ...
    def build(self) -> bytearray: ...


def iterate(batch: Buffer, payload: Buffer, records_count: int) -> Iterator[CompiledRecord]:
    """Yield `records_count` records of a batch, from its uncompressed payload or a part of it.

    Raises one of `DECODING_ERRORS` where the library rejects the bytes, possibly after some
    records; the check for trailing bytes is made at the end of the iteration.
    """
    if records_count < 0:  # the library reads it as 0
        raise CorruptRecordException(f"{records_count} records")
    image = b"".join(
        (
            batch[:_FLAGS_POSITION],
            _WITHOUT_CODEC[batch[_FLAGS_POSITION]],
            batch[_FLAGS_POSITION + 1 : RECORDS_COUNT_POSITION],
            _INT32.pack(records_count),
            payload,
            _PADDING,
        )
    )
    view = memoryview(image)[: len(image) - len(_PADDING)]
    return cast("Iterator[CompiledRecord]", iter(default_records.DefaultRecordBatch(view)))


def sizes_from(base_timestamp: int) -> SizeOf:
    """Return a function for the encoded size of a record, length included.

    The function takes the arguments of `CompiledBuilder.append`. `base_timestamp`, that of the
    batch, must not be negative.
    """
    builder = new_builder()
    builder.append(0, base_timestamp, None, None, [])
    return builder.size_in_bytes


def new_builder(
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,  # noqa: FBT001, FBT002 - called for every small append
) -> CompiledBuilder:
    """Return a builder of an uncompressed batch of any size; it takes offset deltas."""
    builder: CompiledBuilder = default_records.DefaultRecordBatchBuilder(
        MAGIC_2,
        Codec.NONE,
        is_transactional,
        producer_id,
        producer_epoch,
        base_sequence,
        INT64_MAX,
    )
    return builder
