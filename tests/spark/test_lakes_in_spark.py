"""Delta and Iceberg tables of the job, read by Spark with the jars of both formats.

No jar of theirs is published for the Spark that the job runs on, and those for older ones fail on
it, so an older Spark reads, in an environment of its own. It finds the Iceberg table in the job's
SQLite catalog.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from bench.peers.packages import jars_of, lake_reader_python
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob
from tests.support.kafka_batches import numbered
from tests.support.lake_readers import Counted, counted

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.needs("java", "mvn"),
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:Iceberg scan planning"),  # of a package that is not needed
]

READER = """
import json, sys
from pyspark.sql import SparkSession

conf, delta, iceberg = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
found = []
for table in (spark.read.format("delta").load(delta), spark.table(iceberg)):
    row = table.selectExpr(
        "count(*)",
        "count(DISTINCT topic, `partition`, `offset`)",
        "sum(`offset`)",
        "sum(CAST(split(decode(value, 'utf-8'), ':')[0] AS BIGINT))",
    ).first()
    found.append(list(row))
spark.stop()
print(json.dumps(found))
"""


def test_spark_counts_and_sums_what_duckdb_and_polars_do(
    spark: SparkSession,
    tidelog: ServiceProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two micro-batches in each table: rows, different offsets, sums of offsets and values."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read when it was imported
    for partition in range(2):
        tidelog.append(topic, numbered(100), partition=partition)
    targets = (f"delta:{tmp_path}/delta", "iceberg:lake.web.records")
    for number, target in enumerate(targets):
        checkpoint = str(tmp_path / f"checkpoint-{number}")
        job = IngestJob(tidelog.url, topic, target, checkpoint, max_offsets_per_trigger=100)
        assert run(job, spark=spark).batches == 2
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraClassPath": f"{jars_of('lakes')}{os.sep}*",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "spark.sql.catalog.lake.warehouse": f"file://{tmp_path}/warehouse",
    }
    arguments = map(json.dumps, (conf, f"{tmp_path}/delta", "lake.web.records"))
    plain = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    read = subprocess.run(
        [str(lake_reader_python()), "-c", READER, *arguments],
        env=plain,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert read.returncode == 0, read.stderr[-5000:]
    expected = Counted.of(range(100), range(100))
    for target, found in zip(targets, json.loads(read.stdout.splitlines()[-1]), strict=True):
        judges = {**counted(target, {}), "spark": Counted(*found)}
        assert judges == dict.fromkeys(("duckdb", "polars", "spark"), expected)
