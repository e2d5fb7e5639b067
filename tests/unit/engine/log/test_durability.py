"""Rolling and flushing: new segments, snapshots, and how far the recovery point may go."""

import errno

import pytest

from engine.errors import StorageFull, WouldBlock
from engine.fs import names
from engine.log.durability import SMALL_COMMIT_BYTES
from engine.types import INT32_MAX, AppendOrigin
from tests.support.builders import World, new_batch
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    fill,
    fill_segments,
    log_path,
    read_headers,
    read_values,
    segment_bases,
    with_config,
)
from tests.support.machine import Operation
from tests.support.segments import batch_at
from tests.support.time import START_MS

HOUR_MS = 3_600_000


def names_in(world: World, suffix: str) -> list[str]:
    return [name for name in world.disk.list_directory(DIRECTORY) if name.endswith(suffix)]


@kafka("UnifiedLogTest.testLogRolls")
def test_many_rolls_lose_nothing() -> None:
    """A hundred records over many segments are all read."""
    world = World()
    log = world.open_log(with_config(segment_bytes=300))
    values = fill(log, batches=100)
    assert log.reader.segments_count > 20
    log.durability.commit()
    assert read_values(log) == values
    world.scheduler.run_due()
    assert log.durability.recovery_point >= segment_bases(log)[-1]


def test_a_caller_that_may_not_wait_commits_little() -> None:
    """More bytes are left to a thread that may wait for the disk."""
    log = World().open_log(CONFIG)
    append_values(log, b"small")
    log.durability.commit()
    append_values(log, b"small")
    assert log.durability.commit(nonblocking=True) == 2
    append_values(log, bytes(SMALL_COMMIT_BYTES))
    with pytest.raises(WouldBlock):
        log.durability.commit(nonblocking=True)
    assert log.watermarks.high_watermark == 2
    assert log.durability.commit() == 3


@kafka("UnifiedLogTest.testSizeBasedLogRoll")
def test_an_append_that_does_not_fit_rolls_first() -> None:
    """A segment is filled to segment.bytes and not over it."""
    size = len(new_batch())
    log = World().open_log(with_config(segment_bytes=3 * size))
    for _ in range(7):
        log.append(new_batch())
    assert segment_bases(log) == [0, 3, 6]
    assert [segment.size_bytes for segment in log.reader.listing().segments] == [
        3 * size,
        3 * size,
        size,
    ]


@kafka("UnifiedLogTest.testTimeBasedLogRollDuringAppend")
def test_record_time_rolls() -> None:
    """A span over segment.ms needs a new segment, independent of the clock."""
    world = World()
    log = world.open_log(with_config(segment_ms=HOUR_MS))
    append_values(log, b"a", timestamp=START_MS - 5 * HOUR_MS)
    world.clock.advance(100 * HOUR_MS)
    append_values(log, b"b", timestamp=START_MS - 4 * HOUR_MS)
    assert segment_bases(log) == [0]
    append_values(log, b"c", timestamp=START_MS - 4 * HOUR_MS + 1)
    assert segment_bases(log) == [0, 2]


def test_jitter_is_drawn_per_segment() -> None:
    """Each rolls earlier than segment.ms by less than the jitter, one found on opening too."""
    log = World().open_log(with_config(segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS // 2))
    for step in range(12):
        append_values(log, b"x", timestamp=START_MS - HOUR_MS * (12 - step) // 4)
    first, second, third = segment_bases(log)[:3]
    assert 2 < second - first < 5
    assert 2 < third - second < 5


@kafka(
    "UnifiedLogTest.testRollSegmentThatAlreadyExists",
    "LocalLogTest.testRollSegmentThatAlreadyExists",
    "LocalLogTest.testRollEmptyActiveSegment",
)
def test_a_full_index_on_an_empty_segment_is_emptied() -> None:
    """The segment stays and takes the append; none of its files loses its name."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    log.roll()
    active = log._core.state.local.active  # noqa: SLF001 - its index cannot be filled from outside
    active.indexes.trim()
    assert active.indexes.is_full
    assert append_values(log, b"x") == 2
    assert segment_bases(log) == [0, 2]
    assert log._core.state.local.active is active  # noqa: SLF001 - as above
    assert world.fs.size_bytes(active.indexes.offset_path) > 8, "it has room again"
    assert names_in(world, ".deleted") == []
    log.maintenance.check_invariants()
    log.durability.commit()
    assert read_values(log)[-1] == b"x"


def test_files_in_the_way_of_a_new_segment_are_not_adopted() -> None:
    """Files that a crash left under the next segment's name are removed."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        with world.disk.open(log_path(2, suffix=suffix), create=True) as file:
            file.append(b"left over")
    log.roll()
    append_values(log, b"x")
    log.durability.commit()
    assert [header.base_offset for header in read_headers(log)] == [0, 1, 2]


@kafka(
    "UnifiedLogTest.testProducerSnapshotAfterSegmentRollOnAppend",
    "UnifiedLogTest.testTakeSnapshotOnRollAndDeleteSnapshotOnRecoveryPointCheckpoint",
)
def test_a_roll_notes_the_producers_below_it() -> None:
    """The snapshot excludes the append that rolled."""
    world = World()
    size = len(new_batch())
    log = world.open_log(with_config(segment_bytes=2 * size))
    for sequence in range(5):
        log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
    expected = [log_path(base, suffix=".snapshot").name for base in (2, 4)]
    assert names_in(world, ".snapshot") == expected
    log.durability.flush()
    assert len(names_in(world, ".snapshot")) == 2
    assert log.truncate_to(4) == 4
    assert log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=4)).base_offset == 4


def test_a_roll_flushes_soon() -> None:
    """A task that is due at once makes everything before the roll durable."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=3)
    log.roll()
    assert log.durability.recovery_point == 0
    assert world.scheduler.names == ["flush events-0"]
    world.scheduler.run_due()
    assert log.durability.recovery_point == log.watermarks.high_watermark == 3


@pytest.mark.parametrize("missing", ["create", "append"])
def test_a_roll_on_a_full_disk_is_done_when_there_is_space(missing: str) -> None:
    """Whether the segment or the snapshot lacks space: appends are refused, and later continue."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=3)
    log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0))
    world.disk.fail(missing, error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.roll()
    assert not world.health.is_offline
    log.roll()
    values = [*values, b"value", *fill(log, batches=2, first=3)]
    log.durability.commit()
    log.maintenance.check_invariants()
    assert segment_bases(log) == [0, 4]
    assert read_values(log) == values
    log.close()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG)
    assert read_values(again) == values
    assert again.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0)).is_duplicate


