"""Reads the rows of a lake without Spark, as Arrow in the same types and columns for every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.folders import DataFile, data_files
from pyspark_tidelog.lake.json_rows import JsonRows, arrow_type_of
from pyspark_tidelog.lake.layout import Layout

_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows in one folder: a lake, or its quarantine."""

    kind: str
    folder: Path
    schema: StructType
    layout: Layout

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, in any order; raise JobError for a file of no job."""
        wanted = pa.schema([(name, arrow_type_of(self.schema[name].dataType)) for name in columns])
        try:
            for batch in self._stored(columns):
                arrays = [batch.column(name).cast(wanted.field(name).type) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
        except (pa.ArrowException, KeyError, OSError) as error:
            raise JobError(f"{self.folder} cannot be read: {error}") from error

    def _stored(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.kind == "delta":
            from pyspark_tidelog.lake.delta import table_batches  # noqa: PLC0415 -- an extra

            yield from table_batches(self.folder, list(columns))
            return
        for file in data_files(self.folder):
            for batch in self._of_file(file, columns):
                yield self._with_partition(batch, file)

    def _of_file(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        held = [name for name in columns if name not in dict(file.partition)]
        if self.kind == "parquet":
            yield from pq.ParquetFile(file.path).iter_batches(_ROWS, columns=held)
            return
        fields = [each for each in self.schema.fields if each.name not in dict(file.partition)]
        rows = JsonRows(StructType(fields))
        with file.path.open("rb") as lines:
            while chunk := [*islice(lines, _ROWS)]:
                fitted = rows.fit(chunk)
                wrong = next((reason for reason in fitted.reasons if reason), None)
                if wrong is not None:
                    raise JobError(f"{file.path} holds a line that no job wrote: {wrong}")
                yield pa.RecordBatch.from_struct_array(fitted.rows).select(held)

    def _with_partition(self, batch: pa.RecordBatch, file: DataFile) -> pa.RecordBatch:
        """Add the columns whose values are in the names of folders."""
        types = self.layout.partition_types()
        for name, text in file.partition:
            if name in types:
                constant = pa.scalar(text, pa.string()).cast(types[name])
                batch = batch.append_column(name, pa.repeat(constant, batch.num_rows))
        return batch
