"""The interface of a table: it stores each micro-batch of its job once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.parquet_files import NewFile
from pyspark_tidelog.tables.places import Place
from pyspark_tidelog.tables.target import Target


class Batch(NamedTuple):
    """A micro-batch, as the table records it."""

    job_id: str
    """From the checkpoint; numbers of micro-batches are relative to it."""
    number: int
    plan: int = 0
    """A digest of its offsets, by which a table recognizes a micro-batch of another plan."""
    run: int = 0
    """The number of the job's run, by which a table refuses a run that was replaced."""


class DataFile(NamedTuple):
    """A file of rows, and the partition columns that are not in the file, as text."""

    path: str
    """Relative to the table, or a URL."""
    size_bytes: int
    partition: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """A micro-batch that is written, but not in the table yet."""

    batch: Batch
    rows: int
    schema: StructType
    files: tuple[NewFile, ...] = ()
    """Unless they are in a folder that is moved into the table."""


def refuse_other_plan(batch: Batch, held: int | None) -> None:
    """Raise JobError if the table has the micro-batch with another plan.

    Two copies of one checkpoint make different plans for the same micro-batch. A job that
    continued after the other copy's micro-batch would skip or repeat records.
    """
    if held not in (None, batch.plan):
        raise JobError(
            f"the table holds micro-batch {batch.number} with other offsets than this checkpoint: "
            f"a second job uses a copy of the checkpoint; stop one of them, and continue with the "
            f"checkpoint of the other"
        )


def refuse_replaced_run(batch: Batch, last: int | None) -> None:
    """Raise JobError if a later run has written to the table.

    A driver that was paused may not know yet that another one has taken its checkpoint over. The
    table checks this in the commit itself.
    """
    if last is not None and batch.run < last:
        raise JobError(
            f"run {last} of this job has written to the table since, and this is run {batch.run}: "
            f"another job has taken its checkpoint over, or uses a later copy of it"
        )


class Table(Protocol):
    """A table that one job fills."""

    @property
    def target(self) -> Target: ...

    @property
    def place(self) -> Place:
        """Where the identity of the job is stored."""

    def has(self, batch: Batch) -> bool:
        """Whether the micro-batch is in the table."""

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        """Compute the micro-batch and write it durably where readers do not look."""

    def publish(self, staged: Staged) -> None:
        """Add the micro-batch to the table durably, in one step."""

    def files(self) -> Iterator[DataFile]:
        """Yield the data files of the current version."""

    def batches(self, columns: StructType) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, in any order, without those that the files do not have.

        The types may still have to be cast.
        """
