"""Topics come, change and go; producers get their ids."""

import errno
from collections.abc import Callable

import pytest

from engine.checkpoint.tidelog_files import TopicsFile
from engine.config import EngineConfig
from engine.errors import (
    InvalidConfig,
    InvalidRequestValue,
    InvalidTopicName,
    PartitionNotFound,
    PolicyViolation,
    Recovering,
    StorageFull,
    StorageOffline,
    TopicConflict,
    TopicNotFound,
)
from engine.fs import names
from engine.fs.names import DirectoryKind, parse_partition_directory
from engine.types import TopicPartition
from tests.support.builders import DATA, EVENTS, SMALL_INDEXES, World, new_batch
from tests.support.kafka import kafka
from tests.support.time import ManualScheduler, ScheduledTask


def directories(world: World, kind: DirectoryKind = DirectoryKind.LIVE) -> list[str]:
    """The partition directories of one kind, by the partition they are for."""
    found = []
    for name in world.fs.list_directory(DATA):
        if world.fs.is_directory(DATA / name):
            parsed = parse_partition_directory(name)
            if parsed.kind is kind:
                found.append(str(parsed.topic_partition))
    return sorted(found)


# -- create ------------------------------------------------------------------------------------


@kafka(
    "LogManagerTest.testCreateLog",
    "UnifiedLogTest.testLogRecoversTopicId",
    "UnifiedLogTest.testLogFlushesPartitionMetadataOnAppend",
)
def test_a_new_topic_has_its_logs_its_id_and_its_configuration() -> None:
    """The result of create is found afterwards, on disk and after a power cut."""
    world = World()
    manager = world.open_manager()
    topic, created = manager.create_topic("events", 2, {"retention.ms": 5, "preallocate": "False"})
    assert created
    assert topic.overrides == {"preallocate": "false", "retention.ms": "5"}
    assert not topic.adopted
    assert manager.topic("events") == manager.topics()["events"] == topic
    log = manager.log(TopicPartition("events", 1))
    assert (log.topic_id, log.config.retention_ms) == (topic.topic_id, 5)
    metadata = world.fs.read_bytes(DATA / "events-1" / names.PARTITION_METADATA)
    assert metadata == f"version: 0\ntopic_id: {topic.topic_id}".encode()
    world.restart(power_cut=True)
    again = world.open_manager()
    assert again.topic("events") == topic
    assert again.log(TopicPartition("events", 1)).config.retention_ms == 5


def test_creating_the_same_topic_again_verifies_it() -> None:
    """The same wish, in another spelling, finds the topic; nothing is made."""
    manager = World().open_manager()
    topic, _ = manager.create_topic("events", 2, {"retention.ms": "5"})
    assert manager.create_topic("events", 2, {"retention.ms": 5}) == (topic, False)


@pytest.mark.parametrize(("partitions", "overrides"), [(3, {}), (2, {"retention.ms": "5"})])
def test_another_topic_of_that_name_is_a_conflict(
    partitions: int, overrides: dict[str, str]
) -> None:
    """Partitions or configuration differ: the error has those of the topic."""
    manager = World().open_manager({"events": 2})
    with pytest.raises(TopicConflict) as raised:
        manager.create_topic("events", partitions, overrides)
    assert raised.value.facts() == {"topic": "events", "partitions": 2, "config": {}}


@pytest.mark.parametrize("name", ["../etc", "a/b", ".", "__consumer_offsets"])
def test_a_topic_that_may_not_be_called_so_is_not_made(name: str) -> None:
    """A name that could leave the data directory, or is a broker's, writes nothing."""
    world = World()
    manager = world.open_manager()
    with pytest.raises(InvalidTopicName):
        manager.create_topic(name, 1, {})
    assert directories(world) == []
    assert not world.fs.exists(DATA / names.TOPICS_FILE)


@pytest.mark.parametrize("overrides", [{"retention.ms": "soon"}, {"retention": "1"}])
def test_a_topic_with_a_wrong_configuration_is_not_made(overrides: dict[str, str]) -> None:
    """Unknown keys and illegal values are refused before anything is written."""
    world = World()
    manager = world.open_manager()
    with pytest.raises(InvalidConfig):
        manager.create_topic("events", 1, overrides)
    assert directories(world) == []


