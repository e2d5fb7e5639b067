"""Runs the ingestion job: topics into a lake, each record exactly once.

That rests on three rules. A micro-batch is a fixed range of offsets, recorded before it runs. The
sink stores each micro-batch once, in one step. Checkpoint, lake and topics belong to each other,
which every run checks.

The text of a Spark exception tells the root cause, and whether a restart can help.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.ingest.job import (
    IngestEvent,
    IngestJob,
    IngestReport,
    IngestRestart,
    IngestStopping,
    Listener,
)
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.ingest.progress import LagMeter, Progress
from pyspark_tidelog.ingest.table_writer import LakeWriter, OneTable, Tables, TableWriter
from pyspark_tidelog.ingest.topic_tables import TopicTables, terms_of
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.identity import claimed
from pyspark_tidelog.session import local_session
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import snapshot_of

# Best first: an error of this package, the deepest cause in Java, the error that Java passed to
# Python, the last error in Python.
_CAUSES: Final = (
    r"^pyspark_tidelog\.errors\.(\w+): (.+)$",
    r"^Caused by: ()(.+)$",
    r"^: ()([\w.$]+: .+)$",
    r"^()[\w.]*(?:Error|Exception): (.+)$",
)

# The same offsets would fail again.
_PERMANENT: Final = frozenset({"OptionError", "DataLossError", "DamagedBatchError", "JobError"})

_TOO_LONG: Final = "File name too long"
_ADVICE: Final = (
    (
        _TOO_LONG,
        (
            "a value of a partition column is too long for the name of a folder: partition by "
            "another column or by an expression, such as NAME=substr(COLUMN, 1, 20), in a new table"
        ),
    ),
    (
        "No space left on device",
        "there is no space left for the lake: free some and run the job again",
    ),
    (
        "Disk quota exceeded",
        "the disk quota of the lake is used up: free some space and run the job again",
    ),
    (
        "Read-only file system",
        "the lake is on a read-only file system: make it writable and run the job again",
    ),
    (
        "Parent path is not a directory",
        "there is a file where the lake needs a folder: move it and run the job again",
    ),
    (
        "Mkdirs failed to create",
        "the lake's folders cannot be created: let the job's user write there and run it again",
    ),
    (
        "Permission denied",
        "the job's user may not write there: change the permissions and run the job again",
    ),
)


class RootCause(NamedTuple):
    """The cause of a failed query."""

    sentence: str
    is_permanent: bool
    """Whether the same job would fail in the same way again."""

    @property
    def is_worker_timeout(self) -> bool:
        """Whether a Python process took more than ten seconds to start.

        No setting of Spark changes that limit, which a busy machine can exceed.
        """
        return "Python worker failed to connect back" in self.sentence


def root_cause(message: str) -> RootCause:
    """Return the root cause in the text of a Spark exception."""
    sentence, kind = _last_error(message)
    for sign, advice in _ADVICE:
        if sign in sentence:
            return RootCause(f"{advice} ({sentence})", is_permanent=sign == _TOO_LONG)
    return RootCause(sentence, is_permanent=kind in _PERMANENT)


def _last_error(message: str) -> tuple[str, str]:
    for pattern in _CAUSES:
        found = [
            error
            for error in re.findall(pattern, message, re.MULTILINE)
            if not error[1].endswith("Traceback (most recent call last):")  # continued below
        ]
        if found:
            kind, sentence = found[-1]
            return sentence.strip(), kind
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return first or "Spark gave no reason", ""


_POLL_S: Final = 0.2
_IDLE_POLL_S: Final = 5.0  # calls to the JVM cost; a micro-batch that begins ends the wait
_COMMIT_S: Final = 10.0  # Spark commits a micro-batch in a tenth of a second
_FIRST_RETRIES: Final = 6  # about three seconds
_WORKER_TIMEOUTS: Final = 5  # Spark gives a Python process ten seconds to start
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0

OpenSession = Callable[[], AbstractContextManager[SparkSession]]


def run(
    job: IngestJob,
    listener: Listener | None = None,
    *,
    spark: SparkSession | None = None,
    log_file: Path | None = None,
) -> IngestReport:
    """Run the job to its end; without `spark` it starts local sessions of its own.

    On the main thread, SIGINT and SIGTERM end it: at once before a query runs, while it waits for
    another job's lease or for Spark, otherwise after the current micro-batch. Raises JobError,
    OptionError or ServiceError before anything has run, and JobFailed with the cause of Spark's
    error afterwards. Lake and checkpoint are consistent in every case.
    """
    listener = listener or _ignore
    with _stop_signals() as signals:
        try:
            return _run_job(job, signals, listener, spark, log_file)
        except StoppedEarly:
            return IngestReport(0, 0, batches=0, restarts=0, lag=None, is_stopped=True)


def _run_job(
    job: IngestJob,
    signals: Signals,
    listener: Listener,
    spark: SparkSession | None,
    log_file: Path | None,
) -> IngestReport:
    _require_writable(log_file)
    target = Plan.target_of(job)
    checkpoint = Checkpoint(job.checkpoint)
    options = Options.parse(job.source_options()).for_stream()
    # Fewer retries at the start, when a user waits for an error, than during a query.
    impatient = replace(options.endpoint, retries=min(options.endpoint.retries, _FIRST_RETRIES))
    with ServiceClient(impatient) as client:
        if job.topic_pattern is None:
            snapshot = snapshot_of(client, options.topics)
            plan = Plan.make(job, target, options, client, snapshot)
            terms, places = plan.terms, plan.places()
        else:  # a table is claimed when its topic has records
            plan, terms, places = None, terms_of(job, target, options, client), []
    opened: OpenSession = lambda: (  # noqa: E731 -- one line with a type
        nullcontext(spark) if spark is not None else local_session(log_file=log_file)
    )
    with ExitStack() as stack:
        identity = stack.enter_context(claimed(checkpoint, places, terms))
        for noisy in ("py4j.clientserver", "SQLQueryContextLogger"):
            stack.enter_context(_muted(noisy))
        tables: Tables = (
            OneTable(TableWriter(plan, identity.job_id, checkpoint.run, job.compact_every_s))
            if plan is not None
            else TopicTables(job, target, options, identity, checkpoint=checkpoint, stack=stack)
        )
        stop, wake = signals.stop, signals.wake
        writer = LakeWriter(tables, checkpoint, stop, wake)
        return _Run(job, writer, opened, signals, listener).go()


def _require_writable(log_file: Path | None) -> None:
    """Raise JobError if Spark's output cannot go there: a session would fail without a reason."""
    if log_file is not None:
        try:
            log_file.open("ab").close()
        except OSError as error:
            raise JobError(f"--spark-log {log_file} cannot be written: {error.strerror}") from error


