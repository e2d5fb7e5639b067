"""Reads the rows of a table without Spark, as Arrow in the same types for every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.table import Table


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a table: of rows, or of bad records."""

    table: Table
    schema: StructType
    added: tuple[str, ...] = ()
    """Columns that files of before do not have."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, in any order; raise JobError for a file of no job."""
        columns = StructType([self.schema[name] for name in names])
        wanted = pa.schema([(each.name, arrow_type_of(each.dataType)) for each in columns.fields])
        try:
            for batch in self.table.batches(columns):
                held = batch.schema.names
                arrays = [
                    pa.nulls(batch.num_rows, wanted.field(name).type)
                    if name in self.added and name not in held
                    else batch.column(name).cast(wanted.field(name).type)
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
        except (pa.ArrowException, KeyError, OSError) as error:
            raise JobError(f"{self.table.target} cannot be read: {error}") from error
