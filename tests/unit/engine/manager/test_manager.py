"""A data directory from start to stop: opened, adopted, recovered, closed."""

import errno
import logging
import threading
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint, read_topic_id
from engine.checkpoint.tidelog_files import TopicEntry, TopicsFile
from engine.errors import (
    DirectoryLocked,
    InvalidDataDirectory,
    Recovering,
    StorageFull,
    StorageOffline,
)
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.manager.manager import LogManager
from engine.manager.opening import RecoveryProgress
from engine.types import TopicPartition
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.golden import golden_archive, golden_expected, golden_partitions
from tests.support.kafka import kafka


def append(manager: LogManager, count: int, *, log: TopicPartition = EVENTS) -> None:
    """Append and commit."""
    manager.log(log).append(new_batch(count))
    manager.log(log).durability.commit()


def write_file(world: World, name: str, content: bytes) -> None:
    with world.fs.open(world.directory / name, create=True) as file:
        file.truncate(0)
        file.append(content)
        file.sync()
    world.fs.sync_directory(world.directory)


def make_directory(world: World, name: str) -> None:
    world.fs.make_directory(world.directory / name)
    world.fs.sync_directory(world.directory)


def test_a_directory_that_is_missing_is_made() -> None:
    """A first start begins with nothing, and the new directory survives a power cut."""
    world = World()
    world.directory = DATA / "deep" / "down"
    world.fs.make_directory(DATA / "deep")
    world.fs.sync_directory(DATA)
    manager = world.open_manager()
    assert manager.topics() == {}
    assert manager.logs() == ()
    world.restart(power_cut=True)
    assert world.fs.is_directory(world.directory)


@kafka("LogManagerTest.testTwoLogManagersUsingSameDirFails", "LogManagerTest.testLock")
def test_a_data_directory_has_one_owner() -> None:
    """A second manager is refused while the first is open, and let in after it."""
    world = World()
    first = world.open_manager()
    with pytest.raises(DirectoryLocked):
        world.open_manager()
    first.close()
    world.open_manager().close()


@kafka("LogLoaderTest.testCleanShutdownFile")
def test_a_clean_stop_is_not_recovered() -> None:
    """After a close the marker is there, the next start takes it and recovers nothing."""
    world = World()
    manager = world.open_manager({"events": 1})
    append(manager, 3)
    manager.close()
    assert world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)
    world.restart(power_cut=True)
    manager = world.open_manager()
    assert not world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)
    log = manager.log(EVENTS)
    assert log.durability.recovery.was_clean
    assert log.watermarks.high_watermark == log.durability.recovery_point == 3


@kafka(
    "LogManagerTest.testCheckpointRecoveryPoints",
    "LogManagerTest.testCheckpointLogStartOffsetForNormalTopic",
)
def test_a_close_writes_all_checkpoints() -> None:
    """Recovery points and high watermarks of all logs, log starts only where they differ."""
    world = World()
    manager = world.open_manager({"events": 2})
    append(manager, 3)
    append(manager, 5, log=TopicPartition("events", 1))
    manager.log(EVENTS).delete_records(2)
    manager.close()
    ends = {EVENTS: 3, TopicPartition("events", 1): 5}
    assert OffsetCheckpoint(world.fs, DATA / names.RECOVERY_POINT_CHECKPOINT).read() == ends
    assert OffsetCheckpoint(world.fs, DATA / names.HIGH_WATERMARK_CHECKPOINT).read() == ends
    assert OffsetCheckpoint(world.fs, DATA / names.LOG_START_CHECKPOINT).read() == {EVENTS: 2}
    assert world.open_manager().log(EVENTS).watermarks.log_start_offset == 2


def test_a_close_may_be_repeated_and_come_before_an_open() -> None:
    """Closing a manager that is not open does nothing."""
    world = World()
    manager = world.new_manager()
    manager.close()
    manager.open()
    manager.close()
    manager.close()
    assert world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)


