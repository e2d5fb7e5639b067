"""`tidelog ingest` with a real Spark."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.cli.conftest import Run, objects


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
    assert checked.stdout == "50 records of lake and log are the same\n"


@pytest.mark.long
@pytest.mark.spark
def test_a_second_run_brings_only_what_is_new(run: Run, tmp_path: Path) -> None:
    """Told to a person: both runs together hold each record once."""
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
