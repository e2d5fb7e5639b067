"""Faults that the simulator found, each reduced to a few lines."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable

import pytest

from engine.errors import Overloaded, StorageFull, StorageOffline
from engine.fs import names
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.types import NO_TIMESTAMP, FetchIsolation
from tests.support.builders import DATA, EVENTS, World, new_batch, values_of
from tests.support.compaction import Compacted
from tests.support.filesystem import PowerCut
from tests.support.inodes import PAGE_BYTES
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    fill,
    log_path,
    read_records,
    read_values,
    with_config,
)
from tests.support.machine import Operation
from tests.support.segments import Shelf, batch_at
from tests.support.time import START_MS
from tests.unit.engine.manager.test_directories import A, B, opened

TRANSACTIONAL = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}


@pytest.mark.parametrize(
    ("error", "told"),
    [(errno.ENOSPC, StorageFull), (errno.EMFILE, Overloaded), (errno.EIO, StorageOffline)],
)
def test_an_index_that_cannot_be_opened_fails_the_append(error: int, told: type[Exception]) -> None:
    """The first append after a roll opens indexes; a failure there must be an engine error.

    It was a bare OSError, which took no directory offline.
    """
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    log.durability.commit()
    log.roll()
    world.disk.fail("open_index", error=error, path_end=names.INDEX_SUFFIXES[0])
    with pytest.raises(told):
        append_values(log, b"two")
    assert world.health.is_offline == (told is StorageOffline)
    assert read_values(log) == [b"one"]


def reopened(world: World, log: Log) -> Log:
    """Open the log as a clean stop left it, with indexes that have not been verified."""
    end = log.durability.flush()
    log.close()
    return world.open_uncommitted(CONFIG, recovery_point=end, was_clean=True)


@pytest.mark.parametrize("nth", [1, 2])
def test_nothing_undecided_is_shown_if_the_disk_fails_while_it_is_looked_for(nth: int) -> None:
    """The transaction of a snapshot is looked up in the log; if that fails, no reader continues.

    The append failed with a bare OSError, and the next commit showed undecided records.
    """
    world = World()
    log = world.open_log(CONFIG)
    log.append(values_of([b"undecided"], base_sequence=0, **TRANSACTIONAL))
    log = reopened(world, log)
    more = values_of([b"undecided, too"], base_sequence=1, **TRANSACTIONAL)
    world.disk.fail("read", nth=nth, path_end=names.LOG_SUFFIX)
    with pytest.raises(StorageOffline):
        log.append(more)
    with pytest.raises(StorageOffline):
        log.durability.commit()
    assert read_values(log, isolation=FetchIsolation.TXN_COMMITTED) == []


def test_pages_that_a_failed_sync_left_in_the_cache_are_not_served() -> None:
    """A process that starts after a failed sync only shows what is on the disk.

    The kernel keeps pages that it could not write and marks them clean. A start found them, showed
    them, and synced them without effect; the next power cut removed them, and every acknowledged
    record after them.
    """
    world = World()
    log = world.open_log(CONFIG)
    safe = fill(log, batches=3)
    log.durability.commit()
    append_values(log, b"x" * 5 * PAGE_BYTES)  # later writes do not make its pages dirty
    world.disk.fail("sync", path_end=names.LOG_SUFFIX)
    with pytest.raises(StorageOffline):
        log.durability.commit()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG)
    shown = read_values(again)
    assert shown[:3] == safe
    append_values(again, b"acknowledged")
    again.durability.commit()
    world.restart(power_cut=True)
    assert read_values(world.open_log(CONFIG)) == [*shown, b"acknowledged"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("nth", range(1, 40, 2))
def test_too_many_open_files_undo_a_topic_that_is_being_made(nth: int, error: int) -> None:
    """Whichever call fails, the topic exists or does not, now and later, and can be created again.

    The topics file kept it, its directories were in the way, and the next start opened it.
    """
    world = World()
    manager = world.open_manager()
    world.disk.fail("", nth=nth + (error == errno.ENOSPC), error=error)
    try:
        manager.create_topic("new", 2, {})
    except (Overloaded, StorageFull):
        assert "new" not in manager.topics()
        world.restart(power_cut=False)
        manager = world.open_manager()
        assert "new" not in manager.topics()
        manager.create_topic("new", 2, {})
    except StorageOffline:
        return  # some calls may not fail in that way
    assert manager.topic("new").partitions == 2


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_failure_after_the_rename_of_the_topics_file_is_undone(error: int) -> None:
    """The file has the topic already: it is written again without it."""
    world = World()
    manager = world.open_manager()
    world.disk.fail("sync_directory", error=error, path_end=str(DATA))
    with pytest.raises((Overloaded, StorageFull)):
        manager.create_topic("new", 1, {})
    world.restart(power_cut=False)
    assert "new" not in world.open_manager().topics()


def test_what_a_dead_process_renamed_is_durable_before_a_start_acts_upon_it() -> None:
    """The data directory is synced before partitions are created in it.

    A topics file whose rename was only cached was used, the partitions were created, and a power
    cut removed the name: they were adopted as a broker's, without their configuration.
    """
    world = World()
    manager = world.open_manager()
    with world.disk.power_cut_before(5), pytest.raises(PowerCut):
        manager.create_topic("new", 1, {})
    assert world.disk.changes[-1].name == "rename"
    world.restart(power_cut=False)
    before = len(world.disk.changes)
    world.open_manager()
    made = [change.name for change in world.disk.changes[before:] if change.path == DATA]
    assert made[0] == "sync_directory"
    names_of_changes = [change.name for change in world.disk.changes[before:]]
    assert names_of_changes.index("sync_directory") < names_of_changes.index("make_directory")


def test_a_swap_is_durable_step_by_step() -> None:
    """Between the renames of sources and replacement the directory is synced, both times.

    If renames survive in any order, a source came back beside its replacement: two segments with
    the same offsets. And a start that finished a swap removed the sources before the name of the
    replacement was durable.
    """
    compacted = Compacted()
    for number in range(3):
        compacted.put(("key", f"{number}"))
        compacted.seal()
    before = len(compacted.world.disk.changes)
    compacted.clean()
    seen = [kind_of(change) for change in compacted.world.disk.changes[before:]]
    steps = [kind for kind, _ in itertools.groupby(filter(None, seen))]
    begin = steps.index(names.CLEANED_SUFFIX)
    assert steps[begin : begin + 6] == [".cleaned", "sync", "source", "sync", ".swap", "sync"]


def kind_of(change: Operation) -> str:
    """Return the kind of a renamed file, or that the log's directory is synced, else None."""
    if change == ("sync_directory", DIRECTORY):
        return "sync"
    if change.name != "rename" or change.path.parent != DIRECTORY:
        return ""
    suffix = change.path.suffix
    return suffix if suffix in {names.CLEANED_SUFFIX, names.SWAP_SUFFIX} else "source"


