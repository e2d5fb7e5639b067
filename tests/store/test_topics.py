"""Topics of every side: created, changed, deleted, and there again after a start."""

from pathlib import Path

import pytest

from engine.errors import (
    InvalidConfig,
    InvalidTopicName,
    PartitionNotFound,
    TopicConflict,
    TopicNotFound,
)
from engine.manager.topics import Topic
from tests.store.conftest import OpenSide, Side

pytestmark = pytest.mark.anyio


def listed(side: Side) -> dict[str, Topic]:
    """The topics that a client may see."""
    return {name: one for name, one in side.store.topics.all().items() if not one.is_internal}


async def test_a_topic_is_created_once(side: Side) -> None:
    """Wanted again just as it is, it was there; wanted otherwise, it is a conflict."""
    topics = side.store.topics
    topic, created = await topics.create("events", 3, {"retention.ms": "1000"})
    assert (topic.name, topic.partitions, created) == ("events", 3, True)
    assert topics.topic("events") == topics.all()["events"] == topic
    assert topics.partition("events", 2).config.retention_ms == 1000
    assert await topics.create("events", 3, {"retention.ms": "1000"}) == (topic, False)
    with pytest.raises(TopicConflict):
        await topics.create("events", 4, {})


async def test_what_is_not_there_is_not_found(side: Side) -> None:
    """Topics and partitions, whatever is asked of them."""
    topics = side.store.topics
    with pytest.raises(TopicNotFound):
        topics.topic("events")
    with pytest.raises(TopicNotFound):
        topics.partition("events", 0)
    with pytest.raises(TopicNotFound):
        await topics.update("events", {}, None)
    with pytest.raises(TopicNotFound):
        await topics.delete("events")
    await topics.create("events", 1, {})
    with pytest.raises(PartitionNotFound):
        topics.partition("events", 1)
    assert list(topics.offline()) == []


async def test_names_and_settings_are_checked(side: Side) -> None:
    """What Kafka refuses is refused, and nothing is created."""
    topics = side.store.topics
    with pytest.raises(InvalidTopicName):
        await topics.create("a/b", 1, {})
    with pytest.raises(InvalidConfig):
        await topics.create("events", 1, {"retention.ms": "soon"})
    assert listed(side) == {}


async def test_a_topic_is_changed(side: Side) -> None:
    """Settings are merged, and partitions are added."""
    topics = side.store.topics
    await topics.create("events", 1, {"retention.ms": "1000", "retention.bytes": "2000"})
    topic = await topics.update("events", {"retention.ms": None, "retention.bytes": "3000"}, 2)
    assert topic.partitions == 2
    assert topics.partition("events", 1).config.retention_bytes == 3000
    assert "retention.ms" not in topics.topic("events").overrides


async def test_a_topic_created_again_is_another(side: Side) -> None:
    """Its partitions have other ids, so that old offsets are not used for it."""
    topics = side.store.topics
    before = await side.partition()
    await topics.delete("events")
    with pytest.raises(TopicNotFound):
        topics.partition("events", 0)
    after = await side.partition()
    assert before.topic_id != after.topic_id
    assert before.log_id != after.log_id
    assert before.identity != after.identity
    assert topics.partition("events", 0).identity == after.identity


async def test_each_producer_gets_an_id_of_its_own(side: Side) -> None:
    """Two requests never share one."""
    first, second = [await side.store.topics.allocate_producer() for _ in range(2)]
    assert first != second
    assert min(first) >= 0


async def test_topics_are_there_after_a_start(open_side: OpenSide, tmp_path: Path) -> None:
    """Creating, changing and deleting are durable when they return."""
    async with open_side(tmp_path) as side:
        await side.partition("gone")
        await side.partition("kept")
        await side.store.topics.delete("gone")
        changed = await side.store.topics.update("kept", {"retention.ms": "1000"}, 2)
    async with open_side(tmp_path) as side:
        assert listed(side) == {"kept": changed}
