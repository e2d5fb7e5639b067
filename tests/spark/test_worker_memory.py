"""What a Python worker takes of memory, on its own: the real service, no JVM."""

from __future__ import annotations

import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.spark.conftest import RAW_BATCHES, ServeDirectory, ServiceProcess
from tests.support.kafka_batches import SentRecord, encode

BATCH_RECORDS = 400
MIB = 1 << 20

# What Spark's worker does with a task: take batch after batch, keep none.
WORKER = """
import sys
import pyspark.worker
from pyspark_tidelog.records.columns import spark_schema
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import OffsetRange

options = Options.parse({"url": sys.argv[1], "subscribe": sys.argv[2]})
end = int(sys.argv[3])
columns = spark_schema(include_headers=True).fieldNames()
expected = 0
for batch in read_ranges(options, columns, [OffsetRange(sys.argv[2], 0, 0, end)]):
    offsets = batch.column("offset").to_numpy()
    assert offsets[0] == expected and (offsets[1:] - offsets[:-1] == 1).all()
    expected = int(offsets[-1]) + 1
assert expected == end
# Of this program alone: `getrusage` starts with the size of the parent process.
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.long
@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
def test_a_worker_takes_no_more_memory_for_a_larger_partition(
    tmp_path: Path, serve_directory: ServeDirectory, codec: int
) -> None:
    """Ten times the records, each there once and in order, take what a tenth takes: no 250 MiB."""
    with serve_directory(tmp_path / "data") as service:
        small = worker_bytes(service, "small", filled(service, "small", batches=250, codec=codec))
        large = worker_bytes(service, "large", filled(service, "large", batches=2_500, codec=codec))
    assert large < 250 * MIB
    assert large < small + 40 * MIB


def filled(service: ServiceProcess, topic: str, *, batches: int, codec: int) -> int:
    """Append batches of 64 KiB to a topic of one partition; return how many records they hold."""
    service.put_topic(topic)
    values = [(b'{"n":%d}' % number).ljust(140) for number in range(BATCH_RECORDS)]
    records = [SentRecord(1_788_000_000_000, b"key", value) for value in values]
    body = encode(records, codec=codec)
    connection = HTTPConnection("127.0.0.1", service.port, timeout=60)
    path, headers = f"/v1/topics/{topic}/partitions/0/batches", {"Content-Type": RAW_BATCHES}
    for _ in range(batches // 10):
        connection.request("POST", path, body=body * 10, headers=headers)
        response = connection.getresponse()
        assert response.status == 201, response.read()
        response.read()
    connection.close()
    return batches * BATCH_RECORDS


def worker_bytes(service: ServiceProcess, topic: str, end_offset: int) -> int:
    """Return the peak of resident memory of a worker that reads the topic."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, service.url, topic, str(end_offset)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
