"""The options, events and report of an ingestion job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

INFER: Final = "infer"


@dataclass(frozen=True, slots=True)
class IngestJob:
    """The options of a job."""

    server: str
    topics: str
    """One topic, or a comma list; empty with `topic_pattern`."""
    to: str
    """`parquet:PATH`, `json:PATH`, `delta:PATH` or `delta:URL`; with `topic_pattern` each table is
    below it."""
    checkpoint: str
    topic_pattern: str | None = None
    """A regular expression: every topic that matches, and a table for each."""
    follow: bool = False
    """Run until stopped; otherwise end when everything written before the start is read."""
    schema: str | None = None
    """The columns of the values: `infer`, DDL or a file; None keeps values as they are."""
    partition_by: tuple[str, ...] = ()
    """`NAME` or `NAME=EXPRESSION`: columns in the names of folders."""
    bad_records: str | None = None
    """Where records go that do not fit the schema, a table as in `to` or `topic:NAME`; None lets
    such a record stop the job."""
    rescue: str | None = None
    """A column for fields that the schema does not have, as JSON; None leaves them out."""
    starting_offsets: str = "earliest"
    """Where a new checkpoint begins; an existing one continues where it ended."""
    max_offsets_per_trigger: int = 1_000_000
    """The most offsets of one micro-batch."""
    trigger_s: float = 1.0
    """With `follow`, the time between two polls; Spark's default polls 90 times a second."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """More options of the data source; not in `repr`, because `token` may be among them."""
    compact_every_s: float | None = None
    """Merge the small files of a table that was written, this often; 0 is never, and None is the
    job's own schedule, for tables whose readers are not disturbed: Delta and Iceberg."""
    max_restarts: int | None = None
    """With `follow`, the most restarts in a row after failures; None is unlimited."""

    @property
    def subscribed(self) -> str:
        """The topics, for people."""
        return self.topic_pattern or self.topics

    def source_options(self) -> dict[str, str]:
        """Return the options of the data source."""
        by_name = self.topic_pattern is None
        return {
            "url": self.server,
            "subscribe" if by_name else "subscribePattern": self.subscribed,
            "startingOffsets": self.starting_offsets,
            "maxOffsetsPerTrigger": str(self.max_offsets_per_trigger),
            "includeHeaders": str(self.include_headers).lower(),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            **dict(self.options),
        }


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """A finished micro-batch."""

    batch_id: int
    rows: int
    """New records: 0 for a repeated micro-batch that was in the lake already."""
    quarantined: int
    """Those of them that did not fit the schema."""
    with_unknown_fields: int
    """Those of them with fields that the schema does not have."""
    total_rows: int
    """Of this run so far."""
    rows_per_second: float
    duration_ms: int
    lag: int | None
    """Offsets between the lake and the end of the log; None for a micro-batch that is repeated
    after a crash, because Spark does not ask for the end of the log then."""
    lag_s: float | None = None
    """The age of the oldest record that waits, by its timestamp; 0 if none waits."""


@dataclass(frozen=True, slots=True)
class IngestIdle:
    """The job found no new records."""

    lag: int | None
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class IngestRestart:
    """The query failed, and the job restarts it."""

    reason: str
    pause_s: float
    restarts: int
    """Of this run so far, this one included."""


@dataclass(frozen=True, slots=True)
class IngestCompaction:
    """The job has merged small files of a table, or failed to, which does not end it."""

    table: str
    files_before: int
    files_after: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class IngestStopping:
    """A signal was received: the job ends after the current micro-batch."""


IngestEvent: TypeAlias = (
    IngestProgress | IngestIdle | IngestRestart | IngestCompaction | IngestStopping
)
Listener: TypeAlias = Callable[[IngestEvent], None]


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a run added to one table."""

    table: str
    """Its target, as `--to` gives it."""
    rows: int
    quarantined: int
    with_unknown_fields: int = 0


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of a run."""

    rows: int
    quarantined: int
    batches: int
    restarts: int
    lag: int | None
    """The lag after the last micro-batch; None if there was none."""
    is_stopped: bool
    """Whether a signal ended the run, rather than the end of the log."""
    lag_s: float | None = None
    seconds: float = 0.0
    """The duration of the run, with the start of Spark."""
    tables: tuple[TableReport, ...] = ()
    with_unknown_fields: int = 0
