"""Rounds that the thread that asks for them runs itself: which ones, and what then happens."""

import errno
import threading
from collections.abc import Iterator

import pytest

from engine.background.committer import LOOK_AFTER, URGENT_PER_ROUND, Committer
from engine.config import EngineConfig
from engine.errors import StorageOffline
from engine.log.durability import SMALL_COMMIT_BYTES
from engine.log.log import Log
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.machine import Operation
from tests.unit.engine.background.listeners import Listener
from tests.unit.engine.manager.test_directories import A, B, opened

CONFIG = EngineConfig(max_inline_round_ms=60_000)
"""So that every round is quick."""


class TellingListener(Listener):
    """Notes the thread that calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def committed(self, logs: object) -> None:
        self.threads.append(threading.get_ident())
        super().committed(logs)  # type: ignore[arg-type]  # as it came


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def listener() -> TellingListener:
    return TellingListener()


@pytest.fixture
def committer(world: World, listener: TellingListener) -> Iterator[Committer]:
    """One whose flusher has found that rounds are quick; its thread has not started."""
    committer = Committer(CONFIG, world.clock, listener.committed, listener.failed)
    warm = world.open_log(log=TopicPartition("warm", 0))
    for _ in range(LOOK_AFTER):
        committer.append(warm, new_batch(), acks_all=True)
        assert committer.run_round()
    listener.rounds.clear()
    listener.threads.clear()
    yield committer
    committer.stop()


def committed_log(world: World, committer: Committer, listener: TellingListener) -> Log:
    """A log that has nothing unsynced, and no new file."""
    log = world.open_log()
    committer.append(log, new_batch(), acks_all=True)
    committer.run_round()
    listener.rounds.clear()
    listener.threads.clear()
    return log


def append(committer: Committer, *logs: Log, count: int = 1) -> None:
    for log in logs:
        committer.append(log, new_batch(count), acks_all=True, wakes=False)


def test_a_quick_round_is_committed_when_the_call_returns(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """On the calling thread, and what it committed survives a power cut."""
    log = committed_log(world, committer, listener)
    append(committer, log, log)
    committer.wake()
    assert (log.watermarks.high_watermark, listener.rounds) == (3, [[(log, 3)]])
    assert listener.threads == [threading.get_ident()]
    world.restart(power_cut=True)
    assert world.open_log().watermarks.high_watermark == 3


def test_a_call_without_an_append_does_nothing(
    committer: Committer, listener: TellingListener
) -> None:
    """There is no round without a log."""
    committer.wake()
    assert listener.rounds == []


@pytest.mark.parametrize("why", ["new file", "much", "small limit"])
def test_a_round_that_may_take_long_is_left_to_the_flusher(
    world: World, listener: TellingListener, committer: Committer, why: str
) -> None:
    """A directory to sync, many bytes, or rounds that were not quick."""
    log = committed_log(world, committer, listener)
    if why == "new file":
        log.roll()
    elif why == "much":
        value = b"x" * (SMALL_COMMIT_BYTES + 1)
        committer.append(log, new_batch(1, value=value), acks_all=False, wakes=False)
    else:
        committer = Committer(EngineConfig(), world.clock, listener.committed, listener.failed)
    append(committer, log)
    committer.wake()
    assert listener.rounds == []
    assert committer.run_round()
    assert len(listener.rounds) == 1
    committer.stop()


def test_a_failed_inline_sync_ends_all_writes(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """As one of the flusher's does; the second sync would succeed and cover nothing."""
    log = committed_log(world, committer, listener)
    append(committer, log)
    world.disk.fail("sync", error=errno.EIO, path_end=".log")
    committer.wake()
    ((logs, error),) = listener.failures
    assert (logs, type(error), listener.rounds) == ([log], StorageOffline, [])
    assert log.watermarks.high_watermark == 1
    with pytest.raises(StorageOffline):
        append(committer, log)


@pytest.mark.parametrize("name", ["syncing", "lock"])
def test_a_log_that_another_thread_holds_is_left_to_the_flusher(
    world: World, committer: Committer, listener: TellingListener, name: str
) -> None:
    """The holder may be waiting for the disk."""
    log = committed_log(world, committer, listener)
    append(committer, log)
    with getattr(log._core, name):  # noqa: SLF001 - as a flush or a truncation holds it
        committer.wake()
    assert (listener.rounds, listener.failures) == ([], [])
    assert committer.run_round()
    assert listener.rounds == [[(log, 2)]]