def test_a_snapshot_that_finds_no_space_leaves_no_file() -> None:
    """A roll on a full disk can be tried again, and no empty snapshot passes for a damaged one."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    world.disk.fail("append", error=errno.ENOSPC, path_end=names.SNAPSHOT_SUFFIX)
    with pytest.raises(StorageFull):
        log.roll()
    found = world.disk.list_directory(DIRECTORY)
    assert [name for name in found if name.endswith(names.SNAPSHOT_SUFFIX)] == []
    assert append_values(log, b"two") == 1


def test_a_log_that_starts_inside_a_segment_can_be_moved() -> None:
    """The copy begins with the batch that holds the log start; nothing below it is requested.

    It requested the beginning of the segment, got the error that it is deleted, and never
    progressed.
    """
    world = World()
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 1, {})
    log = manager.log(EVENTS)
    here = log.directory.parent
    for _ in range(3):
        log.append(new_batch(3))
    log.durability.commit()
    log.delete_records(4)
    manager.move_partition(EVENTS, B if here == A else A)
    assert log.directory.parent != here
    assert [record.offset for record in read_records(log)] == [4, 5, 6, 7, 8]


def test_a_log_that_ends_after_its_last_batch_can_be_moved() -> None:
    """A truncation into a batch removes it whole; the copy also ends at the truncation offset.

    The move looked for those offsets for ever, under the lock of the log.
    """
    world = World()
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 1, {})
    log = manager.log(EVENTS)
    here = log.directory.parent
    log.append(new_batch(2))
    log.append(new_batch(4))
    assert manager.truncate(log, 3) == 3
    manager.move_partition(EVENTS, B if here == A else A)
    assert log.watermarks.log_end_offset == log.watermarks.high_watermark == 3
    assert log.append(new_batch()).base_offset == 3
    manager.close()
    world.restart(power_cut=True)
    log = opened(world).log(EVENTS)
    assert [record.offset for record in read_records(log)] == [0, 1, 3]
    assert log.durability.recovery.damage is None


@pytest.mark.parametrize("what", ["offset_for_time", "max_timestamp"])
@pytest.mark.parametrize(
    ("error", "told"), [(errno.EIO, StorageOffline), (errno.EMFILE, Overloaded)]
)
def test_a_read_that_fails_during_a_look_up_by_time_is_an_engine_error(
    what: str, error: int, told: type[Exception]
) -> None:
    """It is an engine error, as for every other read; it was a bare OSError."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    log.durability.commit()
    look_ups: dict[str, Callable[[], object]] = {
        "offset_for_time": lambda: log.reader.offset_for_time(0),
        "max_timestamp": log.reader.max_timestamp,
    }
    world.disk.fail("read", error=error)
    with pytest.raises(told):
        look_ups[what]()
    assert world.health.is_offline == (told is StorageOffline)


