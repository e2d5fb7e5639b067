"""Converts Spark's rows to records. The columns are those of Spark's Kafka sink, and `timestamp`.

`value` is required; `key`, `headers`, `topic`, `partition` and `timestamp` are optional. Strings
are encoded as UTF-8. `offset` and `timestampType` are ignored, so that what was read can be
written; every other column is refused.
"""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import OptionError, TidelogError
from pyspark_tidelog.records.columns import HEADERS
from pyspark_tidelog.records.encode import encode_headers
from pyspark_tidelog.records.varints import Int64s

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    HEADERS: (_HEADERS_TYPE,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_IGNORED: Final = frozenset({"offset", "timestampType"})


def ensure_writable(schema: StructType, *, has_topic: bool) -> None:
    """Raise OptionError for columns that cannot be written."""
    for field in schema.fields:
        if field.name in _IGNORED:
            continue
        allowed = _ALLOWED.get(field.name)
        if allowed is None:
            raise OptionError(
                f"column {field.name} cannot be written: rename or drop it; "
                f"written are {', '.join(_ALLOWED)}"
            )
        if field.dataType.simpleString() not in allowed:
            raise OptionError(
                f"column {field.name} must be {' or '.join(allowed)}, "
                f"not {field.dataType.simpleString()}"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("a column value is required")
    if not has_topic and "topic" not in schema.fieldNames():
        raise OptionError("no topic is given: set the option topic, or write a column topic")


def records_of(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return the records of a batch of rows, with the columns `topic` and `partition` as well.

    `topic` takes precedence over the column. `partition` is null if the key decides. Raises
    TidelogError for a row that cannot be a record.
    """
    names, count = batch.schema.names, batch.num_rows
    if topic is None and batch["topic"].null_count:
        raise TidelogError(
            "column topic is null in a row: set the option topic, or filter such rows out"
        )
    columns = {
        "key": _binary(batch["key"]) if "key" in names else pa.nulls(count, pa.binary()),
        "value": _binary(batch["value"]),
        "timestamp": _times(batch),
        "topic": pa.repeat(topic, count) if topic is not None else batch["topic"],
        "partition": batch["partition"] if "partition" in names else pa.nulls(count, pa.int32()),
    }
    if HEADERS in names and pc.any(pc.greater(pc.list_value_length(batch[HEADERS]), 0)).as_py():
        headers = [encode_headers(pairs) for pairs in batch[HEADERS].to_pylist()]
        columns[HEADERS] = pa.array(headers, pa.binary())
    return pa.record_batch(columns)


def _binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _times(batch: pa.RecordBatch) -> pa.Array:
    """Return milliseconds; a row without a timestamp gets the current time."""
    now_ms = time.time_ns() // 1_000_000
    if "timestamp" not in batch.schema.names:
        return pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    micros: Int64s = pc.fill_null(batch["timestamp"].cast(pa.int64()), now_ms * 1000).to_numpy()
    return pa.array(micros // 1000)
