"""Rows about directories: topic ids, renames, deletion, epochs on disk."""

from pathlib import Path

from engine.checkpoint.kafka_files import read_epochs
from engine.fs import names
from engine.fs.names import DirectoryKind, parse_partition_directory
from engine.fs.posix import PosixFileSystem
from engine.types import AppendOrigin, EpochOffset, TopicPartition
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.kafka import kafka
from tests.support.logs import CONFIG, DIRECTORY, fill, read_values


def deleted_directory(world: World) -> Path:
    """The one partition directory that waits for its removal."""
    (found,) = [
        name
        for name in world.fs.list_directory(DATA)
        if world.fs.is_directory(DATA / name)
        and parse_partition_directory(name).kind is DirectoryKind.DELETED
    ]
    return DATA / found


@kafka("LogManagerTest.testCreateAndDeleteOverlyLongTopic")
def test_the_topic_with_the_longest_name_is_made_and_deleted() -> None:
    """249 characters fit, and the directory of the deleted topic too (cut to 255)."""
    world = World()
    name = "n" * names.MAX_TOPIC_LENGTH
    manager = world.open_manager({name: 1})
    manager.log(TopicPartition(name, 0)).append(new_batch())
    manager.delete_topic(name)
    assert len(deleted_directory(world).name) == names.MAX_NAME_LENGTH
    world.scheduler.advance(60_000)
    assert [entry for entry in world.fs.list_directory(DATA) if entry.startswith("n")] == []


@kafka(
    "UnifiedLogTest.testLogFlushesPartitionMetadataOnClose",
    "UnifiedLogTest.testLogRecoversTopicId",
)
def test_a_closed_log_has_its_topic_id_on_disk() -> None:
    """After a stop without a single append the id is found, and a start takes it from there."""
    world = World()
    manager = world.open_manager({"events": 1})
    topic_id = manager.topic("events").topic_id
    manager.close()
    world.restart(power_cut=True)
    content = world.fs.read_bytes(DIRECTORY / names.PARTITION_METADATA)
    assert content == f"version: 0\ntopic_id: {topic_id}".encode()
    assert world.open_manager().log(EVENTS).topic_id == topic_id


@kafka(
    "UnifiedLogTest.testTopicIdTransfersAfterDirectoryRename",
    "UnifiedLogTest.testTopicIdFlushesBeforeDirectoryRename",
)
def test_a_topic_id_moves_with_its_directory() -> None:
    """A directory renamed for removal can still be distinguished from a topic of the same name."""
    world = World()
    manager = world.open_manager({"events": 1})
    log, topic_id = manager.log(EVENTS), manager.topic("events").topic_id
    manager.delete_topic("events")
    content = world.fs.read_bytes(deleted_directory(world) / names.PARTITION_METADATA)
    assert content.decode().split()[-1] == topic_id == log.topic_id


@kafka(
    "UnifiedLogTest.testWriteLeaderEpochCheckpointAfterDirectoryRename",
    "LocalLogTest.testLogDirRenameToNewDir",
)
def test_after_a_rename_epochs_are_written_where_the_log_lies() -> None:
    """The new directory has the epochs from before and after it, the old one nothing."""
    world = World()
    log = world.open_log(CONFIG)
    log.append(new_batch(leader_epoch=1), origin=AppendOrigin.REPLICATION)
    renamed = DATA / "events-0.0123456789abcdef0123456789abcdef-future"
    log.maintenance.rename_directory(renamed)
    log.append(new_batch(leader_epoch=10, base_offset=1), origin=AppendOrigin.REPLICATION)
    log.roll()
    log.durability.flush()
    path = renamed / names.LEADER_EPOCH_CHECKPOINT
    assert read_epochs(world.fs, path)[-2:] == [EpochOffset(1, 0), EpochOffset(10, 1)]
    assert log.directory == renamed
    assert not world.fs.exists(DIRECTORY)
    assert names.log_name(2) in world.fs.list_directory(renamed)


@kafka(
    "UnifiedLogTest.testRenamingDirWithoutReinitialization",
    "LogManagerTest.testFileReferencesAfterAsyncDelete",
)
def test_a_log_that_waits_for_removal_works_until_it_is_removed() -> None:
    """Reads and rolls continue in the renamed directory; then it is removed as a whole."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    values = fill(log, batches=2)
    manager.delete_topic("events")
    log.roll()
    log.durability.commit()
    assert read_values(log) == values
    directory = deleted_directory(world)
    assert log.directory == directory
    assert names.log_name(2) in world.fs.list_directory(directory)
    world.scheduler.advance(60_000)
    assert not world.fs.exists(directory)


@kafka(
    "LocalLogTest.testFlushingNonExistentDir",
    "UnifiedLogTest.testProducerExpireCheckAfterDelete",
)
def test_a_flush_of_a_log_whose_directory_went_is_no_failure() -> None:
    """A flush that was scheduled before the deletion finds nothing to do."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    fill(log, batches=1)
    log.roll()
    manager.delete_topic("events")
    world.scheduler.advance(600_000)
    assert not manager.health.is_offline
    assert [name for name in world.scheduler.names if "events" in name] == []


@kafka("LocalLogTest.testLogDirRenameToExistingDir")
def test_a_rename_to_the_same_name_changes_nothing(tmp_path: Path) -> None:
    """The log keeps its directory and files, and continues."""
    log = World(fs=PosixFileSystem(), directory=tmp_path).open_log(CONFIG)
    values = fill(log, batches=2)
    directory, before = log.directory, sorted(log.directory.iterdir())
    log.maintenance.rename_directory(directory)
    assert (log.directory, sorted(directory.iterdir())) == (directory, before)
    values += fill(log, batches=1, first=2)
    log.durability.commit()
    assert read_values(log) == values
    log.close()