def test_a_sync_beside_one_that_fails_commits_nothing() -> None:
    """The kernel reports a failure only once: the next sync of the same file succeeds.

    Two commits synced in parallel, and the second one showed what was lost.
    """
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    told: list[BaseException | None] = []
    beside = threading.Thread(target=lambda: told.append(failure_of(log.durability.commit)))

    def begin_beside(operation: Operation) -> None:
        if operation.name == "sync":
            world.disk.meanwhile = None
            beside.start()
            beside.join(0.2)  # it waits, or it would be over by now and have met the failure

    world.disk.fail("sync")
    world.disk.meanwhile = begin_beside
    told.append(failure_of(log.durability.commit))
    beside.join()
    assert [type(one) for one in told] == [StorageOffline] * 2
    assert log.watermarks.high_watermark == 0


def failure_of(work: Callable[[], object]) -> BaseException | None:
    try:
        work()
    except StorageOffline as failure:
        return failure
    return None


def test_a_roll_for_an_append_that_is_a_repetition_is_flushed_too() -> None:
    """The repetition writes nothing, and the new segment is there: a stop left it half made."""
    world = World()
    log = world.open_log(CONFIG)
    log.append(new_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    log.maintenance.update_config(with_config(segment_bytes=100))
    log.durability.commit()
    again = new_batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert log.append(again).is_duplicate
    assert log.reader.segments_count == 2
    world.scheduler.run_due()
    assert log.durability.recovery_point == 1


def test_a_segment_that_nobody_wrote_to_has_all_its_indexes_after_a_stop() -> None:
    """A look-up makes one of them. While the other was missing, the next start rebuilt both."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    log.durability.flush()
    world.disk.fail("create", error=errno.EMFILE, path_end=names.SNAPSHOT_SUFFIX)
    with pytest.raises(Overloaded):
        log.roll()
    assert log.reader.segments[-1].locate(1) is None
    log.close()
    found = world.disk.list_directory(DIRECTORY)
    assert {names.log_name(1), names.index_name(1), names.time_index_name(1)} <= {*found}


def test_an_append_that_may_not_open_an_index_leaves_no_bytes() -> None:
    """A refused append is not in the file, or the next append would have the same offsets after it.

    In a segment with an open offset index and a closed time index, the second one was opened after
    the bytes were written.
    """
    shelf = Shelf()
    shelf.segment().append(batch_at(0), 0, START_MS, 0)
    segment = shelf.segment(is_new=False)
    large = batch_at(1, b"x" * (segment.index_interval_bytes + 1))
    segment.append(large, 1, START_MS + 1, 1)
    size_bytes = segment.size_bytes
    shelf.disk.fail("open_index", error=errno.EMFILE, path_end=names.TIME_INDEX_SUFFIX)
    with pytest.raises(OSError, match="Too many open files"):
        segment.append(batch_at(2), 2, START_MS + 2, 2)
    assert segment.size_bytes == size_bytes
    segment.append(batch_at(2), 2, START_MS + 2, 2)
    assert [header.base_offset for _, header in segment.headers()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "told"), [(errno.EIO, StorageOffline), (errno.EMFILE, Overloaded)]
)
def test_a_file_that_cannot_be_looked_at_is_reported_to_retention(
    error: int, told: type[Exception]
) -> None:
    """Without record times, retention uses the time of the file; a failure was a bare OSError."""
    world = World()
    log = world.open_log(with_config(retention_ms=1))
    log.append(build_batch([(NO_TIMESTAMP, b"key", b"value", ())]))
    log.roll()
    log.durability.commit()
    world.clock.advance(10)
    world.disk.fail("look", error=error)
    with pytest.raises(told):
        log.maintenance.run_retention()
    assert world.health.is_offline == (told is StorageOffline)


def test_an_index_of_what_was_cut_away_is_no_sign_of_a_loss() -> None:
    """A log cut inside a batch continues in another segment.

    The indexes of the previous one are synced. After a power cut an old index pointed past the cut,
    and a compacted log was reported as damaged.
    """
    world = World()
    config = with_config(cleanup_policy=("compact",), index_interval_bytes=1)
    log = world.open_log(config)
    for _ in range(3):
        log.append(new_batch(2))
    log.roll()
    log.durability.flush()
    log.truncate_to(3)
    world.restart(power_cut=True)
    log = world.open_log(config, recovery_point=3)
    assert log.durability.recovery.damage is None
    assert log.watermarks.log_end_offset == 3
    assert len(read_values(log)) == 2


def test_a_full_index_is_trimmed_to_the_cut_before_it_is_synced() -> None:
    """The entry of a cut batch is removed from the file, or it would be the last one."""
    world = World()
    config = with_config(
        cleanup_policy=("compact",), index_interval_bytes=1, segment_index_bytes=36
    )
    log = world.open_log(config)
    for _ in range(5):  # the first one needs no entry, and four fill the index
        log.append(new_batch(2))
    log.durability.flush()
    log.truncate_to(9)
    world.restart(power_cut=True)
    log = world.open_log(config, recovery_point=9)
    assert log.durability.recovery.damage is None
    assert log.watermarks.log_end_offset == 9


def test_a_lock_file_that_cannot_be_removed_does_not_stop_a_stop() -> None:
    """All is on the disk by then; a bare OSError came of it, and the other lock stayed held."""
    world = World()
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 1, {})
    world.disk.fail("remove", path_end=names.LOCK_FILE)
    manager.close()
    again = opened(world)
    assert [directory.is_offline for directory in again.directories] == [False, False]
    assert again.log(EVENTS).durability.recovery.was_clean


def test_a_log_that_expires_as_a_whole_keeps_its_end() -> None:
    """The name of the remaining segment is on disk before the others are renamed.

    A power cut kept only the renames: the log began at 0 again, and assigned offsets that readers
    had seen.
    """
    world = World()
    log = world.open_log(with_config(retention_ms=1))
    append_values(log, b"one", b"two")
    log.durability.flush()
    world.clock.advance(10)
    before = len(world.disk.changes)
    assert [one.next_offset for one in log.maintenance.run_retention()] == [2]
    changes = world.disk.changes[before:]
    begun = changes.index(Operation("create", log_path(2)))
    synced = changes.index(Operation("sync_directory", DIRECTORY))
    removed = changes.index(Operation("rename", log_path(0)))
    assert begun < synced < removed