@pytest.mark.parametrize("partitions", [0, -1, 4])
def test_the_number_of_partitions_is_bounded(partitions: int) -> None:
    """At least one, at most the limit, which the error names."""
    world = World(config=EngineConfig(max_partitions_per_topic=3))
    with pytest.raises(InvalidRequestValue) as raised:
        world.open_manager().create_topic("events", partitions, {})
    assert raised.value.facts()["limit"] == "max_partitions_per_topic"


def test_the_number_of_topics_is_bounded() -> None:
    """At the limit a new topic is refused; one that exists is still verified."""
    world = World(config=EngineConfig(max_topics=1, default_topic_config=SMALL_INDEXES))
    manager = world.open_manager({"events": 1})
    with pytest.raises(PolicyViolation, match="limit"):
        manager.create_topic("more", 1, {})
    assert manager.create_topic("events", 1, {})[1] is False


def test_a_full_disk_leaves_nothing_of_a_new_topic() -> None:
    """Space runs out at the second partition: all is undone, and a later try succeeds."""
    world = World()
    manager = world.open_manager()
    world.disk.fail(
        "append", error=errno.ENOSPC, path_end=f"events-1/{names.PARTITION_METADATA}.tmp"
    )
    with pytest.raises(StorageFull):
        manager.create_topic("events", 2, {})
    assert directories(world) == []
    assert TopicsFile(world.fs, DATA).read() == {}
    with pytest.raises(TopicNotFound):
        manager.log(EVENTS)
    topic, created = manager.create_topic("events", 2, {})
    assert created
    assert manager.log(EVENTS).topic_id == topic.topic_id


def test_a_full_disk_before_the_directory_is_made_leaves_nothing_either() -> None:
    """Space runs out before the partition has a directory: there is nothing to remove."""
    world = World()
    manager = world.open_manager()
    world.disk.fail("make_directory", error=errno.ENOSPC, path_end="events-0")
    with pytest.raises(StorageFull):
        manager.create_topic("events", 1, {})
    assert directories(world) == []
    assert manager.topics() == {}


def test_a_directory_that_is_in_the_way_is_not_taken_over() -> None:
    """A folder was copied in while the service runs: its records do not become the new topic's."""
    world = World()
    manager = world.open_manager()
    world.fs.make_directory(DATA / "events-1")
    with pytest.raises(TopicConflict, match="events-1 exists"):
        manager.create_topic("events", 2, {})
    assert directories(world) == ["events-1"]
    assert manager.topics() == {}


def test_nothing_is_made_in_a_directory_that_is_not_open() -> None:
    """Before open and after close, changes are refused."""
    world = World()
    manager = world.new_manager()
    with pytest.raises(Recovering):
        manager.create_topic("events", 1, {})
    manager.open()
    manager.close()
    with pytest.raises(Recovering):
        manager.delete_topic("events")


# -- look up -----------------------------------------------------------------------------------


@kafka("LogManagerTest.testGetNonExistentLog")
def test_what_does_not_exist_is_not_found() -> None:
    """An unknown topic and an unknown partition are two errors, and neither is made."""
    manager = World().open_manager({"events": 1})
    with pytest.raises(TopicNotFound) as topic:
        manager.log(TopicPartition("other", 0))
    assert topic.value.facts() == {"topic": "other"}
    with pytest.raises(PartitionNotFound) as partition:
        manager.log(TopicPartition("events", 1))
    assert partition.value.facts() == {"topic": "events", "partition": 1, "partitions": 1}


# -- update ------------------------------------------------------------------------------------


@kafka("LogManagerTest.testTopicConfigChangeUpdatesLogConfig")
def test_a_change_is_in_force_at_once_and_after_a_restart() -> None:
    """Every log of the topic works with the new configuration, which survives a power cut."""
    world = World()
    manager = world.open_manager({"events": 2, "other": 1})
    topic = manager.update_topic("events", {"retention.ms": "7"})
    assert topic.overrides == {"retention.ms": "7"}
    assert {log.config.retention_ms for log in manager.logs()} == {7, 604_800_000}
    world.restart(power_cut=True)
    manager = world.open_manager()
    assert manager.topic("events") == topic
    assert manager.log(EVENTS).config.retention_ms == 7


def test_a_change_to_null_takes_the_default_back() -> None:
    """A merge patch: null removes, unnamed keys stay."""
    manager = World().open_manager()
    manager.create_topic("events", 1, {"retention.ms": "5", "flush.messages": "9"})
    topic = manager.update_topic("events", {"retention.ms": None})
    assert topic.overrides == {"flush.messages": "9"}
    assert manager.log(EVENTS).config.retention_ms == 604_800_000


