"""Reads JSON values by a schema a second time, for `lake verify`.

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
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, Self

from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

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
