"""Converts JSON values to rows of a schema, with a reason for each value that does not fit.

A value fits if it is one JSON object whose fields have the types of the schema. A missing or null
field becomes null, unless it is NOT NULL. A column of text takes any value: what is not text is its
JSON, as in Spark. Otherwise only types that JSON does not have are converted: dates and timestamps
are ISO 8601 text (UTC without a time zone), decimals are numbers or text, binary is base64. A
record without a value becomes a row of nulls.

Fields that the schema does not have are found, so that they can be counted and kept. They are text:
a JSON object with the JSON Pointer (RFC 6901) of each field and its value.

`tidelog lake verify` knows these rules as well, in `lake.expected_rows`, and shares no decoder with
this module.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Required, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import OptionError

FLOAT_MAX: Final = (2.0 - 2.0**-23) * 2.0**127
"""The largest number of 32 bits; larger ones would become infinite."""


def _integer(bits: int) -> Any:  # noqa: ANN401 -- a type form, made at run time
    limit = 1 << bits - 1
    return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]


# What msgspec decodes, and the Arrow type.
_SCALARS: Final[dict[type[T.DataType], tuple[Any, pa.DataType]]] = {
    T.StringType: (str | int | float | bool | list | dict, pa.string()),
    T.BinaryType: (bytes, pa.binary()),  # base64 in JSON
    T.BooleanType: (bool, pa.bool_()),
    T.ByteType: (_integer(8), pa.int8()),
    T.ShortType: (_integer(16), pa.int16()),
    T.IntegerType: (_integer(32), pa.int32()),
    T.LongType: (_integer(64), pa.int64()),
    T.FloatType: (Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)], pa.float32()),
    T.DoubleType: (float, pa.float64()),
    T.DateType: (dt.date, pa.date32()),
    T.TimestampType: (dt.datetime, pa.timestamp("us", tz="UTC")),
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values as rows; a row that does not fit is null and has a reason."""

    rows: pa.StructArray
    reasons: list[str | None]
    unknown: list[str | None]
    """The fields that the schema does not have; None if there is none, or the row does not fit."""


class JsonRows:
    """Converts JSON objects to rows of one schema. It can be pickled to executors."""

    def __init__(self, schema: T.StructType) -> None:
        self._schema = schema
        self._arrow_type = arrow_type_of(schema)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_python_type_of(schema))
        self._checker = _checker_of(schema)

    def __reduce__(self) -> tuple[type[JsonRows], tuple[T.StructType]]:
        return JsonRows, (self._schema,)

    def fit(self, values: Iterable[bytes | None]) -> Fitted:
        """Return a row for each value, in order."""
        read = read_each(values, self._read, _UNREADABLE)
        with suppress(*NOT_ARROW):
            return read.fitted(self._arrow_type)
        read.rows = [None if row is None else _with_text(row, self._schema) for row in read.rows]
        return read.fitted_one_by_one(self._arrow_type)

    def _read(self, value: bytes) -> tuple[dict[str, Any], str | None]:
        return self._decoder.decode(value), self._unknown_in(value)

    def _unknown_in(self, value: bytes) -> str | None:
        if self._checker is not None:
            with suppress(msgspec.ValidationError):
                self._checker.decode(value)
                return None
        found = dict(_unknown(msgspec.json.decode(value), self._schema, ""))
        return json_of(found) if found else None


