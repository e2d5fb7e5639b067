"""Scans the batches in a buffer: how far they are valid, and why the scan ended.

A torn tail is a result, not an exception, because it is normal after a crash. Damage in a complete
batch is a result too: the caller decides whether to cut, report or refuse.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.errors import CorruptBatch
from engine.records.batch import BatchView
from engine.records.checksum import crc32c
from engine.records.header import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_2,
    MIN_LENGTH_V2,
    BatchHeader,
    frame_size,
    parse_header,
)
from engine.types import INT32_MAX, Buffer

_CHECKED: Final = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes and last offset delta."""

assert struct.calcsize(">qiibIh") == LAST_OFFSET_DELTA_POSITION


@enum.unique
class Tail(enum.Enum):
    """Why a scan ended."""

    CLEAN = "clean"  # the last batch ends exactly where the bytes do
    TORN = "torn"  # the bytes end inside a batch, or in zeros: a crash, not damage
    DAMAGED = "damaged"  # a complete batch, or the start of one, is wrong


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan: `valid_bytes` of complete and valid batches, then the tail."""

    valid_bytes: int
    next_offset: int | None
    """One past the last offset of the last valid batch; None without a valid batch."""
    tail: Tail
    batches_count: int
    reason: str | None = None
    """What is wrong with the tail; None if it is clean."""


def scan_batches(buffer: Buffer, *, limit_bytes: int | None = None) -> Scan:
    """Scan batches of any format from the first byte on.

    A batch is valid if it is complete, has a correct checksum, and begins at or after the end of
    the previous batch; the checksum does not cover the base offset. A batch larger than
    `limit_bytes` counts as damage, even if it is incomplete.
    """
    view = memoryview(buffer)
    size_bytes = len(view)
    last_header = size_bytes - HEADER_BYTES
    longest = (INT32_MAX if limit_bytes is None else limit_bytes) - LOG_OVERHEAD_BYTES
    position = count = next_offset = 0
    tail, reason = Tail.CLEAN, None
    while position < size_bytes:
        if position <= last_header:
            # Every raw read runs this loop, so it only decodes the fields that it needs.
            base_offset, length, _, magic, crc, _, delta = _CHECKED.unpack_from(view, position)
            end = position + LOG_OVERHEAD_BYTES + length
            if (
                magic == MAGIC_2
                and MIN_LENGTH_V2 <= length <= longest
                and end <= size_bytes
                and (base_offset >= next_offset or not count)
                and crc32c(view[position + ATTRIBUTES_POSITION : end]) == crc
            ):
                next_offset = base_offset + delta + 1
                position = end
                count += 1
                continue
        try:
            batch = _whole_batch(view, position, limit_bytes)
            if batch is not None:
                _ensure_good(batch, next_offset if count else None)
        except CorruptBatch as error:
            tail, reason = _judge_tail(view, position, error)
            break
        if batch is None:
            tail, reason = Tail.TORN, f"{size_bytes - position} bytes of an unfinished batch"
            break
        next_offset = batch.header.next_offset
        position += batch.header.size_bytes
        count += 1
    return Scan(position, next_offset if count else None, tail, count, reason)


def iter_headers(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every complete batch from `position` on, without verifying.

    Stops silently at an incomplete batch before `end`; raises `CorruptBatch` as `parse_header`
    where the framing is invalid.
    """
    stop = len(buffer) if end is None else min(end, len(buffer))
    while (left := stop - position) > 0:
        # A header of magic 2 has its size; an incomplete one or an old format may be shorter.
        if left < HEADER_BYTES:
            size = frame_size(buffer, position)
            if size is None or size > left:
                return
        header = parse_header(buffer, position)
        size = header.length + LOG_OVERHEAD_BYTES
        if size > left:
            return
        yield position, header
        position += size


def _whole_batch(buffer: Buffer, position: int, limit_bytes: int | None) -> BatchView | None:
    """Return the batch at `position`, or None if the buffer ends inside it."""
    size = frame_size(buffer, position)
    if size is not None and limit_bytes is not None and size > limit_bytes:
        raise CorruptBatch(f"batch of {size} bytes at {position} exceeds {limit_bytes}")
    if size is None or size > len(buffer) - position:
        return None
    return BatchView(buffer, position)


def _ensure_good(batch: BatchView, next_offset: int | None) -> None:
    """Raise CorruptBatch for a wrong checksum, or if the batch begins below `next_offset`."""
    batch.ensure_intact()
    offset = batch.header.base_offset
    if next_offset is not None and offset < next_offset:
        raise CorruptBatch(f"offset {offset} instead of at least {next_offset}")


def _judge_tail(buffer: Buffer, position: int, error: CorruptBatch) -> tuple[Tail, str]:
    """Distinguish zeros, which a file system leaves for unwritten data, from damage."""
    rest = bytes(memoryview(buffer)[position:])
    if not rest.strip(b"\0"):
        return Tail.TORN, f"{len(rest)} bytes of zeros"
    return Tail.DAMAGED, str(error)
