"""Background work at the worst moment of a change.

Acknowledged data stays, no directory goes offline. Each was found by a code review and reduced to a
few lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.manager.moving import Move
from engine.state.epochs import LeaderEpochCache
from tests.support.builders import EVENTS, World, new_batch
from tests.support.filesystem import ForgetfulDisk, PowerCut
from tests.support.logs import CONFIG, fill, fill_segments
from tests.unit.engine.manager.test_directories import B, opened


class Stepping(ForgetfulDisk):
    """Calls `step` before each call."""

    step: Callable[[str, Path], None] | None = None

    def enter(self, name: str, path: Path) -> None:
        if self.step is not None:
            self.step(name, path)
        super().enter(name, path)


def test_a_checkpoint_beside_retention_keeps_a_deletion_of_records() -> None:
    """The first segment has left the log, and its old name may still be on the disk.

    The line of the log start was dropped: after a power cut the deleted records were back.
    """
    disk = Stepping()
    world = World(fs=disk)
    manager = world.open_manager({EVENTS.topic: 1})
    log = manager.log(EVENTS)
    fill_segments(log, 2, 2)
    log.durability.flush()
    manager.checkpoint()
    assert manager.delete_records(log, 2) == 2
    first = log.reader.segments[0].records.path

    def checkpoint_when_renamed(name: str, _: Path) -> None:
        if name == "sync_directory" and log.reader.segments[0].records.path != first:
            disk.step = None
            manager.checkpoint()
            raise PowerCut

    disk.step = checkpoint_when_renamed
    with pytest.raises(PowerCut):
        log.maintenance.run_retention()
    world.restart(power_cut=True)
    assert world.open_manager().log(EVENTS).watermarks.log_start_offset == 2


def test_a_flush_of_a_copy_beside_the_end_of_its_move_takes_no_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy is closed and its directory renamed between the two halves of the flush."""
    disk = Stepping()
    world = World(fs=disk)
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 1, {})
    log = manager.log(EVENTS)
    for _ in range(3):
        log.append(new_batch())
        log.roll()
    log.durability.commit()
    reached, goes_on = threading.Event(), threading.Event()
    flushing = threading.Thread(target=world.scheduler.run_due)
    finish = Move.finish

    def wait_between_the_halves(name: str, path: Path) -> None:
        is_copy = "-future" in str(path) and path.suffix == ".timeindex"
        if threading.current_thread() is flushing and name == "sync" and is_copy:
            reached.set()
            assert goes_on.wait(20)

    def finish_beside_a_flush(move: Move) -> None:
        copy = move._copy  # noqa: SLF001 - its own flush after a roll is what comes between
        assert copy is not None
        copy.durability.flush_soon()
        disk.step = wait_between_the_halves
        flushing.start()
        assert reached.wait(20)
        finish(move)
        goes_on.set()

    monkeypatch.setattr(Move, "finish", finish_beside_a_flush)
    manager.move_partition(EVENTS, B)
    flushing.join(20)
    assert [health.is_offline for health in manager.directories] == [False, False]


def test_a_flush_beside_a_truncation_never_writes_the_epochs_without_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a power cut right then the log would have had the log id of before the truncation."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=5)
    log.durability.flush()

    def flush_first(cache: LeaderEpochCache, start_offset: int) -> None:
        assert start_offset == 3
        cache.flush()
        raise PowerCut

    monkeypatch.setattr(LeaderEpochCache, "move_start", flush_first)
    with pytest.raises(PowerCut):
        log.truncate_to(3)
    world.restart(power_cut=True)
    monkeypatch.undo()
    assert world.open_log(CONFIG).reader.leader_epoch == 1
