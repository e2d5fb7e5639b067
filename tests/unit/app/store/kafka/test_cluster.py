"""The cluster: metadata that is kept current, coordinators, attempts that are repeated."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import MetadataResponse

from app.errors import BackendUnavailable
from app.settings import Settings
from app.store.kafka import cluster as module
from app.store.kafka.cluster import Cluster
from app.store.kafka.connection import ALL_TOPICS, EMPTY, Metadata
from app.store.kafka.errors import Moved, NoAnswer, ensure_done
from engine.errors import TopicNotFound
from tests.support.fake_kafka import FakeKafka, eventually

pytestmark = pytest.mark.anyio


async def _ignore(_: Metadata) -> None:
    """Have nothing to do with new metadata."""


def cluster_of(fake: FakeKafka, **settings: object) -> Cluster:
    return Cluster(Settings.model_validate({"kafka": fake.addresses, **settings}), _ignore)


async def test_a_wrong_address_is_an_error(fake: FakeKafka) -> None:
    """Once the time for a start is over."""
    for node in (1, 2):
        await fake.stop(node)
    cluster = cluster_of(fake, kafka_start_timeout_ms=50)
    with pytest.raises(BackendUnavailable, match="no broker of the Kafka cluster answers"):
        await cluster.open()
    with pytest.raises(NoAnswer):
        cluster.any_node()
    await cluster.close()


async def test_a_start_waits_for_a_broker(fake: FakeKafka) -> None:
    """It may start later than the service."""
    await fake.stop(1)
    await fake.stop(2)
    cluster = cluster_of(fake)
    opening = asyncio.create_task(cluster.open())
    await eventually(lambda: cluster.problem is not None)
    await fake.start(2)
    await opening
    assert set(cluster.metadata.brokers) == {2}
    await cluster.close()


async def test_metadata_is_read_again_in_its_interval(fake: FakeKafka) -> None:
    """And at once when something is found to be stale."""
    cluster = cluster_of(fake, kafka_metadata_interval_ms=5)
    await cluster.open()
    fake.create("events")
    await eventually(lambda: "events" in cluster.metadata.topics)
    fake.create("more")
    cluster.refresh_soon()
    await eventually(lambda: "more" in cluster.metadata.topics)
    await cluster.close()


async def test_another_broker_is_asked_if_one_is_gone(fake: FakeKafka) -> None:
    """A broker that has gone is forgotten; requests to it were not sent."""
    cluster = cluster_of(fake)
    await cluster.open()
    await fake.stop(1)
    await cluster.refresh()
    assert cluster.problem is None
    assert cluster.any_node() == 2
    with pytest.raises(NoAnswer) as caught:
        await cluster.send(1, ALL_TOPICS, MetadataResponse)
    assert not caught.value.was_sent
    await cluster.close()


async def test_a_broker_may_come_back_under_another_address(fake: FakeKafka) -> None:
    """Connections to the old address are closed."""
    cluster = cluster_of(fake)
    await cluster.open()
    await cluster.coordinator("lake")
    address = cluster.metadata.brokers[1]
    brokers = {1: address._replace(host="localhost")}
    cluster.metadata = cluster.metadata._replace(brokers=brokers)
    assert (await cluster.send(1, ALL_TOPICS, MetadataResponse)).brokers
    cluster.metadata = EMPTY._replace(brokers={5: address})
    assert cluster.any_node() == 5
    await cluster.close()


async def test_a_group_without_a_coordinator_is_asked_for_again(fake: FakeKafka) -> None:
    """The error counts, and the node in the same answer is not remembered."""
    cluster = cluster_of(fake)
    await cluster.open()
    fake.errors["FindCoordinator"].append(ErrorCode.coordinator_not_available)
    with pytest.raises(Moved):
        await cluster.coordinator("lake")
    assert await cluster.coordinator("lake") == 1
    await cluster.close()


async def test_nothing_connects_after_the_end(fake: FakeKafka) -> None:
    """A connection that was being made is closed, and another one is not begun."""
    cluster = cluster_of(fake)
    await cluster.open()
    fake.holds["ApiVersions"] = asyncio.Event()
    before = fake.requests["ApiVersions"]
    connecting = asyncio.create_task(cluster.send(1, ALL_TOPICS, MetadataResponse, lane="fetch-0"))
    await eventually(lambda: fake.requests["ApiVersions"] > before)
    await cluster.close()
    fake.holds.pop("ApiVersions").set()
    with pytest.raises(NoAnswer):
        await connecting
    with pytest.raises(NoAnswer, match="stopping"):
        await cluster.send(1, ALL_TOPICS, MetadataResponse, lane="fetch-1")


async def test_a_leader_is_known_or_awaited(fake: FakeKafka) -> None:
    """A topic without one has written nothing; one that is not there is not found."""
    logs = fake.create("events")
    cluster = cluster_of(fake)
    await cluster.open()
    assert cluster.leader("events", 0).node == 1
    with pytest.raises(TopicNotFound):
        cluster.leader("events", 1)
    logs[0].leader = -1
    await cluster.refresh()
    with pytest.raises(NoAnswer, match="no leader"):
        cluster.leader("events", 0)
    await cluster.close()


async def test_a_coordinator_is_remembered(
    fake: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is not one any more; memory for them is bounded."""
    monkeypatch.setattr(module, "MAX_COORDINATORS", 1)
    cluster = cluster_of(fake)
    await cluster.open()
    for _ in range(2):
        assert await cluster.coordinator("lake") == 1
    assert fake.requests["FindCoordinator"] == 1
    await cluster.coordinator("other")
    cluster.forget_coordinator("other")
    await cluster.coordinator("lake")
    assert fake.requests["FindCoordinator"] == 3
    await cluster.close()


async def test_an_attempt_is_repeated_until_its_time_is_over(fake: FakeKafka) -> None:
    """Only what has done nothing is repeated."""
    cluster = cluster_of(fake)
    await cluster.open()
    answers = [ErrorCode.not_controller, ErrorCode.none]

    async def attempt() -> str:
        ensure_done(answers.pop(0))
        return "done"

    async def moved() -> None:
        raise Moved(ErrorCode.not_coordinator)

    assert await cluster.retry(attempt, 10_000) == "done"
    with pytest.raises(BackendUnavailable, match="NOT_COORDINATOR"):
        await cluster.retry(moved, 5)
    await cluster.close()


async def test_metadata_that_cannot_be_used_is_a_problem(
    fake: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and read again."""
    failures = [RuntimeError("broken")]

    async def take(_: Metadata) -> None:
        if failures:
            raise failures.pop()

    cluster = Cluster(Settings(kafka=fake.addresses), take)
    await cluster.refresh()
    assert "broken" in (cluster.problem or "")
    assert "cannot be used" in caplog.text
    await cluster.open()
    assert cluster.problem is None
    await cluster.close()


async def test_a_refused_address_is_not_tried_at_once(
    fake: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand requests do not open a thousand connections."""
    monkeypatch.setattr(module, "RECONNECT_SECONDS", 60.0)
    cluster = cluster_of(fake)
    await cluster.open()
    await fake.stop(1)
    problems = []
    for _ in range(2):
        with pytest.raises(NoAnswer) as caught:
            await cluster.send(1, ALL_TOPICS, MetadataResponse, lane="produce")
        problems.append(str(caught.value))
    assert problems[0] == problems[1]
    await cluster.close()
