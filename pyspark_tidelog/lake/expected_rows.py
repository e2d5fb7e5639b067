"""Computes the fingerprints that the records of a log must have in the lake.

A schema can gain columns. Rows written before have null there, and fields of those names did not
have to fit, so a record has one fingerprint for each schema that the lake has had. Within a
partition the schemas follow each other: after a row with a new column, none without it is right.

A verifier that decodes as the job does agrees with its mistakes: fields that the job's decoder
passes over are missing on both sides. So this one shares none of it: Python's `json` reads the
text, and the rules of `tables.json_rows` are written again, plainly. A property test compares both.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark
from pyspark.sql.types import StructType

from pyspark_tidelog.lake.layout import Layout
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.tables.json_rows import (
    FLOAT_MAX,
    Fitted,
    arrow_type_of,
    below,
    json_of,
    read_each,
)

_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-]\d\d):?(\d\d))?", re.ASCII
)
_ESCAPE: Final = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)|\\.")
"""An escape of JSON text; the group is a surrogate without its pair."""
_UNREADABLE: Final = (ValueError, OverflowError, RecursionError, decimal.InvalidOperation)
_INTEGERS: Final = {T.ByteType: 7, T.ShortType: 15, T.IntegerType: 31, T.LongType: 63}


class _Number(float):
    """A number with the digits that it was written with."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


class _Object(dict[str, Any]):
    """An object, and its fields as they were written, of which some may have one name."""

    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        super().__init__(fields)
        self.fields = fields


class PlainRows:
    """Reads JSON objects as rows of one schema."""

    def __init__(self, schema: T.StructType) -> None:
        self._schema = schema

    def fit(self, values: Iterable[bytes | None]) -> Fitted:
        """Return a row for each value, in order."""
        read = read_each(values, self._read, _UNREADABLE)
        return read.fitted_one_by_one(arrow_type_of(self._schema))

    def _read(self, value: bytes) -> tuple[dict[str, Any], str | None]:
        found: dict[str, Any] = {}
        row = _struct(_parsed(value), self._schema, "", found)
        return row, json_of(found) if found else None


def _parsed(value: bytes) -> Any:  # noqa: ANN401 -- what JSON holds
    text = value.decode()
    if any(escape[1] for escape in _ESCAPE.finditer(text)):
        raise ValueError("a surrogate is without its pair")
    return json.loads(text, parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_Object)


