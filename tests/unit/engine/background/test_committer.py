"""Group commit: which listener is called when, and what happens when the disk fails."""

import errno
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.background.committer import AGAIN_MS, Committer
from engine.config import EngineConfig, LogConfig
from engine.errors import Overloaded, StorageFull, StorageOffline
from engine.log.results import Appended
from engine.metrics import NullRecorder
from engine.types import Buffer, TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.inodes import UNLIMITED
from tests.support.kafka import kafka
from tests.unit.engine.background.listeners import PATIENCE_SECONDS, Listener, SlowDisk
from tests.unit.engine.manager.test_directories import A, B, opened


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def world(disk: SlowDisk) -> World:
    return World(fs=disk)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def committer(world: World, listener: Listener, disk: SlowDisk) -> Iterator[Committer]:
    committer = Committer(EngineConfig(), world.clock, listener.committed, listener.failed)
    committer.start()
    yield committer
    disk.is_slow = False
    committer.stop()


@pytest.mark.parametrize("acks_all", [True, False])
def test_what_a_move_has_committed_is_told_by_the_round_that_was_due(
    listener: Listener, *, acks_all: bool
) -> None:
    """The copy is durable and its readers see it; the append had queued the log."""
    world = World()
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 1, {})
    log = manager.log(EVENTS)
    committer = Committer(EngineConfig(), world.clock, listener.committed, listener.failed)
    committer.append(log, new_batch(), acks_all=acks_all)
    manager.move_partition(EVENTS, B if log.directory.parent == A else A)
    assert (log.watermarks.high_watermark, listener.rounds) == (1, [])
    world.clock.advance(EngineConfig().commit_interval_ms)
    assert committer.run_round()
    assert listener.rounds == [[(log, 1)]]
    committer.stop()


def test_a_committer_without_its_thread_is_driven_by_hand(world: World, listener: Listener) -> None:
    """A round commits the due logs, and a stop all the rest; both on the calling thread."""
    committer = Committer(EngineConfig(), world.clock, listener.committed, listener.failed)
    waited_for = world.open_log()
    other = world.open_log(log=TopicPartition("events", 1))
    committer.append(waited_for, new_batch(2), acks_all=True)
    committer.append(other, new_batch(), acks_all=False)
    assert committer.run_round()
    assert listener.rounds == [[(waited_for, 2)]]
    assert not committer.run_round()
    for _ in range(2):
        committer.stop()
        assert listener.rounds == [[(waited_for, 2)], [(other, 1)]]
    with pytest.raises(Overloaded):
        committer.append(other, new_batch(), acks_all=False)


@kafka("LogManagerTest.testTimeBasedFlush")
def test_a_short_flush_ms_is_in_force_without_a_waiter(
    world: World, committer: Committer, listener: Listener
) -> None:
    """Not before it has passed, and long before the commit interval."""
    log = world.open_log(LogConfig(flush_ms=10))
    committer.append(log, new_batch(), acks_all=False)
    world.clock.advance(9)
    assert log.watermarks.high_watermark == 0
    world.clock.advance(1)
    listener.wait_for_high_watermark(log, 1)


def test_an_append_that_somebody_waits_for_is_committed_at_once(
    world: World, committer: Committer, listener: Listener
) -> None:
    """With acks=all the next round syncs, although no time has passed on the clock."""
    log = world.open_log()
    appended = committer.append(log, new_batch(3), acks_all=True)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    listener.wait_for_high_watermark(log, 3)
    assert log.watermarks.high_watermark == 3


def test_what_was_committed_survives_a_power_cut(
    world: World, committer: Committer, listener: Listener
) -> None:
    """Once the listener was called, the records survive a power cut."""
    log = world.open_log()
    committer.append(log, new_batch(3), acks_all=True)
    listener.wait_for_high_watermark(log, 3)
    committer.stop()
    world.restart(power_cut=True)
    assert world.open_log().watermarks.high_watermark == 3


