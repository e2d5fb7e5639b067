"""Stored batches to an Arrow IPC stream, which DuckDB, Polars and pandas read directly.

nanoarrow is an extra (`tidelog[arrow]`): the first answer that needs it imports it, on a worker. It
writes the buffers that are made here; PyArrow would be 170 MB for the same bytes.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate, chain, repeat
from operator import attrgetter, is_not
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

_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")

_TIMESTAMP: Final = attrgetter("timestamp")
_KEY: Final = attrgetter("key")
_VALUE: Final = attrgetter("value")
_HEADERS: Final = attrgetter("headers")


@cache
def has_arrow() -> bool:
    """Whether Arrow streams are available; looks for nanoarrow without importing it."""
    return find_spec("nanoarrow") is not None


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
    return body if is_first else body[_schema_bytes() :]


class _Schema(NamedTuple):
    """The columns and what they are made of; nanoarrow's types."""

    columns: Any
    offset: Any
    timestamp: Any
    binary: Any
    string: Any
    header: Any
    headers: Any


@cache
def _schema() -> _Schema:
    """Return the names and types of the columns."""
    import nanoarrow as na  # noqa: PLC0415  # an extra, loaded on demand

    binary, string = na.binary(), na.string()
    header = na.struct({"key": string, "value": binary})
    columns = {
        "offset": na.int64(),
        "timestamp": na.timestamp("ms", timezone="UTC"),
        "key": binary,
        "value": binary,
        "headers": na.list_(header),
    }
    return _Schema(
        na.struct(columns),
        columns["offset"],
        columns["timestamp"],
        binary,
        string,
        header,
        columns["headers"],
    )


@cache
def _schema_bytes() -> int:
    """Return the size of a stream without batches and without its end."""
    return len(_Table().close()) - len(ARROW_END)


def _may_pass(data: Buffer, max_answer_bytes: int) -> bool:
    """Whether rows have to be measured, a tenth of the cost: not for short reads."""
    most_bytes = len(data) // SHORTEST_RECORD_BYTES * (ROW_BYTES + BATCH_BYTES // BATCH_ROWS)
    if STREAM_BYTES + BATCH_BYTES + most_bytes + len(data) >= max_answer_bytes:
        return True
    return any(header.codec is not Codec.NONE for _, header in iter_headers(data))


class _Table:
    """Collects columns, and writes them one batch at a time."""

    def __init__(self) -> None:
        import nanoarrow as na  # noqa: PLC0415  # an extra, loaded on demand
        from nanoarrow.c_array_stream import CArrayStream  # noqa: PLC0415  # as above
        from nanoarrow.ipc import StreamWriter  # noqa: PLC0415  # as above

        self._schema = _schema()
        self._of_buffers: Any = na.c_array_from_buffers
        self._sink = io.BytesIO()
        self._writer = StreamWriter.from_writable(self._sink)
        nothing = CArrayStream.from_c_arrays([], na.c_schema(self._schema.columns))
        self._writer.write_stream(nothing)  # the schema, which stands before any batch
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
        return self._sink.getbuffer()

    def _write(self) -> None:
        schema = self._schema
        offsets, timestamps, keys, values, headers = self._columns
        rows = len(offsets)
        columns = [
            self._array(schema.offset, rows, array("q", offsets)),
            self._array(schema.timestamp, rows, array("q", timestamps)),
            self._bytes(schema.binary, keys),
            self._bytes(schema.binary, values),
            self._lists(headers),
        ]
        self._writer.write_array(self._array(schema.columns, rows, children=columns))
        for column in self._columns:
            column.clear()

    def _lists(self, headers: Sequence[Headers]) -> object:
        """Return a list of headers for each row; most logs have none."""
        schema, bounds = self._schema, bytes(4 * (len(headers) + 1))
        if any(headers):
            bounds = array("i", accumulate(map(len, headers), initial=0)).tobytes()
        pairs = list(chain.from_iterable(headers))
        names, values = [name.encode() for name, _ in pairs], [value for _, value in pairs]
        children = [self._bytes(schema.string, names), self._bytes(schema.binary, values)]
        pairs_array = self._array(schema.header, len(pairs), children=children)
        return self._array(schema.headers, len(headers), bounds, children=[pairs_array])

    def _bytes(self, of: object, values: Sequence[Buffer | None]) -> object:
        """Return a column of bytes, some of which may be missing."""
        valid, missing = None, values.count(None)
        if missing:
            # Bit i of the map says whether value i is there, the lowest bit first.
            digits = bytes(map(is_not, reversed(values), repeat(None))).translate(_DIGITS)
            valid = int(digits, 2).to_bytes((len(values) + 7) // 8, "little")
        parts = [value or b"" for value in values]
        bounds = array("i", accumulate(map(len, parts), initial=0))
        return self._array(of, len(parts), bounds, b"".join(parts), valid=valid, missing=missing)

    def _array(
        self,
        of: object,
        rows: int,
        *buffers: Buffer | array[int],
        valid: bytes | None = None,
        missing: int = 0,
        children: Sequence[object] = (),
    ) -> object:
        return self._of_buffers(
            of, rows, [valid, *buffers], null_count=missing, children=list(children)
        )


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
