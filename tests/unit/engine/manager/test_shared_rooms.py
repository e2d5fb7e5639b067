"""What all logs hold together has limits: sealed segments, and producers.

A limit for each partition is none for a client that may make partitions.
"""

from dataclasses import replace
from typing import Any

import pytest

from engine.errors import Overloaded
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.manager.shared_rooms import RECOUNT_DELAY_MS
from engine.types import TopicPartition
from tests.support.builders import SMALL_INDEXES, World, new_batch

PARTITIONS = 3


def opened(world: World, **limits: int) -> tuple[LogManager, list[Log]]:
    """A manager with such limits, and the logs of a topic."""
    world.config = replace(world.config, **limits)  # type: ignore[arg-type]  # all are numbers
    manager = world.open_manager()
    manager.create_topic("events", PARTITIONS, dict(SMALL_INDEXES))
    return manager, [manager.log(TopicPartition("events", one)) for one in range(PARTITIONS)]


def write(log: Log, producer_id: int, sequence: int = 0, **options: Any) -> None:
    log.append(
        new_batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)
    )


def refusal_of(log: Log, producer_id: int) -> object:
    with pytest.raises(Overloaded) as refused:
        write(log, producer_id)
    return refused.value.facts()["limit"]


def known(logs: list[Log]) -> list[set[int]]:
    return [{entry.producer_id for entry in log.producers.active()} for log in logs]


def test_the_producers_idle_for_longest_go_first_in_whatever_log() -> None:
    """Invented ids in one partition expire the oldest ids of all logs, and no others."""
    world = World()
    _, logs = opened(world, max_producers=20)
    for number in range(10):
        world.clock.advance(1)
        write(logs[0], number)
    world.clock.advance(1)
    write(logs[1], 100)
    for number in range(200, 209):
        world.clock.advance(1)
        write(logs[2], number)
    assert sum(map(len, known(logs))) == 20
    assert refusal_of(logs[2], 300) == "max_producers"
    assert refusal_of(logs[1], 300) == "max_producers"
    write(logs[0], 9, sequence=1)  # already known
    world.scheduler.advance(RECOUNT_DELAY_MS)
    assert known(logs) == [set(range(2, 10)), {100}, set(range(200, 209))]
    write(logs[1], 300)
    assert known(logs)[1] == {100, 300}


def test_a_producer_with_an_open_transaction_is_not_forgotten_for_others() -> None:
    """Its marker would find nothing to end, however long it has been idle."""
    world = World()
    _, logs = opened(world, max_producers=10)
    write(logs[0], 1, is_transactional=True)
    for number in range(2, 11):
        world.clock.advance(1)
        write(logs[1], number)
    world.scheduler.advance(RECOUNT_DELAY_MS)
    assert known(logs)[0] == {1}


def test_producers_beyond_the_limit_go_at_a_start() -> None:
    """The limit may have been lowered since."""
    world = World()
    manager, logs = opened(world)
    for number in range(PARTITIONS * 10):
        world.clock.advance(1)
        write(logs[number % PARTITIONS], number)
    manager.close()
    world.config = replace(world.config, max_producers=10)
    manager = world.open_manager()
    assert sum(len(log.producers.active()) for log in manager.logs()) <= 9


def test_all_logs_together_have_so_many_sealed_segments() -> None:
    """The next roll is refused in every log, and succeeds soon after some are gone."""
    world = World()
    _, logs = opened(world, max_sealed_segments=4)
    for log in logs[:2]:
        for _ in range(2):
            log.append(new_batch())
            log.roll()
    for log in logs:
        log.append(new_batch())
        with pytest.raises(Overloaded) as refused:
            log.roll()
        assert refused.value.facts()["limit"] == "max_sealed_segments"
    logs[0].durability.commit()
    logs[0].delete_records(2)
    logs[0].maintenance.run_retention()
    world.scheduler.advance(RECOUNT_DELAY_MS)
    logs[2].roll()
    assert [log.reader.segments_count for log in logs] == [1, 3, 2]
