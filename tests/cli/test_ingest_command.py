"""`tidelog ingest` with a real Spark."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.cli.conftest import Run, objects


@pytest.mark.spark
def test_a_second_run_brings_only_what_is_new(run: Run, tmp_path: Path) -> None:
    """First told to a person, then to a program: both runs together hold each record once."""
    job = ["ingest", "--topic", "bays", "--to", f"parquet:{tmp_path / 'lake'}"]
    job += ["--checkpoint", str(tmp_path / "state"), "--spark-log", str(tmp_path / "spark.txt")]
    job += ["--metrics-file", str(tmp_path / "job.prom"), "--option", "fetchBytes=65536"]
    run("create", "bays", "-p", "2")
    run("append", "bays", stdin=b"\n".join(b'{"key":"%d","value":%d}' % (n, n) for n in range(50)))
    first = run(*job)
    assert first.exit_code == 0, first.stderr
    assert "done: 50 new rows" in first.stdout
    run("append", "bays", stdin=b'{"value":50}\n{"value":51}')
    events = objects(run(*job, "--json").stdout)
    assert [event["event"] for event in events] == ["progress", "finished"]
    assert [event["rows"] for event in events] == [2, 2]
    assert "tidelog_ingest_rows_total 2\n" in (tmp_path / "job.prom").read_text()
    checked = run("lake", "verify", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "state"))
    assert checked.stdout == "52 records of lake and log are the same\n"
    lake = ds.dataset(tmp_path / "lake", format="parquet", partitioning="hive")
    values = lake.to_table(columns=["value"]).column("value").to_pylist()
    assert sorted(values) == sorted(b"%d" % n for n in range(52))
