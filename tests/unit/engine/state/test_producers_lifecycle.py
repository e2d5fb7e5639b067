"""Producer state over restarts, truncations and power cuts: which snapshot it comes back from.

Names in parentheses are rows of Kafka's ProducerStateManagerTest.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CoordinatorFenced, SequenceGap
from engine.fs.names import snapshot_name
from engine.state.producers import ProducerStates
from engine.topic_keys import DAY_MS
from engine.types import OffsetMetadata
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka
from tests.support.producers import (
    ABORT,
    COMMIT,
    ProducerLog,
    control_batch,
    data_batch,
    first_undecided,
    is_late,
    plain_batch,
)
from tests.support.time import START_MS, ManualClock

OpenStates = Callable[[], ProducerStates]

TIMEOUT_MS = 900_000


@pytest.fixture
def reload(open_states: OpenStates, clock: ManualClock) -> Callable[[int], ProducerLog]:
    """Restart over the same directory and load the state below this log end."""

    def reload_below(end_offset: int) -> ProducerLog:
        states = open_states()
        states.truncate_and_reload(0, end_offset, clock.now_ms())
        states.check_invariants()
        return ProducerLog(states)

    return reload_below


Reload = Callable[[int], ProducerLog]


def filled(log: ProducerLog, *, snapshots: tuple[int, ...]) -> ProducerLog:
    """Append single records of one producer and take snapshots at these offsets."""
    for offset in range(max(snapshots)):
        log.append(data_batch(offset=offset, sequence=offset))
        if offset + 1 in snapshots:
            assert log.states.take_snapshot(sync=False) == offset + 1
    return log


@kafka("ProducerStateManagerTest.testTakeSnapshot")
def test_a_snapshot_is_named_by_the_end_of_what_it_knows(log: ProducerLog, tmp_path: Path) -> None:
    """One file for each snapshot, plain batches counted."""
    log.append(data_batch(offset=0, sequence=0))
    assert log.states.take_snapshot(sync=False) == 1
    log.append(plain_batch(offset=1, count=4))
    assert log.states.take_snapshot(sync=True) == 5
    assert log.states.snapshots == (1, 5)
    assert {path.name for path in tmp_path.iterdir()} == {snapshot_name(1), snapshot_name(5)}


@kafka("ProducerStateManagerTest.testSkipSnapshotIfOffsetUnchanged")
def test_nothing_new_needs_no_snapshot(log: ProducerLog) -> None:
    """Nor does an empty log."""
    assert log.states.take_snapshot(sync=False) is None
    log.append(data_batch(offset=0, sequence=0))
    assert log.states.take_snapshot(sync=False) == 1
    assert log.states.take_snapshot(sync=False) is None


@kafka("ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction")
def test_a_reload_remembers_the_last_batch_only(log: ProducerLog, reload: Reload) -> None:
    """The window shrinks to one and refills."""
    log.append(data_batch(offset=0, sequence=0, transactional=True))
    log.append(data_batch(offset=1, sequence=1, transactional=True))
    log.states.take_snapshot(sync=True)
    reloaded = reload(2)
    assert reloaded.states.map_end_offset == 2
    assert reloaded.states.first_unstable_offset == OffsetMetadata(0)
    assert reloaded.is_duplicate(data_batch(offset=2, sequence=1, transactional=True))
    with pytest.raises(SequenceGap):
        reloaded.append(data_batch(offset=2, sequence=0, transactional=True))
    reloaded.append(data_batch(offset=2, sequence=2, transactional=True))


@kafka("ProducerStateManagerTest.testRecoverFromSnapshotFinishedTransaction")
def test_an_ended_transaction_stays_ended(log: ProducerLog, reload: Reload) -> None:
    """After the marker nothing is open."""
    log.append(data_batch(offset=0, sequence=0, transactional=True))
    log.end_transaction(ABORT, offset=1)
    log.states.take_snapshot(sync=True)
    reloaded = reload(2)
    assert first_undecided(reloaded.states) is None
    assert reloaded.states.first_unstable_offset is None
    reloaded.append(data_batch(offset=2, sequence=1))


@kafka("ProducerStateManagerTest.testRecoverFromSnapshotEmptyTransaction")
def test_a_marker_alone_survives(log: ProducerLog, reload: Reload) -> None:
    """Its time and epochs come back."""
    log.end_transaction((COMMIT, 4), offset=0, epoch=2, timestamp=START_MS + 3)
    log.states.take_snapshot(sync=True)
    entry = reload(1).states.entry(1)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch) == (2, 4)
    assert (entry.last_timestamp, entry.batches) == (START_MS + 3, ())


@kafka("ProducerStateManagerTest.testCoordinatorFencedAfterReload")
def test_the_coordinator_stays_fenced(log: ProducerLog, reload: Reload) -> None:
    """Its epoch is in the snapshot."""
    log.append(data_batch(offset=0, sequence=0))
    log.end_transaction((COMMIT, 99), offset=1)
    log.states.take_snapshot(sync=True)
    with pytest.raises(CoordinatorFenced):
        reload(2).end_transaction((COMMIT, 98), offset=2)


@kafka("ProducerStateManagerTest.testLoadFromSnapshotRetainsNonExpiredProducers")
def test_a_loaded_producer_lives_another_day(
    log: ProducerLog, reload: Reload, clock: ManualClock
) -> None:
    """Its age counts from the load."""
    log.append(data_batch(1, offset=0, sequence=0, timestamp=1_357_016_400_000))
    log.append(data_batch(2, offset=1, sequence=0))
    log.states.take_snapshot(sync=True)
    clock.advance(3 * DAY_MS)
    states = reload(2).states
    active = states.active_producers(clock.now_ms() + DAY_MS - 1)
    assert [entry.producer_id for entry in active] == [1, 2]
    assert states.expire(clock.now_ms() + DAY_MS) == 2
    assert states.map_end_offset == 2
    assert states.highest_producer_id == 2


@kafka("ProducerStateManagerTest.testTruncateAndReloadRemovesOutOfRangeSnapshots")
def test_snapshots_beyond_the_log_are_removed(log: ProducerLog, clock: ManualClock) -> None:
    """Start 1 and end 3 leave 2 and 3."""
    states = filled(log, snapshots=(1, 2, 3, 4, 5)).states
    states.truncate_and_reload(1, 3, clock.now_ms())
    assert states.snapshots == (2, 3)
    assert states.map_end_offset == 3
    entry = states.entry(1)
    assert entry is not None
    assert entry.last_sequence == 2


@kafka("ProducerStateManagerTest.testReloadSnapshots")
def test_snapshots_put_back_are_found_by_a_restart(log: ProducerLog, reload: Reload) -> None:
    """Snapshots on disk count."""
    filled(log, snapshots=(1, 2, 4, 5))
    states = reload(5).states
    found = [states.snapshots]
    states.truncate_and_reload(3, 5, START_MS)
    found.append(states.snapshots)
    assert found == [(1, 2, 4, 5), (4, 5)]


def test_a_reload_to_where_the_state_is_changes_no_producer(
    log: ProducerLog, clock: ManualClock
) -> None:
    """Nothing is read again, and the window stays whole."""
    states = filled(log, snapshots=(2, 3)).states
    before = states.entry(1)
    states.truncate_and_reload(0, 3, clock.now_ms())
    assert states.entry(1) is before
    assert states.last_snapshot_offset == 3


def test_a_reload_may_leave_a_gap_for_the_caller(log: ProducerLog, clock: ManualClock) -> None:
    """The batches after the newest snapshot are the caller's to feed in, and refill the window."""
    states = filled(log, snapshots=(2, 6)).states
    states.delete_snapshot(6)
    states.truncate_and_reload(0, 5, clock.now_ms())
    assert (states.map_end_offset, states.last_snapshot_offset) == (2, 2)
    for offset in range(2, 5):
        log.replicate(data_batch(offset=offset, sequence=offset))
    assert states.map_end_offset == 5
    assert log.is_duplicate(data_batch(offset=5, sequence=1))
    assert states.take_snapshot(sync=False) == 5


