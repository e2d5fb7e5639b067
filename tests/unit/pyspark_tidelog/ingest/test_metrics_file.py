"""The job's figures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.ingest.job import IngestCompaction, IngestIdle, IngestProgress, IngestRestart
from pyspark_tidelog.ingest.metrics_file import METRICS, MetricsFile


def values(path: Path) -> dict[str, float]:
    """Read the file as Prometheus does."""
    families = text_string_to_metric_families(path.read_text())
    return {sample.name: sample.value for family in families for sample in family.samples}


def progress(batch_id: int, lag: int | None) -> IngestProgress:
    return IngestProgress(batch_id, 100, 1, 4, 100, 50.0, 2_500, lag, None if lag is None else 1.5)


def test_the_file_tells_what_the_run_did(tmp_path: Path) -> None:
    """Counters add up over micro-batches, gauges are the last word, nothing is left beside."""
    path = tmp_path / "tidelog.prom"
    now = iter([10.0, 11.0, 12.5])
    metrics = MetricsFile(path, lambda: next(now))
    assert set(values(path).values()) == {0}
    metrics(progress(0, 40))
    metrics(progress(1, None))
    metrics(IngestRestart("x", 1.0, 3))
    metrics(IngestCompaction("lake", 12, 1, 0.5))
    metrics(IngestIdle(7))
    assert values(path) == {
        "tidelog_ingest_rows_total": 200,
        "tidelog_ingest_quarantined_rows_total": 2,
        "tidelog_ingest_rows_with_unknown_fields_total": 8,
        "tidelog_ingest_batches_total": 2,
        "tidelog_ingest_restarts_total": 3,
        "tidelog_ingest_compacted_files_total": 12,
        "tidelog_ingest_lag_records": 7,
        "tidelog_ingest_lag_seconds": 1.5,
        "tidelog_ingest_last_batch_seconds": 2.5,
        "tidelog_ingest_last_batch_timestamp_seconds": 11.0,
        "tidelog_ingest_last_look_timestamp_seconds": 12.5,
    }
    assert len(METRICS) == 11
    assert [entry.name for entry in tmp_path.iterdir()] == ["tidelog.prom"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Before Spark starts, for it is written once at the beginning."""
    with pytest.raises(JobError, match=r"the metrics cannot be written to .*: No such file"):
        MetricsFile(tmp_path / "none" / "x.prom")
