"""The runtime: everything composed, started and stopped in order."""

import logging
import threading
from pathlib import Path

import pytest

from engine.errors import DirectoryLocked, Overloaded, StorageOffline
from engine.fs import names
from engine.log.log import Log
from engine.runtime import Runtime
from tests.support.builders import DATA, EVENTS, SMALL_CONFIG, World, new_batch
from tests.unit.engine.background.listeners import Listener

PERIODIC = ["log-retention", "log-checkpoints", "producer-expiry"]


def new_runtime(world: World, listener: Listener | None = None) -> Runtime:
    listener = listener or Listener()
    return Runtime(
        DATA,
        SMALL_CONFIG,
        fs=world.fs,
        clock=world.clock,
        scheduler=world.scheduler,
        recorder=world.recorder,
        on_commit=listener.committed,
        on_failure=listener.failed,
    )


def opened(world: World, listener: Listener | None = None) -> tuple[Runtime, Log]:
    """A runtime at work with one log."""
    runtime = new_runtime(world, listener)
    runtime.open()
    runtime.manager.create_topic("events", 1, {"segment.bytes": 200, "retention.ms": 5_000})
    return runtime, runtime.manager.log(EVENTS)


def test_an_append_goes_all_the_way() -> None:
    """Opened, appended, committed, notified, closed; the next runtime finds it all."""
    world, listener = World(), Listener()
    runtime, log = opened(world, listener)
    runtime.committer.append(log, new_batch(3), acks_all=True)
    listener.wait_for_high_watermark(log, 3)
    runtime.close()
    with pytest.raises(Overloaded):
        runtime.committer.append(log, new_batch(), acks_all=True)
    again = new_runtime(world)
    again.open()
    found = again.manager.log(EVENTS)
    assert found.durability.recovery.was_clean
    assert found.watermarks.high_watermark == 3
    again.close()


def test_a_close_commits_what_is_pending_before_it_closes_the_logs() -> None:
    """An append without a waiter is committed, notified, and found after a clean stop."""
    world, listener = World(), Listener()
    runtime, log = opened(world, listener)
    runtime.committer.append(log, new_batch(), acks_all=False)
    runtime.close()
    assert listener.rounds == [[(log, 1)]]
    assert world.fs.exists(DATA / names.CLEAN_SHUTDOWN_FILE)
    with pytest.raises(Overloaded):
        runtime.committer.append(log, new_batch(), acks_all=True)


def test_closing_may_be_repeated_and_come_first() -> None:
    """A runtime that never opened, or is closed already, is closed without an effect."""
    runtime = new_runtime(World())
    runtime.close()
    runtime.close()


def test_the_periodic_passes_run_when_they_are_due() -> None:
    """Retention removes old segments and a checkpoint is written, after their delay."""
    world = World()
    runtime, log = opened(world)
    for _ in range(3):
        log.append(new_batch(value=b"v" * 100))
    log.durability.commit()
    log.durability.flush()
    assert set(PERIODIC) <= set(world.scheduler.names)
    world.scheduler.advance(SMALL_CONFIG.initial_task_delay_ms)
    assert log.watermarks.log_start_offset == 3
    assert b"events 0 3" in world.fs.read_bytes(DATA / names.RECOVERY_POINT_CHECKPOINT)
    runtime.close()
    assert not set(PERIODIC) & set(world.scheduler.names)


def test_idle_producers_are_forgotten_by_the_periodic_pass() -> None:
    """A producer that was idle for a day is gone after the next pass."""
    world = World()
    runtime, log = opened(world)
    log.append(new_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    world.clock.advance(SMALL_CONFIG.producer_id_expiration_ms)
    assert log.producers.highest_id == 7
    world.scheduler.advance(SMALL_CONFIG.initial_task_delay_ms)
    assert log.producers.active() == ()
    runtime.close()


def test_an_offline_directory_is_left_alone_by_the_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a failed write no pass touches the disk, and no pass complains either."""
    world = World()
    runtime, _ = opened(world)
    runtime.manager.health.fail(OSError(5, "broken"))
    caplog.clear()
    before = len(world.disk.changes)
    world.scheduler.advance(SMALL_CONFIG.retention_check_interval_ms)
    assert len(world.disk.changes) == before
    assert caplog.text == ""
    runtime.close()


def test_a_checkpoint_that_fails_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The pass survives a disk that fails under it, and the directory is offline from then on."""
    world = World()
    runtime, log = opened(world)
    world.disk.fail("sync", path_end=names.RECOVERY_POINT_CHECKPOINT + ".tmp")
    world.scheduler.advance(SMALL_CONFIG.initial_task_delay_ms)
    assert "checkpoints were not written" in caplog.text
    with pytest.raises(StorageOffline):
        runtime.committer.append(log, new_batch(), acks_all=True)
    runtime.close()


def test_a_runtime_that_cannot_open_leaves_nothing_running(tmp_path: Path) -> None:
    """The second runtime of a directory is refused and its threads end; the first continues."""
    first = Runtime(tmp_path, SMALL_CONFIG)
    first.open()
    before = set(threading.enumerate())
    with pytest.raises(DirectoryLocked):
        Runtime(tmp_path, SMALL_CONFIG).open()
    assert set(threading.enumerate()) <= before
    first.close()


def test_a_runtime_needs_nothing_but_a_directory(tmp_path: Path) -> None:
    """Real disk, clock and threads: an append is committed without a listener."""
    runtime = Runtime(tmp_path / "data")
    runtime.open()
    runtime.manager.create_topic("events", 1, {"segment.index.bytes": 4096})
    log = runtime.manager.log(EVENTS)
    runtime.committer.append(log, new_batch(2), acks_all=True)
    runtime.close()
    assert log.watermarks.high_watermark == 2


def test_a_failed_sync_without_a_listener_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a listener the failure is still logged."""
    world = World()
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, clock=world.clock, scheduler=world.scheduler)
    runtime.open()
    runtime.manager.create_topic("events", 1, {})
    log = runtime.manager.log(EVENTS)
    world.disk.fail("sync", path_end=".log")
    runtime.committer.append(log, new_batch(), acks_all=True)
    runtime.close()
    assert [r.levelno for r in caplog.records].count(logging.ERROR) >= 1
    assert log.watermarks.high_watermark == 0