@pytest.mark.parametrize("changes", [{"retention": None}, {"retention.ms": "-2"}])
def test_a_wrong_change_changes_nothing(changes: dict[str, str | None]) -> None:
    """An unknown key is refused even if it is to be removed."""
    manager = World().open_manager({"events": 1})
    with pytest.raises(InvalidConfig):
        manager.update_topic("events", changes)
    assert manager.topic("events").overrides == {}


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    """The same value again leaves the disk alone."""
    world = World()
    manager = world.open_manager()
    topic, _ = manager.create_topic("events", 1, {"retention.ms": "5"})
    before = len(world.disk.changes)
    assert manager.update_topic("events", {"retention.ms": 5}, 1) == topic
    assert len(world.disk.changes) == before


def test_partitions_can_be_added_and_not_taken_away() -> None:
    """More partitions are added to the old ones, whose records stay; fewer are refused."""
    manager = World().open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(new_batch())
    topic = manager.update_topic("events", partitions=3)
    assert topic.partitions == 3
    assert manager.log(EVENTS) is log
    assert manager.log(TopicPartition("events", 2)).topic_id == topic.topic_id
    with pytest.raises(InvalidRequestValue, match="cannot have fewer"):
        manager.update_topic("events", partitions=2)


def test_an_adopted_topic_can_be_given_a_configuration() -> None:
    """Once it is configured, an adopted topic deletes accordingly, and only then."""
    world = World()
    world.fs.make_directory(DATA / "events-0")
    world.fs.sync_directory(DATA)
    manager = world.open_manager()
    assert manager.log(EVENTS).config.retention_ms == -1
    manager.update_topic("events", {"retention.ms": "5"})
    assert manager.log(EVENTS).config.retention_ms == 5


@pytest.mark.parametrize("change", ["update_topic", "delete_topic"])
def test_a_brokers_own_topics_are_left_alone(change: str) -> None:
    """Internal topics are neither configured nor deleted, and a missing topic is not found."""
    world = World()
    world.fs.make_directory(DATA / "__consumer_offsets-0")
    manager = world.open_manager()
    with pytest.raises(PolicyViolation):
        getattr(manager, change)("__consumer_offsets")
    with pytest.raises(TopicNotFound):
        getattr(manager, change)("events")


def test_internal_topics_are_made_and_configured_by_whoever_means_them() -> None:
    """The log's own topics take the name that clients may not; adopted ones keep their data."""
    world = World()
    world.fs.make_directory(DATA / "__consumer_offsets-0")
    world.fs.sync_directory(DATA)
    manager = world.open_manager()
    compact = {"cleanup.policy": "compact"}
    adopted = manager.update_topic("__consumer_offsets", compact, internal=True)
    assert adopted.is_internal
    config = manager.log(TopicPartition("__consumer_offsets", 0)).config
    assert (config.is_compacted, config.deletes) == (True, False)
    _, created = manager.create_topic("__transaction_state", 2, compact, internal=True)
    assert created
    assert manager.log(TopicPartition("__transaction_state", 1)).config.is_compacted


# -- delete ------------------------------------------------------------------------------------


@kafka("LogManagerTest.testFileReferencesAfterAsyncDelete")
def test_a_deleted_topic_is_gone_at_once_and_its_files_later() -> None:
    """Look-ups fail at once, directories are renamed, and after the delay they are removed."""
    world = World()
    manager = world.open_manager({"events": 2, "other": 1})
    manager.delete_topic("events")
    with pytest.raises(TopicNotFound):
        manager.log(EVENTS)
    assert list(manager.topics()) == ["other"]
    assert directories(world) == ["other-0"]
    assert directories(world, DirectoryKind.DELETED) == ["events-0", "events-1"]
    world.scheduler.advance(60_000)
    assert directories(world, DirectoryKind.DELETED) == []


def test_a_removal_without_delay_comes_after_the_directory_has_its_new_name() -> None:
    """The thread that removes it may be faster than the one that deletes the topic."""

    class AtOnce(ManualScheduler):
        def once(self, name: str, delay_ms: int, work: Callable[[], None]) -> ScheduledTask:
            if delay_ms == 0:
                work()
            return super().once(name, delay_ms, work)

    config = EngineConfig(default_topic_config={**SMALL_INDEXES, "file.delete.delay.ms": "0"})
    world = World(config=config)
    world.scheduler = AtOnce(world.clock)
    manager = world.open_manager({"events": 1})
    manager.delete_topic("events")
    assert not any("events" in name for name in world.disk.list_directory(DATA))