def test_after_a_kill_everything_written_is_there_and_flushed() -> None:
    """A killed process loses nothing; what is found is committed before it is visible."""
    world = World()
    manager = world.open_manager({"events": 1})
    manager.log(EVENTS).append(new_batch(3))
    world.restart(power_cut=False)
    manager = world.open_manager()
    log = manager.log(EVENTS)
    assert not log.durability.recovery.was_clean
    assert log.watermarks.high_watermark == log.watermarks.log_end_offset == 3
    assert log.durability.recovery_point == 3
    assert OffsetCheckpoint(world.fs, DATA / names.RECOVERY_POINT_CHECKPOINT).read() == {EVENTS: 3}
    world.restart(power_cut=True)
    assert world.open_manager().log(EVENTS).watermarks.high_watermark == 3


def test_after_a_power_cut_everything_committed_is_there() -> None:
    """Records below the high watermark are found; those above it may be lost."""
    world = World()
    manager = world.open_manager({"events": 1})
    append(manager, 3)
    manager.log(EVENTS).append(new_batch(4))
    world.restart(power_cut=True)
    assert world.open_manager().log(EVENTS).watermarks.high_watermark == 3


@kafka("LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash")
def test_a_crash_while_opening_counts_as_unclean() -> None:
    """The marker is gone, durably, before the first log is opened."""
    world = World()
    world.open_manager({"events": 1}).close()
    world.open_manager()
    world.restart(power_cut=True)
    assert not world.open_manager().log(EVENTS).durability.recovery.was_clean


def test_a_brokers_directory_is_adopted() -> None:
    """Every partition of a broker's directory is served under its own topic id, keeping all."""
    world = World()
    world.disk.put(golden_archive("clean"), DATA)
    manager = world.open_manager()
    partitions = golden_partitions("clean")
    assert len(manager.logs()) == len(partitions) == len(manager.topics())
    for folder in partitions:
        topic = folder.name.rpartition("-")[0]
        log = manager.log(TopicPartition(topic, 0))
        expected = golden_expected(folder)
        assert log.watermarks.log_start_offset == expected["log_start_offset"]
        assert log.watermarks.high_watermark == expected["high_watermark"]
        metadata = (folder / names.PARTITION_METADATA).read_text()
        assert manager.topic(topic).topic_id == log.topic_id == metadata.split()[-1]
        assert manager.topic(topic).adopted
        assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)
    manager.close()
    again = world.open_manager()
    assert again.topics() == manager.topics()


def test_an_unclean_broker_is_recovered() -> None:
    """What kill -9 left of a broker is opened without its marker and ends where it ended."""
    world = World()
    world.disk.put(golden_archive("killed"), DATA)
    manager = world.open_manager()
    ends = {str(log.topic_partition): log.watermarks.high_watermark for log in manager.logs()}
    assert ends == {"codec-lz4-0": 250, "epochs-0": 20, "segments-0": 9000, "txn-0": 223}


@pytest.mark.parametrize("archive", ["clean", "killed"])
def test_directories_of_a_broker_before_topic_ids_get_them(archive: str) -> None:
    """One id for each topic, kept by the next start; nothing else of a partition changes.

    Kafka 4 sets a partition without `partition.metadata` aside, and all its records with it.
    """
    world = World()
    world.disk.put(golden_archive(archive), DATA)
    folders = [path.name for path in golden_partitions(archive)]
    for name in folders:
        world.fs.remove(DATA / name / names.PARTITION_METADATA)
    first = world.open_manager()
    ids = {name: topic.topic_id for name, topic in first.topics().items()}
    ends = {log.topic_partition: log.watermarks for log in first.logs()}
    first.close()
    for name in folders:
        topic = name.rpartition("-")[0]
        assert read_topic_id(world.fs, DATA / name / names.PARTITION_METADATA) == ids[topic]
    world.restart(power_cut=True)
    again = world.open_manager()
    assert {name: topic.topic_id for name, topic in again.topics().items()} == ids
    assert {log.topic_partition: log.watermarks for log in again.logs()} == ends


