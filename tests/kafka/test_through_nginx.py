"""Spark through nginx to two replicas: a request can go to any of them, and one of them dies."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from bench.peers.program import free_ports
from pyspark_tidelog.session import local_conf, local_session
from tests.support.cluster import bootstrap_of_cluster
from tests.support.kafka_batches import encode, numbered
from tests.support.nginx import nginx
from tests.support.replica_set import PATIENCE_S, ReplicaSet
from tests.support.service import RAW

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn", "nginx")]

PARTITIONS, BATCHES, BATCH_RECORDS = 4, 40, 250
RECORDS = BATCHES * BATCH_RECORDS
TOPIC = f"through-nginx-{free_ports(1)[0]}"
"""Another one in each run: the cluster may be one that is running."""


@contextmanager
def load_balancer(urls: list[str]) -> Iterator[str]:
    """Serve the replicas in turn at one address."""
    (port,) = free_ports(1)
    servers = "".join(f"server {url.removeprefix('http://')} fail_timeout=1s; " for url in urls)
    more = f"upstream replicas {{ {servers} }}"
    with nginx("http://replicas", more=more, listen=f"; listen 127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}"


def filled(client: httpx.Client) -> None:
    """Create the topic at one replica and append at both."""
    body = {"partitions": PARTITIONS, "config": {"retention.ms": "-1"}}
    client.put(f"/v1/topics/{TOPIC}", json=body).raise_for_status()
    for number in range(BATCHES):
        batch = encode(numbered(BATCH_RECORDS, first=number * BATCH_RECORDS))
        url = f"/v1/topics/{TOPIC}/partitions/{number % PARTITIONS}/batches"
        client.post(url, content=batch, headers=RAW).raise_for_status()


def places_in(lake: Path) -> list[tuple[int, int]]:
    """Return partition and offset of every row of the lake."""
    files = lake.glob("batches=*/batch_id=*/*.parquet")
    tables = [pq.ParquetFile(file).read(["partition", "offset"]) for file in files]
    return sorted((row["partition"], row["offset"]) for each in tables for row in each.to_pylist())


def test_source_and_job_read_everything_once_while_a_replica_dies(tmp_path: Path) -> None:
    """A batch query, and a job of many micro-batches during which a replica is killed."""
    everything = [
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(RECORDS // PARTITIONS)
    ]
    with (
        bootstrap_of_cluster(tmp_path) as bootstrap,
        ReplicaSet(bootstrap, tmp_path) as replicas,
        load_balancer(replicas.urls) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):
        filled(client)
        with local_session(local_conf(cores=2), log_file=tmp_path / "spark.log") as spark:
            frame = spark.read.format("tidelog").options(url=url, subscribe=TOPIC).load()
            rows = frame.select("partition", "offset").collect()
            assert sorted((row[0], row[1]) for row in rows) == everything
        lake = tmp_path / "lake"
        command = [sys.executable, "-m", "app.cli", "ingest", "--server", url, "--topic", TOPIC]
        command += ["--to", f"parquet:{lake}", "--checkpoint", f"{lake}.state"]
        command += ["--batch-records", "500"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
            while job.poll() is None and not places_in(lake):
                pass  # until the first micro-batch is there
            assert len(places_in(lake)) < RECORDS, "the job has ended before the kill"
            replicas.replicas[0].kill()
            told, _ = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, told.decode()
        assert places_in(lake) == everything
