"""Stored batches to an Arrow IPC stream: columns that DuckDB, Polars and pandas take as they are.

PyArrow is an extra (`tidelog[arrow]`) and large: it is imported with the first answer that needs
it, on the worker that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Final, NamedTuple

from app.translate.stored import Records, StoredRecords, View
from engine.records.header import Codec
from engine.records.record import Headers
from engine.records.scan import iter_headers
from engine.types import Buffer

BATCH_ROWS: Final = 4_096
"""Rows of one Arrow batch in the stream: readers work on a batch at a time."""

ROW_BYTES: Final = 32
"""What a row takes besides its key, value and headers: two numbers and four positions."""

SHORTEST_RECORD_BYTES: Final = 7
"""Of a record without key, value and headers, as stored; without compression no row is larger than
this makes it."""

_TIMESTAMP: Final = attrgetter("timestamp")
_KEY: Final = attrgetter("key")
_VALUE: Final = attrgetter("value")
_HEADERS: Final = attrgetter("headers")


@cache
def has_arrow() -> bool:
    """Whether Arrow streams can be made here; looks for PyArrow without importing it."""
    return find_spec("pyarrow") is not None


class Columns(NamedTuple):
    """Records as an Arrow IPC stream, and where the next read starts if they did not all fit."""

    body: memoryview
    next_offset: int | None
    stopped_by: str
    """As in `Rendered`."""


def arrow_stream(data: Buffer, view: View) -> Columns:
    """Return the records that the view wants as a stream.

    The record that passes `max_answer_bytes` is the last. Blocks for the import the first time.
    Raises as `StoredRecords`.
    """
    stored = StoredRecords(data, view)
    table = _Table(view.max_answer_bytes if _may_pass(data, view.max_answer_bytes) else None)
    for _, records in stored:
        taken = table.add(records)
        if taken < len(records):
            stored.stop_at(records[taken].offset, len(records) - taken)
            break
    return Columns(table.close(), stored.stopped_at, stored.stopped_by)


def _may_pass(data: Buffer, max_answer_bytes: int) -> bool:
    """Whether rows have to be measured, which takes a tenth of all: not those of a short read."""
    if len(data) // SHORTEST_RECORD_BYTES * ROW_BYTES + len(data) >= max_answer_bytes:
        return True
    return any(header.codec is not Codec.NONE for _, header in iter_headers(data))


class _Table:
    """Collects columns, as far as there is room for them, and writes them a batch at a time."""

    def __init__(self, room_bytes: int | None) -> None:
        import pyarrow as pa  # noqa: PLC0415  # an extra, loaded when somebody wants it

        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        self._schema = pa.schema(
            [
                pa.field("offset", pa.int64()),
                pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
                pa.field("key", pa.binary()),
                pa.field("value", pa.binary()),
                pa.field("headers", pa.list_(header)),
            ]
        )
        self._pa: Any = pa
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        self._room_bytes = room_bytes
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [])

    def add(self, records: Records) -> int:
        """Take the records as far as there is room, and return how many that were."""
        keys = list(map(_KEY, records))
        values = list(map(_VALUE, records))
        headers: Sequence[Headers] = list(map(_HEADERS, records))
        if not any(headers):
            headers = [()] * len(records)
        if self._room_bytes is not None:
            if self._room_bytes <= 0:
                return 0
            size_bytes = len(records) * ROW_BYTES
            size_bytes += sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
            size_bytes += sum(map(_headers_bytes, headers))
            if size_bytes > self._room_bytes and len(records) > 1:
                return self._add_one_by_one(records)
            self._room_bytes -= size_bytes
        timestamps = map(_TIMESTAMP, records)
        parts: Sequence[Iterable[Any]] = (_offsets(records), timestamps, keys, values, headers)
        for column, part in zip(self._columns, parts, strict=True):
            column.extend(part)
        if len(self._columns[0]) >= BATCH_ROWS:
            self._write()
        return len(records)

    def close(self) -> memoryview:
        """Write what is left, and return the whole stream."""
        if self._columns[0]:
            self._write()
        self._writer.close()
        return memoryview(self._sink.getvalue())

    def _add_one_by_one(self, records: Records) -> int:
        for taken in range(len(records)):
            if not self.add(records[taken : taken + 1]):
                return taken
        return len(records)

    def _write(self) -> None:
        array, types = self._pa.array, self._schema.types
        offsets, timestamps, keys, values, headers = self._columns
        arrays = [
            array(offsets, types[0]),
            array(timestamps, types[0]).view(types[1]),
            array(keys, types[2]),
            array(values, types[3]),
            array(headers, types[4]) if any(headers) else self._no_headers(len(headers)),
        ]
        self._writer.write_batch(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        for column in self._columns:
            column.clear()

    def _no_headers(self, rows: int) -> object:
        """Return as many empty lists, all of which begin and end at 0: most logs have no others."""
        pa, lists = self._pa, self._schema.types[4]
        bounds = pa.py_buffer(bytes(4 * (rows + 1)))
        nothing = pa.array([], lists.value_type)
        return pa.Array.from_buffers(lists, rows, [None, bounds], children=[nothing])


def _offsets(records: Records) -> Sequence[int]:
    """Return the offsets; they rise, so two of them tell whether there are gaps."""
    first = records[0].offset
    if records[-1].offset - first == len(records) - 1:
        return range(first, first + len(records))
    return [record.offset for record in records]


def _headers_bytes(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)
