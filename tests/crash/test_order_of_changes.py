"""What must be on disk before what.

In each case another order was used until a power cut showed why. These tests check the order of
changes that reach the disk. `tests.crash.test_every_step` checks the results of cuts between them;
it finds a wrong order only by chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.config import LogConfig
from engine.fs import names
from engine.log.log import Log
from engine.segment.segment import Segment
from engine.tools.repair import carry_out, plan_repair
from tests.crash.test_found_by_simulation import kind_of
from tests.crash.test_indexes_made_anew import new_copy
from tests.crash.test_split import COMPACTED, overflowed
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.compaction import Compacted
from tests.support.damage import PARTITION, zero_filled
from tests.support.filesystem import PowerCut
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    fill,
    log_path,
    read_headers,
    read_records,
    with_config,
)
from tests.support.machine import Operation
from tests.unit.engine.manager.test_directories import A, B, opened

EPOCHS = DIRECTORY / (names.LEADER_EPOCH_CHECKPOINT + names.TEMPORARY_SUFFIX)
TOPICS = names.TOPICS_FILE + names.TEMPORARY_SUFFIX


def changes_of(world: World, work: Callable[[], object]) -> list[Operation]:
    """Return the changes of the disk by `work`."""
    before = len(world.disk.changes)
    work()
    return world.disk.changes[before:]


def killed_before(world: World, last: Operation, work: Callable[[], object]) -> None:
    """Have the process die before it does this."""

    def die(operation: Operation) -> None:
        if operation == last:
            raise PowerCut

    world.disk.meanwhile = die
    with pytest.raises(PowerCut):
        work()
    world.disk.meanwhile = None
    world.restart(power_cut=False)


def between(changes: list[Operation], first: Operation, last: Operation) -> list[Operation]:
    """Return what happens after the one, and before the next of the other."""
    begin = changes.index(first) + 1
    return changes[begin : changes.index(last, begin)]


def test_a_start_finishes_a_swap_step_by_step() -> None:
    """The outputs' names are durable before the sources go, and those are gone before it ends.

    Either order left two segments with the same offsets, or none.
    """
    compacted = Compacted()
    world = compacted.world
    for number in range(3):
        compacted.put(("key", f"{number}"))
        compacted.seal()
    killed_before(world, Operation("rename", log_path(0)), compacted.clean)
    kinds: list[str] = []
    for change in changes_of(world, compacted.open):
        if change == ("sync_directory", DIRECTORY):
            kinds.append("sync")
        elif change.path.parent == DIRECTORY and change.name in {"remove", "rename"}:
            kinds.append(f"{change.name}{'' if change.name == 'remove' else change.path.suffix}")
    steps = [kind for kind, _ in itertools.groupby(kinds)]
    assert steps[:5] == ["sync", "remove", "sync", "rename.swap", "sync"]


def test_a_split_is_durable_step_by_step() -> None:
    """As in a swap: the split segment is removed before its parts get their names."""
    world = overflowed()
    seen = [kind_of(change) for change in changes_of(world, lambda: world.open_log(COMPACTED))]
    steps = [kind for kind, _ in itertools.groupby(filter(None, seen))]
    begin = steps.index(names.CLEANED_SUFFIX)
    assert steps[begin : begin + 6] == [".cleaned", "sync", "source", "sync", ".swap", "sync"]


def test_a_rebuild_removes_the_time_index_first_and_names_it_last() -> None:
    """It is durably gone before the others go, and comes back once all are durable.

    A start that finds it believes the index of transactions, whole or not.
    """
    filled = new_copy()
    paths = {suffix: PARTITION / f"{30:020d}{suffix}" for suffix in names.INDEX_SUFFIXES}
    times, aborts = paths[names.TIME_INDEX_SUFFIX], paths[names.TXN_INDEX_SUFFIX]
    unfinished = times.with_name(times.name + names.TEMPORARY_SUFFIX)
    filled.damage(paths[names.INDEX_SUFFIX], zero_filled)
    filled.world.disk.sync_everything()
    filled.world.restart(power_cut=False)
    changes = changes_of(filled.world, filled.world.open_manager)
    sync = Operation("sync_directory", PARTITION)
    assert sync in between(changes, Operation("remove", times), Operation("remove", aborts))
    named = Operation("rename", unfinished)
    for path in (paths[names.INDEX_SUFFIX], aborts, unfinished):
        made = between(changes, Operation("create", path), named)
        assert Operation("sync", path) in made
        assert sync in made


def test_a_repair_removes_indexes_of_transactions_durably_after_the_others() -> None:
    """A start that finds the others believes that no transaction was aborted."""
    filled = new_copy()
    sparse, aborts = (PARTITION / f"{30:020d}{suffix}" for suffix in (".index", ".txnindex"))
    for path in (sparse, aborts):
        filled.damage(path, zero_filled)
    filled.world.restart(power_cut=False)
    disk = filled.world.disk
    plan = plan_repair(disk, DATA)
    changes = changes_of(filled.world, lambda: carry_out(disk, DATA, plan))
    removals = [Operation("remove", path) for path in (sparse, aborts)]
    assert Operation("sync_directory", PARTITION) in between(changes, *removals)


def test_what_a_truncation_cuts_is_gone_before_its_epoch_begins() -> None:
    """Otherwise a power cut left records of the older epoch after the start of the new one."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=6)
    log.durability.flush()
    changes = changes_of(world, lambda: log.truncate_to(3))
    cut = between(changes, Operation("truncate", log_path(0)), Operation("rename", EPOCHS))
    assert Operation("sync", log_path(0)) in cut
    assert Operation("sync_directory", DIRECTORY) in cut


