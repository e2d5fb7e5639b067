"""Group offsets at the coordinators of a cluster."""

from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from app.errors import CursorNotFound
from app.store.kafka import groups as module
from app.store.kafka.groups import KafkaGroupOffsets
from app.store.port import Cursor, CursorKey, CursorValue
from engine.errors import PolicyViolation, TopicNotFound
from engine.manager.topics import Topic
from tests.unit.app.store.kafka.conftest import Client

pytestmark = pytest.mark.anyio

KEY = CursorKey("lake", "events", 0)


@pytest.fixture
def topics() -> dict[str, Topic]:
    return {name: Topic(name, "", 2, {}) for name in ("events", "other")}


@pytest.fixture
def groups(client: Client, topics: Mapping[str, Topic]) -> KafkaGroupOffsets:
    return KafkaGroupOffsets(client.cluster, lambda: topics)


async def put(groups: KafkaGroupOffsets, key: CursorKey, offset: int) -> tuple[Cursor, bool]:
    return await groups.put(key, lambda _: CursorValue(offset, 3, "m", 5))


async def test_an_offset_is_committed_without_members(
    client: Client, groups: KafkaGroupOffsets
) -> None:
    """It has no ETag, and afterwards no time: the coordinator tells neither."""
    with pytest.raises(CursorNotFound):
        await groups.get(KEY)
    cursor, is_first = await put(groups, KEY, 1)
    assert (cursor, is_first) == (Cursor(CursorValue(1, 3, "m", 5), None), True)
    assert client.fake.groups["lake"]["events", 0] == (1, 3, "m")
    stored = CursorValue(1, 3, "m", None)
    assert await groups.get(KEY) == Cursor(stored, None)
    assert await groups.of_group("lake") == [(KEY, stored)]
    seen: list[Cursor | None] = []

    def decide(before: Cursor | None) -> CursorValue:
        seen.append(before)
        return CursorValue(2)

    assert (await groups.put(KEY, decide))[1] is False
    assert seen == [Cursor(stored, None)]
    assert await groups.of_group("unknown") == []


async def test_the_coordinator_may_move(client: Client, groups: KafkaGroupOffsets) -> None:
    """It is found again, after a lost connection too."""
    await put(groups, KEY, 1)
    client.fake.coordinator = 2
    client.fake.errors["FindCoordinator"].append(ErrorCode.coordinator_not_available)
    assert (await groups.get(KEY)).value.offset == 1
    client.fake.closes["OffsetFetch"] = 1
    client.fake.errors["OffsetFetch"].append(ErrorCode.coordinator_load_in_progress)
    assert (await groups.get(KEY)).value.offset == 1


async def test_an_offset_is_deleted(client: Client, groups: KafkaGroupOffsets) -> None:
    """Then it is not there."""
    await put(groups, KEY, 1)
    await groups.delete(KEY, lambda _: None)
    assert client.fake.groups["lake"] == {}
    with pytest.raises(CursorNotFound):
        await groups.delete(KEY, lambda _: None)


async def test_an_offset_whose_deletion_was_not_answered_is_deleted(
    client: Client, groups: KafkaGroupOffsets
) -> None:
    """The repetition finds no group: its last offset is gone."""
    await put(groups, KEY, 1)
    client.fake.closes["OffsetDelete"] = 1
    client.fake.errors["OffsetDelete"].append(ErrorCode.group_id_not_found)
    await groups.delete(KEY, lambda _: None)
    assert client.fake.requests["OffsetDelete"] == 2


async def test_groups_are_listed_by_name(
    client: Client, groups: KafkaGroupOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some together, from every broker, and only with an offset that is wanted."""
    monkeypatch.setattr(module, "GROUPS_TOGETHER", 2)
    for name in "bcadef":
        await put(groups, CursorKey(name, "other" if name == "c" else "events", 0), 0)
    assert await groups.names("a", at_most=10, wanted=lambda _: True) == list("bcdef")
    assert await groups.names("", at_most=3, wanted=lambda _: True) == list("abc")
    mine = await groups.names("", at_most=9, wanted=lambda key: key.topic == "events")
    assert mine == list("abdef")
    client.fake.errors["OffsetFetch"].append(ErrorCode.group_id_not_found)
    assert await groups.names("", at_most=1, wanted=lambda _: True) == ["b"]


async def test_offsets_of_a_deleted_topic_are_gone(
    client: Client, groups: KafkaGroupOffsets, topics: dict[str, Topic]
) -> None:
    """The brokers remove them a little later."""
    kept = CursorKey("lake", "other", 0)
    await put(groups, KEY, 1)
    await put(groups, kept, 2)
    del topics["events"]
    await groups.drop_topic("events")
    assert [key for key, _ in await groups.of_group("lake")] == [kept]
    client.fake.errors["OffsetCommit"].append(ErrorCode.unknown_topic_or_partition)
    with pytest.raises(TopicNotFound):
        await put(groups, KEY, 1)
    client.fake.errors["OffsetFetchPartition"].append(ErrorCode.unknown_topic_or_partition)
    assert (await groups.get(kept)).value.offset == 2


async def test_a_group_with_members_is_left_alone(
    client: Client, groups: KafkaGroupOffsets
) -> None:
    """They commit its offsets themselves."""
    await put(groups, KEY, 1)
    client.fake.errors["OffsetCommit"].append(ErrorCode.unknown_member_id)
    with pytest.raises(PolicyViolation, match="members"):
        await put(groups, KEY, 2)
    client.fake.errors["OffsetDeletePartition"].append(ErrorCode.group_subscribed_to_topic)
    with pytest.raises(PolicyViolation, match="members"):
        await groups.delete(KEY, lambda _: None)
