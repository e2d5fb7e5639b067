"""What an ingestion job is told, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

INFER: Final = "infer"


@dataclass(frozen=True, slots=True)
class IngestJob:
    """What goes where."""

    server: str
    topics: str
    """One topic, or a comma list."""
    to: str
    """`parquet:PATH`, `delta:PATH` or `json:PATH`."""
    checkpoint: str
    follow: bool = False
    """Go on until stopped; otherwise end when everything there at the start has been read."""
    schema: str | None = None
    """The columns of the values: `infer`, DDL or a file; None keeps values as they are."""
    partition_by: tuple[str, ...] = ()
    """`NAME` or `NAME=EXPRESSION`: columns that folders are named after."""
    quarantine: str | None = None
    """Where records go that do not fit the schema; None is `_quarantine` inside the sink."""
    starting_offsets: str = "earliest"
    """Where a new checkpoint begins; an old one goes on where it was."""
    max_offsets_per_trigger: int = 1_000_000
    """Of one micro-batch: large enough to be efficient, small enough to be repeated."""
    trigger_s: float = 1.0
    """With `follow`, how often to look; Spark's default would ask ninety times a second."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    token: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()
    """Further options of the data source."""
    max_restarts: int | None = None
    """With `follow`, how often in a row to start again after a failure; None is for ever."""

    def source_options(self) -> dict[str, str]:
        """Return the options of the data source."""
        given = {
            "url": self.server,
            "subscribe": self.topics,
            "startingOffsets": self.starting_offsets,
            "maxOffsetsPerTrigger": str(self.max_offsets_per_trigger),
            "includeHeaders": str(self.include_headers).lower(),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }
        if self.token:
            given["token"] = self.token
        return {**given, **dict(self.options)}


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """One micro-batch that is in the lake now."""

    batch_id: int
    rows: int
    """Records that were new: 0 for a micro-batch that was there already when it was repeated."""
    quarantined: int
    """Of these, records that did not fit the schema."""
    total_rows: int
    """Of this run so far."""
    rows_per_second: float
    duration_ms: int
    lag: int | None
    """Offsets between the lake and the end of the log as last seen; None for a micro-batch that
    is repeated after a crash, for Spark does not look at the log then."""


@dataclass(frozen=True, slots=True)
class IngestIdle:
    """The job looked and found nothing new."""

    lag: int | None


@dataclass(frozen=True, slots=True)
class IngestRestart:
    """Something failed, and the job will go on."""

    reason: str
    pause_s: float
    restarts: int
    """Of this run so far, this one included."""


IngestEvent: TypeAlias = IngestProgress | IngestIdle | IngestRestart
Listener: TypeAlias = Callable[[IngestEvent], None]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did."""

    rows: int
    quarantined: int
    batches: int
    restarts: int
    lag: int | None
    """That of the last micro-batch, None without any."""
    is_stopped: bool
    """Whether a signal ended it, and not the end of the log."""
