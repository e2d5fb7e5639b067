"""Infers the schema of a sample of JSON values.

It takes the data that people have: a field with values of two types is text, which takes any value
as its JSON, and so is one that is always null or an empty object. Of names that differ only in
case, which Spark and Delta do not distinguish, the first is a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import JobError

SAMPLE_RECORDS: Final = 1_000
"""Per partition, from the offset at which the job begins."""

_INT64: Final = 1 << 63
_DECIMAL_DIGITS: Final = 38
_DECIMAL: Final = 10**_DECIMAL_DIGITS
_NUMBERS: Final = (T.LongType, T.DecimalType, T.DoubleType)
"""Each takes the values of those before it, the last one rounded."""
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def infer_schema(values: Iterable[bytes | None]) -> T.StructType:
    """Return the schema of the JSON objects among the values; all others are bad records.

    Integers are bigint, those beyond 64 bits decimal, other numbers double. Raises JobError if
    there is no object with a field.
    """
    found: T.DataType = T.NullType()
    for value in values:
        try:
            document = msgspec.json.decode(value or b"")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            found = _merged(found, _type_of(document))
    if not isinstance(found, T.StructType) or not found.fields:
        raise JobError(
            "there is no JSON object among the first records to infer a schema from: give the "
            "schema, or leave it out to keep the values as they are"
        )
    settled = _settled(found)
    assert isinstance(settled, T.StructType), "the type is a struct"
    return settled


def _type_of(value: Any) -> T.DataType:  # noqa: ANN401 -- what JSON holds
    match value:
        case None:
            return T.NullType()
        case bool():
            return T.BooleanType()
        case int() if -_INT64 <= value < _INT64:
            return T.LongType()
        case int() if abs(value) < _DECIMAL:
            return T.DecimalType(_DECIMAL_DIGITS, 0)
        case int() | float():
            return T.DoubleType()
        case str():
            return T.StringType()
        case list():
            element: T.DataType = T.NullType()
            for each in value:
                element = _merged(element, _type_of(each))
            return T.ArrayType(element)
        case _:
            fields: dict[str, T.StructField] = {}
            for name, each in value.items():
                fields.setdefault(name.lower(), T.StructField(name, _type_of(each)))
            return T.StructType([*fields.values()])


def _merged(one: T.DataType, other: T.DataType) -> T.DataType:
    """Return the type that takes the values of both."""
    if one == other or isinstance(other, T.NullType):
        return one
    if type(one) in _NUMBERS and type(other) in _NUMBERS:
        return max(one, other, key=lambda number: _NUMBERS.index(type(number)))
    match one, other:
        case T.NullType(), _:
            return other
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_merged(one.elementType, other.elementType))
        case T.StructType(), T.StructType():
            fields = {field.name.lower(): field for field in one.fields}
            for field in other.fields:
                known = fields.get(field.name.lower())
                if known is None:
                    fields[field.name.lower()] = field
                elif known.name == field.name:
                    data_type = _merged(known.dataType, field.dataType)
                    fields[field.name.lower()] = T.StructField(field.name, data_type)
            return T.StructType([*fields.values()])
        case _:
            return T.StringType()


def _settled(found: T.DataType) -> T.DataType:
    """Return the type with string in place of what nothing is known of: null, and no fields."""
    match found:
        case T.NullType():
            return T.StringType()
        case T.ArrayType():
            return T.ArrayType(_settled(found.elementType))
        case T.StructType() if not found.fields:
            return T.StringType()
        case T.StructType():
            return T.StructType([T.StructField(f.name, _settled(f.dataType)) for f in found.fields])
        case _:
            return found


def ddl_of(schema: T.StructType) -> str:
    """Return a schema as DDL, which `--schema` takes."""
    return ", ".join(f"{_quoted(f.name)} {_ddl(f.dataType)}" for f in schema.fields)


def _ddl(data_type: T.DataType) -> str:
    match data_type:
        case T.ArrayType():
            return f"ARRAY<{_ddl(data_type.elementType)}>"
        case T.StructType():
            fields = (f"{_quoted(f.name)}: {_ddl(f.dataType)}" for f in data_type.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return data_type.simpleString().upper()


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
