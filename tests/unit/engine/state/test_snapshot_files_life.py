"""Rows about snapshots of the producer state: when they come and go."""

import pytest

from engine.errors import StorageOffline
from engine.types import AppendOrigin
from tests.support.builders import World
from tests.support.conformance_places import (
    DENSE,
    Producer,
    entry_of,
    offsets_of,
    remove_files,
    snapshots_of,
)
from tests.support.kafka import kafka
from tests.support.logs import fill, fill_segments, log_path, segment_bases, with_config

REPLICATION = AppendOrigin.REPLICATION


@kafka("UnifiedLogTest.testProducerIdMapOffsetUpdatedForNonIdempotentData")
def test_plain_records_move_what_a_snapshot_is_named_by() -> None:
    """Even without producers the snapshot of a roll has the offset up to which it is complete."""
    world = World()
    log = world.open_log(DENSE)
    fill(log, batches=1)
    log.roll()
    assert snapshots_of(world) == [1]


@kafka("UnifiedLogTest.testTakeSnapshotOnRollAndDeleteSnapshotOnRecoveryPointCheckpoint")
def test_each_roll_takes_a_snapshot_that_a_flush_keeps() -> None:
    """Two rolls leave two snapshots, and moving the recovery point removes none."""
    world = World()
    log = world.open_log(DENSE)
    fill_segments(log, 1, 1)
    log.roll()
    assert snapshots_of(world) == [1, 2]
    fill(log, batches=1)
    assert log.durability.flush() == 3
    assert snapshots_of(world) == [1, 2]


@kafka("UnifiedLogTest.testProducerSnapshotAfterSegmentRollOnAppend")
def test_the_snapshot_of_a_roll_does_not_know_the_append_that_caused_it() -> None:
    """Truncated back to the roll, the producer stands where it did before that append."""
    world = World()
    config = with_config(segment_bytes=250)
    log = world.open_log(config)
    producer = Producer(log)
    while len(segment_bases(log)) == 1:
        producer.send(value=b"v" * 20)
    base = segment_bases(log)[1]
    assert snapshots_of(world) == [base]
    assert entry_of(log).last_sequence == base
    log.truncate_to(base)
    assert entry_of(log).last_sequence == base - 1


@kafka("UnifiedLogTest.testRecoveryPointNotIncrementedOnProducerStateSnapshotFlushFailure")
def test_a_snapshot_that_cannot_be_synced_holds_the_recovery_point() -> None:
    """The flush fails, and after a crash everything since is scanned again."""
    world = World()
    log = world.open_log(DENSE)
    Producer(log).send()
    log.roll()
    world.disk.fail("sync", path_end=".snapshot")
    with pytest.raises(StorageOffline):
        log.durability.flush()
    assert log.durability.recovery_point == 0


def test_a_snapshot_whose_sync_failed_is_not_found_by_the_next_start() -> None:
    """It would be readable until the power fails, and then count as damaged."""
    world = World()
    log = world.open_log(DENSE)
    Producer(log).send()
    log.durability.flush()
    world.disk.fail("sync", path_end=".snapshot")
    with pytest.raises(StorageOffline):
        log.close()
    assert snapshots_of(world) == []


@kafka("UnifiedLogTest.testInitializationOfProducerSnapshotsUpgradePath")
@pytest.mark.parametrize(
    ("clean", "recovery_point", "expected"),
    [(True, 6, [4, 5, 6]), (False, 6, [4, 5, 6]), (False, 0, [1, 2, 3, 4, 5, 6])],
)
def test_snapshots_come_back_at_a_start(
    *, clean: bool, recovery_point: int, expected: list[int]
) -> None:
    """The last two bases and the end; after a recovery of everything one for each segment."""
    world = World()
    log = world.open_log(DENSE)
    fill_segments(log, 1, 1, 1, 1, 1, 1)
    log.durability.flush()
    if clean:
        log.close()
    world.restart(power_cut=False)
    remove_files(world, ".snapshot")
    world.open_log(DENSE, was_clean=clean, recovery_point=recovery_point)
    assert snapshots_of(world) == expected


@kafka(
    "UnifiedLogTest.testLoadingLogDeletesProducerStateSnapshotsPastLogEndOffset",
    "LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot",
)
@pytest.mark.parametrize(
    ("written", "bases", "kept"), [((42,), (), []), ((1, 2, 3, 4), (1, 1, 2), [1, 2, 4])]
)
def test_snapshots_of_no_segment_are_removed_at_a_start(
    written: tuple[int, ...], bases: tuple[int, ...], kept: list[int]
) -> None:
    """Those beyond the end are removed.

    The newest after the last base is that of a clean stop and stays.
    """
    world = World()
    log = world.open_log(DENSE)
    if bases:
        fill_segments(log, *bases)
    log.durability.flush()
    log.close()
    empty = world.fs.read_bytes(log_path(4, suffix=".snapshot")) if bases else b""
    for offset in written:
        path = log_path(offset, suffix=".snapshot")
        if not world.fs.exists(path):
            with world.fs.open(path, create=True) as file:
                file.append(empty)
    world.restart(power_cut=False)
    world.open_log(DENSE, was_clean=True)
    assert snapshots_of(world) == kept


@kafka(
    "UnifiedLogTest.testRetentionDeletesProducerStateSnapshots",
    "UnifiedLogTest.testLogStartOffsetMovementDeletesSnapshots",
    "UnifiedLogTest.testDeleteSnapshotsOnIncrementLogStartOffset",
    "UnifiedLogTest.testProducerIdExpirationOnSegmentDeletion",
)
@pytest.mark.parametrize("removes", ["retention", "log start"])
def test_snapshots_go_with_their_segments_and_producers_stay(removes: str) -> None:
    """One snapshot stays for each base but the first; in memory no producer is removed."""
    world = World()
    by_size = with_config(retention_bytes=0, file_delete_delay_ms=1_000)
    log = world.open_log(by_size if removes == "retention" else DENSE)
    for producer_id in (1, 2):
        Producer(log, producer_id).send()
        log.roll()
    Producer(log, 3).send()
    log.durability.commit()
    assert snapshots_of(world) == [1, 2]
    if removes == "log start":
        log.delete_records(2)
    log.maintenance.run_retention()
    world.scheduler.advance(60_000)
    assert offsets_of(world, ".log") == segment_bases(log)
    assert snapshots_of(world) == segment_bases(log)[-1:]
    assert segment_bases(log)[0] >= 2
    assert [entry.producer_id for entry in log.producers.active()] == [1, 2, 3]
