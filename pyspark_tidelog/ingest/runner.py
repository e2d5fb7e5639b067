"""The ingestion job: a topic into a lake, each record exactly once, until caught up or for good.

Exactly once stands on three things: a micro-batch is a fixed range of offsets, written down before
it runs; the sink takes each micro-batch once, whole, in one step; checkpoint, sink and log are held
together by their identity.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.ingest.job import IngestEvent, IngestJob, IngestReport, IngestRestart, Listener
from pyspark_tidelog.ingest.lake_writer import BatchWriter
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.ingest.progress import Tally
from pyspark_tidelog.lake.checkpoint import claimed, local_folder, mend_torn_entry
from pyspark_tidelog.session import local_session
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import snapshot_of
from pyspark_tidelog.spark_errors import Words, telling_words

_POLL_S: Final = 0.2
_IDLE_POLL_S: Final = 1.0  # each look is a question to the JVM
_COMMIT_S: Final = 10.0  # Spark's note that a micro-batch is done takes a tenth of a second
_FIRST_RETRIES: Final = 6  # three seconds
_HASTY_STARTS: Final = 5  # with Spark, which gives a Python process ten seconds
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
    """Run the job to its end and report; without a session of the caller's it starts local ones.

    SIGINT and SIGTERM end it cleanly after the micro-batch under way, if called on the main thread.
    Raises JobError, OptionError or ServiceError before anything has run, and JobFailed with the
    telling line of Spark's error afterwards: lake and checkpoint are consistent in every case.
    """
    place = Plan.place_of(job)
    checkpoint = local_folder("the checkpoint", job.checkpoint)
    options = Options.parse(job.source_options()).for_stream()
    # At the start somebody waits for an answer; a query under way has the patience of its options.
    hasty = replace(options.endpoint, retries=min(options.endpoint.retries, _FIRST_RETRIES))
    with ServiceClient(hasty) as client:
        snapshot = snapshot_of(client, options.topics)
        plan = Plan.make(job, place, options, client, snapshot)
    opened: OpenSession = lambda: (  # noqa: E731 -- one line with a type
        nullcontext(spark) if spark is not None else local_session(log_file=log_file)
    )
    with ExitStack() as stack:
        stop = stack.enter_context(_stop_signals())
        identity = stack.enter_context(claimed(checkpoint, place.folder, plan.terms))
        for talkative in ("py4j.clientserver", "SQLQueryContextLogger"):
            stack.enter_context(_muted(talkative))
        mend_torn_entry(checkpoint)
        writer = BatchWriter(plan, identity, checkpoint, stop)
        return _Run(job, writer, opened, stop, listener or _ignore).go()


class _Run:
    """Starts the query, and starts it again where that can help."""

    def __init__(
        self,
        job: IngestJob,
        writer: BatchWriter,
        opened: OpenSession,
        stop: threading.Event,
        listener: Listener,
    ) -> None:
        self._job = job
        self._writer = writer
        self._opened = opened
        self._stop = stop
        self._listener = listener
        self._tally = Tally(writer, listener)

    def go(self) -> IngestReport:
        restarts = in_a_row = 0
        while True:
            batches = self._tally.batches
            try:
                self._attempt()
            except JobFailed as error:
                in_a_row = 1 if self._tally.batches > batches else in_a_row + 1
                if not self._is_worth_another_try(Words(str(error), error.is_lasting), in_a_row):
                    raise
                restarts += 1
                pause = pause_s(in_a_row)
                self._listener(IngestRestart(str(error), pause, restarts))
                if not self._stop.wait(pause):
                    continue
            return IngestReport(
                self._tally.rows,
                self._tally.quarantined,
                self._tally.batches,
                restarts,
                self._tally.lag,
                is_stopped=self._stop.is_set(),
            )

    def _is_worth_another_try(self, words: Words, in_a_row: int) -> bool:
        if words.is_lasting or self._stop.is_set():
            return False
        if words.is_haste and in_a_row <= _HASTY_STARTS:
            return True
        limit = self._job.max_restarts
        return self._job.follow and (limit is None or in_a_row <= limit)

    def _attempt(self) -> None:
        """Run one query to its end; raise JobFailed where that was not the end of the log."""
        try:
            with self._opened() as spark:
                query = self._start(spark)
                try:
                    self._watch(query)
                finally:
                    query.stop()
                error = query.exception()
        except (PySparkException, Py4JError, ConnectionError) as lost:
            words = telling_words(str(lost))
            raise JobFailed(words.sentence, is_lasting=words.is_lasting) from lost
        if error is not None and not self._stop.is_set():
            words = telling_words(str(error))
            raise JobFailed(words.sentence, is_lasting=words.is_lasting) from error

    def _start(self, spark: SparkSession) -> StreamingQuery:
        job = self._job
        self._tally.begin()
        records = spark.readStream.format("tidelog").options(**job.source_options()).load()
        self._writer.check(records)
        writer = records.writeStream.option(
            "checkpointLocation", str(self._writer.checkpoint)
        ).foreachBatch(self._writer.write)
        if job.follow:
            return writer.trigger(
                processingTime=f"{round(job.trigger_s * 1000)} milliseconds"
            ).start()
        return writer.trigger(availableNow=True).start()

    def _watch(self, query: StreamingQuery) -> None:
        """Tell of every micro-batch as it is done, until the query ends or is to end."""
        while query.isActive and not self._stop.wait(self._next_look_s()):
            self._tally.add(query)
        # The micro-batch under way is brought to its end, and Spark is given the time to note that.
        waited_s = 0.0
        while self._stop.is_set() and query.isActive and not self._writer.has_refused:
            if not self._writer.is_writing:
                if not query.status["isTriggerActive"] or waited_s > _COMMIT_S:
                    break
                waited_s += _POLL_S
            time.sleep(_POLL_S)
        self._tally.add(query)

    def _next_look_s(self) -> float:
        """Return in how long to look at the query again: seldom while it has nothing to do."""
        is_idle = self._job.follow and not self._writer.is_writing and not self._writer.written
        return _IDLE_POLL_S if is_idle else _POLL_S


def pause_s(in_a_row: int) -> float:
    """Return how long to wait after so many failures without a micro-batch between them."""
    return min(_FIRST_PAUSE_S * 2.0 ** min(in_a_row - 1, 32), _LONGEST_PAUSE_S)


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


def _ignore(_event: IngestEvent) -> None:
    """Take note of nothing."""
