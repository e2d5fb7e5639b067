"""What a row of the lake is, and where a bad one goes.

Without a schema a row is the record as the source has it. With one, the fields of the value are
columns, and what the record itself says stands beside them with an underscore in front, so that no
field of a value gets into its way. Records whose value does not fit go to the quarantine, as they
were and with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere in Spark
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from pyspark_tidelog.errors import JobError, OptionError
from pyspark_tidelog.lake.json_rows import JsonRows, arrow_type_of, nullable
from pyspark_tidelog.records.columns import spark_schema

REASON: Final = "reason"
_FITTED: Final = "_tidelog_fitted"
_ROW: Final = "row"
_PARTITION_TYPES: Final = (StringType, ByteType, ShortType, IntegerType, LongType, DateType)


class PartitionColumn(NamedTuple):
    """A column that folders are named after; with an expression it is made for that."""

    name: str
    expression: str | None = None


class Split(NamedTuple):
    """One micro-batch as the lake has it, and what does not fit; None where everything does."""

    rows: DataFrame
    bad: DataFrame | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of one lake."""

    values: StructType | None = None
    """The columns of the values; None keeps the values as they are."""
    partition_by: tuple[PartitionColumn, ...] = ()
    has_headers: bool = False

    def __post_init__(self) -> None:
        """Raise OptionError where columns get into each other's way."""
        names = self.rows.fieldNames()
        lower = [name.lower() for name in names]
        for name in names:
            if lower.count(name.lower()) > 1:
                raise OptionError(f"the lake would have two columns {name}: rename the field")
        for column in self.partition_by:
            if column.expression is None and column.name not in names:
                raise OptionError(
                    f"there is no column {column.name} to partition by: choose from "
                    f"{', '.join(names)}, or say {column.name}=EXPRESSION"
                )
            if column.expression is not None and column.name.lower() in lower:
                raise OptionError(f"there is a column {column.name} already: name another")
        if self.values is not None:
            arrow_type_of(self.values)

    @property
    def rows(self) -> StructType:
        """The columns of the lake, less those that are made for partitioning."""
        record = spark_schema(include_headers=self.has_headers)
        if self.values is None:
            return record
        about = [
            StructField(self.name_of(each.name), each.dataType)
            for each in record.fields
            if each.name != "value"
        ]
        return StructType([*_columns(self.values).fields, *about])

    @property
    def bad_rows(self) -> StructType:
        """The columns of the quarantine."""
        record = spark_schema(include_headers=self.has_headers)
        return StructType([*record.fields, StructField(REASON, StringType())])

    def name_of(self, column: str) -> str:
        """Return what a column of the record is called in the lake."""
        return column if self.values is None else f"_{column}"

    def partition_names(self) -> list[str]:
        return [column.name for column in self.partition_by]

    def partition_types(self) -> Mapping[str, pa.DataType]:
        """Return the types of those columns of rows that are kept in the names of folders."""
        return {
            column.name: arrow_type_of(self.rows[column.name].dataType)
            for column in self.partition_by
            if column.expression is None
        }

    def split(self, records: DataFrame) -> Split:
        """Return the rows and the bad records of a micro-batch, both still to be computed."""
        if self.values is None:
            return Split(self._partitioned(records), None)
        judged = records.withColumn(_FITTED, _fitting(self.values)(records["value"]))
        is_good = F.col(f"{_FITTED}.{REASON}").isNull()
        names = [F.col(f"{_FITTED}.{_ROW}.`{_quoted(n)}`") for n in self.values.fieldNames()]
        about = [F.col(n).alias(self.name_of(n)) for n in records.columns if n != "value"]
        bad = judged.where(~is_good).select(*records.columns, f"{_FITTED}.{REASON}")
        return Split(self._partitioned(judged.where(is_good).select(*names, *about)), bad)

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
    """Read `NAME` or `NAME=EXPRESSION`, the expression in Spark's SQL."""
    name, separator, expression = text.partition("=")
    name, expression = name.strip(), expression.strip()
    if not re.fullmatch(r"\w+", name) or (separator and not expression):
        raise OptionError(
            f"a column to partition by is NAME or NAME=EXPRESSION, such as day=date(timestamp), "
            f"not {text!r}"
        )
    return PartitionColumn(name, expression or None)


def require_partition_type(name: str, data_type: DataType) -> None:
    """Raise OptionError for a type that would not come back the same from a folder's name."""
    if not isinstance(data_type, _PARTITION_TYPES):
        raise OptionError(
            f"column {name} is {data_type.simpleString()}: what folders are named after is "
            f"string, date or a whole number"
        )


def _columns(values: StructType) -> StructType:
    found = nullable(values)
    assert isinstance(found, StructType), "a struct stays one"
    return found


def _quoted(name: str) -> str:
    return name.replace("`", "``")


def _fitting(values: StructType) -> Any:  # noqa: ANN401 -- Spark's UDFs have no public type
    """Return the function of Spark's that turns a value into its row, or the reason for none."""
    returned = StructType([StructField(_ROW, _columns(values)), StructField(REASON, StringType())])
    # Otherwise Spark computes it twice, once to filter and once to show.
    return F.arrow_udf(  # type: ignore[attr-defined] # its stub is missing in PySpark
        _fitter(JsonRows(values)), returned
    ).asNondeterministic()


def _fitter(rows: JsonRows) -> Callable[[pa.Array], pa.Array]:
    def fit(values: pa.Array) -> pa.Array:
        fitted = rows.fit(values.to_pylist())
        return pa.StructArray.from_arrays(
            [fitted.rows, pa.array(fitted.reasons, pa.string())], [_ROW, REASON]
        )

    # Spark goes by the annotations, and cannot read them as the text they are here.
    fit.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return fit
