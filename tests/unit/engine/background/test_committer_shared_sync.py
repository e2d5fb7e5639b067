"""One sync for many logs: when it is chosen, what it covers, and the effect of a failure."""

import errno

import pytest

from engine.background.committer import (
    LOOK_AGAIN,
    LOOK_AGAIN_AT_MOST,
    Committer,
    SyncChoice,
    commit_together,
)
from engine.config import EngineConfig
from engine.errors import StorageOffline
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.machine import Operation
from tests.unit.engine.background.listeners import Listener
from tests.unit.engine.manager.test_directories import A, B, opened

LOGS = 3


def chosen(choice: SyncChoice, rounds: int, logs_count: int = LOGS) -> list[bool]:
    return [choice.is_shared(logs_count) for _ in range(rounds)]


def choice_of(*, each_seconds: float, shared_seconds: float) -> SyncChoice:
    choice = SyncChoice()
    choice.note_each(LOGS, LOGS * each_seconds)
    choice.note_shared(shared_seconds)
    return choice


def test_both_ways_are_tried_before_they_are_compared() -> None:
    """An untried way has no known cost."""
    choice = SyncChoice()
    assert not choice.is_shared(LOGS)
    choice.note_each(LOGS, 0.003)
    assert choice.is_shared(LOGS)


def test_the_cheaper_way_depends_on_the_number_of_logs() -> None:
    """Each log costs its own sync; the shared one costs the same for all."""
    choice = choice_of(each_seconds=0.001, shared_seconds=0.003)
    assert [choice.is_shared(count) for count in (2, 3, 64)] == [False, True, True]


@pytest.mark.parametrize("is_cheaper", [False, True])
def test_the_dearer_way_is_tried_more_and_more_seldom(*, is_cheaper: bool) -> None:
    """Its cost may have changed; but a try may cost a second if another program writes a lot."""
    choice = choice_of(each_seconds=0.001, shared_seconds=0.001 if is_cheaper else 9)
    interval = LOOK_AGAIN
    for _ in range(8):
        assert chosen(choice, interval) == [is_cheaper] * (interval - 1) + [not is_cheaper]
        interval = min(2 * interval, LOOK_AGAIN_AT_MOST)
    assert interval == LOOK_AGAIN_AT_MOST


def test_a_sync_that_other_programs_make_slow_is_given_up() -> None:
    """One slow round is enough."""
    choice = choice_of(each_seconds=0.001, shared_seconds=0.001)
    assert choice.is_shared(LOGS)
    choice.note_shared(1.0)
    assert not choice.is_shared(LOGS)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def manager(world: World) -> LogManager:
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 2 * LOGS, {})
    return manager


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def committer(world: World, listener: Listener) -> Committer:
    return Committer(EngineConfig(), world.clock, listener.committed, listener.failed)


def logs_in_one_directory(manager: LogManager) -> list[Log]:
    logs = [manager.log(TopicPartition(EVENTS.topic, number)) for number in range(2 * LOGS)]
    return [log for log in logs if log.directory.parent == A]


def synced(world: World, since: int) -> list[str]:
    """Return the syncs on the disk since then, by kind and name."""
    return [
        f"{change.name} {change.path.name}"
        for change in world.disk.changes[since:]
        if change.name.startswith("sync")
    ]


def run_round(world: World, committer: Committer, logs: list[Log]) -> list[str]:
    for log in logs:
        committer.append(log, new_batch(), acks_all=True)
    before = len(world.disk.changes)
    assert committer.run_round()
    return synced(world, before)


def test_the_second_round_of_several_logs_syncs_once(
    world: World, manager: LogManager, committer: Committer, listener: Listener
) -> None:
    """The first round measures a sync of each log. Both rounds survive a power cut."""
    logs = logs_in_one_directory(manager)
    assert len(logs) == LOGS
    assert run_round(world, committer, logs) == ["sync 00000000000000000000.log"] * LOGS
    assert run_round(world, committer, logs) == ["sync_file_system a"]
    assert listener.rounds == [[(log, end) for log in logs] for end in (1, 2)]
    world.restart(power_cut=True)
    found = opened(world)
    assert [found.log(log.topic_partition).watermarks.high_watermark for log in logs] == [2] * LOGS


def test_the_names_of_new_segments_survive_a_power_cut_with_what_is_in_them(
    world: World, manager: LogManager, committer: Committer
) -> None:
    """The directories of the partitions are not synced for it."""
    logs = logs_in_one_directory(manager)
    run_round(world, committer, logs)
    for log in logs:
        log.roll()
    assert run_round(world, committer, logs) == ["sync_file_system a"]
    world.restart(power_cut=True)
    found = opened(world)
    assert [found.log(log.topic_partition).watermarks.high_watermark for log in logs] == [2] * LOGS


def test_a_preallocated_log_is_synced_by_itself(
    world: World, manager: LogManager, committer: Committer
) -> None:
    """An append inside a file's length changes no metadata, and XFS flushes no disk for it."""
    manager.create_topic("reserved", LOGS, {"preallocate": "true", "segment.bytes": "4000"})
    logs = [manager.log(TopicPartition("reserved", number)) for number in range(LOGS)]
    *_, log = (one for one in logs if one.directory.parent == A)
    others = logs_in_one_directory(manager)
    run_round(world, committer, others)
    seen = run_round(world, committer, [*others, log])
    assert seen == ["sync 00000000000000000000.log", "sync_file_system a"]
    world.restart(power_cut=True)
    assert opened(world).log(log.topic_partition).watermarks.high_watermark == 1


