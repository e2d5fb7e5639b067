"""What a sink promises, and which there are.

A micro-batch is staged where no reader looks, then published in one step; one that is there already
is left alone. So whoever repeats a micro-batch after a crash, at whatever instant that was, ends
with each record once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.lake.checkpoint import local_folder

KINDS: Final = ("parquet", "delta", "json")


class Sink(Protocol):
    """Takes micro-batches by number, each once."""

    def has(self, batch_id: int) -> bool:
        """Whether the micro-batch is published."""

    def stage(self, rows: DataFrame, batch_id: int) -> None:
        """Compute the micro-batch and write it where no reader looks; durable afterwards."""

    def publish(self, batch_id: int) -> None:
        """Make what was staged part of the lake in one step; durable afterwards."""


@dataclass(frozen=True, slots=True)
class Place:
    """What `--to` says."""

    kind: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.kind}:{self.folder}"


def parse_place(text: str) -> Place:
    """Read `parquet:PATH`, `delta:PATH` or `json:PATH`; raise OptionError for anything else."""
    kind, separator, path = text.partition(":")
    if kind not in KINDS or not separator or not path:
        raise OptionError(
            f"the sink must be {', '.join(f'{k}:PATH' for k in KINDS[:-1])} or {KINDS[-1]}:PATH, "
            f"not {text!r}"
        )
    return Place(kind, local_folder("the path of the sink", path))


def put(sink: Sink, rows: DataFrame, batch_id: int) -> bool:
    """Bring a micro-batch in; return whether it was not there yet."""
    if sink.has(batch_id):
        return False
    sink.stage(rows, batch_id)
    sink.publish(batch_id)
    return True


def require_delta() -> None:
    """Raise OptionError where delta-rs is not installed."""
    try:
        import deltalake  # noqa: F401, PLC0415 -- whether it is there is the question
    except ImportError as error:
        raise OptionError(
            "delta: needs delta-rs: run pip install 'pyspark-tidelog[delta]'"
        ) from error
