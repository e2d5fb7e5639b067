"""Tests about the producer state after a start and a truncation."""

from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.errors import StoredDataCorrupt
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.records.batch import BatchView
from engine.records.builder import encode_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import BatchHeader
from engine.topic_keys import DAY_MS
from engine.types import AppendOrigin, FetchIsolation
from tests.support.builders import World, new_batch
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
from tests.support.logs import fill, fill_segments, log_path, segment_bases

REPLICATION = AppendOrigin.REPLICATION


def with_gaps(offset: int, *, kept: int, deltas: int) -> bytearray:
    """A batch of producer 1 that compaction thinned out: `kept` of `deltas` + 1 records."""
    full = BatchView(
        new_batch(deltas + 1, base_offset=offset, producer_id=1, producer_epoch=0, base_sequence=0)
    )
    header: BatchHeader = full.header
    return encode_batch(header, list(full.records())[:kept])


@kafka("UnifiedLogTest.testProducerIdMapTruncateTo")
def test_a_truncation_takes_snapshots_and_producers_back() -> None:
    """The state is that of the target, from the snapshot there; at 0 nothing is left."""
    world = World()
    log = world.open_log(DENSE)
    producer = Producer(log)
    for _ in range(3):
        producer.send()
        log.roll()
    assert snapshots_of(world) == [1, 2, 3]
    log.truncate_to(2)
    world.scheduler.advance(60_000)
    assert (snapshots_of(world), entry_of(log).last_sequence) == ([1, 2], 1)
    log.truncate_to(1)
    world.scheduler.advance(60_000)
    assert (snapshots_of(world), entry_of(log).last_sequence) == ([1], 0)
    log.truncate_to(0)
    world.scheduler.advance(60_000)
    assert (snapshots_of(world), log.producers.active()) == ([], ())


@kafka("UnifiedLogTest.testProducerIdMapTruncateToWithNoSnapshots")
def test_a_truncation_without_snapshots_reads_the_data() -> None:
    """If the files are missing, the state comes from the batches, and a snapshot is taken."""
    world = World()
    log = world.open_log(DENSE)
    producer = Producer(log)
    producer.send()
    producer.send()
    log.roll()
    producer.send()
    remove_files(world, ".snapshot")
    log.truncate_to(2)
    assert entry_of(log).last_sequence == 1
    assert snapshots_of(world) == [2]


@kafka("UnifiedLogTest.testProducerIdMapTruncateFullyAndStartAt")
def test_a_full_truncation_forgets_producers_and_snapshots() -> None:
    """The log continues at 29 with an empty state."""
    world = World()
    log = world.open_log(DENSE, log_start_offset=40)
    producer = Producer(log)
    producer.send()
    log.roll()
    producer.send()
    log.truncate_to(29)
    world.scheduler.advance(60_000)
    assert log.producers.active() == ()
    assert (log.watermarks.log_start_offset, log.watermarks.log_end_offset) == (29, 29)
    assert [offset for offset in snapshots_of(world) if offset != 29] == []


@kafka("LogLoaderTest.testSkipLoadingIfEmptyProducerStateBeforeTruncation")
@pytest.mark.parametrize("has_producer", [False, True])
def test_a_truncation_reads_data_only_if_there_is_something_to_find(
    tmp_path: Path, *, has_producer: bool
) -> None:
    """An empty state that covers the target is not rebuilt; another one is, and finds damage."""
    world = World(fs=PosixFileSystem(), directory=tmp_path / "data")
    log = world.open_log(DENSE)
    fill_segments(log, 2, 2)
    if has_producer:
        Producer(log).send()
    log.roll()
    fill(log, batches=2)
    log.durability.commit()
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    with (log.directory / names.log_name(0)).open("r+b") as file:
        file.write(bytes(30))
    end = log.watermarks.log_end_offset
    if has_producer:
        with pytest.raises(StoredDataCorrupt):
            log.truncate_to(end - 1)
    else:
        assert log.truncate_to(end - 1) == end - 1
    log.maintenance.close_handles()


