"""Two replicas of the service on a real cluster: what a client sees through either of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from bench.peers.cluster import Cluster
from tests.support.broker import RealBroker
from tests.support.cluster import cluster_of
from tests.support.fake_kafka import eventually
from tests.support.service import Api, running

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.needs("java", "mvn")]

COMMITTED: Final[Mapping[str, Any]] = {
    "isolation": "read_committed",
    "encoding": "utf8",
    "max_bytes": 300,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster[RealBroker]]:
    with cluster_of(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def replicas(
    cluster: Cluster[RealBroker], tmp_path: Path, anyio_backend: str
) -> AsyncIterator[list[Api]]:
    """Two services that share nothing but the brokers."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running(tmp_path / name, kafka=cluster.bootstrap))
            for name in ("one", "two")
        ]


@pytest.fixture
async def topic(replicas: list[Api]) -> str:
    """The name of a new topic with one partition."""
    name = f"replicas-{uuid4().hex}"
    await replicas[0].create(name)
    return name


def path_of(topic: str, view: str = "records") -> str:
    return f"/v1/topics/{topic}/partitions/0/{view}"


async def test_a_delivery_is_stored_once_whichever_replica_it_reaches(
    replicas: list[Api], topic: str
) -> None:
    """A replica that has read what another wrote answers with the first offset."""
    for number in range(20):
        first, second = replicas if number % 2 else reversed(replicas)
        body, headers = {"records": [{"value": number}]}, {"idempotency-key": f"key-{number}"}
        for replica, status in ((first, 201), (second, 200)):
            answer = await replica.client.post(path_of(topic), json=body, headers=headers)
            assert (answer.status_code, answer.json()["base_offset"]) == (status, number)
            if number:  # a replica begins to follow a log with its first delivery to it
                await have_remembered(replicas, number + 1)


async def have_remembered(replicas: list[Api], count: int) -> None:
    """Wait until both have read so many deliveries."""
    deliveries = [replica.service.deliveries for replica in replicas]
    await eventually(lambda: all(one.remembered >= count for one in deliveries))


async def test_an_immutable_page_is_the_same_on_both(replicas: list[Api], topic: str) -> None:
    """Its URL, its ETag and its bytes; each replica accepts an ETag of either."""
    for number in range(40):
        await replicas[number % 2].append("x" * 100, path=path_of(topic))
    for view in ("records", "batches"):
        links, pages = set(), list[Any]()
        for replica in replicas:
            first = await replica.client.get(
                path_of(topic, view), params={"offset": 0, "max_bytes": 1000}
            )
            links.add(first.headers["link"])
            url = first.headers["link"].partition(">")[0][1:]
            pages.append(await replica.client.get(url))
        assert len(links) == 1
        assert "immutable" in pages[0].headers["cache-control"]
        assert pages[0].headers["etag"] == pages[1].headers["etag"]
        assert pages[0].content == pages[1].content
        for replica in replicas:
            condition = {"if-none-match": pages[0].headers["etag"]}
            assert (await replica.client.get(url, headers=condition)).status_code == 304


async def test_a_topic_that_was_created_again_is_another_log(
    replicas: list[Api], topic: str
) -> None:
    """Whichever replica did it, both say so to readers of the old one."""
    await replicas[0].append("before", path=path_of(topic))
    log_id = (await replicas[0].client.get(path_of(topic, "offsets"))).json()["log_id"]
    old = {"offset": 0, "log_id": log_id}
    for replica in replicas:
        assert (await replica.client.get(path_of(topic), params=old)).status_code == 200
    assert (await replicas[0].client.delete(f"/v1/topics/{topic}")).status_code == 204
    await replicas[1].create(topic)
    await replicas[1].append("after", path=path_of(topic))
    for replica in replicas:
        answer = await replica.client.get(path_of(topic), params=old)
        assert (answer.status_code, answer.json()["code"]) == (409, "log_replaced")
        records = (await replica.client.get(path_of(topic), params={"offset": 0})).json()
        assert [record["value"] for record in records["records"]] == ["after"]


async def test_kafkas_own_consumer_reads_the_same_bytes(
    replicas: list[Api], topic: str, cluster: Cluster[RealBroker]
) -> None:
    """Keys, values, headers and times, at the same offsets."""
    records = [
        {
            "key": f"key-{number}",
            "value": {"number": number, "text": "ä€"},
            "headers": [{"key": "trace", "value": f"{number:04x}"}],
            "timestamp": 1_788_000_000_000 + number,
        }
        for number in range(50)
    ]
    for number, record in enumerate(records):
        answer = await replicas[number % 2].client.post(path_of(topic), json={"records": [record]})
        assert answer.status_code == 201, answer.text
    shown = await asyncio.to_thread(cluster.brokers[0].records, topic)
    read = (await replicas[0].client.get(path_of(topic), params={"offset": 0})).json()["records"]
    assert [
        (one.offset, one.timestamp, one.headers, one.key, json.loads(one.value)) for one in shown
    ] == [
        (
            one["offset"],
            one["timestamp"],
            ",".join(f"{header['key']}:{header['value']}" for header in one["headers"]),
            one["key"],
            one["value"],
        )
        for one in read
    ]
    assert [one["value"] for one in read] == [record["value"] for record in records]