def test_a_lock_that_is_taken_during_the_sync_delays_what_the_sync_covers(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """It is visible after a round of the flusher."""
    log = committed_log(world, committer, listener)
    append(committer, log)
    lock = log._core.lock  # noqa: SLF001 - as a truncation holds it

    def hold(operation: Operation) -> None:
        if operation.name == "sync":
            lock.acquire()

    world.disk.meanwhile = hold
    committer.wake()
    world.disk.meanwhile = None
    lock.release()
    assert (listener.rounds, log.watermarks.high_watermark) == ([], 1)
    assert committer.run_round()
    assert listener.rounds == [[(log, 2)]]


def test_during_a_round_a_call_leaves_the_next_one_to_the_flusher(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """Two syncs of a file system at a time: the kernel would report a failure to one of them."""
    log = committed_log(world, committer, listener)
    seen: list[int] = []

    def come_between(operation: Operation) -> None:
        world.disk.meanwhile = None
        append(committer, log)
        committer.wake()
        seen.append(log.watermarks.high_watermark)

    append(committer, log)
    world.disk.meanwhile = come_between
    committer.wake()
    assert (seen, listener.rounds) == ([1], [[(log, 2)]])
    assert committer.run_round()
    assert listener.rounds == [[(log, 2)], [(log, 3)]]


def test_after_a_stop_the_last_round_is_the_flushers(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """A call that comes too late commits nothing and raises nothing."""
    log = committed_log(world, committer, listener)
    append(committer, log)
    committer.stop()
    committer.wake()
    assert listener.rounds == [[(log, 2)]]


def test_the_flusher_waits_for_an_inline_round_and_takes_what_came_meanwhile(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """Its thread is woken by the end of that round; so is a stop."""
    log = committed_log(world, committer, listener)
    committer.start()
    stopping = threading.Thread(target=committer.stop)

    def come_between(operation: Operation) -> None:
        world.disk.meanwhile = None
        append(committer, log)
        stopping.start()

    append(committer, log)
    world.disk.meanwhile = come_between
    committer.wake()
    stopping.join()
    assert listener.rounds == [[(log, 2)], [(log, 3)]]
    assert listener.threads[0] == threading.get_ident() != listener.threads[1]


def several(world: World, *directories: str) -> list[Log]:
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 2 * (URGENT_PER_ROUND + 1), {})
    logs = [log for log in manager.logs() if log.topic_partition.topic == EVENTS.topic]
    return [log for log in logs if log.directory.parent.name in directories]


def let_both_ways_be_tried(committer: Committer, logs: list[Log]) -> None:
    """Each log is committed, and one sync for several has been compared with one for each."""
    for _ in range(2):
        append(committer, *logs)
        while committer.run_round():
            pass


def test_several_logs_of_a_directory_share_one_inline_sync(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """The flusher commits those that one round does not take."""
    logs = several(world, A.name)
    let_both_ways_be_tried(committer, logs)
    listener.rounds.clear()
    ends = [log.watermarks.log_end_offset for log in logs]
    append(committer, *logs)
    before = len(world.disk.changes)
    committer._choices[logs[0].durability.health].note_each(1, 9.0)  # noqa: SLF001 - dearer
    committer.wake()
    synced = [change.name for change in world.disk.changes[before:]]
    assert synced == ["sync_file_system"]
    (moved,) = listener.rounds
    assert moved == [(log, end + 1) for log, end in zip(logs, ends, strict=True)][:URGENT_PER_ROUND]
    assert committer.run_round()
    assert len(listener.rounds[1]) == len(logs) - URGENT_PER_ROUND


def test_logs_of_two_directories_are_left_to_the_flusher(
    world: World, committer: Committer, listener: TellingListener
) -> None:
    """Two syncs take twice as long."""
    logs = several(world, A.name, B.name)
    let_both_ways_be_tried(committer, logs)
    listener.rounds.clear()
    append(committer, *logs)
    committer.wake()
    assert listener.rounds == []
