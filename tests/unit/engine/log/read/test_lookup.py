"""Offsets by time, as `UnifiedLog.fetchOffsetByTimestamp` finds them."""

from dataclasses import replace

import pytest

from engine.errors import TooLarge
from engine.log.log import Log
from engine.log.read import times
from engine.records.builder import build_batch
from engine.records.header import Codec
from engine.segment.segments import SegmentSnapshot
from engine.types import AppendOrigin, TimestampAndOffset
from tests.support.builders import World
from tests.support.compaction import Compacted
from tests.support.kafka import kafka
from tests.support.logs import ALL_BYTES, CONFIG, append_values, segment_bases
from tests.support.machine import Operation
from tests.support.segments import batch_at
from tests.support.time import START_MS


def timed(log: Log, *times: int) -> None:
    for time in times:
        append_values(log, b"x", timestamp=START_MS + time)
    log.durability.commit()


@pytest.fixture
def log() -> Log:
    return World().open_log(CONFIG)


def found(log: Log, time: int) -> int | None:
    answer = log.reader.offset_for_time(START_MS + time)
    return None if answer is None else answer.offset


def test_an_epoch_that_is_not_known_is_none(log: Log) -> None:
    """A batch without an epoch answers without one."""
    batch = batch_at(0)
    batch[12:16] = b"\xff" * 4
    log.append(batch, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    assert log.reader.offset_for_time(START_MS) == TimestampAndOffset(START_MS, 0, None)


def test_only_the_first_segment_that_reaches_the_time_is_searched(log: Log) -> None:
    """A later segment is found by its own times, and earlier ones protect nothing."""
    timed(log, 0, 10, 20)
    log.roll()
    timed(log, 5, 30, 40)
    log.roll()
    timed(log, 35)
    assert [found(log, time) for time in (5, 20, 21, 35, 40)] == [1, 2, 4, 5, 5]


@kafka("FileRecordsTest.testSearchForTimestamp")
def test_records_inside_a_batch_are_told_apart(log: Log) -> None:
    """The record is found within a compressed batch, not its first."""
    records = [(START_MS + time, b"k", b"v", ()) for time in (0, 50, 20, 70)]
    log.append(build_batch(records, codec=Codec.LZ4))
    log.durability.commit()
    assert [found(log, time) for time in (0, 1, 20, 51)] == [0, 1, 1, 3]


@kafka("FileRecordsTest.testSearchForTimestamp")
def test_below_the_log_start_nothing_is_found(log: Log) -> None:
    """The search begins at the log start."""
    timed(log, 0, 10, 20, 30)
    log.delete_records(2)
    assert found(log, 0) == 2
    assert found(log, 25) == 3


def test_what_is_not_committed_is_not_found(log: Log) -> None:
    """A record above the high watermark is not found, neither by time nor as the maximum."""
    timed(log, 0)
    append_values(log, b"later", timestamp=START_MS + 100)
    assert found(log, 50) is None
    assert log.reader.max_timestamp() is None
    log.durability.commit()
    assert found(log, 50) == 1


def test_a_log_without_times_has_a_maximum_without_one(log: Log) -> None:
    """The answer is -1 and the first record, as Kafka gives it (8.5)."""
    log.append(batch_at(0, timestamp=-1), origin=AppendOrigin.REPLICATION)
    log.append(batch_at(1, timestamp=-1), origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    assert log.reader.max_timestamp() == TimestampAndOffset(-1, 0, 0)


def test_times_are_found_after_a_restart() -> None:
    """Indexes and maxima are loaded, not scanned, and give the same answers."""
    world = World()
    log = world.open_log(CONFIG)
    timed(log, *range(0, 100, 10))
    log.roll()
    timed(log, *range(100, 200, 10))
    answers = [found(log, time) for time in range(-5, 205, 5)]
    newest = log.reader.max_timestamp()
    log.close()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG, was_clean=True)
    assert [found(again, time) for time in range(-5, 205, 5)] == answers
    assert again.reader.max_timestamp() == newest


def test_a_batch_that_reaches_the_time_below_the_start_only_is_passed_over(log: Log) -> None:
    """If the matching record is below the log start, the next batch is searched."""
    records = [(START_MS + time, b"k", b"v", ()) for time in (50, 10)]
    log.append(build_batch(records))
    timed(log, 60)
    log.delete_records(1)
    assert found(log, 40) == 2
    assert found(log, 5) == 1


def test_a_late_record_below_the_start_is_not_found(log: Log) -> None:
    """Its batch still reaches the time, but no record at or after the log start does."""
    records = [(START_MS + time, b"k", b"v", ()) for time in (50, 10)]
    log.append(build_batch(records))
    timed(log, 20)
    log.delete_records(1)
    assert found(log, 40) is None
    assert found(log, 15) == 2


def test_a_segment_that_reaches_the_time_below_the_log_start_hides_no_later_one(log: Log) -> None:
    """Deleted records of a segment that retention has not removed yet end no search."""
    timed(log, 0, 50)
    log.roll()
    timed(log, 20, 60)
    log.delete_records(2)
    assert [found(log, time) for time in (0, 40)] == [2, 3]
    log.delete_records(3)
    assert found(log, 0) == 3


@pytest.mark.parametrize(("start", "expected"), [(1, (60, 1)), (2, (30, 3)), (4, (30, 4))])
def test_the_maximum_is_at_or_above_the_log_start(
    log: Log, start: int, expected: tuple[int, int]
) -> None:
    """A deleted record is not found, even if its segment and its batch still exist."""
    records = [(START_MS + time, b"k", b"v", ()) for time in (90, 60, 10)]
    log.append(build_batch(records))
    timed(log, 30)
    log.roll()
    timed(log, 30, 20)
    log.delete_records(start)
    time, offset = expected
    assert log.reader.max_timestamp() == TimestampAndOffset(START_MS + time, offset, 0)


def test_a_start_that_retention_has_passed_meanwhile_hides_nothing(log: Log) -> None:
    """The log start is read before the segments, of which the first may be removed by then."""
    for time in (10, 20, 30):
        timed(log, time)
        log.roll()
    log.delete_records(1)
    log.maintenance.run_retention()
    segments = SegmentSnapshot(tuple(segment_bases(log)), log.reader.segments)
    assert segments.base_offsets[0] == 1
    bounds = times.Bounds(log_start_offset=0, limit_bytes=ALL_BYTES)
    latest = times.with_max_timestamp(segments, bounds)
    first = times.first_at_or_after(START_MS + 15, segments, bounds)
    assert (latest, first) == (
        TimestampAndOffset(START_MS + 30, 2, 0),
        TimestampAndOffset(START_MS + 20, 1, 0),
    )


def test_a_log_without_visible_records_has_no_maximum(log: Log) -> None:
    """Where everything was deleted, or is of a format without times, nothing is the latest."""
    timed(log, 10, 20)
    log.delete_records(-1)
    assert log.reader.max_timestamp() is None
    assert found(log, 0) is None


def test_a_later_segment_with_the_same_maximum_does_not_win(log: Log) -> None:
    """Of equal times the first record counts, also if its segment is not the one that has more."""
    timed(log, 70)
    log.roll()
    timed(log, 90, 70)
    log.roll()
    timed(log, 80)
    assert log.reader.max_timestamp() == TimestampAndOffset(START_MS + 90, 1, 0)
    log.delete_records(2)
    assert log.reader.max_timestamp() == TimestampAndOffset(START_MS + 80, 3, 0)


def test_what_was_compacted_away_is_passed_over() -> None:
    """A batch that stays without its record, for its producer's sake, still claims its time."""
    compacted = Compacted()
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    compacted.put(("key", "old"), timestamp=START_MS + 100, **producer)
    compacted.put(("key", "new"), timestamp=START_MS + 50)
    compacted.clean()
    assert compacted.batches() == [(0, 0, 0), (1, 1, 1)]
    assert compacted.log.reader.max_timestamp() == TimestampAndOffset(START_MS + 50, 1, 0)
    assert compacted.log.reader.offset_for_time(START_MS + 60) is None
    compacted.put(("key", "newer"), timestamp=START_MS + 70)
    compacted.log.durability.commit()
    assert found(compacted.log, 60) == 2  # Kafka finds nothing: it trusts the batch's header
    assert found(compacted.log, 50) == 1


def test_a_batch_is_not_made_larger_than_the_limit_for_a_look_up() -> None:
    """A batch accepted under a higher limit must not fill the memory of a look-up."""
    world = World()
    log = world.open_log(CONFIG)
    log.append(build_batch([(START_MS, b"k", b"x" * 5_000, ())], codec=Codec.GZIP))
    log.durability.commit()
    world.restart(power_cut=True)
    world.config = replace(world.config, max_decompressed_batch_bytes=5_000)
    log = world.open_log(CONFIG)
    with pytest.raises(TooLarge, match="5000"):
        log.reader.max_timestamp()
    with pytest.raises(TooLarge, match="5000"):
        log.reader.offset_for_time(START_MS)


def test_a_record_that_is_committed_beside_a_look_is_not_the_newest_if_another_follows() -> None:
    """The result is compared with the high watermark of the same view."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"first", timestamp=START_MS)
    met: list[Operation] = []

    def append_beside(operation: Operation) -> None:
        if operation.name == "read" and not met:
            met.append(operation)
            append_values(log, b"second", timestamp=START_MS + 1)
            log.durability.commit()

    world.disk.meanwhile = append_beside
    assert log.reader.max_timestamp() is None
    world.disk.meanwhile = None
    assert met
    assert log.reader.max_timestamp() == TimestampAndOffset(START_MS + 1, 1, 0)
