"""The cluster that the other tests here run on: it keeps what it acknowledged while brokers die."""

from pathlib import Path

import pytest

from tests.support.cluster import cluster_of

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn")]


def test_each_broker_can_be_killed_and_started_again(tmp_path: Path) -> None:
    """Two of three brokers take records; the third has them once it is back."""
    sent = []
    with cluster_of(tmp_path) as cluster:
        cluster.brokers[0].create_topic("kills", 3)
        for number, broker in enumerate(cluster.brokers):
            broker.kill()
            cluster.wait_for(2)
            survivor = cluster.brokers[number - 1]
            lines = [(f"key-{number}-{n}", f"value-{number}-{n}") for n in range(50)]
            survivor.produce_lines("kills", lines)
            sent += [value for _, value in lines]
            broker.start()
            cluster.wait_for(3)
        assert sorted(record.value for record in broker.records("kills")) == sorted(sent)
