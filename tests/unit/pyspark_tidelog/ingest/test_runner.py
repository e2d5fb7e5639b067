"""The job's parts that need no Spark."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import JobError, JobFailed, OptionError, ServiceError
from pyspark_tidelog.ingest.job import IngestEvent, IngestJob, IngestReport, IngestRestart
from pyspark_tidelog.ingest.plan import Plan
from pyspark_tidelog.ingest.runner import Signals, _Run, _stop_signals, pause_s, run
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.identity import claimed
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.service import snapshot_of
from pyspark_tidelog.source.topics import Topics
from tests.support.kafka_batches import SentRecord, numbered
from tests.support.log_service import LogService


def job(
    tmp_path: Path, server: str = "http://127.0.0.1:1", options: tuple[tuple[str, str], ...] = ()
) -> IngestJob:
    return IngestJob(
        server,
        "t",
        to=f"parquet:{tmp_path}/lake",
        checkpoint=f"{tmp_path}/checkpoint",
        options=(("retries", "0"), *options),
    )


def planned(wanted: IngestJob) -> Plan:
    options = Options.parse(wanted.source_options())
    with ServiceClient(options.endpoint) as client:
        snapshot = snapshot_of(client, options.topics)
        return Plan.make(wanted, Plan.target_of(wanted), options, client, snapshot)


def test_a_job_is_options_of_the_source(tmp_path: Path) -> None:
    """What a job says and the source understands cannot drift apart."""
    given = job(tmp_path, options=(("token", "secret"),))
    options = Options.parse(given.source_options()).for_stream()
    assert options.topics == Topics(("t",))
    assert options.max_offsets_per_trigger == 1_000_000
    assert options.endpoint.token == "secret"
    assert options.endpoint.retries == 0
    assert "secret" not in repr(given)


def test_nothing_is_made_where_the_service_is_missing(tmp_path: Path) -> None:
    """The service is asked before checkpoint, sink and Spark are touched."""
    with pytest.raises(ServiceError, match="is the service running there"):
        run(job(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_for_a_topic_that_is_missing(tmp_path: Path, service: LogService) -> None:
    """A misspelt topic leaves no trace."""
    with pytest.raises(OptionError, match="the service has no topic t"):
        run(job(tmp_path, service.url))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_for_a_schema_that_cannot_be_inferred(
    tmp_path: Path, service: LogService
) -> None:
    """The sample is taken before checkpoint and sink are touched."""
    service.make("t")[0].append(numbered(3))
    with pytest.raises(JobError, match="there is no JSON object among the first records"):
        run(replace(job(tmp_path, service.url), schema="infer"))
    assert list(tmp_path.iterdir()) == []


def test_bad_records_without_a_schema_is_a_misunderstanding(
    tmp_path: Path, service: LogService
) -> None:
    """Nothing would ever go there."""
    service.make("t")
    with pytest.raises(OptionError, match="--bad-records is for values that do not fit"):
        run(replace(job(tmp_path, service.url), bad_records="parquet:bad"))


def test_what_was_inferred_once_stays(tmp_path: Path, service: LogService) -> None:
    """A later run goes by the first one's columns, whatever its own sample would say."""
    log = service.make("t")[0]
    log.append([SentRecord(1, None, b'{"a": 1}')])
    wanted = replace(job(tmp_path, service.url), schema="infer")
    assert planned(wanted).layout.values == parse_schema("a BIGINT")
    with claimed(
        Checkpoint(f"{tmp_path}/checkpoint"), planned(wanted).places(), planned(wanted).terms
    ):
        log.append([SentRecord(1, None, b'{"a": 1, "b": 1}')])
        assert planned(wanted).layout.values == parse_schema("a BIGINT")
        assert planned(replace(wanted, schema="x INT")).layout.values == parse_schema("x INT")