async def transactions(name: str, producers: Sequence[AIOKafkaProducer]) -> list[str]:
    """Write some that lie between each other; return the values of those that were committed."""
    committed: list[str] = []
    for turn in range(4):
        for producer in producers:
            await producer.begin_transaction()
        written: list[list[str]] = [[] for _ in producers]
        for record in range(3):
            for number, producer in enumerate(producers):
                value = f"{turn}.{number}.{record}"
                await producer.send_and_wait(name, value.encode(), partition=0)
                written[number].append(value)
        for number, producer in enumerate(producers):
            if turn & 1 << number:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                committed += written[number]
    return committed


async def values_of(replica: Api, path: str, end: int) -> list[str]:
    """Read to an end, a small page at a time."""
    offset, values = 0, list[str]()
    while offset < end:
        page = (await replica.client.get(path, params={"offset": offset, **COMMITTED})).json()
        values += [record["value"] for record in page["records"]]
        offset = page["next_offset"]
    return values


async def test_readers_see_committed_transactions_alone(
    replicas: list[Api], topic: str, cluster: Cluster[RealBroker]
) -> None:
    """An open one holds them up, and its commit wakes them; Kafka's consumer sees the same."""
    path = path_of(topic)
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(
                AIOKafkaProducer(
                    bootstrap_servers=cluster.bootstrap, transactional_id=f"{topic}-{number}"
                )
            )
            for number in range(2)
        ]
        expected = await transactions(topic, producers)
        await producers[0].begin_transaction()
        await producers[0].send_and_wait(topic, b"open", partition=0)
        for replica in replicas:
            offsets = (await replica.client.get(path_of(topic, "offsets"))).json()
            assert offsets["last_stable_offset"] == offsets["high_watermark"] - 1
            values = await values_of(replica, path, offsets["last_stable_offset"])
            assert sorted(values) == sorted(expected)
        poll = {"offset": "latest", "max_wait_ms": 50_000, **COMMITTED}
        waiting = [
            asyncio.create_task(replica.client.get(path, params=poll)) for replica in replicas
        ]
        await eventually(lambda: all(replica.service.tail.waiting for replica in replicas))
        await producers[0].commit_transaction()
        for answer in await asyncio.gather(*waiting):
            assert [record["value"] for record in answer.json()["records"]] == ["open"]
    shown = await asyncio.to_thread(
        lambda: cluster.brokers[0].records(topic, isolation="read_committed")
    )
    assert [one.value for one in shown] == [*values, "open"]


async def test_workers_share_partitions_through_either_replica(replicas: list[Api]) -> None:
    """Random claims through both: never two holders, one answer, and commits of holders count."""
    topic, group = f"replicas-{uuid4().hex}", uuid4().hex
    await replicas[0].create(topic, partitions=6)
    url = f"/v1/groups/{group}/leases"
    chance = Random(1)
    leases: dict[str, dict[str, Any]] = {}
    for _ in range(60):
        worker = f"w{chance.randrange(4)}"
        client = chance.choice(replicas).client
        if worker in leases and chance.random() < 0.1:
            assert (await client.delete(f"{url}/{worker}")).status_code == 204
            del leases[worker]
            continue
        done = [
            {"topic": topic, "partition": one["partition"]}
            for one in leases.get(worker, {"revoking": []})["revoking"]
        ]
        body = {"worker": worker, "topics": [topic], "ttl_ms": 600_000, "release": done}
        answer = await client.post(url, json=body)
        assert answer.status_code == 200, answer.text
        leases[worker] = answer.json()
        one, two = [(await replica.client.get(url)).json() for replica in replicas]
        assert one == two
        held = [place["partition"] for each in one["workers"] for place in each["partitions"]]
        assert len(held) == len(set(held))
    for worker, lease in leases.items():
        listed = (await replicas[0].client.get(url)).json()["workers"]
        fences = {
            place["partition"]: place["fence"]
            for each in listed
            if each["worker"] == worker
            for place in each["partitions"]
        }
        for place in lease["partitions"]:
            path = f"/v1/groups/{group}/offsets/{topic}/{place['partition']}"
            head = {"lease-fence": str(place["fence"])}
            client = chance.choice(replicas).client
            answer = await client.put(path, json={"offset": 0}, headers=head)
            is_held = fences.get(place["partition"]) == place["fence"]
            assert (answer.status_code < 300) is is_held
