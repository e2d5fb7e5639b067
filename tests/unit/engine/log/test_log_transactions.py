"""Transactions in a log: stable offsets, aborted records, and committed reads."""

import struct

import pytest

from engine.log.log import Log
from engine.records.batch import stamp_crc
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.types import AbortedTransaction, AppendOrigin, FetchIsolation, TopicPartition
from tests.support.builders import World, values_of
from tests.support.kafka import kafka
from tests.support.logs import CONFIG, append_values, read_records, read_values
from tests.support.time import START_MS

COMMITTED = FetchIsolation.TXN_COMMITTED
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class Producer:
    """A transactional producer that keeps its own sequence."""

    def __init__(self, log: Log, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    def write(self, *values: bytes) -> int:
        batch = values_of(
            values,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += len(values)
        return self.log.append(batch).base_offset

    def end(self, how: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0) -> int:
        marker = build_end_marker(
            how,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=START_MS,
        )
        return self.log.append(marker, origin=AppendOrigin.COORDINATOR).base_offset


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> Log:
    return world.open_log(CONFIG)


def aborted(log: Log) -> list[AbortedTransaction]:
    return [
        entry
        for segment in log._core.state.local.segments  # noqa: SLF001 - read by committed readers
        for entry in segment.indexes.transaction.entries()
    ]


@kafka(
    "UnifiedLogTest.testRebuildTransactionalState",
    "LogLoaderTest.testFullTransactionIndexRecovery",
    "LogLoaderTest.testRecoverOnlyLastSegment",
)
@pytest.mark.parametrize("power_cut", [True, False])
def test_decided_transactions_stay_decided_after_a_crash(world: World, *, power_cut: bool) -> None:
    """Recovery finds aborts and open transactions again."""
    log = world.open_log(CONFIG)
    one, two = Producer(log, 1), Producer(log, 2)
    one.write(b"aborted")
    log.roll()
    two.write(b"open")
    one.end(ABORT)
    append_values(log, b"plain")
    log.durability.commit()
    entries = aborted(log)
    world.restart(power_cut=power_cut)
    again = world.open_log(CONFIG)
    assert aborted(again) == entries
    assert again.watermarks.last_stable_offset == 1
    two.log = again
    two.end(COMMIT)
    again.durability.commit()
    assert read_values(again, isolation=COMMITTED) == [b"open", b"plain"]


def test_control_records_of_other_kinds_end_nothing(log: Log) -> None:
    """A leader change, for example, is stored and ends no transaction."""
    producer = Producer(log, 1)
    producer.write(b"open")
    other = build_batch([(START_MS, struct.pack(">hh", 0, 2), b"\0\0", ())], base_offset=1)
    other[22] |= 0x20
    stamp_crc(other, 0, len(other))
    log.append(other, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 0
    assert read_values(log) == [b"open"]


def test_an_abort_of_what_was_deleted_before_a_restart_needs_no_entry() -> None:
    """The start did not look at deleted records, so the marker that comes later ends nothing."""
    world = World()
    log = world.open_log(CONFIG)
    producer = Producer(log, 7)
    producer.write(b"deleted")
    log.durability.commit()
    log.delete_records(1)
    log.close()
    world.restart(power_cut=False)
    producer.log = world.open_log(CONFIG, log_start_offset=1, was_clean=True)
    producer.end(ABORT)
    Producer(producer.log, 8).write(b"new")
    Producer(producer.log, 8).end(COMMIT)
    producer.log.durability.commit()
    producer.log.close()
    world.restart(power_cut=False)
    log = world.open_log(CONFIG, log_start_offset=1, was_clean=True)
    assert aborted(log) == []
    assert read_values(log, isolation=COMMITTED) == [b"new"]


def test_an_open_transaction_below_a_log_start_in_a_gap_keeps_the_stable_end(log: Log) -> None:
    """The log start was raised into a gap at the end: the stable end went there, and back again.

    Found by simulation.
    """
    Producer(log, 5).write(b"open")
    append_values(log, *(b"%d" % number for number in range(5)))
    log.durability.commit()
    log.truncate_to(4)  # inside the batch, which is removed whole: the log ends after a gap
    log.delete_records(3)
    assert log.watermarks.last_stable_offset == 3
    append_values(log, b"more")
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 3
    assert read_values(log, isolation=COMMITTED) == []


def test_transactions_of_one_append_are_noted_as_if_appended_one_by_one(world: World) -> None:
    """The last stable offset of an entry is that right after its marker.

    It was taken once for the whole append, after its last transaction had begun: a committed reader
    with a small budget then stopped looking for aborted transactions too early.
    """
    source = world.open_log(CONFIG)
    one, two = Producer(source, 1), Producer(source, 2)
    for value in (b"aborted", b"aborted too"):
        one.write(value)
        one.end(ABORT)
    two.write(b"open at the end of the append")
    fetched = source.reader.read(0, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
    assert fetched is not None
    copy = world.open_log(CONFIG, log=TopicPartition("copy", 0))
    copy.append(bytearray(fetched.data), origin=AppendOrigin.REPLICATION)
    assert aborted(copy) == aborted(source)
    assert [entry.last_stable_offset for entry in aborted(copy)] == [2, 4]
    for log in (source, copy):
        Producer(log, 2).end(COMMIT)
        log.durability.commit()
        records = read_records(log, isolation=COMMITTED, max_bytes=1)
        assert [record.value for record in records] == [b"open at the end of the append"]
