"""The pitfalls of a Python source that no other test here steps around.

`docs/spark.md` lists them all, each with the test that proves it is avoided; those tests exist.
"""

from __future__ import annotations

import ast
import json
import pickle
import re
import tomllib
from pathlib import Path

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.ingest.job import IngestJob
from pyspark_tidelog.session import local_conf
from pyspark_tidelog.source.stream_reader import StreamReader
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import SentRecord, numbered
from tests.support.log_service import LogService

ROOT = Path(__file__).parents[3]
OFFSET = StructType([StructField("offset", LongType())])
LONGEST_IDLE_RATE_PER_S = 1.0


def stream_of(service: LogService, **given: str) -> StreamReader:
    options = {"url": service.url, "subscribe": "t", "startingOffsets": "earliest", **given}
    reader = DefaultSource(options).streamReader(OFFSET)
    assert isinstance(reader, StreamReader)
    return reader


def test_a_reader_on_an_executor_needs_nothing_of_the_drivers(service: LogService) -> None:
    """The copy that reads was pickled before the driver asked anything, in another process."""
    service.make("t")[0].append(numbered(3))
    on_driver = stream_of(service)
    pickled = pickle.dumps(on_driver)
    start = on_driver.initialOffset()
    end = on_driver.latestOffset(start, ReadAllAvailable())
    (split,) = on_driver.partitions(start, end)
    on_driver.stop()
    on_executor: StreamReader = pickle.loads(pickled)
    rows = [batch.to_pydict() for batch in on_executor.read(pickle.loads(pickle.dumps(split)))]
    assert rows == [{"offset": [0, 1, 2]}]


def test_all_batches_of_a_task_have_the_schema_of_the_first(service: LogService) -> None:
    """Spark checks the first alone; nulls, headers and codecs must not change those after it."""
    (log,) = service.make("t")
    time = 1_788_000_000_000
    log.append([SentRecord(time, None, None)])
    log.append([SentRecord(time, b"k", b"v", (("h", b"1"), ("h", None)))], codec=4)
    log.append([SentRecord(time, b"", b"")] * 3)
    options = {"url": service.url, "subscribe": "t", "includeHeaders": "true", "fetchBytes": "1"}
    source = DefaultSource(options)
    batches = list(source.reader(source.schema()).read(OffsetRange("t", 0, 0, 5)))
    assert len(batches) > 1
    schemas = [batch.schema for batch in batches if isinstance(batch, pa.RecordBatch)]
    assert schemas == [schemas[0]] * len(batches)


def test_a_trigger_without_limits_is_given_everything(service: LogService) -> None:
    """Spark's trigger `once` asks for all there is whatever the options say."""
    service.make("t")[0].append(numbered(50))
    reader = stream_of(service, maxOffsetsPerTrigger="10", maxBytesPerTrigger="100")
    start = reader.initialOffset()
    end = reader.latestOffset(json.loads(json.dumps(start)), ReadAllAvailable())
    reader.stop()
    assert end["offsets"] == {"t": {"0": 50}}


def test_an_idle_job_asks_no_more_often_than_its_trigger() -> None:
    """Spark's own default would ask ninety times a second."""
    job = IngestJob("http://127.0.0.1:1", "t", "parquet:/lake", "/checkpoint")
    assert 1 / job.trigger_s <= LONGEST_IDLE_RATE_PER_S


def test_a_local_session_repeats_tasks_as_a_cluster_does() -> None:
    """Plain local mode fails a query at the first error of a task."""
    assert local_conf(cores=3)["spark.master"] == "local[3,4]"


def test_no_extra_pins_an_old_spark_or_brings_jars() -> None:
    """delta-spark does both; the Delta sink writes through delta-rs."""
    source = ROOT / "distributions" / "pyspark-tidelog" / "pyproject.toml"
    project = tomllib.loads(source.read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    assert not [line for line in lines if "delta-spark" in line]
    assert "pyspark>=4.2,<5" in lines


def test_the_page_names_a_test_for_each_pitfall() -> None:
    """Seventeen of them, and every test named there is there."""
    page = (ROOT / "docs" / "spark.md").read_text()
    chapter = page.partition("## Pitfalls")[2].partition("\n## ")[0]
    rows = [line for line in chapter.splitlines() if re.match(r"\| \d", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 18))
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, test in named:
            tree = ast.parse((ROOT / "tests" / path).read_text())
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
