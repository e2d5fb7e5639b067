"""Recovery of a log after a crash: torn tails at every byte, interruptions, repetitions."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.tidelog_files import SegmentGap, read_gaps
from engine.config import LogConfig
from engine.fs.names import SEGMENT_GAPS
from engine.log.log import Log
from engine.metrics import NullRecorder
from engine.records.batch import BatchView
from engine.records.builder import build_batch
from engine.records.header import Codec
from engine.types import AppendOrigin, TopicPartition
from tests.support.builders import World
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    batches_in,
    fill,
    fill_segments,
    log_path,
    read_pieces,
    read_records,
    read_values,
    segment_bases,
    with_config,
)
from tests.support.segments import batch_at
from tests.support.time import START_MS


def shorten(world: World, path: Path, size_bytes: int) -> None:
    """Cut a file on the disk in memory, as a crash may have left it."""
    with world.disk.open(path) as file:
        file.truncate(size_bytes)
    world.disk.sync_everything()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_torn_tail_is_cut_at_every_byte(codec: Codec) -> None:
    """Wherever the file ends in the last batch, earlier batches stay and the cut is reported."""
    world = World()
    log = world.open_log(CONFIG)
    whole = fill(log, batches=3)
    complete = log.reader.size_bytes
    append_values(log, b"first", b"second", codec=codec)
    size = log.reader.size_bytes
    content = world.disk.read_bytes(log_path())
    for end in range(complete, size):
        torn = World()
        torn.disk.make_directory(log_path().parent, parents=True)
        with torn.disk.open(log_path(), create=True) as file:
            file.append(content[:end])
        again = torn.open_log(CONFIG)
        assert read_values(again) == whole
        assert again.durability.recovery.truncated_bytes == end - complete
        assert again.durability.recovery.damage is None
        assert again.watermarks.log_end_offset == 3
        assert append_values(again, b"goes on") == 3


class Recoveries(NullRecorder):
    """Records what a log reports about its recovery."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, int, bool]] = []
        self.remaining: list[int] = []

    def recovering(self, log: TopicPartition, *, segments: int) -> None:
        self.remaining.append(segments)

    def recovered(
        self, log: TopicPartition, *, scanned_bytes: int, truncated_bytes: int, damaged: bool
    ) -> None:
        self.reported.append((scanned_bytes, truncated_bytes, damaged))


@kafka("LogManagerTest.testLogRecoveryMetricsShouldBeRemovedAfterLogRecovered")
def test_every_scanned_segment_is_reported() -> None:
    """The recorder gets what was scanned, what was cut, if it was damage, and what remains."""
    recorder = Recoveries()
    world = World(recorder=recorder)
    fill_segments(world.open_log(CONFIG), 3, 2)
    recorder.reported.clear()
    recorder.remaining.clear()
    world.restart(power_cut=False)
    with world.disk.open(log_path(3)) as file:
        file.append(b"torn")
    world.open_log(CONFIG)
    sizes = [world.disk.size_bytes(log_path(base)) for base in (0, 3)]
    assert recorder.reported == [(sizes[0], 0, False), (sizes[1], 4, False)]
    assert recorder.remaining == [2, 1, 0]


@kafka("LogLoaderTest.testCorruptLog")
def test_a_cut_removes_every_later_segment() -> None:
    """What followed the bad batch goes, in memory and on disk."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 3, 3, 3)
    log.durability.commit()
    world.restart(power_cut=False)
    shorten(world, log_path(3), world.disk.size_bytes(log_path(3)) - 1)
    again = world.open_log(CONFIG)
    assert read_values(again) == values[:5]
    assert segment_bases(again) == [0, 3]
    assert again.durability.recovery.removed_segments == 1
    assert not world.disk.exists(log_path(6))


def test_a_gap_between_segments_ends_the_log() -> None:
    """If a power cut removed the end of one segment only, later segments are not shown."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 3, 3)
    size_of_two = log.reader.listing().segments[0].size_bytes * 2 // 3
    world.restart(power_cut=False)
    shorten(world, log_path(), size_of_two)
    again = world.open_log(CONFIG)
    assert read_values(again) == values[:2]
    assert again.watermarks.log_end_offset == 2
    assert again.durability.recovery.removed_segments == 1


def jumped(world: World) -> Log:
    """A follower's log that jumped from offset 3 to 10 in the moment it rolled."""
    log = world.open_log(with_config(segment_bytes=3 * len(batch_at(0))))
    for offset in (0, 1, 2, 10, 11):
        log.append(batch_at(offset), origin=AppendOrigin.REPLICATION)
    assert segment_bases(log) == [0, 10]
    return log


@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "kill"])
def test_a_followers_jump_is_no_loss(*, power_cut: bool) -> None:
    """No records were between the segments, and nothing after the gap is removed."""
    world = World()
    jumped(world).durability.commit()
    for _ in range(2):
        world.restart(power_cut=power_cut)
        log = world.open_log(CONFIG)
        assert [record.offset for record in read_records(log)] == [0, 1, 2, 10, 11]
        assert log.durability.recovery.damage is None
        log.durability.flush()