NOT_ARROW: Final = (pa.ArrowException, OverflowError, ValueError)
"""What PyArrow raises for a value that exceeds its type."""

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(slots=True)
class Read:
    """Values as objects of Python, in order, before Arrow has seen them."""

    rows: list[dict[str, Any] | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    unknown: list[str | None] = field(default_factory=list)

    def fitted(self, arrow_type: pa.StructType) -> Fitted:
        """Return them as Arrow has them; raise one of NOT_ARROW if a value exceeds its type."""
        return Fitted(pa.array(self.rows, arrow_type), self.reasons, self.unknown)

    def fitted_one_by_one(self, arrow_type: pa.StructType) -> Fitted:
        """Find the rows that are valid JSON of the schema but exceed an Arrow type."""
        with suppress(*NOT_ARROW):
            return self.fitted(arrow_type)
        for index, row in enumerate(self.rows):
            try:
                pa.array([row], arrow_type)
            except NOT_ARROW as error:
                self.rows[index], self.unknown[index] = None, None
                self.reasons[index] = in_a_line(error)
        return self.fitted(arrow_type)


def read_each(
    values: Iterable[bytes | None],
    read: Callable[[bytes], tuple[dict[str, Any], str | None]],
    unreadable: tuple[type[Exception], ...],
) -> Read:
    """Read each value as a row and the fields beyond it; one that raises `unreadable` is bad."""
    found = Read()
    for value in values:
        row: dict[str, Any] | None = {}
        reason = beyond = None
        if value is not None:
            try:
                row, beyond = read(value)
            except unreadable as error:
                row, reason = None, in_a_line(error)
        found.rows.append(row)
        found.reasons.append(reason)
        found.unknown.append(beyond)
    return found


def arrow_type_of(data_type: T.DataType) -> pa.DataType:
    """Return the Arrow type of a column; raise OptionError for one that JSON cannot have."""
    if type(data_type) in _SCALARS:
        return _SCALARS[type(data_type)][1]
    match data_type:
        case T.DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case T.ArrayType():
            return pa.list_(arrow_type_of(data_type.elementType))
        case T.MapType() if isinstance(data_type.keyType, T.StringType):
            return pa.map_(pa.string(), arrow_type_of(data_type.valueType))
        case T.StructType():
            return pa.struct([(f.name, arrow_type_of(f.dataType)) for f in data_type.fields])
        case _:
            raise OptionError(
                f"a column of JSON values cannot be {data_type.simpleString()}: it can be string, "
                f"binary, boolean, a number, date, timestamp, array, struct or map<string, ...>"
            )


def nullable(data_type: T.DataType) -> T.DataType:
    """Return the type with null allowed everywhere: NOT NULL holds for values, not for the lake."""
    match data_type:
        case T.ArrayType():
            return T.ArrayType(nullable(data_type.elementType))
        case T.MapType():
            return T.MapType(data_type.keyType, nullable(data_type.valueType))
        case T.StructType():
            fields = [T.StructField(f.name, nullable(f.dataType)) for f in data_type.fields]
            return T.StructType(fields)
        case _:
            return data_type


def _python_type_of(data_type: T.DataType) -> Any:  # noqa: ANN401 -- a type form, made at run time
    """Return the type that msgspec decodes for a column; `arrow_type_of` has checked the column."""
    match data_type:
        case T.DecimalType():
            return decimal.Decimal
        case T.ArrayType():
            element = _python_type_of(data_type.elementType)
            return list[element | None] if data_type.containsNull else list[element]  # type: ignore[valid-type] # made at run time
        case T.MapType():
            value = _python_type_of(data_type.valueType)
            return dict[str, value | None] if data_type.valueContainsNull else dict[str, value]  # type: ignore[valid-type] # made at run time
        case T.StructType():
            fields: dict[str, Any] = {}
            for each in data_type.fields:
                found = _python_type_of(each.dataType)
                # msgspec compares the names of a TypedDict with the UTF-8 that CPython keeps inside
                # a string that was encoded once, and passes over a name that has none.
                msgspec.json.encode(each.name)
                fields[each.name] = found | None if each.nullable else Required[found]
            make: Any = TypedDict  # its names are known at run time only
            return make("Row", fields, total=False)
        case _:
            return _SCALARS[type(data_type)][0]


def _checker_of(schema: T.StructType) -> msgspec.json.Decoder[Any] | None:
    """Return a decoder that is quick to refuse fields that the schema does not have.

    It makes no values. None if the name of a field cannot be one of a msgspec `Struct`.
    """
    try:
        return msgspec.json.Decoder(_raw_type_of(schema))
    except ValueError:
        return None


def _raw_type_of(data_type: T.DataType) -> Any:  # noqa: ANN401 -- a type form, made at run time
    match data_type:
        case T.ArrayType():
            return list[_raw_type_of(data_type.elementType)] | None  # type: ignore[misc] # made at run time
        case T.MapType():
            return dict[str, _raw_type_of(data_type.valueType)] | None  # type: ignore[misc] # made at run time
        case T.StructType():
            names = {f"field_{n}": each.name for n, each in enumerate(data_type.fields)}
            types = [_raw_type_of(each.dataType) for each in data_type.fields]
            made = msgspec.defstruct(
                "Raw",
                [(name, found, None) for name, found in zip(names, types, strict=True)],
                rename=names,
                forbid_unknown_fields=True,
                gc=False,
            )
            return made | None
        case _:
            return msgspec.Raw


def _unknown(value: Any, data_type: T.DataType, pointer: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 -- what JSON holds
    """Yield the pointer and the value of each field that a type does not have."""
    match data_type:
        case T.StructType() if isinstance(value, dict):
            types = {each.name: each.dataType for each in data_type.fields}
            for name, each in value.items():
                inner = below(pointer, name)
                if name in types:
                    yield from _unknown(each, types[name], inner)
                else:
                    yield inner, each
        case T.ArrayType() if isinstance(value, list):
            for index, each in enumerate(value):
                yield from _unknown(each, data_type.elementType, f"{pointer}/{index}")
        case T.MapType() if isinstance(value, dict):
            for name, each in value.items():
                yield from _unknown(each, data_type.valueType, below(pointer, name))


def _with_text(value: Any, data_type: T.DataType) -> Any:  # noqa: ANN401 -- what JSON holds
    """Return a value with JSON in place of what is not text in a column of text."""
    match data_type:
        case _ if value is None:
            return None
        case T.StringType():
            return value if isinstance(value, str) else json_of(value)
        case T.ArrayType():
            return [_with_text(each, data_type.elementType) for each in value]
        case T.MapType():
            return {name: _with_text(each, data_type.valueType) for name, each in value.items()}
        case T.StructType():
            types = {each.name: each.dataType for each in data_type.fields}
            return {name: _with_text(each, types[name]) for name, each in value.items()}
        case _:
            return value


def below(pointer: str, name: str) -> str:
    """Return the JSON Pointer (RFC 6901) of a field of what a pointer leads to."""
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"


def json_of(value: Any) -> str:  # noqa: ANN401 -- what JSON holds
    """Return the JSON of a value, as a column of text has it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def in_a_line(error: Exception) -> str:
    """Return the reason of an error as one line."""
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return " ".join(str(error).split())
