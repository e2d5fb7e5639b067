"""Infers the schema of a sample of JSON values.

A field with two types is refused by name, instead of being stored as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import JobError

SAMPLE_RECORDS: Final = 1_000
"""Per partition, from the offset at which the job begins."""

_INT64: Final = 1 << 63


def infer_schema(values: Iterable[bytes | None]) -> T.StructType:
    """Return the schema of the JSON objects among the values; all others are bad records.

    Integers are bigint, other numbers double, a field that is always null is text. Raises JobError
    if there is no object, or if a field has two types.
    """
    found: T.DataType = T.NullType()
    for value in values:
        try:
            document = msgspec.json.decode(value or b"")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            found = _merged("", found, _type_of("", document))
    if not isinstance(found, T.StructType) or not found.fields:
        raise JobError(
            "there is no JSON object among the first records to infer a schema from: give the "
            "schema, or leave it out to keep the values as they are"
        )
    settled = _settled(found)
    assert isinstance(settled, T.StructType), "the type is a struct"
    return settled


def _type_of(path: str, value: Any) -> T.DataType:  # noqa: ANN401 -- what JSON holds
    match value:
        case None:
            return T.NullType()
        case bool():
            return T.BooleanType()
        case int() if -_INT64 <= value < _INT64:
            return T.LongType()
        case int() | float():
            return T.DoubleType()
        case str():
            return T.StringType()
        case list():
            element: T.DataType = T.NullType()
            for each in value:
                element = _merged(f"{path}[]", element, _type_of(f"{path}[]", each))
            return T.ArrayType(element)
        case _:
            return T.StructType(
                [T.StructField(n, _type_of(_joined(path, n), v)) for n, v in value.items()]
            )


def _merged(path: str, one: T.DataType, other: T.DataType) -> T.DataType:
    if one == other or isinstance(other, T.NullType):
        return one
    match one, other:
        case T.NullType(), _:
            return other
        case (T.LongType(), T.DoubleType()) | (T.DoubleType(), T.LongType()):
            return T.DoubleType()
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_merged(f"{path}[]", one.elementType, other.elementType))
        case T.StructType(), T.StructType():
            types = {field.name: field.dataType for field in one.fields}
            for field in other.fields:
                known = types.get(field.name, T.NullType())
                types[field.name] = _merged(_joined(path, field.name), known, field.dataType)
            return T.StructType([T.StructField(name, found) for name, found in types.items()])
        case _:
            raise JobError(
                f"the field {path} is {one.simpleString()} in one record and "
                f"{other.simpleString()} in another: give the schema"
            )


def _settled(found: T.DataType) -> T.DataType:
    """Return the type with string in place of null."""
    match found:
        case T.NullType():
            return T.StringType()
        case T.ArrayType():
            return T.ArrayType(_settled(found.elementType))
        case T.StructType():
            return T.StructType([T.StructField(f.name, _settled(f.dataType)) for f in found.fields])
        case _:
            return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
