"""Rows about transactions as the log and its readers see them."""

import pytest

from engine.errors import CoordinatorFenced, OffsetBelowLogStart, ProducerFenced, StorageOffline
from engine.index.transaction import TransactionIndex
from engine.log.log import Log
from engine.records.control import ControlType
from engine.types import AbortedTransaction, AppendOrigin, FetchIsolation
from tests.support.builders import World
from tests.support.conformance_places import (
    DENSE,
    Producer,
    entry_of,
    remove_files,
    reopen,
    snapshots_of,
    transaction_of,
)
from tests.support.kafka import kafka
from tests.support.logs import batches_in, fill, log_path, read_records, segment_bases

COMMITTED = FetchIsolation.TXN_COMMITTED


def aborted_of(world: World, base_offset: int = 0) -> list[AbortedTransaction]:
    """The entries of one segment's transaction index, as its file has them."""
    index = TransactionIndex(world.fs, log_path(base_offset, suffix=".txnindex"), base_offset)
    entries = list(index.entries())
    index.close()
    return entries


def interleave(log: Log) -> None:
    """Kafka's example: producers 1 and 2 abort, 3 and 4 commit, plain records between."""
    one, two, three, four = (transaction_of(log, producer_id) for producer_id in (1, 2, 3, 4))
    one.send(5)
    fill(log, batches=3)
    two.send(2)
    one.send(4)
    three.send(3)
    fill(log, batches=2)
    one.send(10)
    one.abort()
    two.send(6)
    four.send(3)
    fill(log, batches=10)
    three.send(9)
    three.commit()
    four.send(8)
    two.send(7)
    two.abort()
    fill(log, batches=10)
    four.send(4)
    four.commit()


EXPECTED = [AbortedTransaction(1, 0, 29, 8), AbortedTransaction(2, 8, 74, 36)]


def read_all(log: Log) -> bytes:
    fetched = log.reader.read(0, max_bytes=1 << 30, isolation=FetchIsolation.LOG_END)
    assert fetched is not None
    return bytes(fetched.data)


# -- the last stable offset --------------------------------------------------------------------


@kafka("UnifiedLogTest.testFirstUnstableOffsetNoTransactionalData")
def test_without_transactions_everything_committed_is_stable() -> None:
    """Plain records hold nothing back."""
    log = World().open_log(DENSE)
    fill(log, batches=3)
    Producer(log).send()
    log.durability.commit()
    assert log.watermarks.first_unstable is None
    assert log.watermarks.last_stable_offset == 4


@kafka("UnifiedLogTest.testFirstUnstableOffsetWithTransactionalData")
@pytest.mark.parametrize("end", [ControlType.COMMIT, ControlType.ABORT])
def test_a_transaction_is_unstable_until_its_marker_is_committed(end: ControlType) -> None:
    """While it is open, and after its marker until the high watermark passes that."""
    log = World().open_log(DENSE)
    producer = transaction_of(log, 137)
    producer.send(3)
    producer.send(2)
    log.durability.commit()
    unstable = log.watermarks.first_unstable
    assert unstable is not None
    assert (unstable.offset, unstable.segment_base_offset, unstable.position) == (0, 0, 0)
    producer.end(end)
    assert log.watermarks.last_stable_offset == 0
    log.durability.commit()
    assert log.watermarks.first_unstable is None
    assert log.watermarks.last_stable_offset == 6


@kafka("UnifiedLogTest.testLastStableOffsetWithMixedProducerData")
def test_the_last_stable_offset_moves_to_the_next_open_transaction() -> None:
    """First that of one producer, then of the other, then none."""
    log = World().open_log(DENSE)
    one, two = transaction_of(log, 137), transaction_of(log, 983)
    one.send(3)
    two.send(2)
    fill(log, batches=1)
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 0
    one.abort()
    assert log.watermarks.last_stable_offset == 0
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 3
    two.commit()
    log.durability.commit()
    assert log.watermarks.last_stable_offset == log.watermarks.high_watermark == 8


@kafka(
    "UnifiedLogTest.testLastStableOffsetDoesNotExceedLogStartOffsetMidSegment",
    "UnifiedLogTest.testLastStableOffsetDoesNotExceedLogStartOffsetAfterSegmentDeletion",
)
@pytest.mark.parametrize("removes_segment", [False, True])
def test_the_last_stable_offset_is_not_below_the_log_start(*, removes_segment: bool) -> None:
    """A deletion inside an open transaction raises the first unstable offset to the log start."""
    log = World().open_log(DENSE)
    producer = transaction_of(log, 1)
    producer.send(5)
    producer.send(3)
    log.roll()
    producer.send(2)
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 0
    target = 8 if removes_segment else 5
    log.delete_records(target)
    log.maintenance.run_retention()
    assert segment_bases(log) == ([8] if removes_segment else [0, 8])
    assert log.watermarks.last_stable_offset == log.watermarks.log_start_offset == target
    log.maintenance.check_invariants()


