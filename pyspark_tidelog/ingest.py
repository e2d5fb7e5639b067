"""The ingestion job: a topic into a lake, each record exactly once, until caught up or for good.

Exactly once stands on three things: a micro-batch is a fixed range of offsets, written down before
it runs; the sink replaces what a repeated micro-batch had written before; checkpoint, sink and log
are held together by their identity.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.checkpoint import claimed, local_folder
from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.offsets import StreamOffset
from pyspark_tidelog.options import Options
from pyspark_tidelog.service import snapshot_of
from pyspark_tidelog.session import local_session
from pyspark_tidelog.sinks import Sink, parse_sink

_POLL_S: Final = 0.2
_FIRST_RETRIES: Final = 6  # three seconds

# Where in Spark's many words the telling ones are, the best first: an error of ours, the deepest
# cause on Java's side, the error Java gave to Python.
_TELLING: Final = (
    r"^pyspark_tidelog\.errors\.\w+: (.+)$",
    r"^Caused by: (.+)$",
    r"^: ([\w.$]+: .+)$",
)


@dataclass(frozen=True, slots=True)
class IngestJob:
    """What goes where."""

    server: str
    topics: str
    """One topic, or a comma list."""
    to: str
    """`parquet:PATH`."""
    checkpoint: str
    follow: bool = False
    """Go on until stopped; otherwise end when everything there at the start has been read."""
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
    total_rows: int
    """Of this run so far."""
    rows_per_second: float
    duration_ms: int
    lag: int | None
    """Offsets between the lake and the end of the log as last seen; None for a micro-batch that
    is repeated after a crash, for Spark does not look at the log then."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did."""

    rows: int
    batches: int
    lag: int | None
    """That of the last micro-batch, None without any."""
    is_stopped: bool
    """Whether a signal ended it, and not the end of the log."""


def run(
    job: IngestJob,
    progress: Callable[[IngestProgress], None] | None = None,
    *,
    spark: SparkSession | None = None,
    log_file: Path | None = None,
) -> IngestReport:
    """Run the job to its end and report; without a session of the caller's it starts a local one.

    SIGINT and SIGTERM end it cleanly, if called on the main thread; a micro-batch under way is
    repeated by the next run. Raises JobError, OptionError or ServiceError before anything has run,
    and JobFailed with the telling line of Spark's error afterwards: lake and checkpoint are
    consistent in every case.
    """
    sink = parse_sink(job.to)
    checkpoint = local_folder("the checkpoint", job.checkpoint)
    options = Options.parse(job.source_options()).for_stream()
    # At the start somebody waits for an answer; a query under way has the patience of its options.
    hasty = replace(options.endpoint, retries=min(options.endpoint.retries, _FIRST_RETRIES))
    with ServiceClient(hasty) as client:
        snapshot = snapshot_of(client, options.topics)
    with ExitStack() as stack:
        stop = stack.enter_context(_stop_signals())
        stack.enter_context(
            claimed(checkpoint, sink.folder, sink=sink.name, topic_ids=snapshot.topic_ids)
        )
        stack.enter_context(_muted("py4j.clientserver"))
        session = spark or stack.enter_context(local_session(log_file=log_file))
        query = _start(session, job, sink, checkpoint)
        return _watch(query, stop, progress or _ignore)


def _start(spark: SparkSession, job: IngestJob, sink: Sink, checkpoint: Path) -> StreamingQuery:
    records = spark.readStream.format("tidelog").options(**job.source_options()).load()

    def write(frame: DataFrame, batch_id: int) -> None:
        sink.write(frame, batch_id)

    writer = records.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    if job.follow:
        return writer.trigger(processingTime=f"{round(job.trigger_s * 1000)} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def _watch(
    query: StreamingQuery, stop: threading.Event, progress: Callable[[IngestProgress], None]
) -> IngestReport:
    """Tell of every micro-batch as it is done, until the query ends or is to end."""
    tally = _Tally(progress)
    try:
        while query.isActive and not stop.wait(_POLL_S):
            tally.add(query)
        tally.add(query)
    finally:
        query.stop()
    error = query.exception()
    if error is not None and not stop.is_set():
        raise JobFailed(last_words(str(error))) from error
    return IngestReport(tally.rows, tally.batches, tally.lag, is_stopped=stop.is_set())


class _Tally:
    """Counts what Spark reports, each micro-batch once."""

    def __init__(self, progress: Callable[[IngestProgress], None]) -> None:
        self._progress = progress
        self._last_batch_id = -1
        self.rows = 0
        self.batches = 0
        self.lag: int | None = None

    def add(self, query: StreamingQuery) -> None:
        """Report the micro-batches that were completed since the last call."""
        for report in query.recentProgress:
            # An idle query reports, too: again and again the number of the micro-batch to come.
            if report.batchId <= self._last_batch_id or "addBatch" not in report.durationMs:
                continue
            self._last_batch_id = report.batchId
            self.rows += report.numInputRows
            self.batches += 1
            self.lag = _lag(report)
            self._progress(
                IngestProgress(
                    batch_id=report.batchId,
                    rows=report.numInputRows,
                    total_rows=self.rows,
                    rows_per_second=report.processedRowsPerSecond,
                    duration_ms=report.durationMs["triggerExecution"],
                    lag=self.lag,
                )
            )


def _lag(report: StreamingQueryProgress) -> int | None:
    latest, end = (
        json.loads(text or "null")
        for text in (report.sources[0].latestOffset, report.sources[0].endOffset)
    )
    if latest is None or end is None:
        return None
    latest = StreamOffset.from_json(latest).offsets
    end = StreamOffset.from_json(end).offsets
    return sum(max(offset - end.get(log, 0), 0) for log, offset in latest.items())


def last_words(message: str) -> str:
    """Return the line of a Spark exception that tells the user something."""
    for pattern in _TELLING:
        found = re.findall(pattern, message, re.MULTILINE)
        if found:
            return str(found[-1]).strip()
    return next((line.strip() for line in message.splitlines() if line.strip()), "Spark gave up")


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into an event; a second one does what it always does."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _muted(name: str) -> Iterator[None]:
    """Keep a logger from printing: it writes the stack of an error that is raised as well."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _ignore(_progress: IngestProgress) -> None:
    """Take note of nothing."""