class _Run:
    """Starts the query, and restarts it after a failure that may pass."""

    def __init__(
        self,
        job: IngestJob,
        writer: LakeWriter,
        opened: OpenSession,
        signals: Signals,
        listener: Listener,
    ) -> None:
        self._job = job
        self._writer = writer
        self._opened = opened
        self._signals = signals
        self._stop = signals.stop
        self._listener = listener
        lag = LagMeter(Options.parse(job.source_options()))
        self._progress = Progress(writer, lag, listener)

    def go(self) -> IngestReport:
        restarts = in_a_row = 0
        while True:
            batches = self._progress.batches
            try:
                self._attempt()
            except StoppedEarly:
                pass
            except JobFailed as error:
                in_a_row = 1 if self._progress.batches > batches else in_a_row + 1
                if not self._is_retriable(RootCause(str(error), error.is_permanent), in_a_row):
                    raise
                restarts += 1
                pause = pause_s(in_a_row)
                self._listener(IngestRestart(str(error), pause, restarts))
                if not self._stop.wait(pause):
                    continue
            return self._progress.report(restarts=restarts, is_stopped=self._stop.is_set())

    def _is_retriable(self, cause: RootCause, in_a_row: int) -> bool:
        if cause.is_permanent or self._stop.is_set():
            return False
        if cause.is_worker_timeout and in_a_row <= _WORKER_TIMEOUTS:
            return True
        limit = self._job.max_restarts
        return self._job.follow and (limit is None or in_a_row <= limit)

    def _attempt(self) -> None:
        """Run one query to its end; raise JobFailed if it failed."""
        self._signals.ends_at_once = True
        try:
            with self._opened() as spark:
                self._signals.ends_at_once = False
                failure = self._failure_of(spark)
        except (PySparkException, Py4JError, ConnectionError) as lost:
            raise _failed(lost) from lost
        finally:
            self._signals.ends_at_once = False  # `stop` ends the pause before another attempt
        if failure is not None and not self._stop.is_set():
            raise failure

    def _failure_of(self, spark: SparkSession) -> JobFailed | None:
        """Run one query to its end; return why it failed.

        The text of an error of Spark is in the JVM, so it is read while that lives.
        """
        try:
            query = self._start(spark)
            try:
                self._watch(query)
            finally:
                query.stop()
            error = query.exception()
        except (PySparkException, Py4JError, ConnectionError) as lost:
            return _failed(lost)
        return None if error is None else _failed(error)

    def _start(self, spark: SparkSession) -> StreamingQuery:
        job = self._job
        self._progress.begin()
        records = spark.readStream.format("tidelog").options(**job.source_options()).load()
        self._writer.check(records)
        writer = (
            records.writeStream.queryName(f"tidelog ingest {job.subscribed} to {job.to}")
            .option("checkpointLocation", self._writer.checkpoint.location)
            .foreachBatch(self._writer.write)
        )
        if job.follow:
            return writer.trigger(
                processingTime=f"{round(job.trigger_s * 1000)} milliseconds"
            ).start()
        return writer.trigger(availableNow=True).start()

    def _watch(self, query: StreamingQuery) -> None:
        """Report every finished micro-batch, until the query ends or the job is stopped."""
        wake = self._writer.wake
        while query.isActive and not self._stop.is_set():
            wake.wait(self._poll_s())
            wake.clear()
            self._progress.add(query)
        if self._stop.is_set():
            self._listener(IngestStopping())
        # Let the current micro-batch finish, and give Spark the time to commit it.
        waited_s = 0.0
        while self._stop.is_set() and query.isActive and not self._writer.has_refused:
            if not self._writer.is_writing:
                if not query.status["isTriggerActive"] or waited_s > _COMMIT_S:
                    break
                waited_s += _POLL_S
            time.sleep(_POLL_S)
        self._progress.add(query)

    def _poll_s(self) -> float:
        """Return the pause before the next poll, which is longer while the query is idle."""
        is_idle = self._job.follow and not self._writer.is_writing and not self._writer.written
        return _IDLE_POLL_S if is_idle else _POLL_S