@kafka("LogManagerTest.testLoadLogsSkipRemoteIndexCache")
def test_what_is_not_ours_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Unknown files, strays, moves, a broker's metadata and caches are not served or removed."""
    world = World()
    aside = [
        "__cluster_metadata-0",
        "events-0.00112233445566778899aabbccddeeff-stray",
        "events-1.00112233445566778899aabbccddeeff-future",
        *names.NOT_PARTITIONS,
    ]
    for name in aside:
        make_directory(world, name)
    write_file(world, "bootstrap.checkpoint", b"binary")
    manager = world.open_manager()
    assert manager.topics() == {}
    manager.close()
    assert set(aside) | {"bootstrap.checkpoint"} <= set(world.fs.list_directory(DATA))
    assert "-stray is kept but not served" in caplog.text


@kafka("LocalLogTest.testParseTopicPartitionNameForExistingInvalidDir")
@pytest.mark.parametrize("name", ["lost-found", "events", "events-x", "events-0-delete"])
def test_a_directory_that_cannot_be_named_stops_the_start(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the directory; once it is moved, the start succeeds."""
    world = World()
    make_directory(world, name)
    with pytest.raises(InvalidDataDirectory, match="move it out"):
        world.open_manager()
    assert name in caplog.text
    world.fs.remove_tree(DATA / name)
    world.open_manager()


def test_two_directories_of_one_partition_stop_the_start() -> None:
    """Neither of two directories can be preferred; the sentence names both."""
    world = World()
    make_directory(world, "events-0")
    make_directory(world, "events-00")
    with pytest.raises(InvalidDataDirectory, match="'events-0' and 'events-00'"):
        world.open_manager()


def test_internal_topics_are_kept_and_marked() -> None:
    """A broker's internal topics are opened and marked as internal."""
    world = World()
    make_directory(world, "__consumer_offsets-7")
    manager = world.open_manager()
    assert manager.topic("__consumer_offsets").is_internal
    assert manager.log(TopicPartition("__consumer_offsets", 7)).watermarks.log_end_offset == 0


def test_a_deleted_directory_is_removed_after_the_delay() -> None:
    """A deletion that a stop interrupted ends a minute after the next start, not before."""
    world = World()
    name = "events-0.00112233445566778899aabbccddeeff-delete"
    make_directory(world, name)
    world.open_manager()
    world.scheduler.advance(59_999)
    assert world.fs.exists(DATA / name)
    world.scheduler.advance(1)
    assert not world.fs.exists(DATA / name)


def test_a_damaged_checkpoint_costs_a_recovery_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unreadable recovery point counts as zero, and a warning is logged."""
    world = World()
    append(world.open_manager({"events": 1}), 3)
    world.restart(power_cut=False)
    write_file(world, names.RECOVERY_POINT_CHECKPOINT, b"0\n7\nnonsense\n")
    manager = world.open_manager()
    assert manager.log(EVENTS).watermarks.high_watermark == 3
    assert "recovered from their start" in caplog.text


def test_recorded_partitions_without_a_directory_start_empty() -> None:
    """The topics file is the truth: listed partitions that are missing are created."""
    world = World()
    entry = TopicEntry("S6g8ZPZuQWap3C72_08X5Q", 2)
    TopicsFile(world.fs, DATA).write({"events": entry})
    manager = world.open_manager()
    assert [str(log.topic_partition) for log in manager.logs()] == ["events-0", "events-1"]
    assert manager.log(EVENTS).topic_id == entry.id


@kafka("LogManagerTest.testLock")
def test_a_start_that_fails_lets_go_of_everything() -> None:
    """A disk that fails while a log is opened stops the start; the next owner is let in."""
    world = World()
    append(world.open_manager({"events": 2}), 3)
    world.restart(power_cut=False)
    world.disk.fail("sync", path_end=".log", nth=2)
    with pytest.raises(StorageOffline):
        world.open_manager()
    world.health = World().health
    assert world.open_manager().log(EVENTS).watermarks.high_watermark == 3


def test_a_start_that_fails_after_opening_lets_go_too() -> None:
    """If the checkpoints cannot be written, the logs are closed again without a write."""
    world = World()
    world.open_manager({"events": 1}).close()
    manager = world.new_manager()
    world.disk.fail("rename", path_end=names.RECOVERY_POINT_CHECKPOINT + ".tmp")
    with pytest.raises(StorageOffline):
        manager.open()
    with pytest.raises(StorageOffline, match="closed"):
        manager.log(EVENTS).durability.commit()
    world.open_manager()


@kafka("LogManagerTest.testLogRecoveryMetrics")
def test_progress_is_reported_while_logs_are_opened() -> None:
    """The listener sees every log begin and end, and the manager keeps the last word."""
    world = World()
    world.open_manager({"events": 3}).close()
    seen: list[RecoveryProgress] = []
    manager = world.new_manager()
    manager.open(seen.append)
    assert seen[0] == RecoveryProgress(3, 0)
    assert manager.recovery_progress == seen[-1] == RecoveryProgress(3, 3)


@kafka("LogManagerTest.testCleanShutdownFileWhenShutdownCalledBeforeStartupComplete")
def test_a_start_can_be_given_up() -> None:
    """An interrupted start raises, leaves no marker, and lets the next owner in."""
    world = World()
    world.open_manager({"events": 6}).close()
    manager = world.new_manager()
    failed: list[BaseException] = []

    def interrupt(progress: RecoveryProgress) -> None:
        if progress.opening:
            manager.interrupt()

    def start() -> None:
        try:
            manager.open(interrupt)
        except Recovering as error:
            failed.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(30)
    assert len(failed) == 1
    assert not world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)
    assert len(world.open_manager().logs()) == 6


@kafka("LogManagerTest.testHandlingExceptionsDuringShutdown")
def test_a_log_that_cannot_be_closed_leaves_no_marker(caplog: pytest.LogCaptureFixture) -> None:
    """If one log fails to flush, the next start recovers, whatever the others did."""
    world = World()
    manager = world.open_manager({"events": 2})
    manager.log(EVENTS).append(new_batch())
    world.disk.fail("sync", path_end="events-0/00000000000000000000.log")
    manager.close()
    assert "events-0 was not closed cleanly" in caplog.text
    assert not world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)
    world.restart(power_cut=False)
    assert not world.open_manager().log(EVENTS).durability.recovery.was_clean


def test_a_marker_that_cannot_be_written_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk at the very end costs a recovery at the next start."""
    world = World()
    manager = world.open_manager({"events": 1})
    world.disk.fail("append", error=errno.ENOSPC, path_end=names.CLEAN_SHUTDOWN_FILE + ".tmp")
    manager.close()
    assert "the next start will recover all logs" in caplog.text
    assert not world.open_manager().log(EVENTS).durability.recovery.was_clean


@kafka("LogManagerTest.testCheckpointRecoveryPoints")
def test_the_periodic_checkpoint_is_what_a_recovery_starts_from() -> None:
    """A checkpoint holds the recovery point of the moment."""
    world = World()
    manager = world.open_manager({"events": 1})
    append(manager, 3)
    manager.log(EVENTS).durability.flush()
    manager.checkpoint()
    assert OffsetCheckpoint(world.fs, DATA / names.RECOVERY_POINT_CHECKPOINT).read() == {EVENTS: 3}


def test_a_full_disk_does_not_take_the_directory_offline_at_a_checkpoint() -> None:
    """A checkpoint without space leaves the old file, and appends may continue."""
    world = World()
    manager = world.open_manager({"events": 1})
    world.disk.fail("append", error=errno.ENOSPC, path_end=".tmp")
    with pytest.raises(StorageFull):
        manager.checkpoint()
    assert not manager.health.is_offline
    append(manager, 1)


def test_a_real_directory_works_like_one_in_memory(tmp_path: Path) -> None:
    """The same start and stop on the real file system: topics, records and marker are there."""
    world = World(fs=PosixFileSystem(), directory=tmp_path / "data")
    manager = world.open_manager({"events": 2})
    append(manager, 3)
    manager.close()
    assert (tmp_path / "data" / names.CLEAN_SHUTDOWN_FILE).exists()
    manager = world.open_manager()
    assert manager.log(EVENTS).watermarks.high_watermark == 3
    manager.close()


def test_a_quiet_start_says_nothing_alarming(caplog: pytest.LogCaptureFixture) -> None:
    """A start after a clean stop logs no warning."""
    world = World()
    world.open_manager({"events": 1}).close()
    caplog.clear()
    world.open_manager().close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
