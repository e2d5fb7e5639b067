"""`tidelog lake`, and what `tidelog ingest` shows, without Spark."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.client.commands.ingest import IngestDisplay, finished, show_tables
from app.client.terminal import Terminal
from pyspark_tidelog.ingest.job import (
    IngestCompaction,
    IngestIdle,
    IngestJob,
    IngestProgress,
    IngestReport,
    IngestRestart,
    IngestStopping,
    TableReport,
)
from tests.cli.conftest import Run, objects
from tests.support.kafka_batches import SentRecord
from tests.support.lakes import HandMadeLake, rows_of

EVENTS = (
    IngestProgress(0, 1_000, 3, 5, 1_000, 500.0, 2_000, 7, 190.0),
    IngestProgress(1, 10, 0, 0, 1_010, 500.0, 100, None),
    IngestIdle(0),
    IngestRestart("no answer", 4.0, 1),
    IngestCompaction("delta:lake", 12, 1, 0.5),
    IngestCompaction("delta:lake", 0, 0, 0.1),
    IngestCompaction("delta:lake", 0, 0, 0.1, "another compaction is running"),
    IngestStopping(),
)


@pytest.fixture
def lake(run: Run, tmp_path: Path) -> HandMadeLake:
    """Three records in a log, and the same in a lake, in two files."""
    topic = tmp_path.name
    run("create", topic, "-c", "retention.ms=-1")
    records = [SentRecord(1_788_000_000_000, None, b"%d" % n) for n in range(3)]
    lines = b"\n".join(b'{"value": %d, "timestamp": 1788000000000}' % n for n in range(3))
    assert run("append", topic, stdin=lines).exit_code == 0
    (shown,) = objects(run("topics", topic, "--json").stdout)
    made = HandMadeLake(tmp_path, topic_ids={topic: str(shown["topic_id"])})
    rows = [{**row, "topic": topic} for row in rows_of(records)]
    made.put(0, rows[:2])
    made.put(1, rows[2:])
    return made


def test_a_lake_is_compared_with_its_log(run: Run, lake: HandMadeLake) -> None:
    """The same is exit code 0, a difference is 3 and named, no lake at all is 1."""
    told = run("lake", "verify", str(lake.folder))
    assert (told.exit_code, told.stdout) == (0, "3 records in lake and log are equal\n")
    lake.put(2, [{**rows_of([SentRecord(0, None, b"x")])[0], "topic": lake.folder.parent.name}])
    told = run("lake", "verify", str(lake.folder), "--json")
    assert told.exit_code == 3
    (verdict,) = objects(told.stdout)
    assert (verdict["is_same"], verdict["rows"], verdict["repeated"]) == (False, 2, 1)
    assert "partition 0, offset 0 is in the lake more than once" in str(verdict["first"])
    told = run("lake", "verify", str(lake.folder))
    assert "1 repeated; the first: topic" in told.stdout
    told = run("lake", "verify", str(lake.folder.parent))
    assert told.exit_code == 1
    assert "is not a lake: no tidelog job has written it" in told.stderr


def test_a_lake_is_compacted(run: Run, lake: HandMadeLake) -> None:
    """It says what came of it, and the rows stay; nonsense is refused."""
    told = run("lake", "compact", str(lake.folder))
    assert (told.exit_code, told.stdout) == (0, "2 files became 1\n")
    assert run("lake", "verify", str(lake.folder)).exit_code == 0
    assert objects(run("lake", "compact", str(lake.folder), "--json").stdout) == [
        {"files_before": 0, "files_after": 0}
    ]
    (lake.folder / "_writing").mkdir()
    (lake.folder / "_writing" / "part").write_bytes(b"half")
    told = run("lake", "vacuum", f"parquet:{lake.folder}")
    assert (told.exit_code, told.stdout) == (0, "1 unused files were removed\n")
    told = run("lake", "vacuum", str(lake.folder.parent))
    assert (told.exit_code, "is not a lake" in told.stderr) == (1, True)
    assert run("lake", "vacuum", str(lake.folder), "--hours", "0").exit_code == 2


def show(terminal: Terminal) -> None:
    with terminal.progress("ingesting t") as meter:
        display = IngestDisplay(terminal, meter, "ingesting t")
        for event in EVENTS:
            display(event)


def test_a_lake_that_is_not_there_is_not_compacted(run: Run, tmp_path: Path) -> None:
    """What the lake says is the sentence of the command."""
    refused = run("lake", "compact", f"delta:{tmp_path / 'none'}")
    assert refused.exit_code == 1
    assert "none" in refused.stderr


def test_a_program_gets_a_line_an_event(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Each with its name, and nothing else anywhere."""
    show(Terminal(as_json=True))
    out, err = capfdbinary.readouterr()
    events = objects(out.decode())
    assert [event["event"] for event in events[:4]] == ["progress", "progress", "idle", "restart"]
    assert [event["event"] for event in events[4:]] == ["compaction"] * 3 + ["stopping"]
    assert (events[0]["lag"], events[0]["quarantined"], events[3]["pause_s"]) == (7, 3, 4.0)
    assert err == b""


