"""Converts Spark's rows to records. The columns are those of Spark's Kafka sink, and `timestamp`.

`value` is required; `key`, `headers`, `topic`, `partition` and `timestamp` are optional. Strings
are encoded as UTF-8. `offset` and `timestampType` are ignored, so that what was read can be
written; every other column is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import OptionError, TidelogError
from pyspark_tidelog.records.columns import HEADERS
from pyspark_tidelog.records.encode import Records, encode_headers
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


@dataclass(frozen=True, slots=True)
class Rows:
    """Records with the topic and partition that each is written to."""

    records: Records
    topics: pa.Array
    """One per record, never null."""
    partitions: pa.Array
    """One per record; null if the key decides."""

    def __len__(self) -> int:
        return len(self.records)


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


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Rows:
    """Return the rows of a batch. `topic` takes precedence over the column. Raises TidelogError."""
    names, count = batch.schema.names, batch.num_rows
    if topic is not None:
        topics = pa.repeat(pa.scalar(topic), count)
    else:
        topics = batch["topic"].cast(pa.string())
        if topics.null_count:
            raise TidelogError(
                "column topic is null in a row: set the option topic, or filter such rows out"
            )
    partitions = batch["partition"] if "partition" in names else pa.nulls(count, pa.int32())
    keys = _binary(batch["key"]) if "key" in names else pa.nulls(count, pa.binary())
    records = Records(keys, _binary(batch["value"]), _times(batch), _headers(batch))
    return Rows(records, topics, partitions)


def _binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _times(batch: pa.RecordBatch) -> Int64s:
    """Return milliseconds; a row without a timestamp gets the current time."""
    now_ms = time.time_ns() // 1_000_000
    if "timestamp" not in batch.schema.names:
        return np.full(batch.num_rows, now_ms, np.int64)
    micros = batch["timestamp"].cast(pa.int64())
    filled: Int64s = pc.fill_null(micros, now_ms * 1000).to_numpy()
    return filled // 1000


def _headers(batch: pa.RecordBatch) -> list[bytes] | None:
    if HEADERS not in batch.schema.names:
        return None
    column = batch[HEADERS]
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return None
    return [encode_headers(pairs) for pairs in column.to_pylist()]
