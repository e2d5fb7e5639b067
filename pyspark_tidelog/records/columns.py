"""The columns of the source, as Spark types and as Arrow arrays: those of Spark's Kafka source.

PySpark offers a Python source no column pruning. A user can give a schema with fewer columns
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.records.fields import RecordFields, locate_headers
from pyspark_tidelog.records.varints import Bytes, Int64s, RecordError

HEADERS: Final = "headers"

_HEADER: Final = [T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]
_SPARK_TYPES: Final[dict[str, T.DataType]] = {
    "key": T.BinaryType(),
    "value": T.BinaryType(),
    "topic": T.StringType(),
    "partition": T.IntegerType(),
    "offset": T.LongType(),
    "timestamp": T.TimestampType(),
    "timestampType": T.IntegerType(),
    HEADERS: T.ArrayType(T.StructType(_HEADER)),
}

_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(_HEADER_TYPE),
}
assert _SPARK_TYPES.keys() == _ARROW_TYPES.keys(), "every column has both types"


def spark_schema(*, include_headers: bool) -> T.StructType:
    """Return the schema of a query without a schema of its own."""
    names = [name for name in _SPARK_TYPES if include_headers or name != HEADERS]
    return T.StructType([T.StructField(name, _SPARK_TYPES[name]) for name in names])


def columns_of(schema: T.StructType) -> tuple[str, ...]:
    """Return the columns of a schema; raise OptionError for one that the source does not have."""
    for field in schema.fields:
        expected = _SPARK_TYPES.get(field.name)
        if expected is None:
            raise OptionError(
                f"there is no column {field.name}: choose from {', '.join(_SPARK_TYPES)}"
            )
        if field.dataType.simpleString() != expected.simpleString():
            raise OptionError(
                f"column {field.name} is {expected.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    if not schema.fields:
        raise OptionError(f"a schema needs a column: choose from {', '.join(_SPARK_TYPES)}")
    return tuple(schema.fieldNames())


class ColumnBuilder:
    """Builds RecordBatches with the requested columns from located records of one partition."""

    def __init__(self, log: TopicPartition, columns: Sequence[str]) -> None:
        self._log = log
        self._columns = tuple(columns)
        self._schema = pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])

    def build(self, data: bytes | bytearray, records: RecordFields) -> pa.RecordBatch:
        """Return the records as Arrow; keys and values are copied from `data`."""
        buffer = pa.py_buffer(data)
        makers: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: _gather(buffer, records.key_positions, records.key_lengths),
            "value": lambda: _gather(buffer, records.value_positions, records.value_lengths),
            "topic": lambda: pa.repeat(self._log.topic, len(records)),
            "partition": lambda: pa.repeat(np.int32(self._log.partition), len(records)),
            "offset": lambda: pa.array(records.offsets),
            "timestamp": lambda: _microseconds(records.timestamps),
            "timestampType": lambda: pa.array(records.timestamp_types.astype(np.int32)),
            HEADERS: lambda: _headers(buffer, records),
        }
        arrays = [makers[name]() for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _microseconds(milliseconds: Int64s) -> pa.Array:
    return pa.Array.from_buffers(
        _ARROW_TYPES["timestamp"], len(milliseconds), [None, pa.py_buffer(milliseconds * 1000)]
    )


def _gather(buffer: pa.Buffer, positions: Int64s, lengths: Int64s) -> pa.Array:
    """Copy byte strings from the buffer, without a Python object for each.

    The buffer is viewed as an array of twice as many strings: each string, then the gap up to the
    next one. Arrow's `take` copies the even ones; a null is a null index.
    """
    count = len(positions)
    is_null = lengths < 0
    if is_null.all():  # topics without keys
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = positions
    bounds[1::2] = positions + np.maximum(lengths, 0)
    bounds[-1] = bounds[-2]
    strings = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), buffer])
    evens: NDArray[np.int32] = np.arange(0, 2 * count, 2, dtype=np.int32)
    indices = pa.array(evens, mask=is_null) if is_null.any() else pa.array(evens)
    return strings.take(indices)


def _headers(buffer: pa.Buffer, records: RecordFields) -> pa.Array:
    octets: Bytes = np.frombuffer(buffer, np.uint8)
    found = locate_headers(octets, records)
    keys = _as_text(_gather(buffer, found.key_positions, found.key_lengths))
    values = _gather(buffer, found.value_positions, found.value_lengths)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER_TYPE))
    # Null where there are none, as in Kafka's source (KafkaRecordToRowConverter).
    is_null = np.append(np.diff(found.bounds) == 0, False)
    bounds = pa.array(found.bounds.astype(np.int32), mask=is_null)
    lists: Any = pa.ListArray.from_arrays(bounds, pairs, type=_ARROW_TYPES[HEADERS])
    return lists


def _as_text(strings: pa.Array) -> pa.Array:
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise RecordError("the key of a header is not UTF-8") from error
