"""A lack of open files or memory is temporary.

The operation is refused, and the disk has not failed. A flush during which the directory could not
be opened took the whole data directory offline until a restart, although no write or sync had
failed.
"""

from __future__ import annotations

import errno
import functools
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from bench.stock import opened as opened_on_disk
from engine.errors import Overloaded, StorageFull, StorageOffline, TopicNotFound
from engine.fs import names
from engine.log.durability import FLUSH_AGAIN_MS
from engine.records.control import ControlType, build_end_marker
from engine.runtime import run_retention_pass
from engine.types import AppendOrigin, FetchIsolation, TopicPartition
from tests.crash.test_last_steps import ready_to_move
from tests.simulation.determinism import deterministic
from tests.simulation.procedures import PROCEDURES, new_scene
from tests.simulation.simulation import Simulation
from tests.simulation.steps import checkpoint
from tests.simulation.trouble import Ending, Kind, Trouble
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.compaction import Compacted
from tests.support.inodes import UNLIMITED
from tests.support.logs import CONFIG, append_values, fill, read_values, with_config
from tests.support.open_files import open_files_left
from tests.support.time import START_MS
from tests.unit.engine.manager.test_directories import opened

CUT = {"truncate inside a segment", "truncate whole segments"}
"""Refused if a file cannot be opened at first; midway the procedure can neither continue nor
undo."""
STARTS = {"shut down", "start after a stop", "recover after a crash", "recover after a power cut"}
"""A start that lacks open files is refused, and nothing is served."""
LASTING = [name for name in PROCEDURES if name not in CUT | STARTS]
FILES_PER_PROCEDURE = 3
LACKS = pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)


def files_of(name: str) -> int:
    """How many files the procedure opens if nothing goes wrong."""
    with deterministic(name):
        scene = new_scene()
        before = scene.disk.opened_files
        scene.do(PROCEDURES[name], Random(name), Trouble.none())
        return scene.disk.opened_files - before


def carried_out_with(name: str, files: int, lack: int) -> None:
    """Carry a procedure out with a limited number of open files.

    Afterwards everything works again.
    """
    with deterministic(name):
        scene = new_scene()
        life = scene.disk.generation
        trouble = Trouble(Kind.NO_FILES, 1 + files, lack, Ending.KILL)
        scene.do(PROCEDURES[name], Random(name), trouble)
        assert scene.disk.generation == life, f"with {files} files it had to be started anew"
        scene.do(go_on, Random(name), Trouble.none())
        scene.do(PROCEDURES["shut down"], Random(name), Trouble.none())


def go_on(simulation: Simulation, random: Random) -> None:
    """Use every log, and run the background work that could not run."""
    for driven in simulation.logs.values():
        driven.append(1)
        driven.commit()
        driven.roll()
    simulation.scheduler.advance(120_000)
    for driven in simulation.logs.values():
        driven.see_commits()
        assert driven.log.durability.recovery_point == driven.model.end
    checkpoint(simulation, random)


