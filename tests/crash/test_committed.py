"""Committed means on disk: what a power cut or a failing disk may remove, and what it may not."""

import errno

import pytest

from engine.errors import StorageFull, StorageOffline
from engine.log.log import Log
from engine.types import FetchIsolation
from tests.crash.test_found_by_simulation import failure_of
from tests.support.builders import World, new_batch
from tests.support.filesystem import PowerCut
from tests.support.logs import CONFIG, append_values, fill, read_values, with_config
from tests.support.machine import Operation

SMALL = with_config(segment_bytes=500)


def reopened(world: World, *, power_cut: bool = True) -> Log:
    world.restart(power_cut=power_cut)
    return world.open_log(SMALL)


def test_nothing_is_visible_before_its_commit() -> None:
    """An append is above the high watermark, and only a reader of the log end sees it."""
    log = World().open_log(CONFIG)
    values = fill(log, batches=3)
    assert log.watermarks.high_watermark == 0
    assert read_values(log) == []
    assert read_values(log, isolation=FetchIsolation.LOG_END) == values
    assert log.durability.commit() == 3
    assert read_values(log) == values


def test_a_log_says_whether_a_commit_is_due() -> None:
    """Something is uncommitted from an append until its commit."""
    log = World().open_log(CONFIG)
    states = [log.durability.has_uncommitted]
    fill(log, batches=1)
    states.append(log.durability.has_uncommitted)
    log.durability.commit()
    states.append(log.durability.has_uncommitted)
    assert states == [False, True, False]


def test_what_was_committed_survives_a_power_cut() -> None:
    """Across segments every committed record is present, in order; the rest may be lost."""
    world = World()
    log = world.open_log(SMALL)
    committed = fill(log, batches=30)
    log.durability.commit()
    assert log.reader.segments_count > 3
    fill(log, batches=20, first=30)
    found = read_values(reopened(world))
    assert found == committed


def test_what_a_killed_process_wrote_is_all_there() -> None:
    """Without a power cut nothing is lost, committed or not, and all of it becomes visible."""
    world = World()
    log = world.open_log(SMALL)
    values = fill(log, batches=50)
    assert read_values(reopened(world, power_cut=False)) == values


def test_what_a_killed_process_wrote_is_synced_before_it_is_shown() -> None:
    """A power cut after the restart takes nothing that the restarted log had shown."""
    world = World()
    values = fill(world.open_log(SMALL), batches=50)
    assert read_values(reopened(world, power_cut=False)) == values
    assert read_values(reopened(world)) == values


def test_commits_cover_what_was_appended_before_them() -> None:
    """An append that comes while a sync runs is not committed by it."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    late: list[int] = []

    def appending(operation: Operation) -> None:
        if operation.name == "sync_directory":
            late.append(append_values(log, b"late"))

    log.roll()
    world.disk.meanwhile = appending
    assert log.durability.commit() == 2
    assert late == [2]
    assert read_values(log) == [b"000000", b"000001"]


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_after_a_failed_sync_nothing_more_is_committed(operation: str) -> None:
    """The high watermark stays, writes are refused, reads below it continue."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=2)
    log.durability.commit()
    log.roll()
    fill(log, batches=1, first=2)
    world.disk.fail(operation)
    with pytest.raises(StorageOffline):
        log.durability.commit()
    assert log.watermarks.high_watermark == 2
    syncs = sum(change.name == "sync" for change in world.disk.changes)
    for refused in (
        log.durability.commit,
        log.durability.flush,
        lambda: append_values(log, b"x"),
        log.roll,
        log.close,
    ):
        with pytest.raises(StorageOffline):
            refused()
    assert sum(change.name == "sync" for change in world.disk.changes) == syncs
    assert read_values(log) == values
    assert log.watermarks.high_watermark == 2


