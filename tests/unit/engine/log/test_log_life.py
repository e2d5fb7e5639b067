"""The end of a log and its moves: close, handles, another directory, what listings show."""

import pytest

from engine.errors import StorageOffline
from engine.log.log import Log
from engine.log.results import SegmentInfo
from tests.support.builders import TOPIC_ID, World
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    fill,
    fill_segments,
    read_values,
)
from tests.support.time import START_MS

MOVED = DIRECTORY.with_name("events-0.0123456789abcdef0123456789abcdef-delete")


@kafka("LocalLogTest.testLogCloseSuccess")
def test_a_closed_log_is_what_a_clean_stop_leaves() -> None:
    """Trimmed files, a snapshot at the end, and nothing else."""
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 2, 1)
    log.durability.flush()
    log.close()
    assert world.disk.list_directory(DIRECTORY) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert world.disk.size_bytes(DIRECTORY / "00000000000000000002.timeindex") == 12


def test_a_clean_stop_survives_a_power_cut() -> None:
    """A clean start does not scan, so everything is on disk when close returns."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=50)
    log.durability.flush()
    log.close()
    world.restart(power_cut=True)
    again = world.open_log(CONFIG, was_clean=True)
    assert read_values(again) == values
    assert again.reader.offset_for_time(START_MS) is not None
    assert again.durability.recovery.recovered_segments == 0


def test_a_closed_log_refuses_readers() -> None:
    """A caller that still holds a closed log gets an error, with the advice to try again."""
    log = World().open_log(CONFIG)
    fill(log, batches=3)
    log.durability.flush()
    log.close()
    with pytest.raises(StorageOffline, match="events-0 is closed"):
        log.reader.read(0, max_bytes=1)


def test_a_closed_file_of_an_open_log_is_a_bug() -> None:
    """Only a closed log explains a closed file; otherwise it is a bug and raises."""
    log = World().open_log(CONFIG)
    fill(log, batches=3)
    log.durability.flush()
    log.reader.segments[0].records.close()
    with pytest.raises(ValueError, match="closed"):
        log.reader.read(0, max_bytes=1)


@kafka("LocalLogTest.testLogCloseHandlers")
def test_handles_close_without_a_write() -> None:
    """A directory that went offline is left as it is."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=3)
    before = len(world.disk.changes)
    log.maintenance.close_handles()
    log.maintenance.close_handles()
    assert len(world.disk.changes) == before
    with pytest.raises(StorageOffline, match="closed"):
        append_values(log, b"x")


@kafka("LogManagerTest.testFileReferencesAfterAsyncDelete")
def test_a_log_goes_on_in_a_renamed_directory() -> None:
    """Appends, rolls, flushes and deletions work under the new name."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 2, 2)
    log.maintenance.rename_directory(MOVED)
    assert log.directory == MOVED
    assert not world.disk.exists(DIRECTORY)
    values += fill(log, batches=2, first=4)
    log.roll()
    log.durability.flush()
    assert read_values(log) == values
    log.delete_records(2)
    log.maintenance.run_retention()
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    log.close()
    names = world.disk.list_directory(MOVED)
    assert [name for name in names if name.endswith((".deleted", ".tmp"))] == []
    assert "00000000000000000006.snapshot" in names


def test_segments_tell_what_they_hold() -> None:
    """Offsets, bytes, times and which is active, oldest first."""
    world = World()
    world.disk.now_ms = 77
    log = world.open_log(CONFIG)
    append_values(log, b"a", b"b", timestamp=START_MS - 5)
    log.roll()
    append_values(log, b"c")
    infos = log.reader.listing().segments
    sizes = [info.size_bytes for info in infos]
    assert infos == [
        SegmentInfo(0, 2, sizes[0], START_MS - 5, 77, is_active=False, has_transactions=False),
        SegmentInfo(2, 3, sizes[1], START_MS, 77, is_active=True, has_transactions=False),
    ]
    assert log.reader.size_bytes == sum(sizes)
    assert (log.reader.segments_count, log.reader.first_segment_base_offset) == (2, 0)


def test_a_log_knows_its_name_and_id() -> None:
    """Topic, partition and topic id are those it was opened with."""
    log = World().open_log(CONFIG)
    assert str(log.topic_partition) == "events-0"
    assert log.topic_id == TOPIC_ID
    assert log.producers.highest_id == -1


def test_a_log_stays_small() -> None:
    """Fifteen public members and no base class: everything else belongs to one of its parts."""
    log = World().open_log(CONFIG)
    assert len([name for name in dir(log) if not name.startswith("_")]) <= 15
    assert Log.__mro__ == (Log, object)