@kafka(
    "UnifiedLogTest.testTruncateBelowFirstUnstableOffset",
    "UnifiedLogTest.testTruncateFullyAndStartBelowFirstUnstableOffset",
)
@pytest.mark.parametrize("start", [0, 20])
def test_a_truncation_takes_the_open_transaction_along(start: int) -> None:
    """Below its first record nothing is unstable any more, and the producer is unknown."""
    log = World().open_log(DENSE, log_start_offset=start)
    fill(log, batches=10)
    transaction_of(log, 17).send(3)
    log.durability.commit()
    assert log.watermarks.last_stable_offset == start + 10
    log.truncate_to(8)
    assert log.watermarks.first_unstable is None
    assert log.watermarks.last_stable_offset == log.watermarks.log_end_offset == 8
    assert log.producers.active() == ()
    fill(log, batches=1)
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 9


# -- aborted transactions ----------------------------------------------------------------------


@kafka("UnifiedLogTest.testTransactionIndexUpdated")
def test_interleaved_aborts_are_noted_with_their_last_stable_offsets() -> None:
    """The worked example: (1, 0 to 29, 8) and (2, 8 to 74, 36), whenever they are committed."""
    world = World()
    log = world.open_log(DENSE)
    interleave(log)
    assert aborted_of(world) == EXPECTED
    assert log.watermarks.last_stable_offset == 0
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 90


@kafka("UnifiedLogTest.testTransactionIndexUpdatedThroughReplication")
def test_replicated_aborts_are_noted_alike() -> None:
    """A log that is given the batches one by one has the same index."""
    leader, follower = World(), World()
    original = leader.open_log(DENSE)
    interleave(original)
    copy = follower.open_log(DENSE)
    for batch in batches_in(read_all(original)):
        copy.append(bytes(batch.buffer), origin=AppendOrigin.REPLICATION)
    assert aborted_of(follower) == EXPECTED
    assert read_all(copy) == read_all(original)


@kafka(
    "LogLoaderTest.testFullTransactionIndexRecovery",
    "LogLoaderTest.testRecoverLastSegmentWithNoSnapshots",
)
@pytest.mark.parametrize(
    ("removed", "recovery_point"),
    [
        ((".txnindex", ".index", ".timeindex"), 0),
        ((".txnindex", ".index", ".timeindex", ".snapshot"), 0),
        ((".txnindex",), 0),
        ((".snapshot",), 90),
    ],
)
def test_missing_transaction_indexes_are_rebuilt(
    removed: tuple[str, ...], recovery_point: int
) -> None:
    """From the batches alone the same entries come back, snapshots or not."""
    world = World()
    log = world.open_log(DENSE)
    interleave(log)
    log.durability.flush()
    world.restart(power_cut=False)
    remove_files(world, *removed)
    log = world.open_log(DENSE, recovery_point=recovery_point)
    assert aborted_of(world) == EXPECTED
    assert log.watermarks.last_stable_offset == 90


@kafka("LogLoaderTest.testRecoverOnlyLastSegment", "LogSegmentTest.testRecoverTransactionIndex")
@pytest.mark.parametrize("with_snapshots", [True, False])
def test_the_last_segment_is_recovered_with_what_the_others_know(*, with_snapshots: bool) -> None:
    """An abort whose transaction began in an earlier segment is found by scanning the last one."""
    world = World()
    log = world.open_log(DENSE)
    producer = transaction_of(log, 1)
    producer.send(5)
    log.roll()
    fill(log, batches=2)
    other = transaction_of(log, 2)
    other.send(3)
    producer.abort()
    log.durability.flush()
    before = aborted_of(world, 5)
    assert before == [AbortedTransaction(1, 0, 10, 7)]
    world.restart(power_cut=False)
    remove_files(world, ".txnindex", *(() if with_snapshots else (".snapshot",)))
    log = world.open_log(DENSE, recovery_point=5)
    assert log.durability.recovery.recovered_segments == 1
    assert aborted_of(world, 5) == before
    assert log.watermarks.last_stable_offset == 7
    assert snapshots_of(world) == [5, 11]


@kafka("UnifiedLogTest.testAbortedTransactionSpanningMultipleSegments")
def test_a_reader_of_the_first_segment_knows_an_abort_that_came_later() -> None:
    """Records aborted two segments later are left out from the first one on."""
    log = World().open_log(DENSE)
    producer = transaction_of(log, 1)
    producer.send(2, value=b"aborted")
    log.roll()
    producer.send(2, value=b"aborted")
    log.roll()
    fill(log, batches=1)
    producer.abort()
    log.durability.commit()
    first_piece = log.reader.read(0, max_bytes=1, isolation=COMMITTED)
    assert first_piece is not None
    assert (first_piece.data, first_piece.next_offset) == (b"", 2)
    assert [record.offset for record in read_records(log, isolation=COMMITTED)] == [4]
    uncommitted = read_records(log)
    assert [record.offset for record in uncommitted] == [0, 1, 2, 3, 4]


