"""Moves in the background: reports, order, refusals, and the effect of a stop."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.background.mover import MoveState, PartitionMover
from engine.errors import (
    InvalidRequestValue,
    Overloaded,
    PolicyViolation,
    Recovering,
    StorageOffline,
    TopicNotFound,
)
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder, Recorder
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World
from tests.support.gate import Gate
from tests.support.logs import fill, read_values
from tests.support.time import ManualScheduler, ScheduledTask
from tests.unit.engine.manager.test_directories import A, B, C, opened, restarted

OTHER = TopicPartition("events", 1)
GONE, AGAIN = TopicPartition("gone", 0), TopicPartition("again", 0)


class Ended(NullRecorder):
    """Records the moves that have ended."""

    def __init__(self) -> None:
        self.moves: list[tuple[TopicPartition, bool]] = []
        self._ended = threading.Semaphore(0)

    def moved(self, log: TopicPartition, *, succeeded: bool) -> None:
        self.moves.append((log, succeeded))
        self._ended.release()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self._ended.acquire(timeout=60)


def prepared(
    *paths: Path, max_waiting: int = 10, recorder: Recorder | None = None
) -> tuple[Gate, World, LogManager, PartitionMover]:
    """Two partitions of six records in the first directory."""
    disk = Gate()
    recorder = recorder or NullRecorder()
    world = World(fs=disk, recorder=recorder)
    manager = opened(world, A)
    manager.create_topic("events", 2, {"retention.ms": "-1"})
    for log in manager.logs():
        fill(log, batches=6)
        log.durability.flush()
    manager.close()
    manager = opened(world, *(paths or (A, B)))
    return disk, world, manager, PartitionMover(manager, recorder, max_waiting=max_waiting)


def finish(disk: Gate, mover: PartitionMover) -> None:
    """Let the running move end."""
    assert disk.reached.wait(60)
    disk.opened.set()
    mover.stop()


def test_a_move_is_reported_from_its_beginning_to_its_end() -> None:
    """Waiting, copying with offsets, done; the partition is there, whole."""
    disk, _, manager, mover = prepared()
    assert mover.report(EVENTS) is None
    begun = mover.start(EVENTS, B)
    assert (begun.source, begun.target, begun.is_over) == (A, B, False)
    assert disk.reached.wait(60)
    assert mover.start(EVENTS, B).state is MoveState.WAITING, "asked for twice, begun once"
    finish(disk, mover)
    report = mover.report(EVENTS)
    assert report is not None
    assert (report.state, report.is_over, report.problem) == (MoveState.DONE, True, None)
    assert (report.first_offset, report.copied_offset, report.end_offset) == (0, 6, 6)
    assert manager.log(EVENTS).directory == B / "events-0"
    assert len(read_values(manager.log(EVENTS))) == 6


def test_progress_is_reported_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the copy rises to the end of the log, which is reported too."""
    monkeypatch.setattr("engine.manager.moving.CHUNK_BYTES", 2)  # one batch at a time
    disk, _, manager, _ = prepared()
    disk.opened.set()
    told: list[tuple[int, int, int]] = []
    manager.move_partition(EVENTS, B, progress=lambda *offsets: told.append(offsets))
    assert told == [(0, copied, 6) for copied in (1, 2, 3, 4, 5, 6, 6)][: len(told)]
    assert told[-1] == (0, 6, 6)
    assert len(told) >= 6


def test_moves_wait_for_each_other() -> None:
    """One copies at a time; a partition that is being moved cannot get another target."""
    ended = Ended()
    disk, _, manager, mover = prepared(A, B, C, max_waiting=2, recorder=ended)
    mover.start(EVENTS, B)
    assert disk.reached.wait(60)
    assert mover.start(OTHER, C).state is MoveState.WAITING
    with pytest.raises(PolicyViolation, match="elsewhere"):
        mover.start(EVENTS, C)
    manager.create_topic("more", 1, {})
    more = manager.log(TopicPartition("more", 0))
    target = next(path for path in (A, B, C) if path != more.directory.parent)
    with pytest.raises(Overloaded):
        mover.start(more.topic_partition, target)
    disk.opened.set()
    ended.wait_for(2)
    assert ended.moves == [(EVENTS, True), (OTHER, True)]
    homes = [manager.log(log).directory.parent for log in (EVENTS, OTHER)]
    assert homes == [B, C]
    mover.stop()


def test_where_a_partition_is_already_nothing_is_begun() -> None:
    """The result is done, and there is no report of a move."""
    _, _, _, mover = prepared()
    assert mover.start(EVENTS, A).state is MoveState.DONE
    assert mover.report(EVENTS) is None


def test_what_cannot_be_is_refused_at_once() -> None:
    """An unknown topic, a path that is not a data directory, a disk that is offline."""
    _, _, manager, mover = prepared()
    with pytest.raises(TopicNotFound):
        mover.start(TopicPartition("none", 0), B)
    with pytest.raises(InvalidRequestValue, match="/etc is not a data directory"):
        mover.start(EVENTS, Path("/etc"))
    manager.directories[1].fail(OSError(5, "broken"))
    with pytest.raises(StorageOffline):
        mover.start(EVENTS, B)


