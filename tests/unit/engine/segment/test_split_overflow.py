"""Rows about offsets that 31 bits cannot express: rolls, and segments that have to be split."""

from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.errors import InvalidRequestValue
from engine.fs import names
from engine.records.header import Codec
from engine.segment.recovery import append_from, split_overflowed
from engine.segment.segment import Segment
from engine.types import INT32_MAX, AppendOrigin
from tests.support.builders import World, new_batch
from tests.support.conformance_places import offsets_of, snapshots_of
from tests.support.filesystem import ForgetfulDisk, PowerCut
from tests.support.kafka import kafka
from tests.support.logs import (
    DIRECTORY,
    log_path,
    read_headers,
    read_records,
    segment_bases,
    with_config,
)

FAR = INT32_MAX + 10
CONFIG = with_config(cleanup_policy=("compact",))
"""Such gaps between offsets come from compaction; in other logs a gap is the work of a crash."""

NEAR_BATCHES = [bytes(new_batch(2, base_offset=offset)) for offset in (0, 2, 4)]
FAR_BATCHES = [bytes(new_batch(2, base_offset=offset)) for offset in (FAR, FAR + 2)]
OVERFLOWED = b"".join(NEAR_BATCHES + FAR_BATCHES)
PARTS = {0: b"".join(NEAR_BATCHES), FAR: b"".join(FAR_BATCHES)}
OFFSETS = [*range(6), *range(FAR, FAR + 4)]


def world_with(files: dict[str, bytes]) -> World:
    """A log's directory with these files, as an unclean stop left them."""
    world = World()
    world.fs.make_directory(DIRECTORY)
    for name, content in files.items():
        with world.fs.open(DIRECTORY / name, create=True) as file:
            file.append(content)
    return world


def ensure_split(world: World, *, log_start_offset: int = 0) -> None:
    """The log opens with two segments, all records and no leftovers, and so it does again."""
    for _ in range(2):
        log = world.open_log(CONFIG, log_start_offset=log_start_offset)
        assert segment_bases(log) == [0, FAR]
        assert [record.offset for record in read_records(log)] == OFFSETS
        assert {base: world.fs.read_bytes(log_path(base)) for base in PARTS} == PARTS
        log.maintenance.check_invariants()
        world.scheduler.advance(60_000)
        found = world.fs.list_directory(DIRECTORY)
        assert [name for name in found if name.endswith((".swap", ".cleaned", ".deleted"))] == []
        world.restart(power_cut=False)


@kafka(
    "LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow",
    "UnifiedLogTest.testSplitOnOffsetOverflow",
)
def test_an_overflowed_segment_is_split_by_recovery() -> None:
    """The batches are copied unchanged into segments that begin where they begin."""
    ensure_split(world_with({names.log_name(0): OVERFLOWED}))


def parts(suffixes: dict[int, str]) -> dict[str, bytes]:
    """The files of the parts of a split, each under its suffix."""
    return {names.log_name(base) + suffix: PARTS[base] for base, suffix in suffixes.items()}


ORIGINAL = {names.log_name(0): OVERFLOWED}


@kafka(
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase2",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase3",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase4",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase5",
)
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(ORIGINAL | parts({0: ".cleaned", FAR: ".cleaned"}), id="phase-1"),
        pytest.param(ORIGINAL | parts({0: ".cleaned", FAR: ".swap"}), id="phase-2"),
        pytest.param(ORIGINAL | parts({0: ".swap", FAR: ".swap"}), id="phase-3"),
        pytest.param(
            {names.log_name(0) + ".deleted": OVERFLOWED} | parts({0: ".swap", FAR: ".swap"}),
            id="phase-4",
        ),
        pytest.param(
            {names.log_name(0) + ".deleted": OVERFLOWED} | parts({0: "", FAR: ".swap"}),
            id="phase-5",
        ),
    ],
)
def test_a_split_that_a_crash_interrupted_is_finished(files: dict[str, bytes]) -> None:
    """Whatever the crash left of original and parts, the start ends with the parts."""
    ensure_split(world_with(files))


@kafka(
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase5",
)
def test_a_crash_at_any_step_of_a_split_loses_nothing() -> None:
    """The process dies before each change of the disk in turn; the next start has every record."""
    counting = world_with(ORIGINAL)
    before = len(counting.disk.changes)
    counting.open_uncommitted(CONFIG)
    steps = len(counting.disk.changes) - before
    assert steps > 10
    for step in range(1, steps + 1):
        world = world_with(ORIGINAL)
        with world.disk.power_cut_before(step), pytest.raises(PowerCut):
            world.open_uncommitted(CONFIG)
        world.restart(power_cut=False)
        ensure_split(world)


