"""`tidelog ingest`, with a real Spark and without one."""

import logging
import signal
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from app.client.commands.session import EXIT_REFUSED
from pyspark_tidelog.ingest import runner
from tests.cli.conftest import Run, objects
from tests.support.raw import until

RESTARTED_ONCE = "tidelog_ingest_restarts_total 1\n"


def job(directory: Path, topic: str) -> list[str]:
    """The words of a command that puts its lake, its state and its figures into a directory."""
    words = [
        *("ingest", "--topic", topic, "--option", "fetchBytes=65536"),
        "--to",
        f"parquet:{directory / 'lake'}",
        "--checkpoint",
        str(directory / "state"),
    ]
    words += ["--spark-log", str(directory / "spark.txt")]
    return [*words, "--metrics-file", str(directory / "job.prom")]


@pytest.mark.long
@pytest.mark.spark
def test_a_run_is_told_to_a_program(run: Run, tmp_path: Path) -> None:
    """One object a line for what happens, figures in a file, and the lake is what the log is."""
    run("create", "bays", "-p", "2")
    run("append", "bays", stdin=b"\n".join(b'{"key":"%d","value":%d}' % (n, n) for n in range(50)))
    events = objects(run(*job(tmp_path, "bays"), "--json").stdout)
    assert [event["event"] for event in events] == ["progress", "finished"]
    assert [event["rows"] for event in events] == [50, 50]
    assert "tidelog_ingest_rows_total 50\n" in (tmp_path / "job.prom").read_text()
    checked = run("lake", "verify", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "state"))
    assert checked.stdout == "50 records in lake and log are equal\n"


@pytest.mark.long
@pytest.mark.spark
def test_a_second_run_brings_only_what_is_new(run: Run, tmp_path: Path) -> None:
    """In the format for people: both runs together hold each record once."""
    run("create", "docks", "-p", "2")
    run("append", "docks", stdin=b"\n".join(b'{"key":"%d","value":%d}' % (n, n) for n in range(50)))
    first = run(*job(tmp_path, "docks"))
    assert first.exit_code == 0, first.stderr
    assert "done: 50 new rows" in first.stdout
    run("append", "docks", stdin=b'{"value":50}\n{"value":51}')
    assert "done: 2 new rows" in run(*job(tmp_path, "docks")).stdout
    lake = ds.dataset(tmp_path / "lake", format="parquet", partitioning="hive")
    values = lake.to_table(columns=["value"]).column("value").to_pylist()
    assert sorted(values) == sorted(b"%d" % n for n in range(52))


def no_spark(**_: object) -> AbstractContextManager[SparkSession]:
    """Open a session where no Spark can be reached, after a lease was waited for."""
    logging.getLogger("pyspark_tidelog.tables").warning("the lease is held by another process")
    raise ConnectionError("Spark cannot be reached")


def test_a_job_that_is_interrupted_while_it_waits_for_spark_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object a line: the failed start, then the end of a run that brought nothing."""
    monkeypatch.setattr(runner, "local_session", no_spark)
    monkeypatch.setattr(runner, "_FIRST_PAUSE_S", 60.0)
    run("create", "piers")
    figures = tmp_path / "job.prom"

    def interrupt() -> None:
        until(lambda: figures.exists() and RESTARTED_ONCE in figures.read_text())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    ended = run(*job(tmp_path, "piers"), "--follow", "--json")
    interrupting.join(60)
    assert ended.exit_code == 0, ended.stderr
    restart, finished = objects(ended.stdout)
    assert (restart["event"], finished["event"]) == ("restart", "finished")
    assert (finished["rows"], finished["restarts"], finished["is_stopped"]) == (0, 1, True)


@pytest.mark.parametrize(
    ("topic", "more", "exit_code", "message"),
    [
        ("quays", (), 1, "Spark cannot be reached"),
        ("quays", (), 1, "the lease is held by another process"),
        ("nowhere", (), EXIT_REFUSED, "nowhere"),
        ("quays", ("--option", "fetchBytes=none"), EXIT_REFUSED, "fetchBytes"),
    ],
    ids=["no Spark", "a lease that was waited for", "no topic", "wrong option"],
)
def test_a_job_that_cannot_begin_fails_with_the_code_that_fits(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    more: tuple[str, ...],
    exit_code: int,
    message: str,
) -> None:
    """What may be there the next time exits with 1; what is wrong with the command does not."""
    monkeypatch.setattr(runner, "local_session", no_spark)
    run("create", "quays")
    ended = run(*job(tmp_path, topic), *more)
    assert (ended.exit_code, message in ended.stderr) == (exit_code, True), ended.stderr
