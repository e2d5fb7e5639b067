"""Rows about retention and deletion."""

import errno
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import CleanShutdownMarker, OffsetCheckpoint
from engine.clock import SystemClock
from engine.config import EngineConfig, LogConfig
from engine.errors import OffsetBelowLogStart
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from engine.log.maintenance import removable
from engine.runtime import Runtime, run_retention_pass
from engine.scheduler import ThreadScheduler
from engine.state.watermarks import Watermarks
from engine.types import OffsetMetadata
from tests.support.builders import DATA, EVENTS, SMALL_INDEXES, World
from tests.support.conformance_places import DENSE, offsets_of
from tests.support.kafka import kafka
from tests.support.logs import (
    DIRECTORY,
    append_values,
    fill,
    fill_segments,
    read_values,
    segment_bases,
    with_config,
)

HOUR_MS = 3_600_000
KEEPS_AN_HOUR = with_config(retention_ms=HOUR_MS)


def of_segments(world: World, config: LogConfig, *counts: int) -> Log:
    """A committed log with a number of one-record batches in each segment."""
    log = world.open_log(config)
    fill_segments(log, *counts)
    log.durability.commit()
    return log


@dataclass(frozen=True)
class Plain:
    """A segment as retention sees it."""

    base_offset: int
    size_bytes: int = 100
    largest_timestamp: int = 0


def removed_of(segments: list[Plain], config: LogConfig, *, high_watermark: int) -> list[int]:
    """The base offsets of what retention takes at the time 1,000 of a log that ends at 100."""
    removed = removable(
        segments,
        config,
        Watermarks(0, OffsetMetadata(high_watermark), OffsetMetadata(100, 0, 0)),
        1_000,
    )
    return [segment.base_offset for segment in removed]


@kafka(
    "UnifiedLogTest.testDeletableSegmentsFilter",
    "UnifiedLogTest.testDeletableSegmentsIteration",
)
def test_segments_are_judged_in_order_up_to_the_first_that_stays() -> None:
    """An expired segment after one that is not stays; an empty last one is never removed."""
    config = LogConfig(retention_ms=10)
    old, new = {"largest_timestamp": 0}, {"largest_timestamp": 995}
    mixed = [Plain(0, **old), Plain(10, **old), Plain(20, **new), Plain(30, **old)]
    assert removed_of(mixed, config, high_watermark=100) == [0, 10]
    expired = [Plain(base, **old) for base in (0, 10, 20)]
    assert removed_of(expired, config, high_watermark=100) == [0, 10, 20]
    assert removed_of([*expired, Plain(100, 0, 0)], config, high_watermark=100) == [0, 10, 20]
    assert removed_of([*expired], config, high_watermark=19) == [0]
    assert removed_of([Plain(0, **new), *expired[1:]], config, high_watermark=100) == []


@kafka(
    "UnifiedLogTest.testSegmentDeletionWithHighWatermarkInitialization",
    "UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark",
    "UnifiedLogTest.testDeleteOldSegments",
)
@pytest.mark.parametrize("committed", range(0, 101, 10))
def test_retention_never_takes_the_log_start_past_the_high_watermark(committed: int) -> None:
    """Everything is expired: whole segments below the high watermark go, at the end all of them."""
    world = World()
    log = world.open_log(with_config(retention_ms=HOUR_MS, segment_bytes=400))
    fill(log, batches=committed)
    log.durability.commit()
    fill(log, batches=100 - committed, first=committed)
    assert log.watermarks.high_watermark == committed
    world.clock.advance(HOUR_MS + 1)
    bases = segment_bases(log)
    log.maintenance.run_retention()
    marks = log.watermarks
    assert marks.log_start_offset <= marks.high_watermark == committed
    if committed == 100:
        assert (segment_bases(log), log.reader.size_bytes) == ([100], 0)
        assert marks.log_start_offset == 100
    else:
        assert marks.log_start_offset == max(base for base in bases if base <= committed)
    log.maintenance.check_invariants()


@kafka(
    "UnifiedLogTest.shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete",
    "UnifiedLogTest.shouldDeleteSegmentsReadyToBeDeletedWhenCleanupPolicyIsCompactAndDelete",
)
@pytest.mark.parametrize(
    ("policy", "bases"), [(("compact",), [0, 5]), (("compact", "delete"), [10])]
)
def test_compaction_alone_has_no_retention_by_time(
    policy: tuple[str, ...], bases: list[int]
) -> None:
    """With delete in its policy a compacted log loses what expired, without it nothing."""
    world = World()
    log = of_segments(world, KEEPS_AN_HOUR, 5, 5)
    log.maintenance.update_config(with_config(retention_ms=HOUR_MS, cleanup_policy=policy))
    world.clock.advance(2 * HOUR_MS)
    log.maintenance.run_retention()
    assert segment_bases(log) == bases


@kafka(
    "UnifiedLogTest.shouldDeleteStartOffsetBreachedSegmentsWhenPolicyDoesNotIncludeDelete",
    "UnifiedLogTest.testLogDeletionAfterDeleteRecords",
    "UnifiedLogTest.testNoOpWhenRemoteLogStorageIsDisabled",
)
@pytest.mark.parametrize("policy", [("delete",), ("compact",)])
@pytest.mark.parametrize(
    ("before", "bases"), [(4, [0, 5, 10]), (5, [5, 10]), (8, [5, 10]), (15, [10])]
)
def test_segments_below_the_log_start_go_under_any_policy(
    policy: tuple[str, ...], before: int, bases: list[int]
) -> None:
    """The one that holds the log start stays, and records below it cannot be read."""
    log = of_segments(World(), DENSE, 5, 5, 5)
    log.maintenance.update_config(with_config(cleanup_policy=policy))
    assert log.delete_records(before) == before
    log.maintenance.run_retention()
    assert segment_bases(log) == bases
    assert log.watermarks.log_start_offset == before
    assert len(read_values(log)) == 15 - before
    with pytest.raises(OffsetBelowLogStart):
        log.reader.read(before - 1, max_bytes=1)