class Restarts:
    """A job whose Spark cannot be started, and which waits for nothing."""

    def __init__(self, folder: Path, words: str, **more: Any) -> None:
        self.told: list[IngestEvent] = []
        self.pauses: list[float | None] = []
        self.stop = threading.Event()
        self._words = words
        self._job = replace(job(folder), **more)

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        if len(self.pauses) == 9:
            self.stop.set()
        return self.stop.is_set()

    def is_set(self) -> bool:
        return self.stop.is_set()

    def go(self) -> IngestReport:
        def opened() -> AbstractContextManager[SparkSession]:
            raise ConnectionError(self._words)

        writer: Any = None  # no micro-batch is ever written
        signals: Any = Signals()
        signals.stop = self
        return _Run(self._job, writer, opened, signals, self.told.append).go()


def test_a_failure_ends_the_run_unless_it_follows(tmp_path: Path) -> None:
    """The one-time run reports the failure; the other restarts, up to a number of failures."""
    once = Restarts(tmp_path, "refused")
    with pytest.raises(JobFailed, match="refused"):
        once.go()
    few = Restarts(tmp_path, "refused", follow=True, max_restarts=2)
    with pytest.raises(JobFailed, match="refused"):
        few.go()
    assert (once.pauses, few.pauses) == ([], [1.0, 2.0])
    assert few.told == [IngestRestart("refused", 1.0, 1), IngestRestart("refused", 2.0, 2)]
    ever = Restarts(tmp_path, "refused", follow=True)
    report = ever.go()
    assert ever.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert (report.restarts, report.is_stopped) == (9, True)


def test_a_failure_that_would_only_come_again_ends_the_run(tmp_path: Path) -> None:
    """Whether it follows the log or not makes no difference."""
    lost = "pyspark_tidelog.errors.DataLossError: topic t was deleted"
    with pytest.raises(JobFailed, match="topic t was deleted") as failed:
        Restarts(tmp_path, lost, follow=True).go()
    assert failed.value.is_permanent


def test_spark_in_a_hurry_is_started_again_a_few_times(tmp_path: Path) -> None:
    """Without following, too: nothing is wrong but that the machine is busy."""
    busy = Restarts(tmp_path, "Python worker failed to connect back.")
    with pytest.raises(JobFailed, match="failed to connect back"):
        busy.go()
    assert len(busy.pauses) == 5


def test_pauses_grow_to_a_minute() -> None:
    """A service that is gone for the night is not asked a thousand times."""
    assert [pause_s(n) for n in (1, 2, 3, 7, 1_000)] == [1.0, 2.0, 4.0, 60.0, 60.0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_insists(number: signal.Signals) -> None:
    """A running job ends in order; a second signal ends it at once."""
    before = signal.getsignal(number)
    with _stop_signals() as signals:
        signals.ends_at_once = False
        assert signal.getsignal(number) != before
        os.kill(os.getpid(), number)
        assert signals.wake.wait(5)
        assert signals.stop.is_set()
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_a_query_runs_ends_the_job_at_once(
    tmp_path: Path,
    service: LogService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: signal.Signals,
) -> None:
    """While Spark starts, or another job's lease is waited for, there is nothing to finish.

    Nor is there to tell: py4j would log the stack.
    """
    service.make("t")
    before = signal.getsignal(number)

    def starts(*_: object, **__: object) -> AbstractContextManager[SparkSession]:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            logging.exception("KeyboardInterrupt while sending command.")  # noqa: LOG015  # as py4j
            raise
        raise AssertionError("it went on")

    monkeypatch.setattr("pyspark_tidelog.ingest.runner.local_session", starts)
    report = run(job(tmp_path, service.url))
    assert (report.is_stopped, report.rows) == (True, 0)
    monkeypatch.setattr("pyspark_tidelog.ingest.runner.claimed", starts)
    assert run(job(tmp_path, service.url)).is_stopped
    assert signal.getsignal(number) == before
    assert caplog.records == []


def test_signals_are_left_alone_off_the_main_thread() -> None:
    """A program that runs the job on a thread of its own keeps its handlers."""
    seen: list[bool] = []

    def enter() -> None:
        with _stop_signals() as signals:
            seen.append(signals.stop.is_set())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [False]
