"""Where the job puts records: for now Parquet, a folder per micro-batch.

Spark's own streaming file sink is exactly-once for Spark alone: after a crash every other reader of
the folder sees records twice. Here each micro-batch owns the folder `batch_id=<n>`, and whoever
repeats it replaces the folder whole, so any reader that lists files sees each record once.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame

from pyspark_tidelog.checkpoint import local_folder, sync_folder
from pyspark_tidelog.errors import OptionError

_STAGING: Final = "_writing"


class Sink(Protocol):
    """Takes micro-batches; one that is written again under its number replaces the first."""

    @property
    def name(self) -> str:
        """How the sink is told from others: what `--to` says, made absolute."""

    @property
    def folder(self) -> Path:
        """Where the sink keeps its data, and the job its identity."""

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Make the micro-batch part of the sink; durable when this returns."""


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """A folder of Parquet files: `batch_id=0/part-….parquet`, `batch_id=1/…`."""

    folder: Path

    @property
    def name(self) -> str:
        """`parquet:` and the absolute folder."""
        return f"parquet:{self.folder}"

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write beside the table, then move the whole folder in: a reader never sees half of it."""
        name = f"batch_id={batch_id}"
        staging = self.folder / _STAGING / name
        frame.write.mode("overwrite").parquet(str(staging))
        # The data must be on disk before Spark notes the micro-batch as done.
        for file in staging.iterdir():
            _sync_file(file)
        sync_folder(staging)
        replaced = self.folder / _STAGING / "replaced"
        shutil.rmtree(replaced, ignore_errors=True)
        if (self.folder / name).exists():
            (self.folder / name).rename(replaced)
        staging.rename(self.folder / name)
        sync_folder(self.folder)
        shutil.rmtree(self.folder / _STAGING)


def parse_sink(text: str) -> Sink:
    """Read `parquet:PATH`; raise OptionError for anything else."""
    kind, separator, path = text.partition(":")
    if kind != "parquet" or not separator or not path:
        raise OptionError(f"the sink must be parquet:PATH, not {text!r}")
    return ParquetSink(local_folder("the path of the sink", path))


def _sync_file(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
