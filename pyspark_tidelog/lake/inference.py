"""The columns that a sample of JSON values has.

Whoever infers guesses; so what is uncertain is refused, with the field's name, and not made text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pyspark_tidelog.errors import JobError

SAMPLE_RECORDS: Final = 1_000
"""Of each partition, from where the job begins."""

_INT64: Final = 1 << 63


def infer_schema(values: Iterable[bytes | None]) -> StructType:
    """Return the columns of the JSON objects among the values; the rest would be quarantined.

    Integers are bigint, other numbers double, a field that is always null is text. Raises JobError
    where there is nothing to see, or where a field has two types.
    """
    found: DataType = NullType()
    for value in values:
        try:
            document = msgspec.json.decode(value or b"")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            found = _merged("", found, _type_of("", document))
    if not isinstance(found, StructType) or not found.fields:
        raise JobError(
            "there is no JSON object among the first records to infer a schema from: give the "
            "schema, or leave it out to keep the values as they are"
        )
    settled = _settled(found)
    assert isinstance(settled, StructType), "an object stays one"
    return settled


def _type_of(path: str, value: Any) -> DataType:  # noqa: ANN401 -- what JSON holds
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int() if -_INT64 <= value < _INT64:
            return LongType()
        case int() | float():
            return DoubleType()
        case str():
            return StringType()
        case list():
            element: DataType = NullType()
            for each in value:
                element = _merged(f"{path}[]", element, _type_of(f"{path}[]", each))
            return ArrayType(element)
        case _:
            return StructType(
                [StructField(n, _type_of(_joined(path, n), v)) for n, v in value.items()]
            )


def _merged(path: str, one: DataType, other: DataType) -> DataType:
    if one == other or isinstance(other, NullType):
        return one
    match one, other:
        case NullType(), _:
            return other
        case (LongType(), DoubleType()) | (DoubleType(), LongType()):
            return DoubleType()
        case ArrayType(), ArrayType():
            return ArrayType(_merged(f"{path}[]", one.elementType, other.elementType))
        case StructType(), StructType():
            types = {field.name: field.dataType for field in one.fields}
            for field in other.fields:
                known = types.get(field.name, NullType())
                types[field.name] = _merged(_joined(path, field.name), known, field.dataType)
            return StructType([StructField(name, found) for name, found in types.items()])
        case _:
            raise JobError(
                f"the field {path} is {one.simpleString()} in one record and "
                f"{other.simpleString()} in another: give the schema"
            )


def _settled(found: DataType) -> DataType:
    """Return the type with text for what was never anything but null."""
    match found:
        case NullType():
            return StringType()
        case ArrayType():
            return ArrayType(_settled(found.elementType))
        case StructType():
            return StructType([StructField(f.name, _settled(f.dataType)) for f in found.fields])
        case _:
            return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