@kafka(
    "UnifiedLogTest.testAsyncDelete",
    "LocalLogTest.testRemoveAndDeleteSegmentsAsync",
    "LocalLogTest.testDeleteSegmentFilesAsync",
)
@pytest.mark.parametrize("delay_ms", [0, 1_000])
def test_files_are_renamed_at_once_and_removed_after_the_delay(delay_ms: int) -> None:
    """Log, indexes and snapshot of a removed segment wait under another name."""
    world = World()
    log = of_segments(world, with_config(retention_bytes=0, file_delete_delay_ms=delay_ms), 2, 2)
    names_before = {n for n in world.fs.list_directory(DIRECTORY) if n.startswith("0" * 20)}
    log.maintenance.run_retention()
    waiting = set(world.fs.list_directory(DIRECTORY))
    assert {name + ".deleted" for name in names_before} <= waiting
    assert not names_before & waiting
    world.scheduler.advance(delay_ms)
    left = world.fs.list_directory(DIRECTORY)
    assert [name for name in left if name.endswith(".deleted")] == []
    assert offsets_of(world, ".log") == segment_bases(log)


def test_a_delay_of_zero_removes_a_topic_with_the_next_turn() -> None:
    """Nothing waits for a delay that is none, and a stop after it is clean."""
    no_delay = {**SMALL_INDEXES, "file.delete.delay.ms": "0"}
    world = World(config=EngineConfig(default_topic_config=no_delay))
    manager = world.open_manager({"events": 1})
    fill(manager.log(EVENTS), batches=1)
    manager.delete_topic("events")
    world.scheduler.run_due()
    assert [name for name in world.fs.list_directory(DATA) if name.startswith("events")] == []
    manager.close()
    assert world.open_manager().topics() == {}


@kafka("LogManagerTest.testShutdownWithZeroFileDeleteDelayMs")
def test_a_stop_beside_deletions_without_delay_does_not_hang(tmp_path: Path) -> None:
    """The thread that removes files neither waits for ever nor delays the stop."""
    no_delay = {**SMALL_INDEXES, "file.delete.delay.ms": "0"}
    clock = SystemClock()
    scheduler = ThreadScheduler(clock)
    config = EngineConfig(default_topic_config=no_delay)
    runtime = Runtime(tmp_path, config, clock=clock, scheduler=scheduler)
    scheduler.start()
    runtime.open()
    for number in range(3):
        runtime.manager.create_topic(f"events-{number}", 1, {})
        runtime.manager.delete_topic(f"events-{number}")
    are_removed = threading.Event()
    scheduler.once("after the removals", 0, are_removed.set)
    assert are_removed.wait(timeout=30)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("events")]
    runtime.manager.create_topic("late", 1, {})
    runtime.manager.delete_topic("late")

    def stop() -> None:
        runtime.close()
        scheduler.stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(timeout=30)
    assert not stopping.is_alive()
    assert CleanShutdownMarker(PosixFileSystem(), tmp_path).exists()


@kafka(
    "UnifiedLogTest.testLogDeletionAfterClose",
    "LocalLogTest.testLogDeleteSegmentsSuccess",
    "LocalLogTest.testLogDeleteDirSuccessWhenEmptyAndFailureWhenNonEmpty",
)
def test_a_closed_log_is_deleted_with_its_directory() -> None:
    """A directory is only removed whole; while files are in it, removing it fails."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    fill(log, batches=1)
    log.close()
    with pytest.raises(OSError, match=r".") as refused:
        world.fs.remove(DIRECTORY)
    assert refused.value.errno in {errno.EISDIR, errno.EPERM, errno.ENOTEMPTY}
    manager.delete_topic("events")
    world.scheduler.advance(60_000)
    assert [name for name in world.fs.list_directory(DATA) if name.startswith("events")] == []


@kafka(
    "LogManagerTest.testCleanupExpiredSegments",
    "LogManagerTest.testCleanupSegmentsToMaintainSize",
)
def test_background_retention_by_time_and_size_leaves_a_log_that_works() -> None:
    """Older offsets are out of range, every remaining segment has its files, appends continue."""
    world = World()
    manager = world.open_manager()
    manager.create_topic(
        "events",
        1,
        {"segment.bytes": "400", "retention.bytes": "1000", "segment.index.bytes": "1200"},
    )
    log = manager.log(EVENTS)
    fill(log, batches=100)
    log.durability.commit()
    assert run_retention_pass([log]) > 0
    world.scheduler.advance(60_000)
    assert 1000 < log.reader.size_bytes < 1400
    bases = segment_bases(log)
    for suffix in (".log", ".index", ".timeindex"):
        assert offsets_of(world, suffix) == bases
    assert offsets_of(world, ".snapshot") == bases
    with pytest.raises(OffsetBelowLogStart):
        log.reader.read(0, max_bytes=1)
    assert append_values(log, b"new") == 100


def test_a_deleted_log_is_not_released_to_the_archive() -> None:
    """Its line in the checkpoint of log starts does not come back."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    due = log.maintenance.due_for_release()
    manager.delete_topic("events")
    assert not manager.release(log, due)
    assert EVENTS not in OffsetCheckpoint(world.fs, DATA / names.LOG_START_CHECKPOINT).read()