@kafka(
    "UnifiedLogTest.testUpdateProducerIdMapWithCompactedData",
    "UnifiedLogTest.testRebuildProducerIdMapWithCompactedData",
    "UnifiedLogTest.testRebuildProducerStateWithEmptyCompactedBatch",
)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("kept", "deltas"), [(1, 3), (0, 1)])
def test_the_last_sequence_is_the_headers_whatever_compaction_took(
    kept: int, deltas: int, *, clean: bool
) -> None:
    """A batch that lost some or all records still has its producer's sequence."""
    world = World()
    log = world.open_log(DENSE)
    log.append(with_gaps(0, kept=kept, deltas=deltas), origin=REPLICATION)
    assert entry_of(log).last_sequence == deltas
    if not clean:
        remove_files(world, ".snapshot")
    log = reopen(world, log, DENSE, clean=clean)
    assert entry_of(log).last_sequence == deltas
    Producer(log, sequence=deltas + 1).send()
    assert log.watermarks.log_end_offset == deltas + 2


@kafka("LogLoaderTest.testSkipTruncateAndReloadIfNewMessageFormatAndCleanShutdown")
def test_after_a_clean_stop_without_snapshots_no_data_is_read_for_producers() -> None:
    """The state is empty although the data has a producer, and empty snapshots are written."""
    world = World()
    log = world.open_log(DENSE)
    Producer(log).send(3)
    log.durability.flush()
    log.close()
    remove_files(world, ".snapshot")
    world.restart(power_cut=False)
    reopened = world.open_log(DENSE, was_clean=True)
    assert reopened.producers.active() == ()
    assert snapshots_of(world) == [3]


