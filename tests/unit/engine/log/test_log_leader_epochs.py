"""Rows about leader epochs that no unit test asserts."""

from random import Random

import pytest

from engine.state.epochs import LeaderEpochCache
from engine.types import AppendOrigin
from tests.support.builders import DATA, World, new_batch
from tests.support.conformance_places import DENSE, epochs_of
from tests.support.kafka import kafka
from tests.support.logs import fill, fill_segments, read_headers


def new_cache() -> LeaderEpochCache:
    world = World()
    return LeaderEpochCache(world.fs, DATA)


@kafka(
    "LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes",
    "LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages",
)
@pytest.mark.parametrize("seed", range(20))
def test_the_history_stays_right_over_many_changes_of_the_leader(seed: int) -> None:
    """Every epoch that wrote is noted where it began, and no other."""
    random = Random(seed)
    cache = new_cache()
    epoch, end = random.randrange(5), random.randrange(100)
    starts: list[tuple[int, int]] = []
    for _ in range(30):
        epoch += random.randrange(1, 4)
        if random.random() < 0.8:  # otherwise the leader is gone before it writes
            starts.append((epoch, end))
            for _ in range(random.randrange(1, 4)):
                cache.assign(epoch, end)
                end += random.randrange(1, 10)
    assert list(cache.entries) == starts


@kafka("UnifiedLogTest.shouldApplyEpochToMessageOnAppendIfLeader")
def test_the_leaders_epoch_is_stamped_into_every_batch() -> None:
    """Whatever a client sent, batches get the log's epoch, which its history has."""
    world = World()
    log = world.open_log(DENSE)
    log.append(new_batch(leader_epoch=72, base_offset=0), origin=AppendOrigin.REPLICATION)
    log.append(new_batch(leader_epoch=3) + new_batch(leader_epoch=99))
    log.durability.commit()
    assert [header.leader_epoch for header in read_headers(log)] == [72, 72, 72]
    assert epochs_of(world)[-1] == (72, 0)


@kafka("UnifiedLogTest.followerShouldSaveEpochInformationFromReplicatedMessagesToTheEpochCache")
def test_given_batches_bring_their_epochs_along() -> None:
    """The history and its file have each epoch from where its first batch begins."""
    world = World()
    log = world.open_log(DENSE)
    for offset, epoch in ((0, 42), (1, 42), (2, 43), (4, 44)):
        batch = new_batch(leader_epoch=epoch, base_offset=offset)
        log.append(batch, origin=AppendOrigin.REPLICATION)
    assert epochs_of(world) == [(42, 0), (43, 2), (44, 4)]
    assert log.reader.leader_epoch == 44


def follow(world: World, *epochs: int) -> list[tuple[int, int]]:
    """A log with a segment for each of these epochs; return the content of its file."""
    log = world.open_log(DENSE)
    for offset, epoch in enumerate(epochs):
        log.append(
            new_batch(leader_epoch=epoch, base_offset=offset), origin=AppendOrigin.REPLICATION
        )
        log.roll()
    log.durability.commit()
    return epochs_of(world)


@kafka(
    "UnifiedLogTest.shouldTruncateLeaderEpochCheckpointFileWhenTruncatingLog",
    "UnifiedLogTest.testTruncateToEndOffsetClearsEpochCache",
)
def test_truncation_takes_epochs_from_the_end() -> None:
    """Each cut drops the epochs at or after the new end, and begins a new one."""
    world = World()
    log = world.open_log(DENSE)
    for offset, epoch in ((0, 0), (10, 1), (11, 1), (15, 2)):
        log.append(
            new_batch(leader_epoch=epoch, base_offset=offset), origin=AppendOrigin.REPLICATION
        )
    assert epochs_of(world) == [(0, 0), (1, 10), (2, 15)]
    log.truncate_to(15)
    assert epochs_of(world) == [(0, 0), (1, 10), (3, 15)]
    log.truncate_to(10)
    assert epochs_of(world) == [(0, 0), (4, 10)]
    log.truncate_to(0)
    assert epochs_of(world) == [(5, 0)]


@kafka("UnifiedLogTest.testTruncateToEndOffsetClearsEpochCache")
def test_the_epoch_of_the_log_outlives_a_truncation_at_its_end() -> None:
    """It has no record yet, and would be reused if a restart could not find it."""
    world = World()
    log = world.open_log(DENSE)
    fill(log, batches=3)
    log.truncate_to(2)
    assert epochs_of(world) == [(0, 0), (1, 2)]
    assert log.truncate_to(2) == log.truncate_to(9) == 2
    log.durability.flush()
    assert epochs_of(world) == [(0, 0), (1, 2)]
    fill(log, batches=1)
    assert epochs_of(world) == [(0, 0), (1, 2)]


@kafka(
    "UnifiedLogTest.shouldTruncateLeaderEpochsWhenDeletingSegments",
    "UnifiedLogTest.shouldUpdateOffsetForLeaderEpochsWhenDeletingSegments",
)
def test_deleted_segments_take_their_epochs_along() -> None:
    """Epochs wholly below the log start are removed; the present one begins there."""
    world = World()
    assert follow(world, 0, 0, 0, 1, 1) == [(0, 0), (1, 3)]
    world.restart(power_cut=False)
    log = world.open_log(DENSE)
    log.delete_records(2)
    log.maintenance.run_retention()
    log.durability.flush()
    assert epochs_of(world) == [(0, 2), (1, 3)]
    log.delete_records(4)
    log.maintenance.run_retention()
    log.durability.flush()
    assert epochs_of(world) == [(1, 4)]


@kafka(
    "LogLoaderTest.testLogRecoversForLeaderEpoch",
    "LogSegmentTest.testRecoveryRebuildsEpochCache",
)
def test_missing_epochs_are_rebuilt_from_the_batches() -> None:
    """Recovery records every epoch at its first batch."""
    world = World()
    log = world.open_log(DENSE)
    for offset, epoch in ((0, 1), (1, 1), (2, 1), (4, 2), (5, 2), (7, 3)):
        log.append(
            new_batch(leader_epoch=epoch, base_offset=offset), origin=AppendOrigin.REPLICATION
        )
    before = epochs_of(world)
    assert before == [(1, 0), (2, 4), (3, 7)]
    path = log.directory / "leader-epoch-checkpoint"
    world.restart(power_cut=False)
    world.fs.remove(path)
    world.open_log(DENSE)
    assert epochs_of(world) == before


@kafka("UnifiedLogTest.testDeleteOldSegments")
def test_expiring_every_segment_leaves_the_latest_epoch_at_the_end() -> None:
    """When nothing is left, the epoch in force begins at the log end."""
    world = World()
    log = world.open_log(DENSE)
    fill_segments(log, 2, 3)
    log.durability.commit()
    log.delete_records(5)
    log.maintenance.run_retention()
    log.durability.flush()
    assert epochs_of(world) == [(0, 5)]
    fill(log, batches=1)
    assert log.watermarks.log_end_offset == 6