@LACKS
@pytest.mark.parametrize("name", LASTING)
def test_a_procedure_may_find_no_more_files(name: str, lack: int) -> None:
    """Wherever it fails, nothing goes offline or is lost.

    With files again, everything continues.
    """
    count = files_of(name)
    for number in range(min(count, FILES_PER_PROCEDURE)):
        carried_out_with(name, number * count // FILES_PER_PROCEDURE, lack)


@pytest.mark.long
@LACKS
@pytest.mark.parametrize("name", LASTING)
def test_a_procedure_may_find_no_more_files_at_any_step(name: str, lack: int) -> None:
    """The same for each number of files."""
    for files in range(files_of(name)):
        carried_out_with(name, files, lack)


@LACKS
@pytest.mark.parametrize("name", sorted(CUT))
def test_a_truncation_is_refused_before_it_cuts(name: str, lack: int) -> None:
    """The epoch is written after three checkpoints.

    If no file can be opened for it, nothing has changed.
    """
    for files in (0, 6, 7):
        carried_out_with(name, files, lack)


def test_a_commit_that_may_not_open_the_directory_is_done_by_the_next() -> None:
    """No sync has failed: the append stays hidden until it is synced."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=2)
    log.roll()
    world.disk.remaining_files = 0
    for _ in range(2):
        with pytest.raises(Overloaded):
            log.durability.commit()
        assert log.watermarks.high_watermark == 0
    world.disk.remaining_files = UNLIMITED
    assert log.durability.commit() == 2
    world.restart(power_cut=True)
    assert read_values(world.open_log(CONFIG)) == values


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_sync_that_fails_for_whatever_reason_takes_the_directory_offline(operation: str) -> None:
    """The open may fail, the sync may not: a failed sync is never repeated."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=1)
    log.roll()
    world.disk.fail(operation, error=errno.EMFILE)
    with pytest.raises(StorageOffline):
        log.durability.commit()
    assert world.health.is_offline


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("operation", "path_end"),
    [
        ("open_directory", "/events-0"),
        ("open", names.SNAPSHOT_SUFFIX),
        ("create", names.LEADER_EPOCH_CHECKPOINT + names.TEMPORARY_SUFFIX),
        ("create", names.TIME_INDEX_SUFFIX),
    ],
)
def test_a_flush_that_was_refused_comes_again_by_itself(
    operation: str, path_end: str, error: int
) -> None:
    """The recovery point follows when files, or space, are available again."""
    world = World()
    log = world.open_log(CONFIG)
    log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0))
    append_values(log, b"more")
    log.durability.commit()
    log.delete_records(1)  # the epochs begin there from now on
    log.roll()  # a snapshot, and an unused segment
    world.disk.fail(operation, error=error, path_end=path_end)
    with pytest.raises((Overloaded, StorageFull)):
        log.durability.flush()
    assert not world.disk.forget_faults(), "it was not met"
    assert log.durability.is_flush_due
    assert not world.health.is_offline
    for _ in range(3):
        world.disk.remaining_files = 0
        with pytest.raises(Overloaded):
            log.durability.flush()
    assert world.scheduler.names == ["flush events-0"], "whoever repeats it adds no more to come"
    world.scheduler.advance(FLUSH_AGAIN_MS)
    assert log.durability.is_flush_due
    world.disk.remaining_files = UNLIMITED
    world.scheduler.advance(FLUSH_AGAIN_MS)
    assert log.durability.recovery_point == log.watermarks.log_end_offset
    assert (log.durability.needs_flush, world.scheduler.names) == (False, [])
    world.restart(power_cut=True)
    assert world.open_log(CONFIG).watermarks.log_end_offset == 2