def test_a_mount_inside_the_directory_is_synced_by_itself(
    world: World, manager: LogManager, committer: Committer
) -> None:
    """It is another file system, which the sync of the directory's does not reach."""
    logs = logs_in_one_directory(manager)
    run_round(world, committer, logs)
    mounted = logs[1]
    manager.close()
    world.disk.mount(mounted.directory)
    found = opened(world)
    again = [found.log(log.topic_partition) for log in logs]
    for log in again:
        log.append(new_batch())
    before = len(world.disk.changes)
    outcomes, _ = commit_together(again[0].durability.health, again)
    assert sorted(outcomes, key=lambda one: one[0].topic_partition) == [(log, 2) for log in again]
    assert synced(world, before) == ["sync 00000000000000000000.log", "sync_file_system a"]


def test_one_log_and_the_logs_of_another_directory_are_synced_as_ever(
    world: World, manager: LogManager, committer: Committer
) -> None:
    """A shared sync is for several logs of one data directory."""
    logs = logs_in_one_directory(manager)
    other = next(
        log
        for number in range(2 * LOGS)
        if (log := manager.log(TopicPartition(EVENTS.topic, number))).directory.parent == B
    )
    run_round(world, committer, [*logs, other])
    seen = run_round(world, committer, [*logs, other])
    assert sorted(seen) == ["sync 00000000000000000000.log", "sync_file_system a"]
    assert run_round(world, committer, logs[:1]) == ["sync 00000000000000000000.log"]


def test_a_failed_sync_of_the_file_system_shows_nothing_and_ends_all_writes(
    world: World, manager: LogManager, committer: Committer, listener: Listener
) -> None:
    """The kernel reports it once: a second sync would succeed and cover nothing."""
    logs = logs_in_one_directory(manager)
    run_round(world, committer, logs)
    world.disk.fail("sync_file_system", error=errno.EIO)
    run_round(world, committer, logs)
    assert listener.rounds == [[(log, 1) for log in logs]]
    assert [one for ones, _ in listener.failures for one in ones] == logs
    assert {type(error) for _, error in listener.failures} == {StorageOffline}
    for log in logs:
        assert log.watermarks.high_watermark == 1
        with pytest.raises(StorageOffline):
            committer.append(log, new_batch(), acks_all=True)
    world.restart(power_cut=True)
    found = opened(world)
    assert [found.log(log.topic_partition).watermarks.log_end_offset for log in logs] == [1] * LOGS


def test_a_closed_log_fails_alone(
    world: World, manager: LogManager, committer: Committer, listener: Listener
) -> None:
    """The other logs of the round are committed."""
    logs = logs_in_one_directory(manager)
    run_round(world, committer, logs)
    for log in logs:
        committer.append(log, new_batch(), acks_all=True)
    logs[1].maintenance.close_handles()
    assert committer.run_round()
    assert listener.rounds[1] == [(log, 2) for log in (logs[0], logs[2])]
    assert [ones for ones, _ in listener.failures] == [[logs[1]]]


def test_a_log_that_has_moved_away_is_synced_where_it_is(world: World, manager: LogManager) -> None:
    """The flusher had counted it among the logs of the directory that it left."""
    first, second, third = logs_in_one_directory(manager)
    left = first.durability.health
    for log in (first, second):
        log.append(new_batch())
    manager.move_partition(second.topic_partition, B)
    second.append(new_batch())
    before = len(world.disk.changes)
    outcomes, seconds = commit_together(left, [first, second, third])
    assert outcomes == [(second, 2), (first, 1), (third, 0)]
    assert seconds >= 0
    assert synced(world, before) == ["sync 00000000000000000000.log", "sync_file_system a"]


def test_a_truncation_during_the_sync_leaves_nothing_visible_that_it_removed(
    world: World, manager: LogManager
) -> None:
    """The high watermark of that log stays where the truncation put it."""
    first, second, _ = logs_in_one_directory(manager)
    for log in (first, second):
        log.append(new_batch(2))

    def truncate(operation: Operation) -> None:
        if operation.name == "sync_file_system":
            second.truncate_to(0)

    world.disk.meanwhile = truncate
    outcomes, _ = commit_together(first.durability.health, [first, second])
    assert outcomes == [(first, 2), (second, 0)]


class BrokenRecorder(NullRecorder):
    """A recorder that breaks its promise never to raise, for one log."""

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        if log.partition == 0:
            raise RuntimeError(f"cannot count {log} after {duration_ms} ms")


def test_an_unexpected_error_after_the_sync_is_the_outcome_of_its_log_alone() -> None:
    """The other logs of the round are committed."""
    manager = opened(World(recorder=BrokenRecorder()), A)
    manager.create_topic(EVENTS.topic, 2, {})
    logs = [manager.log(TopicPartition(EVENTS.topic, number)) for number in range(2)]
    for log in logs:
        log.append(new_batch())
    outcomes, _ = commit_together(logs[0].durability.health, logs)
    assert isinstance(outcomes[0][1], RuntimeError)
    assert outcomes[1] == (logs[1], 1)
