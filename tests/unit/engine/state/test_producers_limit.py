"""A log remembers a limited number of producers; the longest idle one expires."""

from pathlib import Path

import pytest

from engine.errors import InvalidRequestValue, Overloaded
from engine.records.control import ControlType
from engine.state.producer_verdict import Duplicate
from engine.state.producers import ProducerStates
from engine.types import AppendOrigin
from tests.support.filesystem import ForgetfulDisk
from tests.support.producers import ProducerLog, data_batch
from tests.support.time import START_MS, ManualClock

DIRECTORY = Path("/data/t-0")
LIMIT = 3


def known(states: ProducerStates) -> list[int]:
    return [entry.producer_id for entry in states.active_producers(START_MS)]


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(DIRECTORY, parents=True)
    return disk


def states_on(disk: ForgetfulDisk, limit: int = LIMIT) -> ProducerStates:
    return ProducerStates(
        disk, DIRECTORY, clock=ManualClock(), expiration_ms=86_400_000, max_producers=limit
    )


def test_the_producer_that_has_been_idle_for_longest_goes_first(disk: ForgetfulDisk) -> None:
    """An append makes its producer the newest, whenever it was first seen."""
    log = ProducerLog(states_on(disk))
    for offset, producer_id in enumerate((1, 2, 3)):
        log.append(data_batch(producer_id, offset=offset, sequence=0))
    log.append(data_batch(1, offset=3, sequence=1))
    log.append(data_batch(4, offset=4, sequence=0))
    assert known(log.states) == [1, 3, 4]
    assert log.states.highest_producer_id == 4
    log.append(data_batch(2, offset=5, sequence=1))
    assert known(log.states) == [1, 2, 4], "it goes on as an unknown producer"


def test_one_append_of_many_producers_leaves_as_many_as_may_be(disk: ForgetfulDisk) -> None:
    """However many ids a client invents, the state does not grow."""
    log = ProducerLog(states_on(disk))
    log.append(*(data_batch(number, offset=number, sequence=0) for number in range(50)))
    assert known(log.states) == [47, 48, 49]


def test_a_producer_with_an_open_transaction_stays(disk: ForgetfulDisk) -> None:
    """Its marker would find nothing to end. Once it has ended, it goes like any other."""
    log = ProducerLog(states_on(disk))
    log.append(data_batch(1, offset=0, sequence=0, transactional=True))
    for offset in range(1, 6):
        log.append(data_batch(10 + offset, offset=offset, sequence=0))
    assert known(log.states) == [1, 14, 15]
    log.states.check_invariants()
    log.end_transaction(ControlType.ABORT, offset=6)
    for offset in range(7, 10):
        log.append(data_batch(10 + offset, offset=offset, sequence=0))
    assert known(log.states) == [17, 18, 19]


def test_more_open_transactions_than_producers_may_be_known_are_refused(
    disk: ForgetfulDisk,
) -> None:
    """No producer expires for them; batches that are in the log already are accepted."""
    log = ProducerLog(states_on(disk))
    for offset in range(LIMIT):
        log.append(data_batch(offset, offset=offset, sequence=0, transactional=True))
    refused = data_batch(9, offset=LIMIT, sequence=0, transactional=True)
    with pytest.raises(Overloaded) as overloaded:
        log.append(refused)
    assert overloaded.value.facts()["limit"] == "max_producers_per_partition"
    log.append(data_batch(8, offset=LIMIT, sequence=0))
    assert known(log.states) == [0, 1, 2], "nobody else is there to go"
    log.append(refused._replace(base_offset=LIMIT + 1), origin=AppendOrigin.REPLICATION)
    assert known(log.states) == [0, 1, 2, 9]
    log.states.check_invariants()


def test_a_snapshot_with_more_producers_is_cut_to_the_newest(disk: ForgetfulDisk) -> None:
    """The limit may have been lowered since, or the log be a broker's."""
    log = ProducerLog(states_on(disk, limit=100))
    for offset in range(10):
        time = START_MS + (offset * 7) % 10
        log.append(data_batch(offset, offset=offset, sequence=0, timestamp=time))
    log.states.take_snapshot(sync=True)
    states = states_on(disk)
    states.load_from_snapshot(0, START_MS)
    assert known(states) == [1, 4, 7], "those with the latest records"
    assert states.highest_producer_id == 9


def test_an_append_of_more_batches_than_a_retry_may_repeat_is_refused(disk: ForgetfulDisk) -> None:
    """Five of one producer are a duplicate when they are repeated; six would be a gap."""
    log = ProducerLog(states_on(disk))
    five = [data_batch(1, offset=number, sequence=number) for number in range(5)]
    sixth = data_batch(1, offset=5, sequence=5)
    with pytest.raises(InvalidRequestValue, match="at most 5 batches of one producer, not 6"):
        log.append(*five, sixth)
    other = data_batch(2, offset=5, sequence=0)
    log.append(*five, other)
    assert isinstance(log.append(*five, other), Duplicate)
    log.append(sixth._replace(base_offset=6))