def test_a_loss_before_a_followers_jump_still_ends_the_log() -> None:
    """The gap that was noted begins where the segment ended, and at no offset before."""
    world = World()
    log = jumped(world)
    one = log.reader.listing().segments[0].size_bytes // 3
    world.restart(power_cut=False)
    shorten(world, log_path(), 2 * one)
    again = world.open_log(CONFIG)
    assert [record.offset for record in read_records(again)] == [0, 1]
    assert again.durability.recovery.removed_segments == 1


def test_gaps_that_cannot_be_read_are_no_loss() -> None:
    """Better a hole that is not noticed than records that are removed."""
    world = World()
    jumped(world).durability.commit()
    world.restart(power_cut=False)
    with world.disk.open(DIRECTORY / SEGMENT_GAPS) as file:
        file.append(b"rubbish")
    log = world.open_log(CONFIG)
    assert [record.offset for record in read_records(log)] == [0, 1, 2, 10, 11]


def test_a_jump_after_a_truncation_forgets_the_gaps_above() -> None:
    """The recorded gaps are those of the segments; a gap that was cut off is removed."""
    world = World()
    log = jumped(world)
    log.truncate_to(2)
    for offset in (2, 20):
        log.append(batch_at(offset), origin=AppendOrigin.REPLICATION)
    assert segment_bases(log) == [0, 20]
    assert read_gaps(world.disk, DIRECTORY / SEGMENT_GAPS) == [SegmentGap(3, 20)]


def test_a_truncation_inside_a_batch_is_no_loss() -> None:
    """The batch was removed whole and the log continues at the offset.

    Committed records after it stay.
    """
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=2, records=3)
    log.truncate_to(5)
    log.roll()
    append_values(log, b"behind")
    log.durability.commit()
    world.restart(power_cut=True)
    again = world.open_log(CONFIG)
    assert [record.offset for record in read_records(again)] == [0, 1, 2, 5]
    assert again.durability.recovery.damage is None


def test_gaps_of_compaction_are_left_alone() -> None:
    """In a compacted log a segment may end before the next begins, and nothing is removed."""
    world = World()
    config = with_config(cleanup_policy=("compact",))
    log = world.open_log(config)
    for number in range(6):
        log.append(build_batch([(START_MS, b"key", b"%d" % number, ())]))
        if number == 2:
            log.roll()
    size_of_two = log.reader.listing().segments[0].size_bytes * 2 // 3
    world.restart(power_cut=False)
    shorten(world, log_path(), size_of_two)
    again = world.open_log(config)
    assert read_values(again) == [b"0", b"1", b"3", b"4", b"5"]


@kafka("LogLoaderTest.testProducerSnapshotsRecoveryAfterUncleanShutdown")
def test_below_the_recovery_point_nothing_is_scanned() -> None:
    """Exactly the segments from the one that holds it are recovered."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 4, 4, 4)
    point = log.durability.flush()
    assert point == 12
    world.restart(power_cut=True)
    for recovery_point, recovered in ((0, 3), (4, 2), (7, 2), (8, 1), (12, 1)):
        again = world.open_log(CONFIG, recovery_point=recovery_point)
        assert again.durability.recovery.recovered_segments == recovered
        assert again.durability.recovery_point == recovery_point
        assert read_values(again) == values
        again.maintenance.close_handles()


def recovery_changes() -> int:
    world = damaged_world()
    before = len(world.disk.changes)
    world.open_log(CONFIG)
    return len(world.disk.changes) - before


def damaged_world() -> World:
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 3, 3, 3)
    world.disk.sync_everything()
    world.restart(power_cut=False)
    shorten(world, log_path(3), world.disk.size_bytes(log_path(3)) - 1)
    return world


@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "kill"])
@pytest.mark.parametrize("step", range(1, recovery_changes() + 1))
def test_an_interrupted_recovery_is_repeated(step: int, *, power_cut: bool) -> None:
    """Wherever recovery stops, the next one ends with the same log, without a gap."""
    world = damaged_world()
    try:
        with world.disk.power_cut_before(step):
            world.open_log(CONFIG)
    except PowerCut:
        pass
    world.restart(power_cut=power_cut)
    again = world.open_log(CONFIG)
    again.maintenance.check_invariants()
    assert read_values(again) == [b"%06d" % number for number in range(5)]
    assert segment_bases(again) == [0, 3]


@given(seed=st.integers(0, 10_000), batches=st.integers(1, 30), committed=st.integers(0, 30))
def test_any_mixture_of_old_and_new_sectors_leaves_a_prefix(
    seed: int, batches: int, committed: int
) -> None:
    """Sectors and names that survive by chance: the log is a prefix with all that was committed."""
    world = World()
    config: LogConfig = with_config(segment_bytes=600)
    log = world.open_log(config)
    safe = fill(log, batches=min(committed, batches), records=3)
    log.durability.commit()
    values = safe + fill(log, batches=batches - min(committed, batches), records=3, first=len(safe))
    world.disk.restart(random=Random(seed))
    world.restart(power_cut=False)
    again: Log = world.open_log(config)
    found = read_values(again)
    assert found == values[: len(found)]
    assert len(found) >= len(safe)
    assert len(found) % 3 == 0
    for piece in read_pieces(again):
        for batch in batches_in(piece):
            BatchView(batch.buffer).ensure_intact()
