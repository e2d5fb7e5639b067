"""Rows about reads and look-ups, and about the offsets that bound them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from engine.errors import (
    InvalidRequestValue,
    OffsetBeyondLogEnd,
)
from engine.log.log import Log
from engine.log.results import Fetched
from engine.records.builder import build_batch
from engine.types import AppendOrigin, FetchIsolation, TimestampAndOffset
from tests.support.builders import World, new_batch, values_of
from tests.support.conformance_places import DENSE, transaction_of
from tests.support.kafka import kafka
from tests.support.logs import (
    append_values,
    batches_in,
    fill,
    fill_segments,
    read_values,
    segment_bases,
    with_config,
)

MANY = 1 << 20


def fetch(log: Log, offset: int, max_bytes: int = MANY, **options: object) -> Fetched:
    fetched = log.reader.read(offset, max_bytes=max_bytes, **options)  # type: ignore[arg-type]  # read's own
    assert fetched is not None
    return fetched


def offsets_in(fetched: Fetched) -> list[int]:
    return [record.offset for batch in batches_in(fetched.data) for record in batch.records()]


# -- bounds ------------------------------------------------------------------------------------


@kafka(
    "UnifiedLogTest.testFetchUpToLogEndOffset",
    "UnifiedLogTest.testFetchUpToHighWatermark",
    "UnifiedLogTest.testFetchUpToLastStableOffset",
    "LocalLogTest.testWhenFetchOffsetHigherThanMaxOffset",
)
@pytest.mark.parametrize("isolation", FetchIsolation)
def test_a_read_ends_strictly_below_its_bound(isolation: FetchIsolation) -> None:
    """From every offset below the bound there is data below it; from there to the end none."""
    log = World().open_log(DENSE)
    fill(log, batches=2)
    log.roll()
    fill(log, batches=1)
    transaction_of(log, 1).send()
    fill(log, batches=1)
    log.roll()
    log.durability.commit()
    fill(log, batches=3)
    bound = {"log_end": 8, "read_uncommitted": 5, "read_committed": 3}[isolation.value]
    for offset in range(9):
        fetched = fetch(log, offset, isolation=isolation)
        expected = list(range(offset, bound))
        assert offsets_in(fetched) == expected
        assert fetched.next_offset == max(offset, bound)
    with pytest.raises(OffsetBeyondLogEnd):
        log.reader.read(9, max_bytes=1, isolation=isolation)


@kafka("UnifiedLogTest.testHighWatermarkMaintenance", "UnifiedLogTest.testOffsetSnapshot")
def test_the_high_watermark_rises_with_commits_and_falls_with_truncation_only() -> None:
    """It starts at 0, no append moves it, and it never passes the end."""
    log = World().open_log(DENSE)
    seen = [log.watermarks.high_watermark]
    fill(log, batches=2)
    seen.append(log.watermarks.high_watermark)
    seen.append(log.durability.commit())
    fill(log, batches=1)
    log.roll()
    seen.append(log.watermarks.high_watermark)
    seen.append(log.durability.commit())
    seen.append(log.durability.commit())
    log.truncate_to(2)
    seen.append(log.watermarks.high_watermark)
    assert seen == [0, 0, 2, 2, 3, 3, 2]


@kafka("UnifiedLogTest.testOffsetSnapshot")
def test_one_value_has_all_offsets_with_their_places() -> None:
    """High watermark, last stable offset and end have segment and position."""
    log = World().open_log(DENSE)
    fill(log, batches=2)
    log.roll()
    transaction_of(log, 1).send()
    log.durability.commit()
    size = log.reader.listing().segments[1].size_bytes
    fill(log, batches=1)
    marks = log.watermarks
    assert marks.high == (3, 2, size)
    assert marks.last_stable == (2, 2, 0)
    assert marks.end == (4, 2, log.reader.listing().segments[1].size_bytes)
    assert marks.log_start_offset == 0
    log.maintenance.check_invariants()


@kafka(
    "UnifiedLogTest.testCannotIncrementLogStartOffsetPastHighWatermark",
    "UnifiedLogTest.testNoOpWhenRemoteLogStorageIsDisabled",
)
def test_the_log_start_does_not_pass_the_high_watermark() -> None:
    """Uncommitted records cannot be deleted; committed ones can."""
    log = World().open_log(DENSE)
    fill(log, batches=5)
    log.durability.commit()
    fill(log, batches=5)
    with pytest.raises(OffsetBeyondLogEnd):
        log.delete_records(6)
    assert log.watermarks.log_start_offset == 0
    assert log.delete_records(3) == 3
    assert log.delete_records(-1) == 5
    assert log.delete_records(2) == 5
    with pytest.raises(InvalidRequestValue):
        log.delete_records(-2)


# -- whole batches -----------------------------------------------------------------------------


@kafka("UnifiedLogTest.testAppendAndReadWithSequentialOffsets", "UnifiedLogTest.testLogRolls")
def test_every_offset_reads_over_segments_of_one_record() -> None:
    """Each of a hundred records is found by its offset, and after the last there is none."""
    world = World()
    log = world.open_log(with_config(segment_bytes=80))
    values = fill(log, batches=100)
    log.durability.commit()
    assert log.reader.segments_count == 100
    for offset in range(100):
        fetched = fetch(log, offset, 1)
        (batch,) = batches_in(fetched.data)
        assert [record.value for record in batch.records()] == [values[offset]]
        assert fetched.next_offset == offset + 1
    assert fetch(log, 100).data == b""
    assert read_values(log) == values
    world.scheduler.run_due()
    assert log.durability.recovery_point >= segment_bases(log)[-1]


GAPS = [*range(50), *range(50, 200, 7)]


@kafka(
    "UnifiedLogTest.testAppendAndReadWithNonSequentialOffsets",
    "UnifiedLogTest.testReadWithMinMessage",
)
@pytest.mark.parametrize("max_bytes", [1, 2, 100, MANY])
def test_a_gap_is_answered_by_the_next_record(max_bytes: int) -> None:
    """With any budget, at least the whole batch at or after the offset is returned."""
    log = World().open_log(with_config(segment_bytes=500, cleanup_policy=("compact",)))
    for offset in GAPS:
        log.append(new_batch(base_offset=offset), origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    for offset in range(GAPS[-1] + 1):
        fetched = fetch(log, offset, max_bytes)
        expected = next(known for known in GAPS if known >= offset)
        assert offsets_in(fetched)[0] == fetched.first_offset == expected
        assert len(fetched.data) <= max(max_bytes, 80)


# -- look-ups by time --------------------------------------------------------------------------


@kafka("UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch")
def test_answers_by_time_carry_the_epoch_of_their_batch() -> None:
    """Each record is found with the epoch that wrote it, and an empty log has none."""
    log = World().open_log(DENSE)
    assert log.reader.offset_for_time(0) is None
    assert log.reader.max_timestamp() is None
    append_values(log, b"1", timestamp=1_000)
    log.durability.commit()
    assert log.reader.offset_for_time(1_000) == TimestampAndOffset(1_000, 0, 0)
    batch = values_of([b"2"], timestamp=2_000, base_offset=1, leader_epoch=7)
    log.append(batch, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    assert log.reader.offset_for_time(1_000) == TimestampAndOffset(1_000, 0, 0)
    assert log.reader.offset_for_time(1_001) == TimestampAndOffset(2_000, 1, 7)
    assert log.reader.offset_for_time(2_001) is None
    assert log.reader.leader_epoch == 7


@kafka("UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp")
def test_the_record_with_the_greatest_time_need_not_be_the_last() -> None:
    """Over several segments the first record with the largest time is found, with its epoch."""
    log = World().open_log(DENSE)
    for time in (1_000, 3_000, 3_000, 2_000):
        append_values(log, b"v", timestamp=time)
        log.roll()
    log.durability.commit()
    assert log.reader.max_timestamp() == TimestampAndOffset(3_000, 1, 0)


@kafka("LogSegmentTest.testFindOffsetByTimestamp")
@pytest.mark.parametrize("interval", [1, 10_000])
def test_a_time_finds_the_first_record_at_or_after_it(interval: int) -> None:
    """Exact times, times between two records, before the first and past the last."""
    log = World().open_log(with_config(index_interval_bytes=interval))
    times = [400 + 10 * number for number in range(20)]
    for number in range(0, 20, 2):
        log.append(build_batch([(time, None, b"", ()) for time in times[number : number + 2]]))
    log.durability.commit()
    for offset, (time, following) in enumerate(pairwise(times)):
        found = log.reader.offset_for_time(time)
        between = log.reader.offset_for_time(time + 5)
        assert found is not None
        assert between is not None
        assert found[:2] == (time, offset)
        assert between[:2] == (following, offset + 1)
    assert log.reader.offset_for_time(times[-1] + 1) is None
    first = log.reader.offset_for_time(times[0] - 1)
    assert first is not None
    assert first.offset == 0


@kafka("LogSegmentTest.testNextOffsetCalculation")
def test_the_next_offset_is_the_base_or_one_past_the_last() -> None:
    """Of an empty segment, and of one with batches of several records."""
    log = World().open_log(DENSE, log_start_offset=10)
    assert log.reader.listing().segments[0].next_offset == log.watermarks.log_end_offset == 10
    fill(log, batches=2, records=3)
    fill_segments(log, 0, 1)
    assert [segment.next_offset for segment in log.reader.listing().segments] == [16, 17]


def test_what_a_read_has_seen_has_no_version_once_its_files_are_closed() -> None:
    """A page whose segment was at rest, and is removed meanwhile, is answered without a tag."""
    world = World()
    world.config = replace(world.config, max_open_sealed_segments=0)
    log = world.open_log(with_config(retention_bytes=0, file_delete_delay_ms=0))
    fill_segments(log, 2, 2)
    log.durability.flush()
    fetched = fetch(log, 0)
    assert log.reader.content_version(0, 2, fetched.segments) is not None
    log.maintenance.run_retention()
    world.scheduler.run_due()
    assert log.reader.content_version(0, 2, fetched.segments) is None
