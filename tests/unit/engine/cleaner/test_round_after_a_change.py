"""A log that moves or is truncated after the cleaner has selected it, before its round begins.

The range was selected from other segments than the round then read: a healthy log counted as
damaged, and was not compacted until the next start.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.cleaner.cleaner import LogCleaner
from engine.config import CleanerConfig
from engine.log.log import Log
from engine.log.maintenance import Compaction, Maintenance
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.topic_values import ConfigValue
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.unit.engine.manager.test_directories import B, opened

COMPACTED: dict[str, ConfigValue] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "retention.ms": -1,
}


class DamageCount(NullRecorder):
    """Counts the damage that was reported."""

    def __init__(self) -> None:
        self.count = 0

    def corrupt_data_found(self, log: TopicPartition) -> None:
        self.count += 1


def put(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(new_batch())
    log.durability.commit()


def move(manager: LogManager) -> None:
    manager.move_partition(EVENTS, B)


def truncate_and_go_on(manager: LogManager) -> None:
    log = manager.log(EVENTS)
    manager.truncate(log, 12)
    put(log, 20)
    log.roll()
    put(log, 1)


@pytest.mark.parametrize("change", [move, truncate_and_go_on])
def test_a_log_that_changes_before_its_round_is_cleaned_as_it_is_then(
    change: Callable[[LogManager], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record of its only key stays in the sealed segments; after the move none is sealed."""
    damage = DamageCount()
    world = World(recorder=damage)
    manager = opened(world)
    manager.create_topic(EVENTS.topic, 1, COMPACTED)
    log = manager.log(EVENTS)
    for count in (10, 10, 3):
        log.roll()
        put(log, count)
    cleaner = LogCleaner(
        manager, clock=world.clock, config=CleanerConfig(enable=False), recorder=world.recorder
    )
    cleaner.start()
    begin = Maintenance.compaction
    changed: list[Maintenance] = []

    def change_and_begin(self: Maintenance) -> Compaction:
        if not changed:
            changed.append(self)
            change(manager)
        return begin(self)

    monkeypatch.setattr(Maintenance, "compaction", change_and_begin)
    assert cleaner.run_pass() is not None
    assert changed == [log.maintenance]
    assert not cleaner.uncleanable
    assert damage.count == 0
    sealed = log.reader.segments[:-1]
    assert sum(1 for segment in sealed for _ in segment.headers()) == min(1, len(sealed))
    cleaner.stop()
