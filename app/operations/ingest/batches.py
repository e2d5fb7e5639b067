"""Records of one append as batches, none larger than the topic takes.

A sender knows nothing of `max.message.bytes`: ten thousand lines may be more than one batch. All
batches of a request are one append, so all of them are written or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.records.builder import HeaderList, NewRecord, RecordColumns
from engine.records.header import HEADER_BYTES

RECORD_BYTES: Final = 40
"""Most bytes of a record besides its key, value and headers: seven varints and the attributes."""

HEADER_SIZES_BYTES: Final = 10
"""Upper bound of the two length varints of a header."""

_DELIVERY_BYTES: Final = 2 * 1024
"""Room for the headers of a delivery, which are on the first record."""


def header_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return an upper bound of the encoded size of a record's headers."""
    return sum(
        [len(name.encode()) + len(value or b"") + HEADER_SIZES_BYTES for name, value in headers]
    )


def parts_of(
    records: list[NewRecord] | RecordColumns, max_bytes: int
) -> Iterator[list[NewRecord] | RecordColumns]:
    """Yield the records in parts of at most `max_bytes` as a batch; a larger record goes alone."""
    room = max_bytes - HEADER_BYTES - _DELIVERY_BYTES
    if len(records) == 1 or _total(records) <= room:
        yield records
        return
    sizes = _sizes(records)
    start, used = 0, 0
    for index, size in enumerate(sizes):
        if used + size > room and index > start:
            yield _slice(records, start, index)
            start, used = index, 0
        used += size
    yield _slice(records, start, len(sizes))


def _total(records: list[NewRecord] | RecordColumns) -> int:
    """Return the sum of `_sizes`; of columns without a step of Python for each record."""
    if not isinstance(records, RecordColumns):
        return sum(_sizes(records))
    data = sum(map(len, filter(None, records.values))) + sum(map(len, filter(None, records.keys)))
    return data + len(records) * _fixed_bytes(records)


def _fixed_bytes(records: RecordColumns) -> int:
    """Return the most bytes of each record besides its key and value.

    Lines and elements have the same headers; those of a delivery have room of their own.
    """
    return RECORD_BYTES + (header_bytes(records.headers[-1]) if records.headers else 0)


def _sizes(records: list[NewRecord] | RecordColumns) -> list[int]:
    if isinstance(records, RecordColumns):
        fixed = _fixed_bytes(records)
        pairs = zip(records.keys, records.values, strict=True)
        return [fixed + len(key or b"") + len(value or b"") for key, value in pairs]
    return [
        RECORD_BYTES + len(key or b"") + len(value or b"") + header_bytes(headers)
        for _, key, value, headers in records
    ]


def _slice(
    records: list[NewRecord] | RecordColumns, start: int, end: int
) -> list[NewRecord] | RecordColumns:
    if not isinstance(records, RecordColumns):
        return records[start:end]
    headers: Sequence[HeaderList] | None = records.headers
    return RecordColumns(
        records.timestamps[start:end],
        records.keys[start:end],
        records.values[start:end],
        None if headers is None else headers[start:end],
    )
