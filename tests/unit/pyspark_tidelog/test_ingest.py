"""The job's parts that need no Spark."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from pyspark_tidelog.errors import OptionError, ServiceError
from pyspark_tidelog.ingest import IngestJob, _stop_signals, last_words, run
from pyspark_tidelog.options import Options
from pyspark_tidelog.sinks import parse_sink
from pyspark_tidelog.topics import Topics
from tests.support.log_service import LogService


def job(
    tmp_path: Path, server: str = "http://127.0.0.1:1", *, token: str | None = None
) -> IngestJob:
    return IngestJob(
        server,
        "t",
        to=f"parquet:{tmp_path}/lake",
        checkpoint=f"{tmp_path}/checkpoint",
        token=token,
        options=(("retries", "0"),),
    )


def test_a_job_is_options_of_the_source(tmp_path: Path) -> None:
    """What a job says and the source understands cannot drift apart."""
    options = Options.parse(job(tmp_path, token="secret").source_options()).for_stream()
    assert options.topics == Topics(("t",))
    assert options.max_offsets_per_trigger == 1_000_000
    assert options.endpoint.token == "secret"
    assert options.endpoint.retries == 0
    assert "secret" not in repr(job(tmp_path, token="secret"))


@pytest.mark.parametrize("text", ["delta:x", "parquet:", "lake", "parquet:s3a://b/x"])
def test_a_sink_that_does_not_exist_is_refused(text: str) -> None:
    """What can be written is said."""
    with pytest.raises(OptionError, match="must be"):
        parse_sink(text)


def test_the_name_of_a_sink_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folder is the same sink from wherever the job is started."""
    monkeypatch.chdir(tmp_path)
    assert parse_sink("parquet:lake").name == f"parquet:{tmp_path}/lake"


def test_nothing_is_made_where_the_service_is_missing(tmp_path: Path) -> None:
    """The service is asked before checkpoint, sink and Spark are touched."""
    with pytest.raises(ServiceError, match="is the service running there"):
        run(job(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_for_a_topic_that_is_missing(tmp_path: Path, service: LogService) -> None:
    """A misspelt topic leaves no trace."""
    with pytest.raises(ServiceError, match="the service has no topic t"):
        run(job(tmp_path, service.url))
    assert list(tmp_path.iterdir()) == []


def test_the_last_words_of_a_spark_error_are_ours_if_we_spoke() -> None:
    """Out of two screens of Java the one line that tells what is wrong."""
    message = (
        "[STREAM_FAILED] Query terminated\n"
        "  File reader.py\n"
        "pyspark_tidelog.errors.DataLossError: first\n"
        "Caused by: org.apache.spark.SparkException: x\n"
        "pyspark_tidelog.errors.DataLossError: topic t was deleted\n SQLSTATE: 38000"
    )
    assert last_words(message) == "topic t was deleted"


def test_the_last_words_are_the_deepest_cause_otherwise() -> None:
    """A full disk is told by Java, at the end of a chain of causes."""
    message = (
        "job aborted\nCaused by: a.B: x\nCaused by: java.io.IOException: No space left\n\tat x"
    )
    assert last_words(message) == "java.io.IOException: No space left"
    of_python = (
        "Traceback\npy4j.Py4JJavaError: An error occurred\n: a.b.NotThereException: c d\n\tat x"
    )
    assert last_words(of_python) == "a.b.NotThereException: c d"
    assert last_words("\n  plain words \n") == "plain words"
    assert last_words("") == "Spark gave up"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_the_second_insists(number: signal.Signals) -> None:
    """A job under way ends in order; whoever cannot wait says so twice."""
    before = signal.getsignal(number)
    with _stop_signals() as stop:
        assert signal.getsignal(number) != before
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


def test_signals_are_left_alone_off_the_main_thread() -> None:
    """A program that runs the job on a thread of its own keeps its handlers."""
    seen: list[bool] = []

    def enter() -> None:
        with _stop_signals() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [False]
