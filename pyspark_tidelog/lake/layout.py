"""The columns of a row of the lake, and which records do not fit them.

Without a schema a row has the columns of the source. With one, the fields of the value are columns,
and those of the record follow with an underscore before their names, so that they do not collide
with fields. Fields of the value that the schema does not have are counted, and kept as JSON in a
column of their own if there is one for them. Records whose value does not fit go elsewhere,
unchanged and with the reason, or stop the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere in Spark
from pyspark.sql import types as T  # noqa: N812 -- the same

from pyspark_tidelog.errors import JobError, OptionError
from pyspark_tidelog.records.columns import spark_schema
from pyspark_tidelog.tables.json_rows import JsonRows, arrow_type_of, nullable

REASON: Final = "reason"
_FITTED: Final = "_tidelog_fitted"
_ROW: Final = "row"
_UNKNOWN: Final = "unknown"
# As Iceberg names them; a day is the whole date, not its number in the month as in Spark's SQL.
_PARTS_OF_TIME: Final = {
    "year": "year({})",
    "month": "date_format({}, 'yyyy-MM')",
    "day": "to_date({})",
    "hour": "date_format({}, 'yyyy-MM-dd-HH')",
}
_PARTITION_TYPES: Final = (T.StringType, T.IntegralType, T.DateType)


class PartitionColumn(NamedTuple):
    """A column in the names of folders; with an expression, an additional column."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of a micro-batch that do not fit the schema, or have more fields than it has.

    They are counted when the rows are computed, so only afterwards they are known.
    """

    bad: DataFrame
    counts: Observation

    def bad_count(self) -> int:
        """Return the number of records that do not fit."""
        return int(self.counts.get["bad"])

    def unknown_count(self) -> int:
        """Return the number of rows with fields that the schema does not have."""
        return int(self.counts.get["unknown"])

    def unknown_fields(self) -> str:
        """Return the names of such fields in one of those rows."""
        return str(self.counts.get["fields"])

    def sentence(self) -> str:
        """Say which is the first one, and what can be done."""
        first = self.counts.get["first"]
        return (
            f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']} "
            f"does not fit the schema: {first[REASON]}; {self.bad_count()} record(s) of this "
            f"micro-batch do not, and nothing of it was written: run the job again with "
            f"--bad-records and a table or topic for them, or with a new checkpoint and schema"
        )


class Split(NamedTuple):
    """The rows of a micro-batch, and what was seen on the way; None without a schema."""

    rows: DataFrame
    seen: Seen | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of one lake."""

    values: T.StructType | None = None
    """The columns of the values; None keeps the values as they are."""
    partition_by: tuple[PartitionColumn, ...] = ()
    has_headers: bool = False
    rescue: str | None = None
    """The column for fields that the schema does not have; None leaves them out."""

    def __post_init__(self) -> None:
        """Raise OptionError if names of columns collide."""
        names = self.rows.fieldNames()
        lower = [name.lower() for name in names]
        for name in names:
            if lower.count(name.lower()) > 1:
                raise OptionError(f"the lake would have two columns {name}: rename the field")
        for column in self.partition_by:
            if column.expression is None and column.name not in names:
                raise OptionError(
                    f"there is no column {column.name} to partition by: choose from "
                    f"{', '.join(names)}, or use {column.name}=EXPRESSION"
                )
            if column.expression is None:
                require_partition_type(column.name, self.rows[column.name].dataType)
            if column.expression is not None and column.name.lower() in lower:
                raise OptionError(f"there is a column {column.name} already: use another name")
        if self.values is not None:
            arrow_type_of(self.values)

    @property
    def rows(self) -> T.StructType:
        """The columns of the lake without those that only partition it."""
        record = spark_schema(include_headers=self.has_headers)
        if self.values is None:
            return record
        about = [
            T.StructField(self.name_of(each.name), each.dataType)
            for each in record.fields
            if each.name != "value"
        ]
        kept = [] if self.rescue is None else [T.StructField(self.rescue, T.StringType())]
        return T.StructType([*_columns(self.values).fields, *kept, *about])

    @property
    def bad_rows(self) -> T.StructType:
        """The columns of a table of bad records."""
        record = spark_schema(include_headers=self.has_headers)
        return T.StructType([*record.fields, T.StructField(REASON, T.StringType())])

    def name_of(self, column: str) -> str:
        """Return the name that a column of the record has in the lake."""
        return column if self.values is None else f"_{column}"

    def partition_names(self) -> list[str]:
        return [column.name for column in self.partition_by]

    def partition_types(self) -> Mapping[str, pa.DataType]:
        """Return the types of those columns of `rows` that are in the names of folders."""
        return {
            column.name: arrow_type_of(self.rows[column.name].dataType)
            for column in self.partition_by
            if column.expression is None
        }

    def split(self, records: DataFrame) -> Split:
        """Return the rows and the bad records of a micro-batch, both evaluated lazily."""
        if self.values is None:
            return Split(self._partitioned(records), None)
        fitted = records.withColumn(_FITTED, _fitting(self.values)(records["value"]))
        reason = F.col(f"{_FITTED}.{REASON}")
        is_good = reason.isNull()
        place = F.struct("topic", "partition", "offset", reason.alias(REASON))
        # Counted on the way, so that records that fit are converted once.
        seen = Observation()
        watched = fitted
        if not records.isStreaming:  # a stream is only checked, its micro-batches are computed
            unknown = F.col(f"{_FITTED}.{_UNKNOWN}")
            watched = fitted.observe(
                seen,
                F.count_if(~is_good).alias("bad"),
                F.min(F.when(~is_good, place)).alias("first"),
                F.count(unknown).alias("unknown"),
                F.min(F.array_join(F.json_object_keys(unknown), ", ")).alias("fields"),
            )
        names = [F.col(f"{_FITTED}.{_ROW}.`{_quoted(n)}`") for n in self.values.fieldNames()]
        about = [F.col(n).alias(self.name_of(n)) for n in records.columns if n != "value"]
        if self.rescue is not None:
            names.append(F.col(f"{_FITTED}.{_UNKNOWN}").alias(self.rescue))
        bad = fitted.where(~is_good).select(*records.columns, f"{_FITTED}.{REASON}")
        rows = self._partitioned(watched.where(is_good).select(*names, *about))
        return Split(rows, Seen(bad, seen))

    def _partitioned(self, rows: DataFrame) -> DataFrame:
        for column in self.partition_by:
            if column.expression is not None:
                try:
                    rows = rows.withColumn(column.name, F.expr(column.expression))
                except PySparkException as error:
                    raise JobError(
                        f"{column.name}={column.expression} cannot be computed: "
                        f"{str(error).splitlines()[0]}"
                    ) from error
        for column in self.partition_by:
            require_partition_type(column.name, rows.schema[column.name].dataType)
        return rows


