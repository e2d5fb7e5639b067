"""The lake that a job writes to (`--to`), and the interface of its sinks.

A micro-batch is staged where readers do not look, and then published in one step, unless it is
published already. So a micro-batch that is repeated after a crash is in the lake once.
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
    """Stores each micro-batch once, by its number."""

    def has(self, batch_id: int) -> bool:
        """Whether the micro-batch is published."""

    def stage(self, rows: DataFrame, batch_id: int) -> None:
        """Compute the micro-batch and write it durably where readers do not look."""

    def publish(self, batch_id: int) -> None:
        """Add the staged micro-batch to the lake durably, in one step."""


@dataclass(frozen=True, slots=True)
class Target:
    """The value of `--to`."""

    kind: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.kind}:{self.folder}"


def parse_target(text: str) -> Target:
    """Parse `parquet:PATH`, `delta:PATH` or `json:PATH`; raise OptionError for anything else."""
    kind, separator, path = text.partition(":")
    if kind not in KINDS or not separator or not path:
        raise OptionError(
            f"the sink must be {', '.join(f'{k}:PATH' for k in KINDS[:-1])} or {KINDS[-1]}:PATH, "
            f"not {text!r}"
        )
    return Target(kind, local_folder("the path of the sink", path))


def require_delta() -> None:
    """Raise OptionError if delta-rs is not installed."""
    try:
        import deltalake  # noqa: F401, PLC0415 -- checks whether it is installed
    except ImportError as error:
        raise OptionError(
            "delta: needs delta-rs: run pip install 'pyspark-tidelog[delta]'"
        ) from error