def _failed(error: Exception) -> JobFailed:
    cause = root_cause(str(error))
    return JobFailed(cause.sentence, is_permanent=cause.is_permanent)


def pause_s(in_a_row: int) -> float:
    """Return the pause after this many failures without a micro-batch between them."""
    return min(_FIRST_PAUSE_S * 2.0 ** min(in_a_row - 1, 32), _LONGEST_PAUSE_S)


class StoppedEarly(KeyboardInterrupt):
    """A signal came before there was a query to end."""


class Signals:
    """What the first SIGINT or SIGTERM does. Only the main thread gets them."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.wake = threading.Event()
        """Set as well: it is what the main thread waits for while a query runs."""
        self.ends_at_once = True
        """Whether there is nothing to finish, so that StoppedEarly is raised where the main thread
        waits."""


@contextmanager
def _stop_signals() -> Iterator[Signals]:
    """Take the first SIGINT or SIGTERM, and restore the handlers for the second."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _frame: object) -> None:
        signals.stop.set()
        signals.wake.set()
        signal.signal(number, before[signal.Signals(number)])
        if signals.ends_at_once:
            raise StoppedEarly

    for number in before:
        signal.signal(number, on_signal)
    logging.getLogger().addFilter(_is_no_signal)
    try:
        yield signals
    finally:
        logging.getLogger().removeFilter(_is_no_signal)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_no_signal(record: logging.LogRecord) -> bool:
    """Silence py4j, which logs the stack of what a signal has raised while Java starts Spark."""
    return record.exc_info is None or not isinstance(record.exc_info[1], StoppedEarly)


@contextmanager
def _muted(name: str) -> Iterator[None]:
    """Silence a logger that prints the stack of an error that is raised as well."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _ignore(_event: IngestEvent) -> None:
    """Ignore the event."""
