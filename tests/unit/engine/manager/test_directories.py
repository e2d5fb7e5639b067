"""Several data directories: placement, failure of one, copies, refusals."""

import errno
from collections import Counter
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import CleanShutdownMarker, OffsetCheckpoint
from engine.checkpoint.tidelog_files import TopicsFile
from engine.errors import (
    CorruptCheckpoint,
    DirectoryLocked,
    InvalidDataDirectory,
    Overloaded,
    PartitionNotFound,
    Recovering,
    StorageFull,
    StorageOffline,
    TopicConflict,
    TopicNotFound,
)
from engine.fs import names
from engine.log.log import Log
from engine.manager.directories import UNSEEN_PRODUCER_IDS
from engine.manager.manager import LogManager
from engine.manager.opening import RecoveryProgress
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.inodes import UNLIMITED
from tests.support.kafka import kafka
from tests.support.logs import fill

A, B, C = Path("/a"), Path("/b"), Path("/c")
OTHER = TopicPartition("events", 1)


def new_manager(world: World, *paths: Path) -> LogManager:
    return LogManager(
        paths or (A, B),
        fs=world.fs,
        clock=world.clock,
        scheduler=world.scheduler,
        recorder=world.recorder,
        config=world.config,
    )


def opened(world: World, *paths: Path) -> LogManager:
    manager = new_manager(world, *paths)
    manager.open()
    return manager


def restarted(world: World, *paths: Path, power_cut: bool = True) -> LogManager:
    world.restart(power_cut=power_cut)
    return opened(world, *paths)