def test_everybody_who_comes_during_a_sync_shares_the_next_one(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """Appends that arrive while the disk is busy are carried by one sync together."""
    log = world.open_log()
    disk.is_slow = True
    committer.append(log, new_batch(), acks_all=True)
    disk.wait_for_sync()
    before = disk.syncs
    for _ in range(10):
        committer.append(log, new_batch(), acks_all=True)
    disk.let_through()
    disk.let_through()
    listener.wait_for_high_watermark(log, 11)
    assert disk.syncs == before + 1
    assert [told for told in listener.rounds if told] == [[(log, 1)], [(log, 11)]]


def test_a_sync_under_way_does_not_cover_what_comes_after_its_start(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """The high watermark rises to where the log ended before the sync, not to where it ends."""
    log = world.open_log()
    disk.is_slow = True
    committer.append(log, new_batch(), acks_all=True)
    disk.wait_for_sync()
    committer.append(log, new_batch(), acks_all=False)
    disk.let_through()
    listener.wait_for_high_watermark(log, 1)
    assert log.watermarks.high_watermark == 1
    assert log.watermarks.log_end_offset == 2


@kafka("UnifiedLogTest.testLogOffsetsListener")
def test_logs_of_one_round_are_reported_together(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """One call for the whole round: the listener is called once, not once for each log."""
    first = world.open_log(log=TopicPartition("events", 0))
    second = world.open_log(log=TopicPartition("events", 1))
    disk.is_slow = True
    committer.append(first, new_batch(), acks_all=True)
    disk.wait_for_sync()
    committer.append(first, new_batch(), acks_all=True)
    committer.append(second, new_batch(), acks_all=True)
    for _ in range(3):
        disk.let_through()
    listener.wait_for_rounds(2)
    assert listener.rounds[1] == [(first, 2), (second, 1)]


def test_without_a_waiter_a_log_is_committed_after_the_interval(
    world: World, committer: Committer, listener: Listener
) -> None:
    """With acks 0 or 1 nothing is synced until the commit interval has passed."""
    log = world.open_log()
    committer.append(log, new_batch(), acks_all=False)
    committer.append(log, new_batch(), acks_all=False)
    assert log.watermarks.high_watermark == 0
    world.clock.advance(50)
    listener.wait_for_high_watermark(log, 2)


def test_flush_messages_makes_it_sooner(
    world: World, committer: Committer, listener: Listener
) -> None:
    """A topic that flushes every two records is synced at the second, without a waiter."""
    log = world.open_log(LogConfig(flush_messages=2))
    committer.append(log, new_batch(), acks_all=False)
    committer.append(log, new_batch(), acks_all=False)
    listener.wait_for_high_watermark(log, 2)


def test_many_appends_can_share_one_wake_up(
    world: World, committer: Committer, listener: Listener
) -> None:
    """Appends that do not wake are queued, and one wake-up has all of them committed."""
    log = world.open_log()
    for _ in range(3):
        committer.append(log, new_batch(), acks_all=True, wakes=False)
    committer.wake()
    listener.wait_for_high_watermark(log, 3)
    assert log.watermarks.high_watermark == 3


def test_a_duplicate_that_is_on_disk_waits_for_no_sync(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """A retry of a committed batch costs no sync."""
    log = world.open_log()
    batch = new_batch(producer_id=7, producer_epoch=0, base_sequence=0)
    retry = bytearray(batch)
    committer.append(log, batch, acks_all=True)
    listener.wait_for_high_watermark(log, 1)
    syncs = disk.syncs
    appended = committer.append(log, retry, acks_all=True)
    assert appended.is_duplicate
    committer.stop()
    assert disk.syncs == syncs


def test_a_stop_commits_what_is_pending(
    world: World, committer: Committer, listener: Listener
) -> None:
    """Nothing that was appended is left above the high watermark by an orderly stop."""
    log = world.open_log()
    committer.append(log, new_batch(), acks_all=False)
    committer.stop()
    assert listener.rounds == [[(log, 1)]]
    committer.stop()


def test_a_stopped_committer_takes_no_appends(world: World, committer: Committer) -> None:
    """After a stop an append is refused before anything is written."""
    log = world.open_log()
    committer.stop()
    with pytest.raises(Overloaded):
        committer.append(log, new_batch(), acks_all=True)
    assert log.watermarks.log_end_offset == 0


@pytest.mark.parametrize("acks_all", [True, False])
def test_an_append_that_a_stop_overtakes_is_not_acknowledged(
    world: World, committer: Committer, monkeypatch: pytest.MonkeyPatch, *, acks_all: bool
) -> None:
    """It was written after the last round and is not committed, so it must not look committed."""
    log = world.open_log()
    append = log.append

    def overtaken(data: Buffer, **options: Any) -> Appended:
        appended = append(data, **options)
        committer.stop()
        return appended

    monkeypatch.setattr(log, "append", overtaken)
    with pytest.raises(StorageOffline):
        committer.append(log, new_batch(), acks_all=acks_all)
    marks = log.watermarks
    assert (marks.high_watermark, marks.log_end_offset) == (0, 1)


def test_a_failed_sync_fails_the_waiters_and_is_not_repeated(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """The high watermark stays, the directory refuses writes, reads below it continue."""
    log = world.open_log()
    committer.append(log, new_batch(), acks_all=True)
    listener.wait_for_high_watermark(log, 1)
    disk.fail("sync", path_end=".log")
    syncs = disk.syncs
    committer.append(log, new_batch(), acks_all=True)
    listener.wait_for_failures(1)
    logs, error = listener.failures[0]
    assert logs == [log]
    assert isinstance(error, StorageOffline)
    assert log.watermarks.high_watermark == 1
    with pytest.raises(StorageOffline):
        committer.append(log, new_batch(), acks_all=True)
    fetched = log.reader.read(0, max_bytes=1_000)
    assert fetched is not None
    assert fetched.next_offset == 1
    committer.stop()
    assert disk.syncs == syncs + 1


def test_one_failing_log_does_not_hold_up_the_round(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """In one round a log that is closed fails alone; the others are committed."""
    closed = world.open_log(log=TopicPartition("events", 0))
    log = world.open_log(log=TopicPartition("events", 1))
    other = world.open_log(log=TopicPartition("events", 2))
    disk.is_slow = True
    committer.append(other, new_batch(), acks_all=True)
    disk.wait_for_sync()
    committer.append(closed, new_batch(), acks_all=True)
    committer.append(log, new_batch(), acks_all=True)
    closed.maintenance.close_handles()
    for _ in range(2):
        disk.let_through()
    listener.wait_for_high_watermark(log, 1)
    listener.wait_for_failures(1)
    assert listener.failures[0][0] == [closed]


@pytest.mark.parametrize("failing", ["committed", "failed"])
def test_a_listener_that_raises_does_not_stop_the_thread(
    failing: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The flusher continues after any error of a listener, and logs it."""
    told = threading.Semaphore(0)

    def raising(*_: object) -> None:
        told.release()
        raise RuntimeError("the loop is closed")

    def quiet(*_: object) -> None:
        told.release()

    listeners = (raising, quiet) if failing == "committed" else (quiet, raising)
    committer = Committer(EngineConfig(), world.clock, *listeners)
    committer.start()
    log = world.open_log()
    broken = world.open_log(log=TopicPartition("events", 1))
    for target in (log, broken):
        committer.append(target, new_batch(), acks_all=False)
    broken.maintenance.close_handles()
    world.clock.advance(50)
    assert told.acquire(timeout=PATIENCE_SECONDS)
    assert told.acquire(timeout=PATIENCE_SECONDS)
    committer.append(log, new_batch(), acks_all=True)
    assert told.acquire(timeout=PATIENCE_SECONDS)
    committer.stop()
    assert log.watermarks.high_watermark == 2
    assert "a listener of the committer failed" in caplog.text


class BrokenRecorder(NullRecorder):
    """A recorder that breaks its promise never to raise."""

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        raise RuntimeError(f"cannot count {log} after {duration_ms} ms")


def test_an_unexpected_error_is_a_failed_commit(
    listener: Listener, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in a commit fails its waiters with a storage error and is logged with its trace."""
    world = World()
    log = world.open_log()
    broken_log = World(recorder=BrokenRecorder()).open_uncommitted()
    committer.append(broken_log, new_batch(), acks_all=True)
    listener.wait_for_failures(1)
    assert isinstance(listener.failures[0][1], StorageOffline)
    assert "cannot count events-0" in caplog.text
    committer.append(log, new_batch(), acks_all=True)
    listener.wait_for_high_watermark(log, 1)


def test_a_full_disk_refuses_the_append_and_nothing_else(
    world: World, committer: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """An append without space is refused whole; with space again, the next one succeeds."""
    log = world.open_log()
    disk.fail("append", error=errno.ENOSPC, path_end=".log")
    with pytest.raises(StorageFull):
        committer.append(log, new_batch(), acks_all=True)
    committer.append(log, new_batch(), acks_all=True)
    listener.wait_for_high_watermark(log, 1)


@pytest.fixture
def by_hand(world: World, listener: Listener) -> Committer:
    return Committer(EngineConfig(), world.clock, listener.committed, listener.failed)


def test_a_commit_that_finds_no_file_is_done_by_a_later_round(
    world: World, by_hand: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """Waiters keep waiting without an error, and are notified when files are available again.

    A new segment, whose name has to be synced as well, took the directory offline.
    """
    log, other = world.open_log(), world.open_log(log=TopicPartition("events", 1))
    log.roll()
    for target in (log, other):
        by_hand.append(target, new_batch(), acks_all=True)
    log.roll()
    disk.remaining_files = 0
    assert by_hand.run_round()
    assert listener.rounds == [[(other, 1)]]
    assert not by_hand.run_round(), "not before a while has passed"
    world.clock.advance(AGAIN_MS)
    assert by_hand.run_round()
    disk.remaining_files = UNLIMITED
    world.clock.advance(AGAIN_MS)
    assert by_hand.run_round()
    assert listener.rounds == [[(other, 1)], [(log, 1)]]
    assert listener.failures == []
    world.restart(power_cut=True)
    assert world.open_log().watermarks.high_watermark == 1


def test_a_stop_without_free_files_notifies_waiters(
    world: World, by_hand: Committer, listener: Listener, disk: SlowDisk
) -> None:
    """It ends, and no waiter takes an uncommitted append for committed."""
    log = world.open_log()
    by_hand.append(log, new_batch(), acks_all=True)
    log.roll()
    disk.remaining_files = 0
    by_hand.stop()
    assert listener.rounds == []
    ((logs, error),) = listener.failures
    assert (logs, type(error)) == ([log], StorageOffline)
    assert "too many files" in str(error)
    assert log.watermarks.high_watermark == 0
    assert not by_hand.run_round()
