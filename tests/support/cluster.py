"""A real Kafka cluster for long tests: one of their own, or the one that is running."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.cluster import Cluster
from bench.peers.packages import jars_of
from tests.support.broker import RealBroker

RUNNING = "KAFKA_BROKERS"
"""The environment's name for the addresses of a running cluster, which a developer saves time with.

Tests that kill brokers or look at their files start their own.
"""


def cluster_of(folder: Path, **settings: str) -> Cluster[RealBroker]:
    """Three brokers with their data in a folder, not started; `_` for `.` in their settings."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(RealBroker, jars_of("kafka"), folder, settings=named)


@contextmanager
def bootstrap_of_cluster(folder: Path) -> Iterator[str]:
    """The addresses of a cluster whose brokers the block leaves alone."""
    running = os.environ.get(RUNNING)
    if running:
        yield running
        return
    with cluster_of(folder) as cluster:
        yield cluster.bootstrap