@kafka("UnifiedLogTest.testRenamingDirWithoutReinitialization")
def test_readers_of_a_deleted_log_can_finish() -> None:
    """Open files outlive their names.

    Until the removal a reader continues, then it gets an error.
    """
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(new_batch(3))
    log.durability.commit()
    manager.delete_topic("events")
    fetched = log.reader.read(0, max_bytes=1_000)
    assert fetched is not None
    assert fetched.next_offset == 3
    with pytest.raises(TopicNotFound, match="topic events was deleted"):
        log.append(new_batch())  # it would be acknowledged, and removed with the files
    assert log.durability.commit() == 3
    world.scheduler.advance(60_000)
    with pytest.raises(StorageOffline, match="is closed"):
        log.reader.read(0, max_bytes=1_000)


@kafka("LocalLogTest.testLogDirRenameToNewDir")
def test_a_roll_after_the_deletion_stays_in_the_renamed_directory() -> None:
    """New files of a held log are created in its renamed directory, not in a recreated topic."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(new_batch())
    manager.delete_topic("events")
    manager.create_topic("events", 1, {})
    log.roll()
    log.durability.flush()
    assert "00000000000000000001.log" in world.fs.list_directory(log.directory)
    assert "00000000000000000001.log" not in world.fs.list_directory(DATA / "events-0")
    assert not manager.health.is_offline


def test_a_topic_can_be_made_again_at_once() -> None:
    """The new topic has another id and no records, also after a kill and a restart."""
    world = World()
    manager = world.open_manager({"events": 1})
    old = manager.topic("events")
    log = manager.log(EVENTS)
    log.append(new_batch(5))
    log.durability.flush()
    log.delete_records(4)
    manager.checkpoint()
    manager.delete_topic("events")
    new, created = manager.create_topic("events", 1, {})
    assert created
    assert new.topic_id != old.topic_id
    manager.log(EVENTS).append(new_batch(2))
    world.restart(power_cut=False)
    marks = world.open_manager().log(EVENTS).watermarks
    assert (marks.log_start_offset, marks.high_watermark) == (0, 2)


def test_a_removal_waits_for_the_next_start_if_the_disk_has_failed() -> None:
    """An offline directory is not changed; the next start finds the rest by its name."""
    world = World()
    manager = world.open_manager({"events": 1, "other": 1})
    manager.delete_topic("events")
    manager.health.fail(OSError(errno.EIO, "broken"))
    world.scheduler.advance(60_000)
    assert directories(world, DirectoryKind.DELETED) == ["events-0"]
    world.restart(power_cut=False)
    world.open_manager()
    world.scheduler.advance(60_000)
    assert directories(world, DirectoryKind.DELETED) == []


def test_a_directory_that_was_removed_meanwhile_is_not_an_error() -> None:
    """An operator may remove what waits for its removal."""
    world = World()
    manager = world.open_manager({"events": 1})
    manager.delete_topic("events")
    for name in world.fs.list_directory(DATA):
        if name.endswith("-delete"):
            world.fs.remove_tree(DATA / name)
    world.scheduler.advance(60_000)
    assert not manager.health.is_offline


# -- producers ---------------------------------------------------------------------------------


def test_producer_ids_are_never_given_out_twice() -> None:
    """Ids ascend, across a power cut too."""
    world = World()
    manager = world.open_manager()
    first = [manager.allocate_producer() for _ in range(3)]
    assert first == [(0, 0), (1, 0), (2, 0)]
    world.restart(power_cut=True)
    assert world.open_manager().allocate_producer()[0] > 2


def test_producer_ids_exceed_every_id_in_a_log() -> None:
    """A broker's producers, and what clients made up, are not given out again."""
    manager = World().open_manager({"events": 1})
    manager.log(EVENTS).append(new_batch(producer_id=41, producer_epoch=0, base_sequence=0))
    assert manager.allocate_producer() == (42, 0)


def test_an_absurd_producer_id_does_not_use_up_all_ids() -> None:
    """A client that writes the largest id there is does not end the allocation of ids."""
    manager = World().open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(new_batch(producer_id=2**63 - 1, producer_epoch=0, base_sequence=0))
    assert manager.allocate_producer() == (0, 0)
    assert manager.allocate_producer() == (1, 0)