@kafka(
    "ReplicaManagerTest.testReadCommittedFetchLimitedAtLSO",
    "ReplicaManagerTest.testDelayedFetchIncludesAbortedTransactions",
    "UnifiedLogTest.testFetchUpToLastStableOffset",
)
def test_a_committed_reader_stops_at_the_last_stable_offset() -> None:
    """Open transactions hide all later records, and earlier aborted ones are left out."""
    log = World().open_log(DENSE)
    aborts, opens = transaction_of(log, 1), transaction_of(log, 2)
    aborts.send(2)
    fill(log, batches=2)
    aborts.abort()
    opens.send(1)
    fill(log, batches=2, first=2)
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 5
    assert [record.offset for record in read_records(log, isolation=COMMITTED)] == [2, 3]
    for offset in range(5, 9):
        fetched = log.reader.read(offset, max_bytes=1 << 20, isolation=COMMITTED)
        assert fetched is not None
        assert (fetched.data, fetched.next_offset) == (b"", offset)
    opens.commit()
    log.durability.commit()
    delivered = [record.offset for record in read_records(log, isolation=COMMITTED)]
    assert delivered == [2, 3, 5, 6, 7]


# -- which markers may end a transaction --------------------------------------------------------


@kafka(
    "UnifiedLogTest.testZombieCoordinatorFenced",
    "UnifiedLogTest.testZombieCoordinatorFencedEmptyTransaction",
)
@pytest.mark.parametrize("empty", [False, True])
def test_an_older_coordinator_is_fenced(*, empty: bool) -> None:
    """A marker of coordinator epoch 0 after one of 1 is refused, empty transaction or not."""
    log = World().open_log(DENSE)
    producer = transaction_of(log, 1)
    if not empty:
        producer.send(2)
    producer.end(ControlType.ABORT, coordinator_epoch=1)
    if not empty:
        producer.send(2)
    end = log.watermarks.log_end_offset
    with pytest.raises(CoordinatorFenced):
        producer.end(ControlType.COMMIT, coordinator_epoch=0)
    assert log.watermarks.log_end_offset == end
    producer.end(ControlType.COMMIT, coordinator_epoch=1)


@kafka("UnifiedLogTest.testEndTxnWithFencedProducerEpoch")
def test_a_marker_of_an_older_producer_epoch_is_fenced() -> None:
    """The instance that was replaced cannot end its successor's transaction."""
    log = World().open_log(DENSE)
    transaction_of(log, 1).end(ControlType.ABORT, coordinator_epoch=1)
    newer = Producer(log, 1, epoch=5, transactional=True)
    newer.send()
    with pytest.raises(ProducerFenced):
        Producer(log, 1, epoch=4, transactional=True).end(ControlType.COMMIT, coordinator_epoch=1)
    assert entry_of(log).transaction_first_offset == 1


@kafka("UnifiedLogTest.testAppendToTransactionIndexFailure")
def test_a_transaction_index_that_cannot_be_written_stops_the_log() -> None:
    """The marker is not in the log, nothing becomes stable.

    And appends are refused until a start.
    """
    world = World()
    log = world.open_log(DENSE)
    producer = transaction_of(log, 1)
    producer.send(10)
    world.disk.fail("append", path_end=".txnindex")
    with pytest.raises(StorageOffline):
        producer.abort()
    assert log.watermarks.log_end_offset == 10
    assert log.watermarks.last_stable_offset == 0
    for attempt in (producer.abort, producer.send, log.durability.commit, log.close):
        with pytest.raises(StorageOffline):
            attempt()
    assert log.watermarks.log_end_offset == 10
    assert log.watermarks.last_stable_offset == 0
    world.restart(power_cut=False)
    log = world.open_log(DENSE)
    assert log.watermarks.log_end_offset == 10
    assert aborted_of(world) == []
    Producer(log, 1, transactional=True).abort()
    log.durability.commit()
    assert log.watermarks.last_stable_offset == 11
    assert aborted_of(world) == [AbortedTransaction(1, 0, 10, 11)]


@kafka("UnifiedLogTest.testFirstUnstableOffsetWithTransactionalData")
def test_a_reload_finds_the_transaction_open_where_it_was() -> None:
    """After a clean stop the open transaction holds the last stable offset as before."""
    world = World()
    log = world.open_log(DENSE)
    fill(log, batches=2)
    transaction_of(log, 5).send(2)
    log = reopen(world, log, DENSE, clean=True)
    unstable = log.watermarks.first_unstable
    assert unstable is not None
    assert (unstable.offset, unstable.segment_base_offset) == (2, 0)
    assert unstable.position > 0
    assert log.watermarks.last_stable_offset == 2
    with pytest.raises(OffsetBelowLogStart):
        log.reader.read(-1, max_bytes=1)