def test_without_a_snapshot_the_state_begins_at_the_log_start(
    open_states: OpenStates, clock: ManualClock
) -> None:
    """There are no producers, and everything from the log start has to be observed."""
    states = open_states()
    states.truncate_and_reload(7, 20, clock.now_ms())
    assert states.is_empty
    assert (states.map_end_offset, states.last_snapshot_offset) == (7, 7)


@kafka("ProducerStateManagerTest.testFirstUnstableOffsetAfterTruncation")
def test_truncation_reopens_a_transaction(log: ProducerLog, clock: ManualClock) -> None:
    """Below the marker it is open again."""
    states = log.states
    log.append(data_batch(offset=0, sequence=0, transactional=True))
    states.take_snapshot(sync=False)
    log.end_transaction(COMMIT, offset=1)
    states.take_snapshot(sync=False)
    log.append(plain_batch(offset=2))
    states.truncate_and_reload(0, 2, clock.now_ms())
    found = [states.first_unstable_offset]
    states.truncate_and_reload(0, 1, clock.now_ms())
    found.append(states.first_unstable_offset)
    assert found == [None, OffsetMetadata(0)]
    assert states.snapshots == (1,)


@kafka(
    "ProducerStateManagerTest.testTruncateFullyAndStartAt",
    "ProducerStateManagerTest.testDeleteSnapshotsBefore",
)
def test_full_truncation_forgets_everything(log: ProducerLog) -> None:
    """Snapshots too, and a lower one may be taken."""
    states = filled(log, snapshots=(2, 5)).states
    states.truncate_fully(1)
    assert states.is_empty
    assert (states.snapshots, states.map_end_offset, states.last_snapshot_offset) == ((), 1, 0)
    assert states.take_snapshot(sync=False) == 1


