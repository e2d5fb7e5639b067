"""What a test asks of a log: its records, its bytes, and a small log with several segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from engine.config import LogConfig
from engine.log.log import Log
from engine.records.batch import BatchView
from engine.records.header import BatchHeader
from engine.records.record import Record
from engine.records.scan import iter_headers
from engine.types import Buffer, FetchIsolation, TopicPartition
from tests.support.builders import DATA, EVENTS, values_of
from tests.support.time import START_MS

ALL_BYTES = 1 << 30

Records = dict[int, bytes | None]
"""Values by offset."""

CONFIG = LogConfig(
    segment_bytes=1 << 20, segment_index_bytes=1200, index_interval_bytes=200, retention_ms=-1
)
"""Indexes of a hundred entries, so that a disk in memory stays quick; nothing expires."""

DIRECTORY = DATA / "events-0"
"""Where the log of `builders.EVENTS` lies."""


def with_config(**settings: object) -> LogConfig:
    return replace(CONFIG, **settings)  # type: ignore[arg-type]  # a test names fields and values


def batches_in(data: Buffer) -> Iterator[BatchView]:
    """Yield the batches of what a read returned; it must be whole batches."""
    end = 0
    for position, header in iter_headers(data):
        yield BatchView(data, position)
        end = position + header.size_bytes
    assert end == len(data), "a read returned a part of a batch"


@lru_cache(maxsize=1_000)
def values_in(batches: bytes) -> Records:
    """Return the records' values; kept, since the same bytes are asked for again and again."""
    return {one.offset: one.value for batch in batches_in(batches) for one in batch.records()}


def read_pieces(
    log: Log,
    offset: int | None = None,
    *,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    max_bytes: int = ALL_BYTES,
) -> Iterator[Buffer]:
    """Read on from `offset`, default the log start, until there is nothing more."""
    at = log.watermarks.log_start_offset if offset is None else offset
    while True:
        fetched = log.reader.read(at, max_bytes=max_bytes, isolation=isolation)
        assert fetched is not None
        if fetched.next_offset == at:
            assert not fetched.data
            return
        assert fetched.next_offset > at
        yield fetched.data
        at = fetched.next_offset


def read_headers(log: Log, offset: int | None = None) -> list[BatchHeader]:
    """The headers of every visible batch from `offset` on."""
    return [batch.header for data in read_pieces(log, offset) for batch in batches_in(data)]


def read_records(
    log: Log,
    offset: int | None = None,
    *,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    max_bytes: int = ALL_BYTES,
) -> list[Record]:
    """Every visible record from `offset` on, without those of control batches."""
    start = log.watermarks.log_start_offset if offset is None else offset
    return [
        record
        for data in read_pieces(log, start, isolation=isolation, max_bytes=max_bytes)
        for batch in batches_in(data)
        if not batch.header.is_control
        for record in batch.records()
        if record.offset >= start
    ]


def read_values(
    log: Log,
    offset: int | None = None,
    *,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
) -> list[bytes | None]:
    """The values of every visible record from `offset` on."""
    return [record.value for record in read_records(log, offset, isolation=isolation)]


def append_values(log: Log, *values: bytes, timestamp: int = START_MS, **options: object) -> int:
    """Append one batch with these values as a client does; return its base offset."""
    return log.append(values_of(values, timestamp=timestamp, **options)).base_offset


def fill(log: Log, *, batches: int, records: int = 1, first: int = 0) -> list[bytes]:
    """Append numbered records, one batch after another; return their values."""
    numbers = range(first, first + batches * records)
    values = [b"%06d" % number for number in numbers]
    for start in range(0, len(values), records):
        append_values(log, *values[start : start + records])
    return values


def fill_segments(log: Log, *counts: int) -> list[bytes]:
    """Append so many one-record batches to each of several segments; return their values."""
    values: list[bytes] = []
    for index, count in enumerate(counts):
        if index:
            log.roll()
        values += fill(log, batches=count, first=len(values))
    return values


def segment_bases(log: Log) -> list[int]:
    """The base offsets of all segments."""
    return [segment.base_offset for segment in log.reader.segments]


def log_path(base_offset: int = 0, *, suffix: str = ".log", log: TopicPartition = EVENTS) -> Path:
    """The file of one segment in the data directory in memory."""
    return DATA / str(log) / f"{base_offset:020d}{suffix}"