def test_the_flush_of_a_closed_log_does_nothing() -> None:
    """A log that closed or went offline before its flush was due is left alone."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=3)
    log.roll()
    log.close()
    world.scheduler.run_due()
    assert log.durability.recovery_point == 0
    other = World()
    failing = other.open_log(CONFIG)
    fill(failing, batches=1)
    failing.roll()
    other.health.fail(OSError(5, "gone"))
    other.scheduler.run_due()
    assert failing.durability.recovery_point == 0


def test_a_commit_leaves_the_recovery_point() -> None:
    """Below the point indexes are on disk too; a commit syncs none."""
    log = World().open_log(CONFIG)
    fill(log, batches=3)
    log.durability.commit()
    assert (log.watermarks.high_watermark, log.durability.recovery_point) == (3, 0)


def test_indexes_below_the_recovery_point_survive_a_power_cut() -> None:
    """After a flush nothing has to be rebuilt: look-ups are right without a scan."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 40, 40)
    point = log.durability.flush()
    world.restart(power_cut=True)
    again = world.open_log(CONFIG, recovery_point=point)
    assert again.durability.recovery.recovered_segments == 1
    assert read_values(again) == values
    found = again.reader.read(35, max_bytes=1)
    assert found is not None
    assert found.path is not None
    assert found.path.index_offset > 0


@kafka("UnifiedLogTest.testFlushingEmptyActiveSegments")
def test_a_flush_makes_the_files_of_an_empty_segment() -> None:
    """Indexes are made when first used, at the latest by a flush."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=1)
    log.roll()
    assert names_in(world, ".index") == [log_path(0, suffix=".index").name]
    log.durability.flush()
    assert len(names_in(world, ".index")) == len(names_in(world, ".timeindex")) == 2


@kafka(
    "LogLoaderTest.testOverCompactedLogRecovery",
    "LogLoaderTest.testOverCompactedLogRecoveryMultiRecord",
)
def test_offsets_too_far_away_begin_a_segment_of_their_own() -> None:
    """A jump of over 31 bits names the new segment, and its neighbours stay in it."""
    world = World()
    log = world.open_log(CONFIG)
    far = INT32_MAX + 2
    for batch in (batch_at(0), batch_at(far, b"a", b"b"), batch_at(far + 2)):
        log.append(batch, origin=AppendOrigin.REPLICATION)
    assert segment_bases(log) == [0, far]
    log.append(batch_at(far + far), origin=AppendOrigin.REPLICATION)
    assert segment_bases(log) == [0, far, 2 * far]
    assert log_path(far, suffix=".snapshot").name in names_in(world, ".snapshot")
    log.durability.commit()
    log.close()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG, was_clean=True)
    assert [header.base_offset for header in read_headers(again)] == [0, far, far + 2, 2 * far]
    again.maintenance.check_invariants()


def test_a_truncation_during_a_flush_sets_the_recovery_point_itself() -> None:
    """What a flush has synced may be cut meanwhile: the point must not rise above the end."""
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 5, 5)

    def meanwhile(operation: Operation) -> None:
        if operation.name == "sync" and operation.path.name.endswith(names.INDEX_SUFFIXES[0]):
            world.disk.meanwhile = None
            assert log.truncate_to(3) == 3

    world.disk.meanwhile = meanwhile
    assert log.durability.flush() == 3
    assert log.watermarks.log_end_offset == 3


def test_a_tail_that_a_roll_cut_beside_a_commit_does_not_come_back() -> None:
    """The commit's sync was before the cut: after a clean stop the file is as the roll left it."""
    world = World()
    config = with_config(preallocate=True, segment_bytes=4_096)
    log = world.open_log(config)
    values = fill_segments(log, 1, 1)  # a new name: the directory is synced after the files
    size = log.reader.listing().segments[-1].size_bytes

    def roll(operation: Operation) -> None:
        if operation.name == "sync_directory":
            world.disk.meanwhile = None
            log.roll()

    world.disk.meanwhile = roll
    log.durability.commit()
    log.durability.commit()
    log.durability.flush()
    world.restart(power_cut=True)
    assert world.disk.size_bytes(log_path(1)) == size
    assert read_values(world.open_log(config, recovery_point=2)) == values
