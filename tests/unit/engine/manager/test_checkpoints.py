"""Tests about the use of checkpoints and the clean marker by the next start."""

from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.tools.dump import dump_file, render
from engine.types import FetchIsolation
from tests.support.builders import DATA, EVENTS, World
from tests.support.conformance_places import DENSE
from tests.support.kafka import kafka
from tests.support.logs import DIRECTORY, fill, fill_segments, read_values, segment_bases


@kafka(
    "LogManagerTest.testCheckpointRecoveryPoints",
    "LogManagerTest.testRecoveryDirectoryMappingWithTrailingSlash",
    "LogManagerTest.testRecoveryDirectoryMappingWithRelativeDirectory",
)
@pytest.mark.parametrize("spelling", ["data", "./data/", "other/../data"])
def test_recovery_points_are_found_however_the_directory_is_spelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    """Written under a relative path, the checkpoint is used under the absolute one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    world = World(fs=PosixFileSystem(), directory=Path(spelling))
    manager = world.open_manager({"events": 2})
    values = fill(manager.log(EVENTS), batches=5)
    manager.log(EVENTS).durability.flush()
    manager.checkpoint()
    path = tmp_path / "data" / names.RECOVERY_POINT_CHECKPOINT
    points = OffsetCheckpoint(world.fs, path).read()
    assert points == {log.topic_partition: log.durability.recovery_point for log in manager.logs()}
    assert points[EVENTS] == 5
    manager.close()
    again = World(fs=PosixFileSystem(), directory=tmp_path / "data").open_manager()
    assert again.log(EVENTS).durability.recovery_point == 5
    assert read_values(again.log(EVENTS)) == values
    again.close()


@kafka("LogManagerTest.testCheckpointLogStartOffsetForNormalTopic")
def test_a_log_start_is_written_only_above_the_first_segment() -> None:
    """Once the segments below are gone, the first base offset is enough."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    fill_segments(log, 3, 3)
    log.durability.commit()
    checkpoint = OffsetCheckpoint(world.fs, DATA / names.LOG_START_CHECKPOINT)
    manager.checkpoint()
    assert checkpoint.read() == {}
    log.delete_records(2)
    manager.checkpoint()
    assert checkpoint.read() == {EVENTS: 2}
    log.delete_records(3)
    log.maintenance.run_retention()
    assert segment_bases(log) == [3]
    manager.checkpoint()
    assert checkpoint.read() == {EVENTS: 3}  # a power cut could bring the names back
    world.scheduler.run_due()
    manager.checkpoint()
    assert checkpoint.read() == {}


@kafka("LogLoaderTest.testCleanShutdownFile")
def test_after_a_clean_stop_nothing_is_scanned_whatever_the_recovery_point() -> None:
    """With a recovery point of 0 every record is there, and no segment was recovered."""
    world = World()
    log = world.open_log(DENSE)
    values = fill_segments(log, 3, 3, 3)
    log.durability.flush()
    log.close()
    world.restart(power_cut=True)
    log = world.open_log(DENSE, was_clean=True, recovery_point=0)
    assert (log.durability.recovery.recovered_segments, log.durability.recovery.scanned_bytes) == (
        0,
        0,
    )
    assert log.watermarks.log_end_offset == log.durability.recovery_point == 9
    assert read_values(log) == values


@kafka("LogSegmentTest.testReadWhenNoMaxPosition", "UnifiedLogTest.testOffsetSnapshot")
@pytest.mark.parametrize("one_at_least", [True, False])
def test_a_bound_without_a_place_shows_nothing(*, one_at_least: bool) -> None:
    """After an unclean start, before the first commit, nothing is visible; then all of it is."""
    world = World()
    values = fill(world.open_log(DENSE), batches=3)
    world.restart(power_cut=False)
    log = world.open_uncommitted(DENSE)
    assert log.watermarks.high.is_offset_only
    for isolation in (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED):
        fetched = log.reader.read(
            0, max_bytes=1000, isolation=isolation, minimum_one_batch=one_at_least
        )
        assert fetched is not None
        assert (fetched.data, fetched.next_offset) == (b"", 0)
    log.durability.commit()
    assert log.watermarks.high == (3, 0, log.reader.size_bytes)
    assert read_values(log) == values


@kafka("DumpLogSegmentsTest.testDumpEmptyIndex")
def test_an_index_of_no_entries_is_dumped_as_empty() -> None:
    """A segment of one batch has no offset entry, and the dump says so."""
    world = World()
    log = world.open_log(DENSE)
    fill(log, batches=1)
    log.close()
    path = DIRECTORY / names.index_name(0)
    lines = [render(entry) for entry in dump_file(world.fs, path)]
    assert lines[-1] == f"{path} is empty."
