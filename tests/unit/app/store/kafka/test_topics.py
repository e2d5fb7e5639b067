"""Topics of a cluster: what its brokers say, also late, twice, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from app.errors import BackendRefused, BackendUnavailable, Forbidden
from app.store.kafka.topics import NO_CONFIG
from engine.errors import (
    InvalidConfig,
    InvalidRequestValue,
    PolicyViolation,
    TopicConflict,
    TopicNotFound,
)
from engine.types import TopicPartition
from tests.support.builders import new_batch
from tests.support.fake_kafka import FakeKafka, eventually
from tests.support.kafka_store import Opened, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(fake: FakeKafka, tmp_path: Path) -> AsyncIterator[Opened]:
    async with opened(fake, tmp_path, kafka_config_interval_ms=3_600_000) as service:
        yield service


async def test_a_topic_that_two_services_create_is_created_once(
    fake: FakeKafka, service: Opened
) -> None:
    """Who is second finds it, or a conflict."""
    topics = service.store.topics
    fake.errors["CreateTopics"].append(ErrorCode.topic_already_exists)
    fake.create("events")
    topic, created = await topics.create("events", 1, {})
    assert (topic.name, created) == ("events", False)
    with pytest.raises(TopicConflict):
        await topics.create("events", 2, {})


async def test_a_topic_that_was_just_deleted_elsewhere_is_created(
    fake: FakeKafka, service: Opened
) -> None:
    """A broker may still list it, after the controller has created the new one."""
    topics = service.store.topics
    before, _ = await topics.create("events", 1, {})
    old = dict(fake.topics)
    del fake.topics["events"]
    fake.late += [old, old]
    topic, created = await topics.create("events", 1, {})
    assert created
    assert topic.topic_id != before.topic_id


async def test_a_topic_is_found_by_a_principal_that_may_not_create_it(
    fake: FakeKafka, service: Opened
) -> None:
    """Otherwise the broker's refusal is the answer."""
    topics = service.store.topics
    topic, _ = await topics.create("events", 1, {})
    fake.errors["CreateTopics"] += [ErrorCode.topic_authorization_failed] * 2
    assert await topics.create("events", 1, {}) == (topic, False)
    with pytest.raises(Forbidden):
        await topics.create("other", 1, {})


async def test_a_topic_that_brokers_do_not_list_yet_is_awaited(
    fake: FakeKafka, service: Opened
) -> None:
    """Another service creates it, and the metadata has it later."""
    topics = service.store.topics
    fake.errors["CreateTopics"].append(ErrorCode.topic_already_exists)
    creation = asyncio.create_task(topics.create("events", 1, {}))
    before = fake.requests["Metadata"]
    await eventually(lambda: fake.requests["Metadata"] > before + 1)
    fake.create("events")
    assert await creation == (topics.topic("events"), False)


async def test_a_refused_creation_is_explained(fake: FakeKafka, service: Opened) -> None:
    """By the broker's code; a stale controller is asked again."""
    topics = service.store.topics
    fake.errors["CreateTopics"] += [ErrorCode.not_controller, ErrorCode.policy_violation]
    with pytest.raises(PolicyViolation):
        await topics.create("events", 1, {})
    fake.errors["CreateTopics"].append(ErrorCode.cluster_authorization_failed)
    with pytest.raises(BackendRefused):
        await topics.create("events", 1, {})
    with pytest.raises(InvalidRequestValue, match="1 to"):
        await topics.create("events", 0, {})


async def test_a_change_that_is_not_shown_is_unknown(fake: FakeKafka, tmp_path: Path) -> None:
    """Brokers learn of a change later; one that never does is an error."""
    async with opened(fake, tmp_path, kafka_request_timeout_ms=300) as service:
        topics = service.store.topics
        await topics.create("events", 1, {})
        fake.topics["events"][1][0].leader = -1
        with pytest.raises(BackendUnavailable, match="do not show"):
            await topics.update("events", {"retention.ms": "5"}, None)
        assert topics.offline() == [TopicPartition("events", 0)]
        assert service.store.report()["offline_logs_count"] == 1


async def test_configurations_are_the_clusters(fake: FakeKafka, service: Opened) -> None:
    """Names that are not known here pass; values of known names are checked here."""
    topics = service.store.topics
    own = {"retention.ms": "1000", "future.key": "x", "cleanup.policy": "compact"}
    topic, _ = await topics.create("events", 1, {**own, "retention.ms": 1000})
    assert topic.overrides == own
    values = topics.effective(topic)
    assert (values["retention.ms"].source, values["segment.bytes"].source) == ("topic", "default")
    assert topics.partition("events", 0).config.is_compacted
    with pytest.raises(InvalidConfig):
        await topics.update("events", {"retention.ms": "soon"}, None)
    changed = await topics.update("events", {"retention.ms": None, "future.key": None}, None)
    assert changed.overrides == {"cleanup.policy": "compact"}
    assert await topics.update("events", {}, None) == changed
    fake.errors["IncrementalAlterConfigs"].append(ErrorCode.invalid_config)
    with pytest.raises(InvalidConfig):
        await topics.update("events", {"retention.ms": "7"}, None)