def test_a_log_file_gets_a_line_a_micro_batch(capfd: pytest.CaptureFixture[str]) -> None:
    """With the lag where it is known; idling is not worth a line."""
    show(Terminal())
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "micro-batch 0: 1,000 rows, 3 in quarantine, 5 with unknown fields in 2.0 s, lag 7 (3 min)",
        "micro-batch 1: 10 rows in 0.1 s",
        "no answer; restarting in 4 s",
        "delta:lake: 12 files became 1 in 0.5 s",
        "another compaction is running; the job continues",
        "stopping after the current micro-batch",
    ]


def test_a_terminal_gets_a_bar_that_says_how_far_behind(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of its own but for what went wrong."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    show(Terminal())
    _, err = capfd.readouterr()
    assert "ingesting t" in err
    assert "micro-batch 0" not in err
    assert "no answer; restarting in 4 s" in err


def test_a_run_ends_with_a_table_of_what_was_done(capfd: pytest.CaptureFixture[str]) -> None:
    """A row for each table, then a sentence that says how it ended."""
    job = IngestJob("http://x", "t", "parquet:lake", "c")
    report = IngestReport(1_000, 0, 2, 0, 0, is_stopped=False, seconds=4.0)
    assert finished(job, report) == (
        "done: 1,000 new rows in parquet:lake, in 2 micro-batch(es) and 4.0 s (250/s)"
    )
    tables = (TableReport("delta:lake/a", 1_000, 3, 5), TableReport("delta:lake/b", 2, 0))
    report = IngestReport(
        1_002, 3, 2, 0, 0, is_stopped=True, seconds=400.0, tables=tables, with_unknown_fields=5
    )
    assert finished(replace(job, to="delta:lake", topic_pattern=".*"), report) == (
        "stopped: 1,002 new rows in 2 tables of delta:lake, 3 of them in quarantine, "
        "5 of them with fields that the schema does not have, in 2 micro-batch(es) and 7 min (3/s)"
    )
    show_tables(Terminal(), report)
    assert [line.split() for line in capfd.readouterr().out.splitlines()] == [
        ["table", "new", "rows", "in", "quarantine", "with", "unknown", "fields"],
        ["delta:lake/a", "1,000", "3", "5"],
        ["delta:lake/b", "2", "0", "0"],
    ]
    show_tables(Terminal(as_json=True), report)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "--topic", "t", "--to", "json:lake", "--checkpoint", "state"),
        ("lake", "verify", "lake"),
        ("lake", "compact", "lake"),
    ],
    ids=lambda command: command[-2],
)
def test_without_the_spark_source_its_commands_say_what_to_install(
    command: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service's distribution comes without it."""
    monkeypatch.setitem(sys.modules, "pyspark_tidelog", None)
    refused = run(*command)
    assert refused.exit_code == 3
    assert "pip install pyspark-tidelog" in refused.stderr