def _finite(text: str) -> _Number:
    number = _Number(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _value(value: Any, data_type: T.DataType, pointer: str, unknown: dict[str, Any]) -> Any:  # noqa: ANN401 -- what JSON holds
    """Return a value of a column; add the fields that its type does not have to `unknown`."""
    match data_type:
        case T.StructType():
            return _struct(value, data_type, pointer, unknown)
        case T.ArrayType():
            _require(value, list, "an array", pointer)
            types = data_type.elementType, data_type.containsNull
            return [
                _nullable(each, *types, f"{pointer}/{index}", unknown)
                for index, each in enumerate(value)
            ]
        case T.MapType():
            _require(value, dict, "an object", pointer)
            types = data_type.valueType, data_type.valueContainsNull
            return {
                name: _nullable(each, *types, below(pointer, name), unknown)
                for name, each in value.fields
            }
        case T.DecimalType():
            return _decimal(value, pointer)
        case _:
            return _SCALARS[type(data_type)](value, data_type, pointer)


def _nullable(
    value: Any,  # noqa: ANN401 -- what JSON holds
    data_type: T.DataType,
    can_be_null: bool,  # noqa: FBT001 -- as Spark's types have it
    pointer: str,
    unknown: dict[str, Any],
) -> Any:  # noqa: ANN401 -- the same
    if value is None and can_be_null:
        return None
    return _value(value, data_type, pointer, unknown)


def _struct(
    value: Any,  # noqa: ANN401 -- what JSON holds
    schema: T.StructType,
    pointer: str,
    unknown: dict[str, Any],
) -> dict[str, Any]:
    _require(value, dict, "an object", pointer)
    types = {each.name: each for each in schema.fields}
    row: dict[str, Any] = {}
    beyond: dict[str, dict[str, Any]] = {}
    for name, each in value.fields:
        inner = below(pointer, name)
        beyond[name] = {}  # of several fields with one name, the last one counts
        if name in types:
            known = types[name]
            row[name] = _nullable(each, known.dataType, known.nullable, inner, beyond[name])
        else:
            beyond[name][inner] = each
    for each in schema.fields:
        if not each.nullable and each.name not in row:
            raise ValueError(f"{below(pointer, each.name)} is missing")
    for found in beyond.values():
        unknown.update(found)
    return row


def _require(value: Any, kind: type | tuple[type, ...], what: str, pointer: str) -> None:  # noqa: ANN401 -- what JSON holds
    """Raise ValueError for a value of another kind; true and false are no numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{pointer or 'the value'} is not {what}")


def _text(value: Any, _: T.DataType, pointer: str) -> str:  # noqa: ANN401 -- what JSON holds
    if value is None:
        raise ValueError(f"{pointer} is null")
    return value if isinstance(value, str) else json_of(value)


def _binary(value: Any, _: T.DataType, pointer: str) -> bytes:  # noqa: ANN401 -- the same
    _require(value, str, "text", pointer)
    if _BASE64.fullmatch(value) is None:
        raise ValueError(f"{pointer} is not base64")
    return base64.b64decode(value)


def _boolean(value: Any, _: T.DataType, pointer: str) -> bool:  # noqa: ANN401 -- the same
    _require(value, bool, "true or false", pointer)
    return bool(value)


def _integer(value: Any, data_type: T.DataType, pointer: str) -> int:  # noqa: ANN401 -- the same
    _require(value, int, "an integer", pointer)
    limit = 1 << _INTEGERS[type(data_type)]  # type: ignore[index] # called for these types only
    if not -limit <= value < limit:
        raise ValueError(f"{pointer} is beyond {data_type.simpleString()}")
    return int(value)


def _double(value: Any, data_type: T.DataType, pointer: str) -> float:  # noqa: ANN401 -- the same
    _require(value, (int, float), "a number", pointer)
    number = float(value)
    if isinstance(data_type, T.FloatType) and abs(number) > FLOAT_MAX:
        raise ValueError(f"{pointer} is beyond float")
    return number


def _decimal(value: Any, pointer: str) -> decimal.Decimal:  # noqa: ANN401 -- the same
    _require(value, (int, float, str), "a number or text", pointer)
    return decimal.Decimal(value.text if isinstance(value, _Number) else value)


def _date(value: Any, _: T.DataType, pointer: str) -> dt.date:  # noqa: ANN401 -- the same
    _require(value, str, "text", pointer)
    if _DATE.fullmatch(value) is None:
        raise ValueError(f"{pointer} is not a date")
    return dt.date.fromisoformat(value)


def _timestamp(value: Any, _: T.DataType, pointer: str) -> dt.datetime:  # noqa: ANN401 -- the same
    _require(value, str, "text", pointer)
    parts = _TIME.fullmatch(value)
    if parts is None:
        raise ValueError(f"{pointer} is not a time")
    day, time, fraction, hours, minutes = parts.groups("")
    digits = fraction.ljust(7, "0")
    microseconds = int(digits[:6]) + (digits[6] >= "5")
    zone = dt.UTC
    if hours:
        if int(minutes) > 59:
            raise ValueError(f"{pointer} is not a time")
        offset = dt.timedelta(hours=abs(int(hours)), minutes=int(minutes))
        zone = dt.timezone(-offset if hours.startswith("-") else offset)
    at = dt.datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=zone)
    return at + dt.timedelta(microseconds=microseconds)


_SCALARS: Final[dict[type[T.DataType], Callable[[Any, T.DataType, str], Any]]] = {
    T.StringType: _text,
    T.BinaryType: _binary,
    T.BooleanType: _boolean,
    **dict.fromkeys(_INTEGERS, _integer),
    T.FloatType: _double,
    T.DoubleType: _double,
    T.DateType: _date,
    T.TimestampType: _timestamp,
}


Prints = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The rows that a lake's job makes of records."""

    layout: Layout
    columns: Sequence[str]
    """Of a row, those that are compared."""
    bad_columns: Sequence[str] | None
    """The same of the table of bad records, if there is one."""
    added: tuple[str, ...] = ()
    """Columns that the schema has gained, the oldest first."""
    _reached: dict[TopicPartition, int] = field(default_factory=dict)
    """How many of them the rows of a partition have had so far."""

    def prints(
        self, log: TopicPartition, records: pa.RecordBatch, is_bad: NDArray[np.bool_], held: Prints
    ) -> Prints:
        """Return the fingerprints of the next records of a partition, 0 for a row in neither table.

        `is_bad` says which are in the table of bad records, `held` what the lake holds of them.
        """
        if self.layout.values is None:
            return prints_of(self._as_rows(records))
        stage = self._reached.get(log, 0)
        later = [self._by_schema(records, is_bad, n) for n in range(stage, len(self.added) + 1)]
        expected, place = later[0].copy(), 0
        while len(later) > 1:
            differing = place + np.flatnonzero(held[place:] != later[0][place:])
            found = next(
                (
                    (int(i), n)
                    for i in differing
                    for n in range(1, len(later))
                    if held[i] == later[n][i]
                ),
                None,
            )
            if found is None:
                break
            place, passed = found
            later = later[passed:]
            expected[place:] = later[0][place:]
        self._reached[log] = len(self.added) + 1 - len(later)
        return expected

    def _by_schema(self, records: pa.RecordBatch, is_bad: NDArray[np.bool_], known: int) -> Prints:
        """Return the fingerprints by the schema with so many of the added columns."""
        assert self.layout.values is not None, "a lake without a schema does not gain columns"
        missing = self.added[known:]
        values = StructType([each for each in self.layout.values if each.name not in missing])
        fitted = PlainRows(values).fit(records.column("value").to_pylist())
        does_fit = np.array([reason is None for reason in fitted.reasons], np.bool_)
        as_row = prints_of(self._as_rows(records, fitted, missing))
        if self.bad_columns is None:  # bad records are in a topic, or have stopped the job
            return np.where(does_fit, as_row, np.uint64(0))
        as_bad = prints_of(records.select(self.bad_columns))
        # No fingerprint is 0, so a record that is wrongly in either table differs.
        return np.where(does_fit == is_bad, np.uint64(0), np.where(is_bad, as_bad, as_row))

    def _as_rows(
        self,
        records: pa.RecordBatch,
        fitted: Fitted | None = None,
        missing: Sequence[str] = (),
    ) -> pa.RecordBatch:
        """Return the records with the columns of the lake, null in those that are missing."""
        columns = {self.layout.name_of(n): records.column(n) for n in records.schema.names}
        if fitted is not None:
            columns |= dict(zip(fitted.rows.type.names, fitted.rows.flatten(), strict=True))
            rescue = self.layout.rescue
            if rescue is not None and rescue not in missing:
                columns[rescue] = pa.array(fitted.unknown, pa.string())
        for name in self.added:
            if name not in columns:
                data_type = arrow_type_of(self.layout.rows[name].dataType)
                columns[name] = pa.nulls(records.num_rows, data_type)
        for name in self.layout.partition_types():
            if pa.types.is_string(columns[name].type):
                columns[name] = _without_empty(columns[name])
        return pa.RecordBatch.from_arrays([columns[name] for name in self.columns], self.columns)


def prints_of(rows: pa.RecordBatch) -> Prints:
    """Return a fingerprint of each row, never 0."""
    columns = [_plain(column).to_pylist() for column in rows.columns]
    prints = [hash(repr(row)) for row in zip(*columns, strict=True)]
    return np.array(prints, np.int64).astype(np.uint64) | np.uint64(1)


def _plain(column: pa.Array) -> pa.Array:
    """Return timestamps as numbers, because datetime ends in the year 9999, and no headers as null.

    Earlier releases wrote an empty list for a record without headers.
    """
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if _has_headers(column.type):
        return pc.if_else(pc.equal(pc.list_value_length(column), 0), None, column)
    return column


def _has_headers(kind: pa.DataType) -> bool:
    """Whether these are the headers of records: no field of JSON has binary values."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    return (
        pa.types.is_struct(pair)
        and [one.name for one in pair] == ["key", "value"]
        and (pa.types.is_binary(pair[1].type) or pa.types.is_large_binary(pair[1].type))
    )


def _without_empty(column: pa.Array) -> pa.Array:
    """Return text as folder names hold it: the empty text becomes null."""
    return pa.array([text or None for text in column.to_pylist()], pa.string())
