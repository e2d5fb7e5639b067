"""Computes the fingerprints that the records of a log must have in the lake.

A schema can gain columns. Rows written before have null there, and fields of those names did not
have to fit, so a record has one fingerprint for each schema that the lake has had. Within a
partition the schemas follow each other: after a row with a new column, none without it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from pyspark_tidelog.lake.layout import Layout
from pyspark_tidelog.lake.plain_rows import PlainRows
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.tables.json_rows import Fitted, arrow_type_of

Prints = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The rows that a lake's job makes of records."""

    layout: Layout
    columns: Sequence[str]
    """Of a row, those that are compared."""
    bad_columns: Sequence[str] | None
    """The same of the table of bad records, if there is one."""
    added: tuple[str, ...] = ()
    """Columns that the schema has gained, the oldest first."""
    _reached: dict[TopicPartition, int] = field(default_factory=dict)
    """How many of them the rows of a partition have had so far."""

    def prints(
        self, log: TopicPartition, records: pa.RecordBatch, is_bad: NDArray[np.bool_], held: Prints
    ) -> Prints:
        """Return the fingerprints of the next records of a partition, 0 for a row in neither table.

        `is_bad` says which are in the table of bad records, `held` what the lake holds of them.
        """
        if self.layout.values is None:
            return prints_of(self._as_rows(records))
        stage = self._reached.get(log, 0)
        later = [self._by_schema(records, is_bad, n) for n in range(stage, len(self.added) + 1)]
        expected, place = later[0].copy(), 0
        while len(later) > 1:
            differing = place + np.flatnonzero(held[place:] != later[0][place:])
            found = next(
                (
                    (int(i), n)
                    for i in differing
                    for n in range(1, len(later))
                    if held[i] == later[n][i]
                ),
                None,
            )
            if found is None:
                break
            place, passed = found
            later = later[passed:]
            expected[place:] = later[0][place:]
        self._reached[log] = len(self.added) + 1 - len(later)
        return expected

    def _by_schema(self, records: pa.RecordBatch, is_bad: NDArray[np.bool_], known: int) -> Prints:
        """Return the fingerprints by the schema with so many of the added columns."""
        assert self.layout.values is not None, "a lake without a schema does not gain columns"
        missing = self.added[known:]
        values = StructType([each for each in self.layout.values if each.name not in missing])
        fitted = PlainRows(values).fit(records.column("value").to_pylist())
        does_fit = np.array([reason is None for reason in fitted.reasons], np.bool_)
        as_row = prints_of(self._as_rows(records, fitted, missing))
        if self.bad_columns is None:  # bad records are in a topic, or have stopped the job
            return np.where(does_fit, as_row, np.uint64(0))
        as_bad = prints_of(records.select(self.bad_columns))
        # No fingerprint is 0, so a record that is wrongly in either table differs.
        return np.where(does_fit == is_bad, np.uint64(0), np.where(is_bad, as_bad, as_row))

    def _as_rows(
        self,
        records: pa.RecordBatch,
        fitted: Fitted | None = None,
        missing: Sequence[str] = (),
    ) -> pa.RecordBatch:
        """Return the records with the columns of the lake, null in those that are missing."""
        columns = {self.layout.name_of(n): records.column(n) for n in records.schema.names}
        if fitted is not None:
            columns |= dict(zip(fitted.rows.type.names, fitted.rows.flatten(), strict=True))
            rescue = self.layout.rescue
            if rescue is not None and rescue not in missing:
                columns[rescue] = pa.array(fitted.unknown, pa.string())
        for name in self.added:
            if name not in columns:
                data_type = arrow_type_of(self.layout.rows[name].dataType)
                columns[name] = pa.nulls(records.num_rows, data_type)
        for name in self.layout.partition_types():
            if pa.types.is_string(columns[name].type):
                columns[name] = _without_empty(columns[name])
        return pa.RecordBatch.from_arrays([columns[name] for name in self.columns], self.columns)


def prints_of(rows: pa.RecordBatch) -> Prints:
    """Return a fingerprint of each row, never 0."""
    columns = [_plain(column).to_pylist() for column in rows.columns]
    prints = [hash(repr(row)) for row in zip(*columns, strict=True)]
    return np.array(prints, np.int64).astype(np.uint64) | np.uint64(1)


def _plain(column: pa.Array) -> pa.Array:
    """Return timestamps as numbers, because datetime ends in the year 9999, and no headers as null.

    Earlier releases wrote an empty list for a record without headers.
    """
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if _has_headers(column.type):
        return pc.if_else(pc.equal(pc.list_value_length(column), 0), None, column)
    return column


def _has_headers(kind: pa.DataType) -> bool:
    """Whether these are the headers of records: no field of JSON has binary values."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    return (
        pa.types.is_struct(pair)
        and [one.name for one in pair] == ["key", "value"]
        and (pa.types.is_binary(pair[1].type) or pa.types.is_large_binary(pair[1].type))
    )


def _without_empty(column: pa.Array) -> pa.Array:
    """Return text as folder names hold it: the empty text becomes null."""
    return pa.array([text or None for text in column.to_pylist()], pa.string())