def test_a_move_that_fails_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The partition stays where it was, and may be moved again."""
    disk, _, manager, mover = prepared()
    mover.start(EVENTS, B)
    assert disk.reached.wait(60)
    manager.delete_topic("events")
    finish(disk, mover)
    report = mover.report(EVENTS)
    assert report is not None
    assert report.state is MoveState.FAILED
    assert "was deleted" in str(report.problem)
    assert "was not moved to /b" in caplog.text


def test_a_recreated_partition_is_not_moved_for_the_deleted_one() -> None:
    """A waiting move belongs to the deleted partition; the new one needs its own request."""
    ended = Ended()
    disk, _, manager, mover = prepared(recorder=ended)
    mover.start(OTHER, B)
    assert disk.reached.wait(60)
    before = [wanted_elsewhere_and_made_anew(manager, mover, log) for log in (GONE, AGAIN)]
    target = B if before[1] == A else A
    assert mover.start(AGAIN, target).state is MoveState.WAITING
    disk.opened.set()
    ended.wait_for(3)
    assert ended.moves == [(OTHER, True), (GONE, False), (AGAIN, True)]
    assert [home(manager, log) for log in (GONE, AGAIN)] == [before[0], target]
    report = mover.report(GONE)
    assert report is not None
    assert "was deleted before it was moved" in str(report.problem)
    mover.start(OTHER, A)  # after the second move of the one that was requested twice
    ended.wait_for(1)
    assert ended.moves[3:] == [(OTHER, True)]
    mover.stop()


def wanted_elsewhere_and_made_anew(
    manager: LogManager, mover: PartitionMover, log: TopicPartition
) -> Path:
    """Request its move, delete it, and create it again; return its directory."""
    manager.create_topic(log.topic, 1, {})
    mover.start(log, B if home(manager, log) == A else A)
    manager.delete_topic(log.topic)
    manager.create_topic(log.topic, 1, {})
    return home(manager, log)


def home(manager: LogManager, log: TopicPartition) -> Path:
    """Return the data directory of a partition."""
    return manager.log(log).directory.parent


class Broken(ManualScheduler):
    """Takes no task for the removal of the old files."""

    def once(self, name: str, delay_ms: int, work: Callable[[], None]) -> ScheduledTask:
        raise RuntimeError("no more tasks")


def test_an_unexpected_error_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    """Callers that poll the report do not wait for ever."""
    disk = Gate()
    disk.opened.set()
    world = World(fs=disk)
    world.scheduler = Broken(world.clock)
    manager = opened(world)
    manager.create_topic("events", 1, {})
    fill(manager.log(EVENTS), batches=1)
    mover = PartitionMover(manager, world.recorder, max_waiting=10)
    mover.start(EVENTS, B)
    finish(disk, mover)
    report = mover.report(EVENTS)
    assert report is not None
    assert (report.state, report.problem) == (MoveState.FAILED, "RuntimeError: no more tasks")


def test_the_next_start_continues_interrupted_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy in progress and the waiting moves.

    Until then no move runs and everything is served.
    """
    monkeypatch.setattr("engine.manager.moving.CHUNK_BYTES", 2)  # one batch at a time
    disk, world, manager, mover = prepared()
    mover.start(EVENTS, B)
    mover.start(OTHER, B)
    assert disk.reached.wait(60)
    manager.interrupt()
    finish(disk, mover)
    given_up = mover.report(EVENTS)
    assert given_up is not None
    assert (given_up.state, "closing" in str(given_up.problem)) == (MoveState.FAILED, True)
    with pytest.raises(Recovering):
        mover.start(OTHER, B)
    manager.close()
    manager = restarted(world)
    for log in manager.logs():
        assert log.directory.parent == A
        assert len(read_values(log)) == 6
    ended = Ended()
    mover = PartitionMover(manager, ended, max_waiting=1)
    assert mover.report(EVENTS) is None
    mover.resume()
    ended.wait_for(2)
    mover.stop()
    assert ended.moves == [(EVENTS, True), (OTHER, True)]
    for log in manager.logs():
        report = mover.report(log.topic_partition)
        assert report is not None
        assert (report.source, report.target, report.state) == (A, B, MoveState.DONE)
        assert log.directory.parent == B
        assert len(read_values(log)) == 6
    assert manager.unfinished_moves() == {}


def test_old_reports_make_room_for_new_ones() -> None:
    """As many are remembered as may wait."""
    ended = Ended()
    disk, _, manager, mover = prepared(max_waiting=1, recorder=ended)
    disk.opened.set()
    manager.move_partition(OTHER, B)
    for log, target in ((EVENTS, B), (OTHER, A)):
        mover.start(log, target)
        ended.wait_for(1)
    mover.stop()
    assert mover.report(EVENTS) is None
    report = mover.report(OTHER)
    assert report is not None
    assert report.state is MoveState.DONE


def test_the_newest_report_is_the_last() -> None:
    """Also of a partition that was moved before the others, and moves again."""
    ended = Ended()
    disk, _, _, mover = prepared(recorder=ended)
    disk.opened.set()
    for log, target in ((EVENTS, B), (OTHER, B), (EVENTS, A)):
        mover.start(log, target)
        ended.wait_for(1)
    mover.stop()
    assert [(one.log, one.target) for one in mover.reports()] == [(OTHER, B), (EVENTS, A)]


def test_a_move_of_a_log_that_cannot_be_opened_waits_for_the_next_start() -> None:
    """The others are moved, and this one is not dropped."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {"retention.ms": "-1"})
    log = manager.log(EVENTS)
    fill(log, batches=2)
    log.durability.commit()
    source = log.directory.parent
    target = B if source == A else A
    manager.plan_move(EVENTS, target)
    manager.close()
    world.restart(power_cut=True)
    world.disk.fail("read", error=errno.EACCES, path_end="events-0/leader-epoch-checkpoint")
    manager = opened(world)
    mover = PartitionMover(manager, NullRecorder(), max_waiting=10)
    mover.resume()
    assert mover.report(EVENTS) is None
    mover.stop()
    manager.close()
    manager = restarted(world)
    assert manager.log(EVENTS).directory.parent == source
    assert manager.unfinished_moves() == {EVENTS: target}