def test_a_log_that_went_away_is_not_flushed_any_more() -> None:
    """The flush that was to come again finds it closed."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    log.roll()
    world.disk.remaining_files = 0
    with pytest.raises(Overloaded):
        log.durability.flush()
    log.maintenance.close_handles()
    changes = len(world.disk.changes)
    world.scheduler.advance(FLUSH_AGAIN_MS)
    assert (len(world.disk.changes), world.scheduler.names) == (changes, [])


@pytest.mark.parametrize(
    ("operation", "path_end", "error"),
    [
        ("open", names.TXN_INDEX_SUFFIX, errno.EMFILE),
        ("append", names.TXN_INDEX_SUFFIX, errno.ENOSPC),
        ("append", names.LOG_SUFFIX, errno.ENOSPC),
    ],
)
def test_an_abort_marker_is_refused_with_its_index_entry(
    operation: str, path_end: str, error: int
) -> None:
    """The entry comes before the marker, and goes if the marker cannot be written.

    The marker came first, and a full disk took the directory offline.
    """
    world = World()
    log = world.open_log(CONFIG)
    log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_values(log, b"other")
    abort = build_end_marker(
        ControlType.ABORT,
        producer_id=3,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=START_MS,
    )
    as_sent = bytes(abort)
    for _ in range(2):
        world.disk.fail(operation, error=error, path_end=path_end)
        with pytest.raises((Overloaded, StorageFull)):
            log.append(abort, origin=AppendOrigin.COORDINATOR)
        assert not world.disk.forget_faults(), "it was not met"
        assert bytes(abort) == as_sent
    assert log.watermarks.log_end_offset == 2
    assert [*log.reader.segments[0].indexes.transaction.entries()] == []
    log.append(abort, origin=AppendOrigin.COORDINATOR)
    log.durability.flush()
    committed = read_values(log, isolation=FetchIsolation.TXN_COMMITTED)
    assert committed == [b"other"]
    assert not world.health.is_offline


def test_an_index_entry_that_cannot_be_taken_back_takes_the_directory_offline() -> None:
    """Its marker is not in the log, and the next one of that offset could not be noted."""
    world = World()
    log = world.open_log(CONFIG)
    log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True))
    abort = build_end_marker(
        ControlType.ABORT,
        producer_id=3,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=START_MS,
    )
    world.disk.fail("append", error=errno.ENOSPC, path_end=names.LOG_SUFFIX)
    world.disk.fail("truncate", error=errno.ENOSPC, path_end=names.TXN_INDEX_SUFFIX)
    with pytest.raises(StorageOffline):
        log.append(abort, origin=AppendOrigin.COORDINATOR)
    assert log.watermarks.log_end_offset == 1
    world.restart(power_cut=False)
    log = world.open_log(CONFIG)
    log.append(abort, origin=AppendOrigin.COORDINATOR)
    assert [
        entry.last_offset for entry in log.reader.segments[0].indexes.transaction.entries()
    ] == [1]


def test_the_cleaner_gives_no_log_up_for_want_of_files() -> None:
    """It was skipped until a restart. It does not keep others from their retention either."""
    compacted = Compacted(
        overrides={"max.compaction.lag.ms": 1000, "cleanup.policy": "compact,delete"}
    )
    compacted.put(("a", "1"), ("a", "2"))
    compacted.seal()
    disk = compacted.world.disk
    for files in range(20):
        disk.remaining_files = files
        report = compacted.cleaner.run_pass()
        assert not compacted.manager.health.is_offline
        assert compacted.cleaner.uncleanable == {}
        if report is not None:
            break
    assert files > 3
    disk.remaining_files = UNLIMITED
    assert compacted.pairs() == [("a", "2")]


def test_retention_goes_on_with_the_logs_that_need_no_file() -> None:
    """Retention closes files; a log that could open none ended the pass for all later ones."""
    world = World()
    config = with_config(retention_ms=1, segment_bytes=100)
    logs = [world.open_log(config, log=TopicPartition("events", number)) for number in range(2)]
    for log in logs:
        fill(log, batches=3)
        log.durability.commit()
    world.clock.advance(10_000)
    world.disk.fail("open_directory", error=errno.EMFILE)
    assert run_retention_pass(logs) == 3
    assert [log.watermarks.log_start_offset for log in logs] == [0, 3]
    assert run_retention_pass(logs) == 3


def test_what_is_half_made_is_put_away_if_it_cannot_be_removed() -> None:
    """Removing it needs a descriptor to list it, renaming does not; then it is not in the way.

    A topic that was refused for lack of open files took the data directory offline.
    """
    world = World()
    manager = world.open_manager({"events": 1})
    world.disk.remaining_files = 5
    with pytest.raises(Overloaded):
        manager.create_topic("new", 1, {})
    assert not manager.health.is_offline
    with world.disk.looked_at():
        left = [name for name in world.disk.list_directory(DATA) if name.startswith("new-0")]
    assert [name.rpartition("-")[2] for name in left] == ["delete"]
    world.scheduler.advance(120_000)
    assert world.scheduler.names, "it is tried again"
    world.disk.remaining_files = UNLIMITED
    manager.create_topic("new", 1, {})
    world.scheduler.advance(120_000)
    assert not any(name.endswith("-delete") for name in world.disk.list_directory(DATA))
    assert sorted(manager.topics()) == ["events", "new"]


@pytest.mark.parametrize("files", [0, 2], ids=["no snapshot", "no checkpoint"])
def test_a_close_that_finds_no_file_lets_the_next_owner_in(files: int) -> None:
    """It raised and kept the lock; the next start recovers what was not written."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    values = fill(log, batches=2)
    log.durability.flush()
    world.disk.remaining_files = files
    manager.close()
    world.disk.remaining_files = UNLIMITED
    again = world.open_manager()
    assert read_values(again.log(EVENTS)) == values


@pytest.mark.parametrize("files", range(2))
def test_a_move_that_finds_no_file_to_begin_with_leaves_nothing(files: int) -> None:
    """Nothing is left that the next start would continue as a move."""
    world, manager, log, target = ready_to_move()
    world.disk.remaining_files = files
    with pytest.raises(Overloaded):
        manager.plan_move(EVENTS, target)
    assert manager.unfinished_moves() == {}
    world.disk.remaining_files = UNLIMITED
    manager.close()
    assert opened(world).unfinished_moves() == {}
    assert log.durability.health is not manager.data_directory(target)


def test_no_number_of_open_files_harms_a_real_disk(tmp_path: Path) -> None:
    """Each thing is done or refused, with any number of files left; afterwards nothing is lost."""
    with opened_on_disk(tmp_path) as manager:
        manager.create_topic("events", 1, {"segment.index.bytes": "4096"})
        log = manager.log(EVENTS)
        values = []
        for files in range(12):
            with open_files_left(files):
                for attempt in (
                    functools.partial(append_values, log, b"%d" % files),
                    log.durability.commit,
                    log.roll,
                    log.durability.flush,
                    functools.partial(manager.create_topic, f"topic-{files}", 1, {}),
                    functools.partial(manager.delete_topic, f"topic-{files - 1}"),
                    manager.checkpoint,
                ):
                    with suppress(Overloaded, TopicNotFound):
                        attempt()
            assert not log.durability.health.is_offline, files
            values = read_values(log, isolation=FetchIsolation.LOG_END)
            log.durability.commit()
        assert b"11" in values
        assert 2 < log.reader.segments_count < 12
    with opened_on_disk(tmp_path) as manager:
        assert read_values(manager.log(EVENTS)) == values