async def test_a_configuration_that_is_not_shown_is_kafkas_default(
    fake: FakeKafka, service: Opened
) -> None:
    """The service may lack the permission to read it."""
    fake.create("events")
    fake.errors["DescribeConfigs"].append(ErrorCode.topic_authorization_failed)
    partition = await service.partition()
    assert partition.config == NO_CONFIG.config


async def test_partitions_are_added_and_not_removed(fake: FakeKafka, service: Opened) -> None:
    """A repeated request finds them; a refusal is explained."""
    topics = service.store.topics
    await topics.create("events", 2, {})
    with pytest.raises(InvalidRequestValue, match="cannot have fewer"):
        await topics.update("events", {}, 1)
    fake.loses_answers["CreatePartitions"] = 1
    assert (await topics.update("events", {}, 3)).partitions == 3
    fake.errors["CreatePartitions"].append(ErrorCode.policy_violation)
    with pytest.raises(PolicyViolation):
        await topics.update("events", {}, 4)
    with pytest.raises(PolicyViolation):
        await topics.update("__tidelog_documents", {}, None)


async def test_a_topic_is_deleted_by_its_id(fake: FakeKafka, service: Opened) -> None:
    """One of the same name that was created since stays; so does an internal one."""
    topics = service.store.topics
    await topics.create("events", 1, {})
    fake.create("events")
    await topics.delete("events")
    await topics.look_for("events")
    assert "events" in fake.topics
    assert topics.topic("events").topic_id
    fake.errors["DeleteTopics"].append(ErrorCode.topic_deletion_disabled)
    with pytest.raises(BackendRefused):
        await topics.delete("events")
    with pytest.raises(PolicyViolation):
        await topics.delete("__tidelog_documents")


async def test_a_topic_that_is_created_again_has_new_handles(
    fake: FakeKafka, service: Opened
) -> None:
    """The service forgets the old ones."""
    topics = service.store.topics
    await topics.create("events", 1, {})
    before = topics.partition("events", 0)
    assert topics.partition("events", 0) is before
    fake.create("events")
    await topics.look_for("events")
    assert topics.partition("events", 0).identity != before.identity
    assert service.gone == ["events"]
    topics.replace(TopicPartition("events", 0))
    assert service.gone == ["events", "events"]


async def test_a_topic_is_gone_when_two_answers_lack_it(fake: FakeKafka, service: Opened) -> None:
    """A broker that has just started may not know every topic."""
    topics = service.store.topics
    await topics.create("events", 1, {})
    del fake.topics["events"]
    await topics.look_for("events")
    assert topics.topic("events").partitions == 1
    await topics.look_for("events")
    with pytest.raises(TopicNotFound):
        topics.topic("events")
    assert service.gone == ["events"]


async def test_looks_for_unknown_topics_are_few(
    fake: FakeKafka, service: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata is not read for each request."""
    monkeypatch.setattr("app.store.kafka.topics.LOOK_SECONDS", 0.05)
    before = fake.requests["Metadata"]
    for _ in range(3):
        await service.store.topics.look_for("none")
    assert fake.requests["Metadata"] <= before + 3


async def test_all_who_look_wait_for_the_same_look(
    fake: FakeKafka, service: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of one moment for a topic that was created elsewhere find it all."""
    monkeypatch.setattr("app.store.kafka.topics.LOOK_SECONDS", 60.0)
    fake.create("events")
    await asyncio.gather(*[service.partition() for _ in range(3)])


async def test_a_producer_id_is_asked_for_again(fake: FakeKafka, service: Opened) -> None:
    """While its coordinator is being loaded."""
    fake.errors["InitProducerId"].append(ErrorCode.coordinator_load_in_progress)
    assert await service.store.topics.allocate_producer() == (2, 0)


async def test_partitions_without_a_leader_are_reported(fake: FakeKafka, service: Opened) -> None:
    """The others are served."""
    await service.store.topics.create("events", 2, {})
    assert service.store.report() == {}
    assert service.store.progress()["total_logs"] == 0
    logs = fake.topics["events"][1]
    logs[1].leader = -1
    await service.store.topics.look_for("events")
    assert service.store.report()["offline_logs_count"] == 1
    partition = await service.partition()
    assert (await service.append(partition, new_batch(1))).base_offset == 0
