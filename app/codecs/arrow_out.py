"""Stored batches to an Arrow IPC stream, which DuckDB, Polars and pandas read directly.

PyArrow is an extra (`tidelog[arrow]`) and large: the first answer that needs it imports it, on a
worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Final, NamedTuple

from app.codecs.stored import StoredRecords, View
from engine.records.header import Codec
from engine.records.parts import Records
from engine.records.record import Headers
from engine.records.scan import iter_headers
from engine.types import Buffer

BATCH_ROWS: Final = 4_096
"""Rows of one Arrow batch: readers process a batch at a time."""

ROW_BYTES: Final = 32
"""Bytes of a row besides its key, value and headers: two numbers and four positions."""

HEADER_BYTES: Final = 9
"""Bytes of a header besides its name and value: two positions and a null bit."""

BATCH_BYTES: Final = 2_048
"""Upper bound for the bytes of an Arrow batch besides its rows: description and padding."""

STREAM_BYTES: Final = 2_048
"""Upper bound for the bytes of a stream besides its batches: schema and end."""

SHORTEST_RECORD_BYTES: Final = 7
"""Stored bytes of a record without key, value and headers: the ratio to a row is largest for it, if
it is not compressed."""

ARROW_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an IPC stream."""

_TIMESTAMP: Final = attrgetter("timestamp")
_KEY: Final = attrgetter("key")
_VALUE: Final = attrgetter("value")
_HEADERS: Final = attrgetter("headers")


@cache
def has_arrow() -> bool:
    """Whether Arrow streams are available; looks for PyArrow without importing it."""
    return find_spec("pyarrow") is not None


class Columns(NamedTuple):
    """Records as an Arrow IPC stream, and the next offset if not all fit."""

    body: memoryview
    next_offset: int | None
    stopped_by: str
    """As in `Rendered`."""


def arrow_stream(data: Buffer, view: View) -> Columns:
    """Return the records that the view wants as a stream.

    It never exceeds `max_answer_bytes`, except for a single record. The first call blocks for the
    import. Raises as `StoredRecords`, and RecordTooLarge.
    """
    stored = StoredRecords(data, view)
    table = _Table()
    is_measured = _may_pass(data, view.max_answer_bytes)
    for _, records in stored:
        size_bytes = _rows_bytes(records) if is_measured else 0
        if table.size_bytes + size_bytes <= view.max_answer_bytes:
            table.add(records, size_bytes)
            continue
        for index, record in enumerate(records):
            size_bytes = _rows_bytes([record])
            if not stored.has_room(record, size_bytes, table.size_bytes, len(records) - index):
                break
            table.add([record], size_bytes)
    return Columns(table.close(), stored.stopped_at, stored.stopped_by)


def arrow_part(stream: Buffer, *, is_first: bool) -> memoryview:
    """Return one part of a longer stream; the part with `is_first` begins it.

    Consecutive parts and `ARROW_END` are one stream: only the first has the schema.
    """
    body = memoryview(stream)[: -len(ARROW_END)]
    return body if is_first else body[_schema().serialize().size :]


@cache
def _schema() -> Any:  # noqa: ANN401  # PyArrow has no types
    """Return the names and types of the columns."""
    import pyarrow as pa  # noqa: PLC0415  # an extra, loaded on demand

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header)),
        ]
    )


def _may_pass(data: Buffer, max_answer_bytes: int) -> bool:
    """Whether rows have to be measured, a tenth of the cost: not for short reads."""
    most_bytes = len(data) // SHORTEST_RECORD_BYTES * (ROW_BYTES + BATCH_BYTES // BATCH_ROWS)
    if STREAM_BYTES + BATCH_BYTES + most_bytes + len(data) >= max_answer_bytes:
        return True
    return any(header.codec is not Codec.NONE for _, header in iter_headers(data))


class _Table:
    """Collects columns, and writes them one batch at a time."""

    def __init__(self) -> None:
        import pyarrow as pa  # noqa: PLC0415  # an extra, loaded on demand

        self._schema = _schema()
        self._pa: Any = pa
        pa.set_memory_pool(
            pa.system_memory_pool()
        )  # large blocks return to the system: see `app.server.process`
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        self.size_bytes = STREAM_BYTES + BATCH_BYTES
        """Upper bound for the stream's size, if its rows were measured."""
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [])

    def add(self, records: Records, size_bytes: int = 0) -> None:
        """Add records of this size as rows."""
        self.size_bytes += size_bytes
        headers: Sequence[Headers] = list(map(_HEADERS, records))
        if not any(headers):
            headers = [()] * len(records)
        keys, values = map(_KEY, records), map(_VALUE, records)
        timestamps = map(_TIMESTAMP, records)
        parts: Sequence[Iterable[Any]] = (_offsets(records), timestamps, keys, values, headers)
        for column, part in zip(self._columns, parts, strict=True):
            column.extend(part)
        if len(self._columns[0]) >= BATCH_ROWS:
            self._write()
            self.size_bytes += BATCH_BYTES

    def close(self) -> memoryview:
        """Write the remaining rows, and return the whole stream."""
        if self._columns[0]:
            self._write()
        self._writer.close()
        return memoryview(self._sink.getvalue())

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
        """Return this many empty lists, positions all 0: most logs have no headers."""
        pa, lists = self._pa, self._schema.types[4]
        bounds = pa.py_buffer(bytes(4 * (rows + 1)))
        nothing = pa.array([], lists.value_type)
        return pa.Array.from_buffers(lists, rows, [None, bounds], children=[nothing])


def _offsets(records: Records) -> Sequence[int]:
    """Return the offsets; they ascend, so two of them show whether there are gaps."""
    first = records[0].offset
    if records[-1].offset - first == len(records) - 1:
        return range(first, first + len(records))
    return [record.offset for record in records]


def _rows_bytes(records: Records) -> int:
    """Return an upper bound for the bytes of the rows."""
    size_bytes = len(records) * ROW_BYTES
    size_bytes += sum(map(len, filter(None, map(_KEY, records))))
    size_bytes += sum(map(len, filter(None, map(_VALUE, records))))
    return size_bytes + sum(map(_headers_bytes, filter(None, map(_HEADERS, records))))


def _headers_bytes(headers: Headers) -> int:
    content_bytes = sum(len(name.encode()) + len(value or b"") for name, value in headers)
    return len(headers) * HEADER_BYTES + content_bytes