def test_what_a_log_that_begins_anew_had_is_gone_before_its_epoch_begins() -> None:
    """As above, where no segment stays."""
    world = World()
    log = world.open_log(CONFIG, log_start_offset=9)
    fill(log, batches=6)
    log.durability.flush()
    changes = changes_of(world, lambda: log.truncate_to(4))
    begun = between(changes, Operation("create", log_path(4)), Operation("rename", EPOCHS))
    assert Operation("sync_directory", DIRECTORY) in begun


def test_a_log_that_begins_anew_loses_its_last_segment_first() -> None:
    """Each durably before the one below it, or a power cut left a hole."""
    world = World()
    log = world.open_log(CONFIG, log_start_offset=9)
    for _ in range(3):
        log.append(new_batch())
        log.roll()
    log.durability.flush()
    changes = changes_of(world, lambda: log.truncate_to(4))
    for base in (11, 10):
        last, below = (Operation("rename", log_path(number)) for number in (base, base - 1))
        assert Operation("sync_directory", DIRECTORY) in between(changes, last, below)


def test_all_directories_know_of_a_topic_before_a_start_makes_its_partitions() -> None:
    """A directory with a partition of an unknown topic would adopt it as a broker's."""
    world = World()
    manager = opened(world)
    killed_before(
        world, Operation("rename", B / TOPICS), lambda: manager.create_topic("new", 1, {})
    )
    changes = changes_of(world, lambda: opened(world))
    made: list[Path] = [change.path for change in changes if change.name == "make_directory"]
    assert made in ([A / "new-0"], [B / "new-0"])
    first = changes.index(Operation("make_directory", made[0]))
    assert changes.index(Operation("rename", B / TOPICS)) < first


def cut_amid_a_truncation(offset: int, step: int, random: Random) -> Log | None:
    """Return what the next start finds; None if the truncation ended before the step."""
    world = World()
    config = with_config(cleanup_policy=("compact",))
    log = world.open_log(config)
    for count in (2, 3, 2):
        log.append(new_batch(count))
        log.roll()
    log.durability.flush()
    try:
        with world.disk.power_cut_before(step):
            log.truncate_to(offset)
    except PowerCut:
        world.disk.restart(random=random)
        return world.open_log(config)
    return None


@pytest.mark.parametrize("offset", [0, 1, 3], ids=["all", "one segment", "two"])
def test_a_truncation_leaves_a_beginning_of_the_log(offset: int) -> None:
    """Each segment is removed durably before the one below it, and before that one is cut.

    A power cut restored the name of the last one after the removed ones.
    """
    random = Random(offset)
    for step in itertools.count(1):
        found = cut_amid_a_truncation(offset, step, random)
        if found is None:
            break
        end = 0
        for header in read_headers(found):
            assert header.base_offset == end, step
            end = header.last_offset + 1
        assert found.watermarks.log_end_offset in {end, offset}, step
    assert step > 30


def offsets_after_a_power_cut(world: World, config: LogConfig, recovery_point: int) -> list[int]:
    """Return what is left if the kernel has only written back the last segment."""
    world.disk.sync_directory(DIRECTORY)
    name = [path for path in world.disk.list_directory(DIRECTORY) if path.endswith(".log")][-1]
    with world.disk.open(DIRECTORY / name) as last:
        last.sync()
    world.restart(power_cut=True)
    found = world.open_log(config, recovery_point=recovery_point)
    return [record.offset for record in read_records(found)]


@pytest.mark.parametrize(("policy", "left"), [("compact", 3), ("delete", 1)])
def test_a_power_cut_takes_the_end_of_a_log_and_leaves_no_hole(policy: str, left: int) -> None:
    """A segment must not survive the end of the previous one, even if nothing of it was committed.

    In a compacted log a lost end looks like a gap that the cleaner left, so the end is on disk
    before the next segment exists.
    """
    world = World()
    config = with_config(cleanup_policy=(policy,))
    log = world.open_log(config)
    log.append(new_batch())
    log.durability.flush()
    recovery_point = log.durability.recovery_point
    log.append(new_batch())
    log.roll()
    log.append(new_batch())
    assert offsets_after_a_power_cut(world, config, recovery_point) == [*range(left)]