def spread() -> tuple[World, LogManager]:
    """Two directories with one partition each, of three committed records."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 2, {"retention.ms": "-1"})
    for log in manager.logs():
        log.append(new_batch(3))
        log.durability.commit()
    return world, manager


def lying_in(manager: LogManager) -> dict[str, Path]:
    return {str(log.topic_partition): log.directory.parent for log in manager.logs()}


def lose(world: World, path: Path) -> None:
    """Let the disk of a data directory fail at the next start."""
    world.disk.fail("open", path_end=f"{path}/{names.LOCK_FILE}")


def restarted_without(path: Path, world: World) -> LogManager:
    world.restart(power_cut=True)
    lose(world, path)
    return opened(world)


def assert_serves(log: Log, *, records: int = 3) -> None:
    assert log.watermarks.high_watermark == records
    log.append(new_batch())
    assert log.durability.commit() == records + 1


@kafka("LogManagerTest.testLeastLoadedAssignment")
def test_new_logs_go_where_the_fewest_are() -> None:
    """The counts of the directories differ by at most one, whatever was there before."""
    world = World()
    manager = opened(world, A, B, C)
    for number in range(7):
        manager.create_topic(f"topic-{number}", 1, {})
        counts = Counter(lying_in(manager).values())
        assert max(counts.values()) - min(counts.get(path, 0) for path in (A, B, C)) <= 1
    manager.close()
    manager = opened(world, A, B, C)
    manager.create_topic("more", 2, {})
    assert sorted(Counter(lying_in(manager).values()).values()) == [3, 3, 3]


def test_a_directory_whose_parents_are_made_too_survives_a_power_cut() -> None:
    """Each name on the way is synced, not only the last one."""
    world, path = World(), A / "far" / "below"
    manager = opened(world, path)
    manager.create_topic("events", 1, {})
    log = manager.log(EVENTS)
    fill(log, batches=3)
    log.durability.commit()
    world.restart(power_cut=True)
    assert_serves(opened(world, path).log(EVENTS))


@kafka("LogManagerTest.testCheckpointForOnlyAffectedLogs")
def test_each_directory_has_its_own_checkpoints_and_marker() -> None:
    """A line is in the directory of its log, and nowhere else."""
    world, manager = spread()
    manager.close()
    lines = [
        OffsetCheckpoint(world.fs, path / names.RECOVERY_POINT_CHECKPOINT).read() for path in (A, B)
    ]
    assert lines == [{EVENTS: 3}, {OTHER: 3}]
    assert all(CleanShutdownMarker(world.fs, path).exists() for path in (A, B))
    assert all(log.durability.recovery.was_clean for log in restarted(world).logs())


def test_a_directory_that_fails_takes_only_its_logs_with_it() -> None:
    """Appends there answer that the disk is offline; elsewhere nothing is noticed."""
    world, manager = spread()
    world.disk.fail("sync", path_end="/b/events-1/00000000000000000000.log")
    manager.log(OTHER).append(new_batch())
    with pytest.raises(StorageOffline):
        manager.log(OTHER).durability.commit()
    with pytest.raises(StorageOffline):
        manager.log(OTHER).append(new_batch())
    assert_serves(manager.log(EVENTS))
    assert not manager.health.is_offline
    assert [health.is_offline for health in manager.directories] == [False, True]
    manager.checkpoint()
    manager.create_topic("new", 2, {})
    assert {lying_in(manager)[f"new-{number}"] for number in range(2)} == {A}


@kafka("LogManagerTest.testHandlingExceptionsDuringShutdown")
def test_a_directory_that_failed_gets_no_marker() -> None:
    """The next start recovers its logs and believes the others."""
    world, manager = spread()
    manager.directories[1].fail(OSError(errno.EIO, "broken"))
    manager.close()
    assert CleanShutdownMarker(world.fs, A).exists()
    assert not CleanShutdownMarker(world.fs, B).exists()
    manager = restarted(world)
    assert manager.log(EVENTS).durability.recovery.was_clean
    assert not manager.log(OTHER).durability.recovery.was_clean
    assert_serves(manager.log(OTHER))


@kafka(
    "LogManagerTest.testCreateLogWithInvalidLogDir",
    "LogManagerTest.testInvalidLogDirNotFailLogManager",
)
def test_a_start_goes_on_without_a_directory_that_fails() -> None:
    """Its partitions are offline, not missing, and nothing is made in their place."""
    world, manager = spread()
    manager.close()
    manager = restarted_without(B, world)
    assert_serves(manager.log(EVENTS))
    with pytest.raises(StorageOffline, match="/b"):
        manager.log(OTHER)
    with pytest.raises(PartitionNotFound):
        manager.log(TopicPartition("events", 2))
    with pytest.raises(TopicNotFound):
        manager.log(TopicPartition("none", 0))
    manager.close()
    manager = restarted(world)
    assert_serves(manager.log(EVENTS), records=4)
    assert_serves(manager.log(OTHER))


@kafka("LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash")
@pytest.mark.parametrize("lost", [A, B])
def test_a_log_that_cannot_be_read_takes_its_directory_offline(lost: Path) -> None:
    """An error of the disk while a log is opened ends nothing but its directory."""
    world, manager = spread()
    manager.close()
    world.restart(power_cut=True)
    gone, kept = (EVENTS, OTHER) if lost == A else (OTHER, EVENTS)
    world.disk.fail("open", path_end=f"{lost}/{gone}/00000000000000000000.log")
    manager = opened(world)
    assert_serves(manager.log(kept))
    with pytest.raises(StorageOffline):
        manager.log(gone)


def test_with_all_directories_offline_there_is_no_start() -> None:
    """The caller gets the first failure; no directory stays locked."""
    world, manager = spread()
    manager.close()
    world.restart(power_cut=True)
    lose(world, A)
    lose(world, B)
    with pytest.raises(StorageOffline, match="is offline"):
        opened(world)
    assert_serves(opened(world).log(EVENTS))


@kafka("LogManagerTest.testCreateLogWithLogDirFallback")
def test_a_partition_is_made_elsewhere_if_its_disk_fails() -> None:
    """One failed try takes the directory offline; the topic is whole all the same."""
    world = World()
    manager = opened(world)
    world.disk.fail("create", path_end="/a/events-0/00000000000000000000.log")
    manager.create_topic("events", 1, {})
    assert lying_in(manager) == {"events-0": B}
    assert [health.is_offline for health in manager.directories] == [True, False]
    manager.log(EVENTS).append(new_batch(3))
    manager.log(EVENTS).durability.commit()
    for order in ((A, B), (B, A)):
        manager = restarted(world, *order, power_cut=False)
        assert lying_in(manager) == {"events-0": B}  # the empty partition in A
        world.fs.make_directory(A / "events-0")
    assert_serves(manager.log(EVENTS))


def test_a_topic_that_no_directory_has_space_for_leaves_nothing() -> None:
    """Every directory is tried; then the copies of the topics file have their old content."""
    world = World()
    manager = opened(world)
    for path in (A, B):
        name = f"{path}/events-0/00000000000000000000.index"
        world.disk.fail("create", error=errno.ENOSPC, path_end=name)
    with pytest.raises(StorageFull):
        manager.create_topic("events", 1, {})
    assert manager.topics() == {}
    assert not any(TopicsFile(world.fs, path).read() for path in (A, B))
    manager.create_topic("events", 1, {})


def test_a_copy_of_the_topics_that_cannot_be_written_undoes_the_others() -> None:
    """With the second disk full, both copies stay equal."""
    world, manager = spread()
    world.disk.fail("create", error=errno.ENOSPC, path_end=f"/b/{names.TOPICS_FILE}.tmp")
    with pytest.raises(StorageFull):
        manager.create_topic("new", 1, {})
    copies = [TopicsFile(world.fs, path).read() for path in (A, B)]
    assert [set(copy) for copy in copies] == [{"events"}, {"events"}]


def test_a_configuration_that_is_confirmed_is_the_one_on_disk() -> None:
    """Although a change of it was refused, and could not even be undone for lack of files."""
    for files in range(100):
        world = World()
        manager = world.open_manager({"events": 1})
        world.disk.remaining_files = files
        try:
            manager.update_topic("events", {"retention.ms": "60000"}, 2)
            break
        except Overloaded:
            world.disk.remaining_files = UNLIMITED
        if files % 2:
            manager.update_topic("events", {})
        else:
            manager.create_topic("events", 1, {})
        world.restart(power_cut=True)
        found = world.open_manager().topic("events")
        assert (found.overrides, found.partitions) == ({}, 1)
    assert files > 5


def test_of_two_copies_the_newest_is_right() -> None:
    """A change made while a directory was offline is in effect when it is back, and copied."""
    world, manager = spread()
    manager.close()
    world.restart(power_cut=True)
    lose(world, A)
    manager = opened(world)
    manager.update_topic("events", {"retention.ms": "1234"})
    manager.close()
    manager = restarted(world)
    assert manager.topic("events").overrides == {"retention.ms": "1234"}
    copies = [TopicsFile(world.fs, path).read_copy() for path in (A, B)]
    assert copies[0] == copies[1]


def test_a_damaged_copy_is_rebuilt_from_the_intact_one(caplog: pytest.LogCaptureFixture) -> None:
    """One good copy is enough; without one the start is refused."""
    world, manager = spread()
    manager.close()
    for path in (A, B):
        with world.fs.open(path / names.TOPICS_FILE) as file:
            file.truncate(5)
        manager = opened(world)
        assert not manager.topic("events").adopted
        assert "using the copy of another data directory" in caplog.text
        manager.close()
    for path in (A, B):
        with world.fs.open(path / names.TOPICS_FILE) as file:
            file.truncate(5)
    with pytest.raises(CorruptCheckpoint):
        opened(world)


def test_a_topic_deleted_without_a_directory_stays_deleted() -> None:
    """When the directory is back, after two starts, its partitions go and the name is free."""
    world, manager = spread()
    manager.close()
    manager = restarted_without(B, world)
    manager.delete_topic("events")
    with pytest.raises(TopicConflict, match="that is offline"):
        manager.create_topic("events", 1, {})
    manager.create_topic("other", 1, {})
    manager.close()
    manager = restarted_without(B, world)
    with pytest.raises(TopicConflict, match="that is offline"):
        manager.create_topic("events", 1, {})
    manager.close()
    manager = restarted(world)
    assert set(manager.topics()) == {"other"}
    assert not world.fs.exists(B / "events-1")
    manager.create_topic("events", 1, {})
    assert_serves(manager.log(EVENTS), records=0)


def test_a_topic_is_deleted_though_a_directory_just_failed() -> None:
    """It is gone at once; the next start removes what the disk kept."""
    world, manager = spread()
    world.disk.fail("rename", path_end="/b/events-1")
    manager.delete_topic("events")
    assert manager.topics() == {}
    manager = restarted(world)
    assert manager.topics() == {}
    assert not world.fs.exists(B / "events-1")


def test_producer_ids_are_never_repeated_whichever_directory_fails() -> None:
    """Ids are reserved in every directory; one that is away is made up for by a jump."""
    world, manager = spread()
    seen = [manager.allocate_producer()[0] for _ in range(1500)]
    manager.directories[0].fail(OSError(errno.EIO, "broken"))
    seen += [manager.allocate_producer()[0] for _ in range(1500)]
    manager = restarted(world)
    seen += [manager.allocate_producer()[0] for _ in range(3)]
    manager = restarted_without(B, world)
    seen += [manager.allocate_producer()[0] for _ in range(3)]
    assert len(set(seen)) == len(seen) == 3006
    assert min(seen[-3:]) >= UNSEEN_PRODUCER_IDS


def test_two_directories_with_one_partition_stop_the_start() -> None:
    """The sentence names both; once one is moved away, the start succeeds."""
    world = World()
    for path in (A, B):
        manager = opened(world, path)
        manager.create_topic("events", 1, {})
        manager.log(EVENTS).append(new_batch())
        manager.close()
    with pytest.raises(InvalidDataDirectory, match="/a/events-0 and /b/events-0"):
        opened(world)
    world.fs.remove_tree(B / "events-0")
    assert lying_in(opened(world)) == {"events-0": A}


def test_a_directory_cannot_be_given_twice_or_shared() -> None:
    """Neither twice in the list, nor by two processes; directories locked before are released."""
    world = World()
    with pytest.raises(InvalidDataDirectory, match="twice"):
        new_manager(world, A, A)
    with pytest.raises(InvalidDataDirectory, match="needed"):
        LogManager(
            (),
            fs=world.fs,
            clock=world.clock,
            scheduler=world.scheduler,
            recorder=world.recorder,
            config=world.config,
        )
    owner = opened(world, B)
    with pytest.raises(DirectoryLocked):
        opened(world, A, B)
    owner.close()
    opened(world, A, B)


def test_a_directory_may_be_added() -> None:
    """It gets the configuration, and new partitions are placed in it."""
    world = World()
    manager = opened(world, B)
    manager.create_topic("events", 1, {"retention.ms": "5"})
    manager.close()
    manager = opened(world, A, B)
    assert manager.topic("events").overrides == {"retention.ms": "5"}
    manager.update_topic("events", partitions=2)
    assert lying_in(manager) == {"events-0": B, "events-1": A}
    assert TopicsFile(world.fs, A).read() == TopicsFile(world.fs, B).read()


def test_a_start_that_begins_again_can_still_be_interrupted() -> None:
    """A disk fails, the start continues without it, and an interrupt in between is not lost."""
    world, manager = spread()
    manager.close()
    world.restart(power_cut=True)
    world.disk.fail("open", path_end=f"{A}/{EVENTS}/00000000000000000000.log")
    manager = new_manager(world)

    def interrupt_at_the_broken_one(progress: RecoveryProgress) -> None:
        if EVENTS in progress.opening:
            manager.interrupt()

    with pytest.raises(Recovering):
        manager.open(interrupt_at_the_broken_one)
    assert [health.is_offline for health in manager.directories][1:] == [False]
    assert_serves(restarted(world).log(OTHER))


def test_with_every_directory_offline_nothing_is_made() -> None:
    """A new topic is refused, and so are producer ids."""
    _, manager = spread()
    for health in manager.directories:
        health.fail(OSError(errno.EIO, "broken"))
    assert manager.health.is_offline
    with pytest.raises(StorageOffline):
        manager.create_topic("new", 1, {})
    with pytest.raises(StorageOffline):
        manager.allocate_producer()
    with pytest.raises(StorageOffline):
        manager.delete_topic("events")


def test_a_move_that_waits_for_its_other_end_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While a directory is offline, it is unknown whether the move had been decided."""
    world, manager = spread()
    manager.close()
    name = "events-1.00112233445566778899aabbccddeeff-future"
    world.fs.make_directory(A / name)
    world.disk.sync_everything()
    manager = restarted_without(B, world)
    assert f"stays unfinished while {B} is offline" in caplog.text
    assert world.fs.exists(A / name)
    assert not manager.unfinished_moves()
    manager.close()
    assert restarted(world).unfinished_moves()


def test_a_topic_whose_disk_fails_at_the_end_is_not_adopted_later() -> None:
    """What the failed disk kept is removed at the next start, and the name is free."""
    world = World()
    manager = opened(world)
    manager.create_topic("kept", 2, {})
    world.disk.fail("sync_directory", path_end="/a", nth=2)  # the first is the topics file
    with pytest.raises(StorageOffline):
        manager.create_topic("events", 2, {})
    assert set(manager.topics()) == {"kept"}
    manager = restarted(world, power_cut=False)
    assert set(manager.topics()) == {"kept"}
    manager.create_topic("events", 2, {})
    assert_serves(manager.log(EVENTS), records=0)


def test_a_topic_that_the_last_disk_fails_is_completed_by_the_next_start() -> None:
    """It cannot be undone; the topics file has the wanted topic."""
    world = World()
    manager = opened(world, A)
    world.disk.fail("create", path_end="/a/events-0/00000000000000000000.log")
    with pytest.raises(StorageOffline):
        manager.create_topic("events", 1, {"retention.ms": "5"})
    manager = restarted(world, A)
    assert manager.topic("events").overrides == {"retention.ms": "5"}
    assert_serves(manager.log(EVENTS), records=0)