@kafka(
    "ProducerStateManagerTest.testHasLateTransactionInitializedAfterReload",
    "ProducerStateManagerTest.testHasLateTransactionUpdatedAfterPartialTruncation",
)
def test_lateness_survives_a_reload_and_ends_with_truncation(
    log: ProducerLog, reload: Reload, clock: ManualClock
) -> None:
    """The oldest open one counts (testHasLateTransactionInitializedAfterReload and two more)."""
    log.append(plain_batch(offset=0))
    log.states.take_snapshot(sync=False)
    log.append(data_batch(offset=1, sequence=0, transactional=True))
    log.states.take_snapshot(sync=False)
    clock.advance(DAY_MS)
    now_ms = clock.now_ms()
    assert is_late(log.states, now_ms, TIMEOUT_MS)
    states = reload(2).states
    assert is_late(states, now_ms, TIMEOUT_MS)
    states.truncate_and_reload(0, 1, now_ms)
    assert not is_late(states, now_ms, TIMEOUT_MS)
    log.states.truncate_fully(0)
    assert not is_late(log.states, now_ms, TIMEOUT_MS)


def test_the_log_start_takes_decided_transactions_along(log: ProducerLog) -> None:
    """Producers and open transactions stay; everything below counts as applied."""
    states = log.states
    for producer_id, offset in ((1, 0), (2, 1)):
        log.append(data_batch(producer_id, offset=offset, sequence=0, transactional=True))
    log.end_transaction(COMMIT, offset=2)
    states.on_log_start(2)
    assert states.first_unstable_offset == OffsetMetadata(0)
    states.on_log_start(3)
    assert states.first_unstable_offset == OffsetMetadata(1)
    states.on_log_start(9)
    assert (states.map_end_offset, states.last_snapshot_offset) == (9, 9)
    assert [entry.producer_id for entry in states.active_producers(START_MS)] == [1, 2]


def test_the_log_start_does_not_forget_snapshots(log: ProducerLog) -> None:
    """The newest one counts as last, and no files are touched."""
    states = filled(log, snapshots=(2, 4)).states
    states.on_log_start(3)
    assert (states.snapshots, states.last_snapshot_offset) == ((2, 4), 4)


def test_a_snapshot_goes_with_its_segment(log: ProducerLog, tmp_path: Path) -> None:
    """It is forgotten at once and its file left to the caller."""
    states = filled(log, snapshots=(2, 4)).states
    assert states.snapshot_for_deletion(2) == tmp_path / f"{snapshot_name(2)}.deleted"
    assert states.snapshot_for_deletion(3) is None
    assert states.open_snapshot(2) is None
    assert states.snapshots == (4,)


@kafka("LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot")
def test_strays_of_no_segment_are_removed(log: ProducerLog) -> None:
    """The clean shutdown's stays."""
    states = filled(log, snapshots=(1, 2, 3, 4)).states
    states.remove_stray_snapshots([0, 1, 2])
    assert states.snapshots == (1, 2, 4)


def test_state_follows_its_directory(log: ProducerLog, tmp_path: Path) -> None:
    """A renamed partition continues to take snapshots in its new directory."""
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    log.append(data_batch(offset=0, sequence=0))
    log.states.move_to(renamed)
    assert log.states.take_snapshot(sync=False) == 1
    assert (renamed / snapshot_name(1)).exists()