@kafka("LogLoaderTest.testProducerSnapshotsRecoveryAfterUncleanShutdownCurrentMessageFormat")
@pytest.mark.parametrize("recovery_point", [0, 2, 3, 5, 6])
def test_recovery_reads_from_the_segment_of_the_recovery_point_on(recovery_point: int) -> None:
    """Those segments are scanned and no other; each base of them, and the end, has a snapshot."""
    world = World()
    log = world.open_log(DENSE)
    for producer_id in range(1, 4):
        Producer(log, producer_id).send(2)
        if producer_id < 3:
            log.roll()
    log.durability.flush()
    world.restart(power_cut=False)
    remove_files(world, ".snapshot")
    log = world.open_log(DENSE, recovery_point=recovery_point)
    recovered = [base for base in (0, 2, 4) if base >= min(4, recovery_point // 2 * 2)]
    assert log.durability.recovery.recovered_segments == len(recovered)
    assert [entry.producer_id for entry in log.producers.active()] == [1, 2, 3]
    assert set(snapshots_of(world)) >= {base for base in recovered if base} | {6}


@kafka(
    "LogLoaderTest.testLoadProducersAfterDeleteRecordsMidSegment",
    "LogLoaderTest.testLoadProducersAfterDeleteRecordsOnSegment",
)
@pytest.mark.parametrize(("before", "left"), [(1, [1, 2]), (2, [2])])
def test_producers_outlive_deleted_records_while_their_snapshot_does(
    before: int, left: list[int]
) -> None:
    """Within its segment a producer comes back after a reload; with its segment it goes."""
    world = World()
    log = world.open_log(DENSE)
    Producer(log, 1).send()
    Producer(log, 2).send()
    if before == 2:
        log.roll()
        Producer(log, 2, sequence=1).send()
    log.durability.commit()
    log.delete_records(before)
    log.maintenance.run_retention()
    world.scheduler.advance(60_000)
    assert [entry.producer_id for entry in log.producers.active()] == [1, 2]
    if before == 2:
        log.durability.flush()
        world.restart(power_cut=False)
        remove_files(world, ".snapshot")
        log = world.open_log(DENSE, log_start_offset=before)
    else:
        log = reopen(world, log, DENSE, clean=True, log_start_offset=before)
    assert [entry.producer_id for entry in log.producers.active()] == left


@kafka("LogLoaderTest.testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery")
def test_late_removals_spare_snapshots_that_were_written_anew() -> None:
    """Recovery removed segments; their removal an hour later does not touch what came since."""
    world = World()
    log = world.open_log(DENSE)
    producer = Producer(log)
    for _ in range(5):
        producer.send()
        log.roll()
    world.restart(power_cut=False)
    path = log_path(1)
    damaged = bytearray(world.fs.read_bytes(path))
    damaged[-1] ^= 0xFF
    world.fs.remove(path)
    with world.fs.open(path, create=True) as file:
        file.append(damaged)
    log = world.open_log(DENSE)
    assert log.watermarks.log_end_offset == 1
    producer = Producer(log, sequence=1)
    while log.watermarks.log_end_offset < 5:
        producer.send()
        log.roll()
    before = snapshots_of(world)
    world.scheduler.advance(DAY_MS)
    assert snapshots_of(world) == before
    assert set(before) >= {2, 3, 4, 5}


@kafka(
    "UnifiedLogTest.testRebuildTransactionalState",
    "ProducerStateManagerTest.testNoValidationOnFirstEntryWhenLoadingLog",
)
def test_an_ended_transaction_is_not_open_again_after_a_crash() -> None:
    """Batch, abort, and a recovery from the start: nothing is undecided."""
    world = World()
    log = world.open_log(DENSE)
    producer = transaction_of(log, 137)
    producer.sequence = 5
    producer.send(2)
    producer.abort()
    world.restart(power_cut=False)
    remove_files(world, ".snapshot", ".index", ".timeindex", ".txnindex")
    log = world.open_log(DENSE)
    assert log.watermarks.last_stable_offset == 3
    assert entry_of(log, 137).transaction_first_offset is None
    fetched = log.reader.read(0, max_bytes=1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
    assert fetched is not None
    assert (fetched.data, fetched.next_offset) == (b"", 3)


@kafka("LogLoaderTest.testRecoverAfterNonMonotonicCoordinatorEpochWrite")
def test_recovery_takes_a_coordinator_epoch_that_went_back() -> None:
    """Batches in the log are accepted, and the newest time is kept."""
    world = World()
    log = world.open_log(DENSE)
    producer = transaction_of(log, 1)
    for coordinator_epoch, offset in ((5, 1), (3, 3)):
        producer.send()
        marker = build_end_marker(
            ControlType.ABORT,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=coordinator_epoch,
            timestamp=1_000 + offset,
            base_offset=offset,
        )
        log.append(marker, origin=REPLICATION)
    world.restart(power_cut=False)
    remove_files(world, ".snapshot")
    log = world.open_log(DENSE)
    entry = entry_of(log)
    assert (entry.coordinator_epoch, entry.last_timestamp) == (3, 1_003)
    assert log.watermarks.log_end_offset == 4


@kafka("LogLoaderTest.testLogEndLessThanStartAfterReopen")
def test_a_log_that_ends_below_its_start_is_replaced_by_an_empty_one() -> None:
    """One empty segment at the known start; a later append gets that offset."""
    world = World()
    log = world.open_log(DENSE)
    Producer(log).send()
    log = reopen(world, log, DENSE, clean=False, log_start_offset=15)
    assert (segment_bases(log), log.watermarks.log_end_offset) == ([15], 15)
    assert log.producers.active() == ()
    assert Producer(log).send().base_offset == 15


@kafka(
    "UnifiedLogTest.testLoadPartitionDirWithNoSegmentsShouldNotThrow",
    "UnifiedLogTest.testLogReinitializeAfterManualDelete",
)
def test_an_empty_directory_goes_on_at_its_known_start() -> None:
    """If all files are missing, the log start in the checkpoint is the log end."""
    log = World().open_log(LogConfig(segment_index_bytes=1200), log_start_offset=500)
    assert (log.watermarks.log_start_offset, log.watermarks.log_end_offset) == (500, 500)