def parse_partition_column(text: str) -> PartitionColumn:
    """Parse `NAME`, `NAME=EXPRESSION` in Spark's SQL, or `day(COLUMN)` and the like."""
    part = re.fullmatch(r"\s*(\w+)\(\s*(\w+)\s*\)\s*", text)
    if part is not None and part[1] in _PARTS_OF_TIME:
        return PartitionColumn(f"{part[2]}_{part[1]}", _PARTS_OF_TIME[part[1]].format(part[2]))
    name, separator, expression = text.partition("=")
    name, expression = name.strip(), expression.strip()
    if not re.fullmatch(r"\w+", name) or (separator and not expression):
        raise OptionError(
            f"a column to partition by is NAME, NAME=EXPRESSION or one of "
            f"{', '.join(_PARTS_OF_TIME)} of a column, such as day(timestamp), "
            f"not {text!r}"
        )
    return PartitionColumn(name, expression or None)


def require_partition_type(name: str, data_type: T.DataType) -> None:
    """Raise OptionError for a type that cannot be restored from a folder's name."""
    if not isinstance(data_type, _PARTITION_TYPES):
        raise OptionError(
            f"column {name} is {data_type.simpleString()}: a partition column must be string, "
            f"date or an integer"
        )


def _columns(values: T.StructType) -> T.StructType:
    found = nullable(values)
    assert isinstance(found, T.StructType), "the type is a struct"
    return found


def _quoted(name: str) -> str:
    return name.replace("`", "``")


def _fitting(values: T.StructType) -> Any:  # noqa: ANN401 -- Spark's UDFs have no public type
    """Return the Spark function that converts a value to its row, or to the reason for none."""
    returned = T.StructType(
        [
            T.StructField(_ROW, _columns(values)),
            T.StructField(REASON, T.StringType()),
            T.StructField(_UNKNOWN, T.StringType()),
        ]
    )
    # A deterministic function would be computed twice: once to filter, once for the result.
    return F.arrow_udf(  # type: ignore[attr-defined] # its stub is missing in PySpark
        _fitter(JsonRows(values)), returned
    ).asNondeterministic()


def _fitter(rows: JsonRows) -> Callable[[pa.Array], pa.Array]:
    def fit(values: pa.Array) -> pa.Array:
        fitted = rows.fit(values.to_pylist())
        return pa.StructArray.from_arrays(
            [
                fitted.rows,
                *(pa.array(each, pa.string()) for each in (fitted.reasons, fitted.unknown)),
            ],
            [_ROW, REASON, _UNKNOWN],
        )

    # Spark reads the annotations as types; in this module they would be text.
    fit.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return fit