@kafka(
    "UnifiedLogTest.testDegenerateSegmentSplit",
    "UnifiedLogTest.testDegenerateSegmentSplitWithOutOfRangeBatchLastOffset",
)
@pytest.mark.parametrize(
    ("base_offset", "count"), [(FAR, 2), (INT32_MAX - 1, 5)], ids=["base", "last offset"]
)
def test_a_split_may_give_one_segment_named_by_its_batch(base_offset: int, count: int) -> None:
    """Its only batch, or only the batch's end, is too far from the name."""
    content = bytes(new_batch(count, base_offset=base_offset))
    world = world_with({names.log_name(0): content})
    log = world.open_log(CONFIG)
    assert segment_bases(log) == [base_offset]
    assert [record.offset for record in read_records(log)] == [
        base_offset + delta for delta in range(count)
    ]
    assert log.watermarks.log_start_offset == base_offset


@kafka("UnifiedLogTest.testSplitOnOffsetOverflow")
def test_a_batch_that_straddles_the_limit_begins_a_segment() -> None:
    """Its first offset would fit, its last would not: it goes whole into the next segment."""
    straddling = bytes(new_batch(5, base_offset=INT32_MAX - 1))
    world = world_with({names.log_name(0): NEAR_BATCHES[0] + straddling})
    log = world.open_log(CONFIG)
    assert segment_bases(log) == [0, INT32_MAX - 1]
    assert world.fs.read_bytes(log_path(INT32_MAX - 1)) == straddling
    assert [header.base_offset for header in read_headers(log)] == [0, INT32_MAX - 1]


def new_segment(disk: ForgetfulDisk, base_offset: int, config: LogConfig = CONFIG) -> Segment:
    return Segment(disk, Path("/data"), base_offset, config, now_ms=0, is_new=True)


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(Path("/data"))
    return disk


@kafka("UnifiedLogTest.testSplitOnOffsetOverflow")
def test_a_segment_that_needs_no_split_is_not_split(disk: ForgetfulDisk) -> None:
    """Asking for it is an error, and no file is made."""
    segment = new_segment(disk, 0)
    segment.append(NEAR_BATCHES[0], 1, 5, 1)
    before = disk.list_directory(Path("/data"))
    with pytest.raises(InvalidRequestValue, match="needs no split"):
        split_overflowed(segment, lambda base: new_segment(disk, base))
    assert disk.list_directory(Path("/data")) == before


@kafka("LogSegmentTest.testAppendFromFile")
def test_copying_stops_at_the_first_batch_that_does_not_fit(disk: ForgetfulDisk) -> None:
    """The rest goes to a second segment; batches above a mebibyte are copied whole."""
    large = bytes(new_batch(1, base_offset=6, value=b"x" * (3 << 20)))
    source = new_segment(disk, 1)  # the name of a source is not checked
    source.records.append(b"".join(NEAR_BATCHES) + large + b"".join(FAR_BATCHES))
    near, far = new_segment(disk, 0), new_segment(disk, FAR)
    copied = append_from(near, source, 0)
    assert copied == near.size_bytes == len(PARTS[0]) + len(large)
    assert near.read_next_offset() == 7
    assert append_from(near, source, copied) == 0
    assert append_from(far, source, copied) == far.size_bytes == len(PARTS[FAR])
    assert far.read_next_offset() == FAR + 4


@kafka(
    "LogLoaderTest.testOverCompactedLogRecovery",
    "LogLoaderTest.testOverCompactedLogRecoveryMultiRecord",
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("count", [1, 3])
def test_offsets_that_jump_open_a_segment_and_recover(codec: Codec, count: int) -> None:
    """Beyond 31 bits a new segment begins with the append.

    And has its snapshot; so after a crash.
    """
    world = World()
    log = world.open_log(CONFIG)
    jump = INT32_MAX + 2
    bases = [0, jump, jump + 5, jump + 10]
    for base in bases:
        batch = new_batch(count, base_offset=base, codec=codec)
        log.append(batch, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    for _ in range(2):
        assert segment_bases(log) == [0, jump]
        assert offsets_of(world, ".log") == [0, jump]
        assert jump in snapshots_of(world)
        assert [header.base_offset for header in read_headers(log)] == bases
        expected = [base + delta for base in bases for delta in range(count)]
        assert [record.offset for record in read_records(log)] == expected
        world.restart(power_cut=False)
        log = world.open_log(CONFIG)
