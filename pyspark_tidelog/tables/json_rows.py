"""Converts JSON values to rows of a schema, with a reason for each value that does not fit.

A value fits if it is one JSON object whose fields have the types of the schema. A missing or null
field becomes null, unless it is NOT NULL; fields that are not in the schema are ignored. A column
of text takes any value: what is not text is its JSON, as in Spark. Otherwise only types that JSON
does not have are converted: dates and timestamps are ISO 8601 text (UTC without a time zone),
decimals are numbers or text, binary is base64. A record without a value becomes a row of nulls.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Required, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import OptionError


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
    T.FloatType: (float, pa.float32()),
    T.DoubleType: (float, pa.float64()),
    T.DateType: (dt.date, pa.date32()),
    T.TimestampType: (dt.datetime, pa.timestamp("us", tz="UTC")),
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values as rows; a row that does not fit is null and has a reason."""

    rows: pa.StructArray
    reasons: list[str | None]


class JsonRows:
    """Converts JSON objects to rows of one schema. It can be pickled to executors."""

    def __init__(self, schema: T.StructType) -> None:
        self._schema = schema
        self._arrow_type = arrow_type_of(schema)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_python_type_of(schema))

    def __reduce__(self) -> tuple[type[JsonRows], tuple[T.StructType]]:
        return JsonRows, (self._schema,)

    def fit(self, values: Iterable[bytes | None]) -> Fitted:
        """Return a row for each value, in order."""
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in values:
            row, reason = self._decode(value)
            rows.append(row)
            reasons.append(reason)
        try:
            return Fitted(pa.array(rows, self._arrow_type), reasons)
        except (pa.ArrowException, OverflowError, ValueError):
            rows = [None if row is None else _with_text(row, self._schema) for row in rows]
            return self._one_by_one(rows, reasons)

    def _decode(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        if value is None:
            return {}, None
        try:
            row: dict[str, Any] = self._decoder.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return None, _in_a_line(error)
        return row, None

    def _one_by_one(self, rows: list[dict[str, Any] | None], reasons: list[str | None]) -> Fitted:
        """Find the rows that are valid JSON of the schema but exceed an Arrow type."""
        with suppress(pa.ArrowException, OverflowError, ValueError):
            return Fitted(pa.array(rows, self._arrow_type), reasons)
        for index, row in enumerate(rows):
            try:
                pa.array([row], self._arrow_type)
            except (pa.ArrowException, OverflowError, ValueError) as error:
                rows[index], reasons[index] = None, _in_a_line(error)
        return Fitted(pa.array(rows, self._arrow_type), reasons)


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


def _with_text(value: Any, data_type: T.DataType) -> Any:  # noqa: ANN401 -- what JSON holds
    """Return a value with JSON in place of what is not text in a column of text."""
    match data_type:
        case _ if value is None:
            return None
        case T.StringType():
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case T.ArrayType():
            return [_with_text(each, data_type.elementType) for each in value]
        case T.MapType():
            return {name: _with_text(each, data_type.valueType) for name, each in value.items()}
        case T.StructType():
            types = {each.name: each.dataType for each in data_type.fields}
            return {name: _with_text(each, types[name]) for name, each in value.items()}
        case _:
            return value


def _in_a_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return " ".join(str(error).split())
