"""Tests about opening a log: what is found, rebuilt and removed."""

from random import Random

import pytest

from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.log.log import Log
from tests.support.builders import World, new_batch
from tests.support.conformance_places import DENSE, offsets_of, remove_files, reopen
from tests.support.kafka import kafka
from tests.support.logs import (
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

SMALL = with_config(segment_bytes=700, index_interval_bytes=1)
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


def with_times(world: World, count: int) -> Log:
    """A committed log over several segments, record times 10 ms apart."""
    log = world.open_log(SMALL)
    for number in range(count):
        append_values(log, b"%06d" % number, timestamp=START_MS + number * 10)
    log.durability.commit()
    assert log.reader.segments_count > 3
    return log


def ensure_readable(log: Log, count: int) -> None:
    """Every record is found by its offset and by its time."""
    expected = [b"%06d" % number for number in range(count)]
    assert read_values(log) == expected
    for offset in range(count):
        assert read_values(log, offset)[0] == expected[offset]
        found = log.reader.offset_for_time(START_MS + offset * 10)
        assert found is not None
        assert found[:2] == (START_MS + offset * 10, offset)


def index_entries(world: World, base_offset: int) -> tuple[list[object], list[object]]:
    """The entries of both sparse indexes of a sealed or closed segment."""
    offset = OffsetIndex(
        world.fs, log_path(base_offset, suffix=".index"), base_offset, 0, read_only=True
    )
    times = TimeIndex(
        world.fs, log_path(base_offset, suffix=".timeindex"), base_offset, 0, read_only=True
    )
    return list(offset.entries()), list(times.entries())


def overwrite(world: World, path: str, content: bytes) -> None:
    """Put other bytes into a file of the log."""
    target = DIRECTORY / path
    world.fs.remove(target, missing_ok=True)
    with world.fs.open(target, create=True) as file:
        file.append(content)


@kafka("LogLoaderTest.testLogRecoversToCorrectOffset")
@pytest.mark.parametrize("clean", [True, False])
def test_a_reopened_log_has_its_end_its_indexes_and_its_recovery_point(*, clean: bool) -> None:
    """End and index tails are as before; the recovery point is the checkpoint's until a flush."""
    world = World()
    log = with_times(world, 100)
    log.durability.flush()
    log.close()
    bases = segment_bases(log)
    before = [index_entries(world, base) for base in bases]
    world.restart(power_cut=False)
    log = world.open_log(SMALL, recovery_point=60, was_clean=clean)
    assert log.watermarks.log_end_offset == 100
    assert log.durability.recovery_point == (100 if clean else 60)
    log.durability.flush()
    assert log.durability.recovery_point == 100
    log.close()
    assert [index_entries(world, base) for base in bases] == before


@kafka("LogLoaderTest.testIndexRebuild")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("removed", [(".index",), (".timeindex",), DERIVED])
def test_missing_indexes_are_rebuilt(removed: tuple[str, ...], *, clean: bool) -> None:
    """Every record is found by offset and by time again."""
    world = World()
    log = with_times(world, 60)
    log.durability.flush()
    log.close()
    remove_files(world, *removed)
    world.restart(power_cut=False)
    log = world.open_log(SMALL, recovery_point=60, was_clean=clean)
    ensure_readable(log, 60)


@kafka(
    "LogLoaderTest.testCorruptIndexRebuild",
    "LogSegmentTest.testRecoveryFixesCorruptIndex",
    "LogSegmentTest.testRecoveryFixesCorruptTimeIndex",
)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_overwritten_indexes_are_rebuilt(suffix: str) -> None:
    """Text instead of entries is replaced by recovery, and misleads no look-up."""
    world = World()
    log = with_times(world, 60)
    world.restart(power_cut=False)
    for base in segment_bases(log):
        overwrite(world, f"{base:020d}{suffix}", b"  not an index, but words  ")
    log = world.open_log(SMALL)
    ensure_readable(log, 60)


@kafka("LogLoaderTest.testBogusIndexSegmentsAreRemoved")
def test_index_files_without_a_log_file_go() -> None:
    """Leftovers at other offsets are removed, those of the segments stay."""
    world = World()
    log = with_times(world, 60)
    bases = segment_bases(log)
    log.durability.flush()
    log.close()
    for bogus in (1, 3, 4000):
        for suffix in (".index", ".timeindex", ".txnindex"):
            overwrite(world, f"{bogus:020d}{suffix}", b"\0" * 24)
    world.restart(power_cut=False)
    log = world.open_log(SMALL, was_clean=True)
    assert offsets_of(world, ".index") == offsets_of(world, ".timeindex") == bases
    assert offsets_of(world, ".txnindex") == []
    ensure_readable(log, 60)


@kafka("LogLoaderTest.testBogusIndexSegmentsAreRemoved")
def test_a_new_segment_does_not_adopt_a_bogus_index() -> None:
    """An index that appears under the next segment's name is not used."""
    world = World()
    log = world.open_log(DENSE)
    fill(log, batches=5)
    overwrite(world, f"{5:020d}.index", b"\x7f" * 80)
    log.roll()
    fill(log, batches=5, first=5)
    log.durability.commit()
    assert read_values(log, 7) == [b"%06d" % number for number in range(7, 10)]
    log.close()
    size = world.fs.size_bytes(log_path(5)) // 5
    assert index_entries(world, 5)[0] == [(5 + n, n * size) for n in range(1, 5)]


@kafka("LogLoaderTest.testReopenThenTruncate")
@pytest.mark.parametrize("clean", [True, False])
def test_a_reopened_log_truncates_like_any_other(*, clean: bool) -> None:
    """One segment is left, which ends at 3."""
    world = World()
    log = world.open_log(SMALL)
    values = fill(log, batches=40)
    log = reopen(world, log, SMALL, clean=clean)
    assert log.truncate_to(3) == 3
    assert segment_bases(log) == [0]
    assert read_values(log) == values[:3]


@kafka("LogLoaderTest.testOpenDeletesObsoleteFiles")
def test_files_that_wait_for_their_removal_go_at_the_next_start() -> None:
    """A stop came before the delay: a start finds them."""
    world = World()
    log = world.open_log(with_config(segment_bytes=400, retention_ms=1))
    fill(log, batches=30)
    log.durability.commit()
    world.clock.advance(10)
    assert len(log.maintenance.run_retention()) > 3
    assert [name for name in world.fs.list_directory(DIRECTORY) if name.endswith(".deleted")]
    log = reopen(world, log, SMALL, clean=True)
    assert [name for name in world.fs.list_directory(DIRECTORY) if name.endswith(".deleted")] == []
    assert (segment_bases(log), log.watermarks.log_end_offset) == ([30], 30)


@kafka("LogLoaderTest.testCorruptLog", "LogSegmentTest.testRecoveryWithCorruptMessage")
@pytest.mark.parametrize("seed", range(50))
def test_garbage_after_the_last_batch_is_cut(seed: int) -> None:
    """Random bytes after log and index: the same records and the same end are recovered."""
    random = Random(seed)
    world = World()
    log = world.open_log(SMALL)
    values = fill(log, batches=random.randrange(1, 40), records=random.randrange(1, 3))
    last = segment_bases(log)[-1]
    world.restart(power_cut=False)
    for suffix in (".log", ".index"):
        path = log_path(last, suffix=suffix)
        content = world.fs.read_bytes(path) if world.fs.exists(path) else b""
        overwrite(world, path.name, content + random.randbytes(random.randrange(1, 500)))
    log = world.open_log(SMALL)
    assert log.watermarks.log_end_offset == len(values)
    assert read_values(log) == values
    assert log.durability.recovery.truncated_bytes > 0
    fill(log, batches=1)


@kafka("LogSegmentTest.testRecoveryWithCorruptMessage")
@pytest.mark.parametrize("damaged", range(0, 12, 3))
def test_records_before_the_damage_survive(damaged: int) -> None:
    """One byte of one batch changed.

    Exactly the records before it are recovered, and it is reported.
    """
    world = World()
    log = world.open_log(DENSE)
    values = fill(log, batches=12)
    size = log.reader.size_bytes // 12
    world.restart(power_cut=False)
    content = bytearray(world.fs.read_bytes(log_path()))
    content[damaged * size + size // 2 + 10] ^= 0x01
    overwrite(world, f"{0:020d}.log", bytes(content))
    log = world.open_log(DENSE)
    assert read_values(log) == values[:damaged]
    assert log.durability.recovery.truncated_bytes == (12 - damaged) * size
    assert log.durability.recovery.damage is not None


@kafka(
    "LogLoaderTest.testRecoverWithEmptyActiveSegment",
    "UnifiedLogTest.testFlushingEmptyActiveSegments",
)
def test_an_empty_active_segment_without_index_is_no_trouble() -> None:
    """The crash came between a roll and the first append; the recovery point stays."""
    world = World()
    log = world.open_log(DENSE)
    values = fill(log, batches=6)
    log.durability.flush()
    log.roll()
    remove = [log_path(6, suffix=suffix) for suffix in (".index", ".timeindex")]
    world.restart(power_cut=False)
    for path in remove:
        world.fs.remove(path, missing_ok=True)
    log = world.open_log(DENSE, recovery_point=6)
    assert (segment_bases(log), log.watermarks.log_end_offset, log.durability.recovery_point) == (
        [0, 6],
        6,
        6,
    )
    assert read_values(log) == values
    log.durability.flush()
    assert offsets_of(world, ".index") == [0, 6]


@kafka("LogLoaderTest.testLogStartOffsetWhenRemoteStorageIsEnabled")
@pytest.mark.parametrize(("known", "expected"), [(0, 5), (5, 5), (7, 7), (10, 10)])
def test_the_log_starts_at_the_checkpoint_or_the_first_segment(known: int, expected: int) -> None:
    """The greater of the two counts."""
    world = World()
    log = world.open_log(DENSE)
    fill_segments(log, 5, 5)
    log.durability.commit()
    log.delete_records(5)
    log.maintenance.run_retention()
    log = reopen(world, log, DENSE, clean=True, log_start_offset=known)
    assert log.watermarks.log_start_offset == expected
    assert segment_bases(log) == [5]


@kafka("UnifiedLogTest.testLoadEmptyLog")
@pytest.mark.parametrize("clean", [True, False])
def test_empty_files_are_a_log(*, clean: bool) -> None:
    """A log and an index of no length open, and take appends."""
    world = World()
    world.fs.make_directory(DIRECTORY)
    overwrite(world, f"{0:020d}.log", b"")
    overwrite(world, f"{0:020d}.index", b"")
    log = world.open_log(DENSE, was_clean=clean)
    assert log.append(new_batch()).base_offset == 0
    log.durability.commit()
    assert log.watermarks.high_watermark == 1