def test_a_log_that_is_to_be_compacted_has_no_hole_in_what_it_had_before() -> None:
    """Its segments are on disk before the change that allows gaps.

    It gets no gap either if compaction is switched off: the topics file keeps the fact.
    """
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(new_batch())
    log.durability.flush()
    recovery_point = log.durability.recovery_point
    for policy in ("compact", "delete"):
        log.append(new_batch())
        log.roll()
        log.append(new_batch())
        change = partial(manager.update_topic, "events", {"cleanup.policy": policy})
        changes = changes_of(world, change)
        syncs = [*map(changes.index, ({*changes} & {*map(sync_of, log.reader.segments)}))]
        if policy == "compact":
            assert len(syncs) == 2
            assert max(syncs) < changes.index(Operation("rename", DATA / TOPICS))
    log.append(new_batch())
    log.roll()
    log.append(new_batch())
    config = with_config(cleanup_policy=("compact",))
    assert offsets_after_a_power_cut(world, config, recovery_point) == [*range(7)]


def sync_of(segment: Segment) -> Operation:
    return Operation("sync", segment.records.path)


def noted_offset(world: World, name: str) -> int:
    return OffsetCheckpoint(world.fs, DATA / name).read().get(EVENTS, 0)


def test_a_log_start_is_on_disk_before_the_recovery_point_that_it_raised() -> None:
    """Otherwise a start shows deleted records, and believes indexes that were never synced."""
    noted: list[tuple[int, int]] = []
    for change in itertools.count(1):
        world = World()
        manager = world.open_manager({"events": 1})
        log = manager.log(EVENTS)
        log.append(new_batch(4))
        log.durability.commit()
        log.delete_records(-1)
        with world.disk.power_cut_before(change), suppress(PowerCut):
            manager.checkpoint()
            break
        world.restart(power_cut=True)
        start = noted_offset(world, names.LOG_START_CHECKPOINT)
        noted.append((start, noted_offset(world, names.RECOVERY_POINT_CHECKPOINT)))
    assert set(noted) == {(0, 0), (4, 0), (4, 4)}


EXPIRING = with_config(retention_ms=1, segment_bytes=100)


def of_old_segments(count: int, *, expiring: int) -> tuple[World, Log]:
    """A flushed log of a number of segments with one record each; the oldest of them expire."""
    world = World()
    log = world.open_log(EXPIRING)
    for number in range(count):
        if number == expiring:
            world.clock.advance(10_000)
        log.append(new_batch(timestamp=world.clock.now_ms()))
        log.roll()
    log.durability.flush()
    if expiring == count:
        world.clock.advance(10_000)
    return world, log


@pytest.mark.parametrize("expiring", [1, 2, 9])
def test_a_removal_syncs_the_directory_as_often_for_many_segments_as_for_two(expiring: int) -> None:
    """Each segment needed its own sync."""
    world, log = of_old_segments(12, expiring=expiring)
    changes = changes_of(world, log.maintenance.run_retention)
    syncs = [change for change in changes if change == ("sync_directory", DIRECTORY)]
    assert len(log.reader.segments) == 12 - expiring + 1
    assert len(syncs) == (2 if expiring == 1 else 3)


@pytest.mark.parametrize("expiring", [3, 5])
@pytest.mark.parametrize("is_powerless", [True, False], ids=["power cut", "kill"])
def test_a_removal_that_is_interrupted_leaves_no_hole(expiring: int, *, is_powerless: bool) -> None:
    """Whichever names it leaves, the next start finishes the removal, or finds none begun.

    So it does if it is interrupted itself, and if the checkpoints are lost.
    """
    random = Random(expiring)
    starts = set()
    for step in itertools.count(1):
        world, log = of_old_segments(5, expiring=expiring)
        try:
            with world.disk.power_cut_before(step):
                log.maintenance.run_retention()
            break
        except PowerCut:
            world.disk.restart(power_cut=is_powerless, random=random)
        with suppress(PowerCut), world.disk.power_cut_before(random.randint(1, 12)):
            world.open_log(EXPIRING, recovery_point=5)
        world.disk.restart(power_cut=is_powerless, random=random)
        world.restart(power_cut=False)
        found = world.open_log(EXPIRING)
        offsets = [record.offset for record in read_records(found)]
        assert offsets == [*range(5)][found.watermarks.log_start_offset :], step
        assert found.watermarks.log_end_offset == 5
        assert found.durability.recovery.damage is None
        assert not any(names.is_leftover(name) for name in world.disk.list_directory(DIRECTORY))
        starts.add(found.watermarks.log_start_offset)
    assert starts == {0, expiring}
    assert step > 3 * expiring


def test_a_start_finishes_a_removal_durably_before_the_names_that_say_so_go() -> None:
    """Otherwise a power cut restores a segment, and nothing shows that it was to be removed."""
    world, log = of_old_segments(5, expiring=4)
    marked = Operation("rename", log_path(1))
    killed_before(world, marked, log.maintenance.run_retention)
    changes = changes_of(world, lambda: world.open_log(EXPIRING))
    removed = [one for one in changes if one.name == "remove" and one.path.parent == DIRECTORY]
    marks = [one for one in removed if names.removal_end(one.path.name) is not None]
    first = changes.index(marks[0])
    before = [one for one in removed if changes.index(one) < first and one.path.suffix == ".log"]
    assert len(before) == 3
    sync = Operation("sync_directory", DIRECTORY)
    assert sync in between(changes, before[-1], marks[0])
