"""Rows about index files as the log writes them."""

import errno

import pytest

from engine.errors import StorageFull
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.types import AppendOrigin, TimestampOffset
from tests.support.builders import World, new_batch
from tests.support.kafka import kafka
from tests.support.logs import append_values, log_path, with_config


@kafka("UnifiedLogTest.testBuildTimeIndexWhenNotAssigningOffsets")
def test_appends_that_bring_their_offsets_are_indexed_by_time() -> None:
    """Of a hundred appends with an entry each, all but the first have one.

    The last the last time.
    """
    world = World()
    log = world.open_log(with_config(index_interval_bytes=1, segment_index_bytes=12_000))
    for number in range(100):
        batch = new_batch(timestamp=1_000 + number, base_offset=number)
        log.append(batch, origin=AppendOrigin.REPLICATION)
    log.close()
    index = TimeIndex(world.fs, log_path(suffix=".timeindex"), 0, 0, read_only=True)
    entries = list(index.entries())
    assert len(entries) == 99
    assert entries[0] == TimestampOffset(1_001, 1)
    assert entries[-1] == TimestampOffset(1_099, 99)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_entry_that_finds_no_space_refuses_its_append(suffix: str) -> None:
    """A file system that writes each change to a new place needs space for it: nothing is written.

    Both indexes are as before, and the next append has its entry in both.
    """
    world = World()
    log = world.open_log(with_config(index_interval_bytes=1, segment_index_bytes=1200))
    for number in range(4):
        append_values(log, b"v", timestamp=1_000 + number)
    world.disk.fail("store", error=errno.ENOSPC, path_end=suffix)
    with pytest.raises(StorageFull):
        append_values(log, b"v", timestamp=1_004)
    assert log.watermarks.log_end_offset == 4
    append_values(log, b"w", timestamp=1_005)
    log.close()
    offsets = OffsetIndex(world.fs, log_path(suffix=".index"), 0, 0, read_only=True)
    times = TimeIndex(world.fs, log_path(suffix=".timeindex"), 0, 0, read_only=True)
    assert [entry.offset for entry in offsets.entries()] == [1, 2, 3, 4]
    assert list(times.entries())[-1] == TimestampOffset(1_005, 4)


@kafka("UnifiedLogTest.testIndexResizingAtTruncation")
@pytest.mark.parametrize(
    ("suffix", "entry_bytes", "kind"), [(".index", 8, OffsetIndex), (".timeindex", 12, TimeIndex)]
)
def test_indexes_have_the_size_that_their_segment_needs(
    suffix: str, entry_bytes: int, kind: type[OffsetIndex] | type[TimeIndex]
) -> None:
    """Sealed, a segment's indexes end with their entries; active again, they have room again."""
    world = World()
    config = with_config(index_interval_bytes=1, segment_index_bytes=1200)
    log = world.open_log(config)
    for number in range(10):
        append_values(log, b"v", timestamp=1_000 + number)
    path = log_path(suffix=suffix)
    full = 1200 // entry_bytes * entry_bytes
    assert world.fs.size_bytes(path) == full
    log.roll()
    assert world.fs.size_bytes(path) == 9 * entry_bytes
    log.truncate_to(5)
    assert world.fs.size_bytes(path) == full
    log.close()
    index = kind(world.fs, path, 0, 0, read_only=True)
    assert index.count == 4
