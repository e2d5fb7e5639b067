"""JSON values into columns: a value fits its schema or there is a sentence that says why not.

A value fits if it is one JSON object whose fields have the types of the schema. A field that is
missing or null becomes null, unless the schema says NOT NULL; a field that the schema does not name
is left out. Nothing is converted but what JSON has no type for: dates and times are ISO 8601 text
(UTC if they name no zone), decimals are numbers or text. A record without a value has nulls.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Required, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_tidelog.errors import OptionError

_INTEGER_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
_INTEGER_ARROW: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_PLAIN: Final[dict[type[DataType], tuple[Any, pa.DataType]]] = {
    StringType: (str, pa.string()),
    BinaryType: (bytes, pa.binary()),  # base64 in JSON
    BooleanType: (bool, pa.bool_()),
    FloatType: (float, pa.float32()),
    DoubleType: (float, pa.float64()),
    DateType: (dt.date, pa.date32()),
    TimestampType: (dt.datetime, pa.timestamp("us", tz="UTC")),
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values as rows; where one does not fit, its row is null and `reasons` says why."""

    rows: pa.StructArray
    reasons: list[str | None]


class JsonRows:
    """Turns JSON objects into rows of one schema. Pickles, as executors need it."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._arrow_type = arrow_type_of(schema)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(python_type_of(schema))

    def __reduce__(self) -> tuple[type[JsonRows], tuple[StructType]]:
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
        """Find the rows that are right as JSON and yet too much for their columns."""
        for index, row in enumerate(rows):
            try:
                pa.array([row], self._arrow_type)
            except (pa.ArrowException, OverflowError, ValueError) as error:
                rows[index], reasons[index] = None, _in_a_line(error)
        return Fitted(pa.array(rows, self._arrow_type), reasons)


def arrow_type_of(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a column; raise OptionError for one that JSON cannot fill."""
    plain = _PLAIN.get(type(data_type))
    if plain is not None:
        return plain[1]
    if type(data_type) in _INTEGER_BITS:
        return _INTEGER_ARROW[_INTEGER_BITS[type(data_type)]]
    match data_type:
        case DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case ArrayType():
            return pa.list_(arrow_type_of(data_type.elementType))
        case MapType() if isinstance(data_type.keyType, StringType):
            return pa.map_(pa.string(), arrow_type_of(data_type.valueType))
        case StructType():
            return pa.struct([(f.name, arrow_type_of(f.dataType)) for f in data_type.fields])
        case _:
            raise OptionError(
                f"a column of JSON values cannot be {data_type.simpleString()}: it can be string, "
                f"binary, boolean, a number, date, timestamp, array, struct or map<string, …>"
            )


def nullable(data_type: DataType) -> DataType:
    """Return the type with null allowed everywhere, as columns of a table have it.

    What must not be null is asked of the values; a table promises it to nobody.
    """
    match data_type:
        case ArrayType():
            return ArrayType(nullable(data_type.elementType))
        case MapType():
            return MapType(data_type.keyType, nullable(data_type.valueType))
        case StructType():
            fields = [StructField(f.name, nullable(f.dataType)) for f in data_type.fields]
            return StructType(fields)
        case _:
            return data_type


def python_type_of(data_type: DataType) -> Any:  # noqa: ANN401 -- a type form, made at run time
    """Return what msgspec has to find in the JSON of a column."""
    plain = _PLAIN.get(type(data_type))
    if plain is not None:
        return plain[0]
    if type(data_type) in _INTEGER_BITS:
        limit = 1 << _INTEGER_BITS[type(data_type)] - 1
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    match data_type:
        case DecimalType():
            return decimal.Decimal
        case ArrayType():
            element = python_type_of(data_type.elementType)
            return list[element | None] if data_type.containsNull else list[element]  # type: ignore[valid-type] # made at run time
        case MapType():
            value = python_type_of(data_type.valueType)
            return dict[str, value | None] if data_type.valueContainsNull else dict[str, value]  # type: ignore[valid-type] # made at run time
        case StructType():
            return _typed_dict(data_type)
        case _:
            raise AssertionError(f"arrow_type_of refuses {data_type}")


def _typed_dict(struct: StructType) -> Any:  # noqa: ANN401 -- a type form, made at run time
    fields: dict[str, Any] = {}
    for each in struct.fields:
        found = python_type_of(each.dataType)
        fields[each.name] = found | None if each.nullable else Required[found]
    make: Any = TypedDict  # its names are known at run time only
    return make("Row", fields, total=False)


def _in_a_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return " ".join(str(error).split())
