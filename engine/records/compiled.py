"""The compiled record codec of `aiokafka.record`, made safe; the one place that names the library.

It decodes and encodes records several times faster than Python can, but trusts its input more than
a server may: a number that runs over the end is read past it, lengths are 64 bits wide, header
names must be UTF-8, and a first timestamp of -1 is taken for none. Hence it only ever sees
uncompressed bytes in memory that goes on behind them, and whoever uses it asks `record`, the
referee, before believing or refusing what the two see differently.
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
"""What iteration raises on wrong bytes; the memory error is that of a length close to 2**63."""

_INT32: Final = struct.Struct(">i")
_FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1  # the low byte of the attributes
_WITHOUT_CODEC: Final = tuple(bytes([flags & ~CODEC_MASK]) for flags in range(256))
_PADDING: Final = bytes(64)
"""Zeros behind the records: they end any number that is read past the end, 20 bytes at most."""


SizeOf: TypeAlias = Callable[
    [int, int, Buffer | None, Buffer | None, list[tuple[str, bytes | None]]], int
]


class CompiledRecord(Protocol):
    """What iteration yields: an object with the attributes of `Record`."""

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
    """What encodes: records go in one by one, a whole batch of magic 2 comes out."""

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
    """Yield so many records from a batch's header and its uncompressed payload, or a part of it.

    Raises one of `DECODING_ERRORS` where the bytes are not as the library wants them, possibly
    after some records; the last check, for bytes left over, comes with the end of the iteration.
    """
    if records_count < 0:  # which the library takes for none
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
    """Return what computes the bytes a record takes, length included, in a batch of that base.

    Its arguments are those of `CompiledBuilder.append`. `base_timestamp` must not be negative.
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
    """Return a builder of an uncompressed batch, of any size; offsets given to it are deltas."""
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
