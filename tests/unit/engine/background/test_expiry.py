"""The periodic pass that forgets idle producers."""

import logging

import pytest

from engine.runtime import expire_producers
from engine.types import TopicPartition
from tests.support.builders import World, new_batch
from tests.support.kafka import kafka


@kafka("UnifiedLogTest.testPeriodicProducerIdExpiration")
def test_idle_producers_are_forgotten_and_busy_ones_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After the expiration time an idle producer is gone; one that appended meanwhile stays."""
    caplog.set_level(logging.DEBUG)
    world = World()
    logs = [world.open_log(log=TopicPartition("events", number)) for number in range(2)]
    idle, busy = logs
    for log in logs:
        log.append(new_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    world.clock.advance(world.config.producer_id_expiration_ms - 1)
    busy.append(new_batch(producer_id=7, producer_epoch=0, base_sequence=1))
    world.clock.advance(1)
    assert expire_producers(logs) == 1
    assert [entry.producer_id for entry in busy.producers.active()] == [7]
    assert not idle.producers.active()
    assert "events-0: forgot 1 idle producers" in caplog.text
    assert "events-1" not in caplog.text
