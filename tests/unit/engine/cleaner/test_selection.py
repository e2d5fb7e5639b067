"""Which log is cleaned, how far, and in what pieces."""

import pytest

from engine.cleaner.selection import due_by_dirt, first_dirty_offset, grouped
from engine.records.control import ControlType
from engine.types import INT64_MAX
from tests.support.compaction import Compacted
from tests.support.kafka import kafka
from tests.support.logs import with_config
from tests.support.segments import truncate
from tests.support.time import START_MS


def of_segments(*batches: int, **overrides: object) -> Compacted:
    """A compacted log with a number of one-record batches in each of its segments."""
    compacted = Compacted(overrides=overrides)
    for index, count in enumerate(batches):
        if index:
            compacted.log.roll()
        for number in range(count):
            compacted.put((f"key-{number}", "value"), timestamp=START_MS + index * 1000)
    compacted.log.durability.commit()
    return compacted


@kafka(
    "LogCleanerManagerTest.testCleanableOffsetsForNone",
    "LogCleanerTest.testLogToClean",
    "LogCleanerTest.testLogToCleanWithUncleanableSection",
)
def test_everything_sealed_and_committed_is_cleanable() -> None:
    """Up to the active segment; the ratio is dirty bytes to all."""
    compacted = of_segments(3, 2, 1)
    batch_bytes = compacted.log.reader.segments[2].size_bytes
    dirty = compacted.dirty(first_dirty=3)
    assert (dirty.first_dirty_offset, dirty.first_uncleanable_offset) == (3, 5)
    assert (dirty.clean_bytes, dirty.cleanable_bytes) == (3 * batch_bytes, 2 * batch_bytes)
    assert dirty.ratio == 2 / 5


@kafka("LogCleanerManagerTest.testCleanableOffsetsActiveSegment")
def test_the_active_segment_is_never_cleanable() -> None:
    """Alone it leaves nothing to clean."""
    dirty = of_segments(3).dirty()
    assert (dirty.first_uncleanable_offset, dirty.cleanable_bytes, dirty.ratio) == (0, 0, 0)
    assert not dirty.is_due


@kafka("LogCleanerTest.testCleaningWithUncleanableSection")
def test_nothing_above_the_high_watermark_is_cleanable() -> None:
    """A segment with an uncommitted part is not cleaned."""
    compacted = Compacted()
    compacted.put(("a", "1"))
    compacted.log.durability.commit()
    compacted.put(("a", "2"))
    compacted.log.roll()
    compacted.put(("a", "3"))
    dirty = compacted.dirty()
    assert compacted.log.watermarks.high_watermark == 1
    assert (dirty.first_uncleanable_offset, dirty.cleanable_bytes) == (0, 0)
    compacted.log.durability.commit()
    assert compacted.dirty().first_uncleanable_offset == 2


@kafka("LogCleanerManagerTest.testDirtyOffsetLargerThanActiveSegmentBaseOffset")
def test_a_dirty_offset_in_the_active_segment_leaves_nothing_to_do() -> None:
    """Dirty offsets in the active segment cannot be cleaned."""
    compacted = of_segments(2, 4)
    dirty = compacted.dirty(first_dirty=4)
    assert dirty.first_uncleanable_offset == 2
    assert dirty.cleanable_bytes == 0
    assert not dirty.is_due


@kafka("LogCleanerManagerTest.testCleanableOffsetsForTime")
def test_young_records_stay_dirty_for_the_minimum_lag() -> None:
    """From the first segment with a record younger than the lag."""
    compacted = of_segments(2, 2, 1, **{"min.compaction.lag.ms": 1500})
    clock = compacted.world.clock
    clock.set_wall(START_MS + 1499)
    assert compacted.dirty().first_uncleanable_offset == 0
    clock.set_wall(START_MS + 1500)
    assert compacted.dirty().first_uncleanable_offset == 2
    clock.set_wall(START_MS + 2500)
    assert compacted.dirty().first_uncleanable_offset == 4