@kafka(
    "ProducerStateManagerTest.testLoadFromEmptySnapshotFile",
    "ProducerStateManagerTest.testLoadFromTruncatedSnapshotFile",
    "ProducerStateManagerTest.testLoadFromCorruptSnapshotFile",
)
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:20] + b"\xff\xff" + content[22:],
        lambda content: bytes(len(content)),
        lambda content: content + b"\x00",
    ],
    ids=["empty", "truncated", "overwritten", "zeros", "longer"],
)
def test_a_damaged_snapshot_gives_way_to_the_one_before(
    log: ProducerLog,
    reload: Reload,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is reported and deleted."""
    filled(log, snapshots=(2, 4))
    newest = tmp_path / snapshot_name(4)
    newest.write_bytes(damage(newest.read_bytes()))
    with caplog.at_level(logging.WARNING):
        states = reload(4).states
    assert "dropping snapshot 4" in caplog.text
    assert (states.map_end_offset, states.snapshots) == (2, (2,))
    assert not newest.exists()


def test_a_snapshot_that_vanished_gives_way_to_the_one_before(
    log: ProducerLog, tmp_path: Path, clock: ManualClock
) -> None:
    """The file was removed meanwhile."""
    states = filled(log, snapshots=(2, 4, 6)).states
    (tmp_path / snapshot_name(4)).unlink()
    states.truncate_and_reload(0, 5, clock.now_ms())
    assert (states.map_end_offset, states.snapshots) == (2, (2,))


@kafka("ProducerStateManagerTest.testNoValidationOnFirstEntryWhenLoadingLog")
def test_the_rebuilt_state_is_the_state(log: ProducerLog, open_states: OpenStates) -> None:
    """Feeding the log's batches in gives the bytes that appending them gave."""
    rebuilt = ProducerLog(open_states())
    headers = [
        data_batch(1, offset=0, sequence=0, count=3, transactional=True),
        data_batch(2, offset=3, sequence=9, epoch=4),
        control_batch(1, offset=4),
        data_batch(1, offset=5, sequence=3, transactional=True),
    ]
    for header in headers:
        marker = COMMIT if header.is_control else None
        log.append(header, marker=marker)
        rebuilt.replicate(header, marker)
    for producer_id in (1, 2):
        assert rebuilt.states.entry(producer_id) == log.states.entry(producer_id)
    assert first_undecided(rebuilt.states) == first_undecided(log.states) == 5


def on_disk(disk: ForgetfulDisk, clock: ManualClock) -> ProducerStates:
    return ProducerStates(disk, Path("/data/t-0"), clock=clock, expiration_ms=DAY_MS)


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(Path("/data/t-0"), parents=True)
    disk.sync_everything()
    return disk


def sync_snapshot(disk: ForgetfulDisk, states: ProducerStates, offset: int) -> None:
    """Do as a flush does."""
    snapshot = states.open_snapshot(offset)
    assert snapshot is not None
    with snapshot:
        snapshot.sync_all()
    disk.sync_directory(Path("/data/t-0"))


@pytest.mark.parametrize("synced_later", [False, True], ids=["at once", "by the flush"])
def test_a_synced_snapshot_survives_a_power_cut(
    disk: ForgetfulDisk, clock: ManualClock, *, synced_later: bool
) -> None:
    """Its bytes and its name are durable when the sync returns."""
    log = filled(ProducerLog(on_disk(disk, clock)), snapshots=(1,))
    log.append(data_batch(offset=1, sequence=1))
    log.states.take_snapshot(sync=not synced_later)
    if synced_later:
        sync_snapshot(disk, log.states, 2)
    disk.restart()
    states = on_disk(disk, clock)
    states.load_from_snapshot(0, clock.now_ms())
    assert states.map_end_offset == 2
    entry = states.entry(1)
    assert entry is not None
    assert entry.last_sequence == 1


def test_a_snapshot_whose_name_outlived_its_bytes_is_dropped(
    disk: ForgetfulDisk, clock: ManualClock
) -> None:
    """After a roll and a power cut the state comes from the snapshot before."""
    states = filled(ProducerLog(on_disk(disk, clock)), snapshots=(1, 2)).states
    sync_snapshot(disk, states, 1)
    assert disk.exists(Path("/data/t-0") / snapshot_name(2))
    disk.restart()
    reloaded = on_disk(disk, clock)
    found = [reloaded.snapshots]
    reloaded.load_from_snapshot(0, clock.now_ms())
    found.append(reloaded.snapshots)
    assert found == [(1, 2), (1,)]
    assert reloaded.map_end_offset == 1
