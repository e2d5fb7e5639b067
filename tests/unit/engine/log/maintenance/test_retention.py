"""What goes when: by size, by age, below the log start; and how it goes."""

import contextlib
import logging
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import (
    OffsetBelowLogStart,
    StorageOffline,
)
from engine.log.log import Log
from engine.log.maintenance import removable
from engine.state.watermarks import Watermarks
from engine.types import EpochOffset, LogStartReason, OffsetMetadata
from tests.support.builders import World, values_of
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    fill,
    fill_segments,
    log_path,
    read_values,
    segment_bases,
    with_config,
)
from tests.support.time import START_MS

HOUR_MS = 3_600_000
SIZE = len(values_of([b"000000"]))


class Stub(NamedTuple):
    """What retention looks at."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int


def reasons(
    segments: list[Stub], *, high_watermark: int = 100, log_start: int = 0, **settings: Any
) -> list[tuple[int, str]]:
    removed = removable(
        segments,
        with_config(**settings),
        Watermarks(log_start, OffsetMetadata(high_watermark), OffsetMetadata(100, 0, 0)),
        START_MS,
    )
    return [(segment.base_offset, segment.reason.value) for segment in removed]


THREE = [Stub(0, 1_000, 0), Stub(10, 1_000, START_MS), Stub(20, 1_000, START_MS)]


@kafka(
    "UnifiedLogTest.shouldDeleteSizeBasedSegments",
    "UnifiedLogTest.shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize",
)
@pytest.mark.parametrize(
    ("retention_bytes", "bases"),
    [(-1, []), (3_000, []), (2_500, []), (2_000, [0]), (1_999, [0]), (1_000, [0, 10]), (0, 3)],
)
def test_size_never_falls_below_the_limit(retention_bytes: int, bases: list[int] | int) -> None:
    """A segment is removed if the others still reach the limit."""
    removed = reasons(THREE, retention_bytes=retention_bytes)
    if isinstance(bases, int):
        assert len(removed) == bases
    else:
        assert removed == [(base, "size") for base in bases]


@kafka(
    "UnifiedLogTest.shouldDeleteTimeBasedSegmentsReadyToBeDeleted",
    "UnifiedLogTest.shouldNotDeleteTimeBasedSegmentsWhenNoneReadyToBeDeleted",
    "UnifiedLogTest.testDeletableSegmentsFilter",
)
def test_age_is_strict_and_stops_at_the_first_young_segment() -> None:
    """Exactly retention.ms is young enough."""
    old, at_limit = START_MS - HOUR_MS - 1, START_MS - HOUR_MS
    segments = [Stub(0, 9, old), Stub(10, 9, old), Stub(20, 9, at_limit), Stub(30, 9, old)]
    assert reasons(segments, retention_ms=HOUR_MS) == [(0, "time"), (10, "time")]
    assert reasons(segments, retention_ms=-1) == []
    assert reasons(segments[:3], retention_ms=0) == [(0, "time"), (10, "time"), (20, "time")]


@kafka("UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark")
def test_only_committed_segments_go() -> None:
    """Never at or above the high watermark."""
    for high_watermark, count in ((0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (99, 2), (100, 3)):
        assert len(reasons(THREE, retention_bytes=0, high_watermark=high_watermark)) == count


@kafka("UnifiedLogTest.testDeletableSegmentsIteration")
def test_the_empty_last_segment_stays() -> None:
    """Without content there is nothing to remove."""
    segments = [Stub(0, 10, 0), Stub(100, 0, 0)]
    assert reasons(segments, retention_bytes=0, retention_ms=0) == [(0, "size")]


@kafka("UnifiedLogTest.testRetentionIdempotency")
def test_each_rule_looks_at_what_the_one_before_left() -> None:
    """A deletion by the start unblocks one by age at once."""
    segments = [Stub(0, 9, START_MS), Stub(10, 9, 0), Stub(20, 9, START_MS)]
    assert reasons(segments, retention_ms=HOUR_MS) == []
    removed = reasons(segments, retention_ms=HOUR_MS, log_start=10)
    assert removed == [(0, "log_start"), (10, "time")]


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    retention_bytes=st.integers(0, 200),
)
def test_what_is_left_holds_the_limit_if_it_ever_did(
    sizes: list[int], retention_bytes: int
) -> None:
    """Only a prefix is removed, and the rest is not below the limit."""
    segments = [Stub(i, size, START_MS) for i, size in enumerate(sizes)]
    removed = reasons(segments, retention_bytes=retention_bytes)
    assert [base for base, _ in removed] == list(range(len(removed)))
    left = sum(sizes[len(removed) :])
    assert not removed or left >= retention_bytes


def files(world: World) -> list[str]:
    return [name for name in world.disk.list_directory(DIRECTORY) if name[0] == "0"]


def test_a_dry_run_names_and_removes_nothing() -> None:
    """The same list comes from the real run after it."""
    log = World().open_log(with_config(retention_bytes=0))
    fill_segments(log, 2, 1)
    log.durability.commit()
    named = log.maintenance.run_retention(dry_run=True)
    assert segment_bases(log) == [0, 2]
    assert log.maintenance.run_retention() == named
    assert log.maintenance.run_retention() == []


@kafka(
    "UnifiedLogTest.testDeleteOldSegments",
    "UnifiedLogTest.testThatGarbageCollectingSegmentsDoesntChangeOffset",
)
def test_expiring_everything_leaves_one_empty_segment() -> None:
    """The log end stays, and appends continue there."""
    world = World()
    log = world.open_log(with_config(retention_ms=HOUR_MS))
    fill_segments(log, 2, 3)
    log.durability.commit()
    world.clock.advance(HOUR_MS + 1)
    assert len(log.maintenance.run_retention()) == 2
    marks = log.watermarks
    assert marks.log_start_offset == marks.log_end_offset == 5
    assert segment_bases(log) == [5]
    assert log._core.state.epochs.entries == (EpochOffset(0, 5),)  # noqa: SLF001 - there is no public way to see it
    assert append_values(log, b"x", timestamp=START_MS + HOUR_MS) == 5
    log.maintenance.check_invariants()


def test_removal_survives_a_power_cut() -> None:
    """After the flush that follows, removed segments stay removed, and the rest is present."""
    world = World()
    log = world.open_log(with_config(retention_bytes=SIZE))
    values = fill_segments(log, 2, 2)
    log.durability.commit()
    log.maintenance.run_retention()
    world.scheduler.run_due()
    world.restart(power_cut=True)
    again = world.open_log(CONFIG)
    assert again.watermarks.log_start_offset == 2
    assert read_values(again) == values[2:]


def test_removal_is_skipped_when_the_directory_went_offline() -> None:
    """Files are not removed any more once a write has failed."""
    world = World()
    log = world.open_log(with_config(retention_bytes=0))
    fill_segments(log, 2, 1)
    log.durability.flush()
    log.maintenance.run_retention()
    world.health.fail(OSError(5, "gone"))
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    assert log_path(0).name + ".deleted" in files(world)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_removal_that_cannot_be_made_durable_takes_the_directory_offline(nth: int) -> None:
    """Neither a remaining nor a removed name may be in doubt when the next one is removed."""
    world = World()
    log = world.open_log(with_config(retention_bytes=0))
    fill_segments(log, 2, 1)
    log.durability.flush()
    world.disk.fail("sync_directory", path_end=log.directory.name, nth=nth)
    with pytest.raises(StorageOffline):
        log.maintenance.run_retention()
    assert world.health.is_offline


def test_a_removal_that_a_disk_fails_takes_the_directory_offline() -> None:
    """Also when the files go, a minute after their names."""
    world = World()
    log = world.open_log(with_config(retention_bytes=0))
    fill_segments(log, 2, 1)
    log.durability.flush()
    log.maintenance.run_retention()
    world.scheduler.run_due()
    world.disk.fail("remove", path_end=".log.deleted")
    with pytest.raises(StorageOffline):
        world.scheduler.advance(CONFIG.file_delete_delay_ms)
    assert world.health.is_offline


@pytest.fixture
def log() -> Log:
    log = World().open_log(CONFIG)
    fill_segments(log, 3, 3)
    log.durability.commit()
    return log


@kafka("UnifiedLogTest.testLogDeletionAfterDeleteRecords")
def test_deleting_records_raises_the_log_start(log: Log) -> None:
    """At once for readers; the bytes go later."""
    assert log.delete_records(2) == 2
    assert log.delete_records(1) == 2
    with pytest.raises(OffsetBelowLogStart):
        log.reader.read(1, max_bytes=1)
    assert log.maintenance.run_retention() == []
    assert log.delete_records(4) == 4
    assert [segment.base_offset for segment in log.maintenance.run_retention()] == [0]
    assert read_values(log) == [b"000004", b"000005"]
    assert log.durability.recovery_point >= 4


def test_minus_one_deletes_up_to_the_high_watermark(log: Log) -> None:
    """Records that are not committed stay."""
    fill(log, batches=1, first=6)
    assert log.delete_records(-1) == 6
    log.durability.commit()
    assert read_values(log) == [b"000006"]


def test_a_deletion_is_kept_by_its_checkpoint() -> None:
    """Reopened with the noted start the log begins there, in the middle of a segment."""
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 3, 3)
    log.durability.flush()
    log.delete_records(4)
    log.close()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG, log_start_offset=4, recovery_point=6, was_clean=True)
    assert again.watermarks.log_start_offset == 4
    assert read_values(again) == [b"000004", b"000005"]
    again.maintenance.check_invariants()


def test_why_a_log_starts_later_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The reason of the deletion, and nothing if nothing changed."""
    caplog.set_level(logging.INFO, logger="engine.log.state")
    log = World().open_log(with_config(retention_bytes=0))
    fill_segments(log, 2, 2, 1)
    log.durability.commit()
    log.delete_records(1)
    log.delete_records(1)
    log.delete_records(2, LogStartReason.LEADER_OFFSET_INCREMENTED)
    log.maintenance.run_retention()
    assert [record.getMessage() for record in caplog.records] == [
        "the log start of events-0 is now 1: client record deletion",
        "the log start of events-0 is now 2: leader offset incremented",
        "the log start of events-0 is now 5: segment deletion",
    ]


@pytest.mark.parametrize("seed", [0, 10])
def test_a_power_cut_during_retention_leaves_no_gap(seed: int) -> None:
    """Whichever renames reached the disk, the rest is the end of the log, without a gap.

    Segments were renamed one after another without a sync, and a later one could be gone alone.
    """
    for change in range(1, 25):
        world = World()
        log = world.open_log(CONFIG)
        values = fill_segments(log, 2, 2, 2, 2)
        log.durability.flush()
        log.delete_records(6)
        with contextlib.suppress(PowerCut), world.disk.power_cut_before(change):
            log.maintenance.run_retention()
        world.disk.restart(random=Random(seed))
        world.restart(power_cut=False)
        log = world.open_log(CONFIG, recovery_point=8)
        assert log.durability.recovery.damage is None
        assert read_values(log) == values[segment_bases(log)[0] :]
        assert segment_bases(log)[-1] == 6