@kafka("LogCleanerManagerTest.testUndecidedTransactionalDataNotCleanable")
def test_an_open_transaction_is_not_cleanable() -> None:
    """Nothing from its first offset on, until it is decided."""
    compacted = Compacted()
    compacted.put(("plain", "0"))
    compacted.log.roll()
    compacted.put(
        ("a", "1"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    compacted.seal()
    assert compacted.dirty().first_uncleanable_offset == 1
    compacted.end_transaction(ControlType.ABORT, 1)
    compacted.seal()
    assert compacted.dirty().first_uncleanable_offset == 3


def test_the_ratio_must_exceed_the_configured_one() -> None:
    """Equal is not enough: a ratio of 1 is never reached by dirtiness alone."""
    assert not of_segments(2, 1, **{"min.cleanable.dirty.ratio": 1}).dirty().is_due
    assert of_segments(2, 1, **{"min.cleanable.dirty.ratio": 0.99}).dirty().is_due


def test_a_record_that_waited_too_long_makes_its_log_due() -> None:
    """However little is dirty, and by the record's own time; the active segment does not count."""
    compacted = of_segments(
        2, 1, **{"min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": 60_000}
    )
    compacted.world.clock.set_wall(START_MS + 60_000)
    assert not compacted.dirty().is_due
    compacted.world.clock.set_wall(START_MS + 60_001)
    assert compacted.dirty().is_due
    assert not compacted.dirty(first_dirty=2).is_due
    compacted.world.clock.advance(4)
    assert compacted.dirty().overdue_ms == 5


def test_an_empty_segment_has_waited_for_nothing() -> None:
    """A segment that compaction emptied has no first record."""
    compacted = of_segments(2, **{"max.compaction.lag.ms": 60_000, "segment.bytes": 160})
    compacted.put(("key-0", "new"), ("key-1", "new"), timestamp=START_MS + 3_000_000)
    compacted.clean()
    compacted.world.clock.advance(61_000)
    assert [segment.size_bytes > 0 for segment in compacted.log.reader.segments] == [
        False,
        True,
        False,
    ]
    assert compacted.dirty().overdue_ms == 0


@kafka("LogCleanerManagerTest.testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio")
def test_the_dirtiest_log_is_chosen() -> None:
    """By the ratio, among those that are due."""
    compacted = of_segments(3, 3, 1)
    little, much, nothing = (compacted.dirty(offset) for offset in (3, 0, 6))
    assert due_by_dirt([little, much, nothing]) == [much, little]
    assert due_by_dirt([nothing]) == []


@kafka(
    "LogCleanerManagerTest.testDirtyOffsetResetIfLargerThanEndOffset",
    "LogCleanerManagerTest.testDirtyOffsetResetIfSmallerThanStartOffset",
)
@pytest.mark.parametrize(("mark", "expected"), [(None, 2), (1, 2), (2, 2), (3, 3), (4, 4), (5, 2)])
def test_a_mark_outside_the_log_is_its_start(mark: int | None, expected: int) -> None:
    """Below the log start or beyond the end it cannot be this log's."""
    compacted = of_segments(4)
    compacted.log.delete_records(2)
    assert first_dirty_offset(compacted.log, mark) == expected


def sizes(groups: object) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]  # type: ignore[attr-defined]  # of segments


@kafka("LogCleanerTest.testSegmentGrouping")
def test_groups_are_bounded_by_the_size_of_a_segment() -> None:
    """As many segments as fit, in order; one that is too large stays alone."""
    compacted = of_segments(1, 1, 1, 1, 1)
    sealed = compacted.log.reader.segments[:-1]
    size = sealed[0].size_bytes
    for limit, expected in (
        (2 * size, [[0, 1], [2, 3]]),
        (2 * size - 1, [[0], [1], [2], [3]]),
        (3 * size, [[0, 1, 2], [3]]),
        (1, [[0], [1], [2], [3]]),
    ):
        assert sizes(grouped(sealed, with_config(segment_bytes=limit), 4)) == expected
    assert sizes(grouped([], with_config(), 4)) == []


@pytest.mark.parametrize("index_bytes", [12, 24, 36])
def test_groups_are_bounded_by_the_size_of_an_index(index_bytes: int) -> None:
    """Of the offset index, 8 bytes an entry, and of the time index, 12 bytes an entry."""
    compacted = of_segments(9, 9, 9, 9)
    sealed = compacted.log.reader.segments[:-1]
    entries = {len(list(segment.indexes.time.entries())) for segment in sealed}
    assert entries == {1}, "each segment ends with one entry"
    per_group = index_bytes // 12
    config = with_config(segment_index_bytes=index_bytes)
    groups = sizes(grouped(sealed, config, 27))
    offset_bytes = sealed[0].indexes.offset.size_bytes
    assert max(map(len, groups)) == min(per_group, 3, max(1, index_bytes // offset_bytes))


@kafka("LogCleanerTest.testSegmentGroupingWithSparseOffsetsAndEmptySegments")
def test_groups_are_bounded_by_31_bits_of_offsets() -> None:
    """Empty segments are exempt, or one would stay for every 2**31 offsets."""
    compacted = of_segments(1, 1, 1)
    first, second = compacted.log.reader.segments[:2]
    far = first.base_offset + 2**31
    assert sizes(grouped([first, second], with_config(), far)) == [[0, 1]]
    assert sizes(grouped([first, second], with_config(), far + 1)) == [[0], [1]]
    truncate(second, 0)
    assert sizes(grouped([first, second], with_config(), INT64_MAX)) == [[0, 1]]