def test_a_failed_write_takes_the_log_offline() -> None:
    """After an error of the disk appends are refused, and committed records can still be read."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=2)
    log.durability.commit()
    world.disk.fail("append", path_end=".log")
    for _ in range(2):
        with pytest.raises(StorageOffline):
            append_values(log, b"lost")
    assert log.watermarks.log_end_offset == 2
    assert read_values(log) == values


def test_a_full_disk_refuses_and_recovers() -> None:
    """Without space an append is refused and leaves nothing; with space the next one works."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    world.disk.remaining_bytes = 10
    with pytest.raises(StorageFull):
        append_values(log, b"no room")
    assert log.watermarks.log_end_offset == 2
    world.disk.remaining_bytes = 1 << 20
    assert append_values(log, b"room") == 2
    log.durability.commit()
    assert read_values(log)[-1] == b"room"


def test_a_failed_read_is_no_wrong_answer() -> None:
    """An error while reading reaches the reader as such, and the directory is offline."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2)
    log.durability.commit()
    world.disk.fail("read", error=errno.EIO)
    with pytest.raises(StorageOffline):
        log.reader.read(0, max_bytes=100)
    assert world.health.is_offline


def changes_of_a_roll() -> int:
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=3)
    before = len(world.disk.changes)
    log.roll()
    world.scheduler.run_due()
    return len(world.disk.changes) - before


@pytest.mark.parametrize("step", range(1, changes_of_a_roll() + 2))
def test_a_roll_survives_a_power_cut_at_every_step(step: int) -> None:
    """Whichever change of a roll and its flush is the last, committed records are present."""
    world = World()
    log = world.open_log(CONFIG)
    committed = fill(log, batches=2)
    log.durability.commit()
    later = fill(log, batches=1, first=2)
    try:
        with world.disk.power_cut_before(step):
            log.roll()
            world.scheduler.run_due()
    except PowerCut:
        pass
    world.restart(power_cut=True)
    again = world.open_log(CONFIG)
    again.maintenance.check_invariants()
    assert read_values(again) in (committed, committed + later)
    assert append_values(again, b"goes on") == again.watermarks.high_watermark


@pytest.mark.parametrize("step", range(1, 14))
def test_an_append_that_rolls_survives_a_power_cut_at_every_step(step: int) -> None:
    """The batch that needs the new segment is there whole or not at all."""
    world = World()
    log = world.open_log(SMALL)
    committed = fill(log, batches=6)
    log.durability.commit()
    assert log.reader.segments_count == 1
    try:
        with world.disk.power_cut_before(step, torn=True):
            fill(log, batches=1, first=6)
            log.durability.commit()
    except PowerCut:
        pass
    again = reopened(world)
    again.maintenance.check_invariants()
    assert read_values(again) in (committed, [*committed, b"000006"])


def test_what_is_appended_and_sealed_beside_a_commit_is_synced_by_the_next() -> None:
    """The segment's sync had ended when more was appended to it and the log rolled.

    The segment counted as synced, so the next commit acknowledged records that a power cut could
    remove; found by `make interleavings`.
    """
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=2)
    log.roll()
    values += fill(log, batches=1, first=2)

    def append_and_roll(operation: Operation) -> None:
        if operation.name == "sync_directory":  # after the syncs of the log files
            world.disk.meanwhile = None
            values.extend(fill(log, batches=1, first=3))
            log.roll()
            values.extend(fill(log, batches=1, first=4))

    world.disk.meanwhile = append_and_roll
    assert log.durability.commit() == 3
    assert log.durability.commit() == 5
    assert read_values(reopened(world)) == values


def test_a_roll_whose_sync_fails_beside_that_of_a_commit_has_nothing_shown() -> None:
    """A compacted log syncs the segment it seals.

    The parallel commit got success from the kernel.
    """
    world = World()
    log = world.open_log(with_config(cleanup_policy=("compact",)))
    log.append(new_batch())

    def roll_beside(operation: Operation) -> None:
        if operation.name == "sync":
            world.disk.meanwhile = None
            world.disk.fail("sync")
            assert isinstance(failure_of(log.roll), StorageOffline)

    world.disk.meanwhile = roll_beside
    assert isinstance(failure_of(log.durability.commit), StorageOffline)
    assert log.watermarks.high_watermark == 0
