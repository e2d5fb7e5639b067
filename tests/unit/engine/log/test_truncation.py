"""Truncation, and starting again at another offset."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from engine.errors import (
    InvalidRequestValue,
    Overloaded,
    PreconditionFailed,
    SequenceGap,
    StorageOffline,
)
from engine.fs.names import LEADER_EPOCH_CHECKPOINT, snapshot_name
from engine.log.log import Log
from engine.metrics import NullRecorder
from engine.types import AppendOrigin, TopicPartition
from tests.support.builders import World, new_batch
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    append_values,
    fill,
    fill_segments,
    read_headers,
    read_values,
    segment_bases,
)
from tests.support.machine import Operation
from tests.support.segments import batch_at


def epochs_of(log: Log) -> list[tuple[int, int]]:
    entries = log._core.state.epochs.entries  # noqa: SLF001 - there is no public way to see them
    return [(entry.epoch, entry.start_offset) for entry in entries]


@kafka("UnifiedLogTest.testTruncateTo", "LocalLogTest.testTruncateTo")
def test_the_log_ends_where_it_was_cut() -> None:
    """Beyond the end nothing happens; in the middle and to 0 it is usable again."""
    log = World().open_log(CONFIG)
    values = fill_segments(log, 4, 4, 4)
    log.durability.commit()
    assert log.truncate_to(12) == 12
    assert log.truncate_to(50) == 12
    assert log.truncate_to(6) == 6
    assert read_values(log) == values[:6]
    assert segment_bases(log) == [0, 4]
    assert append_values(log, b"new") == 6
    assert log.truncate_to(0) == 0
    assert segment_bases(log) == [0]
    assert log.reader.size_bytes == 0
    assert append_values(log, b"again") == 0
    log.maintenance.check_invariants()


def test_a_cut_is_durable_at_once() -> None:
    """A power cut does not restore what was cut."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 4, 4)
    log.durability.flush()
    log.truncate_to(3)
    world.restart(power_cut=True)
    again = world.open_log(CONFIG, recovery_point=3)
    assert read_values(again) == values[:3]


@pytest.mark.parametrize("offset", [0, 5, 29])
def test_an_emptied_log_has_a_new_epoch_whenever_the_power_fails(offset: int) -> None:
    """If a record is gone, caches must not use its successor in its place."""
    for step in range(1, 40):
        world = World()
        log = world.open_log(CONFIG, log_start_offset=30)
        fill_segments(log, 4, 4, 4)
        log.durability.flush()
        try:
            with world.disk.power_cut_before(step):
                log.truncate_to(offset)
            is_done = True
        except PowerCut:
            is_done = False
        world.restart(power_cut=True)
        again = world.open_log(CONFIG)
        assert again.reader.leader_epoch == 1 or len(read_values(again)) == 12
        if is_done:
            return
    raise AssertionError("starting anew takes more steps than anybody expected")


@kafka("UnifiedLogTest.testHighWatermarkMaintenance")
def test_the_high_watermark_follows_the_end_down() -> None:
    """It is never above the end."""
    log = World().open_log(CONFIG)
    fill(log, batches=5)
    log.durability.flush()
    log.truncate_to(3)
    assert (log.watermarks.high_watermark, log.durability.recovery_point) == (3, 3)


def test_a_batch_that_holds_the_offset_goes_whole() -> None:
    """The end is the offset all the same; the next append begins there (4.9)."""
    log = World().open_log(CONFIG)
    append_values(log, b"a", b"b", b"c")
    log.durability.commit()
    assert log.truncate_to(2) == 2
    assert log.reader.size_bytes == 0
    assert append_values(log, b"d") == 2


def test_a_cut_begins_an_epoch() -> None:
    """Clients that remember what they read notice that it is another log."""
    log = World().open_log(CONFIG)
    fill(log, batches=5)
    before = log.reader.log_id
    log.truncate_to(8)
    assert log.reader.log_id == before
    log.truncate_to(3)
    assert (log.reader.leader_epoch, log.reader.tag.leader_epoch) == (1, 1)
    assert log.reader.log_id != before
    append_values(log, b"new")
    log.durability.commit()
    assert [header.leader_epoch for header in read_headers(log)] == [0, 0, 0, 1]


@kafka("UnifiedLogTest.testTruncateTo")
def test_below_the_first_segment_everything_goes() -> None:
    """The log restarts at the offset (after a full truncation)."""
    log = World().open_log(CONFIG, log_start_offset=20)
    fill(log, batches=3)
    assert log.truncate_to(10) == 10
    assert (segment_bases(log), log.watermarks.log_start_offset) == ([10], 10)
    assert append_values(log, b"x") == 10


@kafka(
    "UnifiedLogTest.testTruncateFullyAndStart",
    "LocalLogTest.testTruncateFullyAndStartAt",
    "LocalLogTest.testCreateAndDeleteSegment",
)
@pytest.mark.parametrize("offset", [0, 3, 8, 30])
def test_a_log_may_start_anew_anywhere(offset: int) -> None:
    """One empty segment, no producers."""
    world = World()
    log = world.open_log(CONFIG, log_start_offset=40)
    fill_segments(log, 3, 3)
    log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=0))
    log.durability.commit()
    assert log.truncate_to(offset) == offset
    assert (segment_bases(log), log.producers.active(), log.reader.leader_epoch) == (
        [offset],
        (),
        1,
    )
    log.maintenance.check_invariants()
    assert append_values(log, b"x") == offset
    log.durability.commit()
    assert read_values(log) == [b"x"]
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    assert read_values(log) == [b"x"]
    world.restart(power_cut=True)
    assert read_values(world.open_log(CONFIG, log_start_offset=offset)) == [b"x"]


@kafka(
    "UnifiedLogTest.testProducerIdMapTruncateTo",
    "UnifiedLogTest.testProducerIdMapTruncateToWithNoSnapshots",
)
def test_producers_follow_the_end() -> None:
    """Their batches above it are forgotten, those below are known."""
    log = World().open_log(CONFIG)
    for sequence in range(6):
        log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
        if sequence == 2:
            log.roll()
    log.truncate_to(4)
    with pytest.raises(SequenceGap):
        log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=6))
    assert log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=3)).is_duplicate
    assert log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=4)).base_offset == 4
    log.truncate_to(1)
    assert log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=1)).base_offset == 1


@dataclass
class Interrupting(NullRecorder):
    """Runs a function when a log's first sync is recorded."""

    interrupts: list[Callable[[], object]] = field(default_factory=list)

    def flushed(self, log: TopicPartition, *, duration_ms: float) -> None:
        """Do it, once."""
        if self.interrupts:
            self.interrupts.pop()()


def test_a_sync_that_a_cut_overtook_commits_nothing() -> None:
    """A commit whose sync ended before a cut does not show what came after it."""
    recorder = Interrupting()
    log = World(recorder=recorder).open_log(CONFIG)
    fill(log, batches=5)
    recorder.interrupts.append(partial(log.truncate_to, 3))
    log.durability.commit()
    assert not recorder.interrupts
    assert log.watermarks.high_watermark <= log.watermarks.log_end_offset == 3


@pytest.mark.parametrize("offset", [-1, -(2**40)])
def test_negative_offsets_are_refused(offset: int) -> None:
    """No log ends below 0."""
    log = World().open_log(CONFIG)
    with pytest.raises(InvalidRequestValue):
        log.truncate_to(offset)


def test_what_is_not_committed_goes_without_the_readers_noticing() -> None:
    """A cut above the high watermark leaves it where it is."""
    log = World().open_log(CONFIG)
    values = fill(log, batches=2)
    log.durability.commit()
    fill(log, batches=3, first=2)
    log._core.state.truncate_to(4, log._plan_truncation(4))  # noqa: SLF001 - as if the appends had come after its commit
    assert read_values(log) == values
    assert (log.watermarks.high_watermark, log.watermarks.log_end_offset) == (2, 4)


def test_a_truncation_that_a_close_overtakes_says_so() -> None:
    """The remaining log is read without the lock, so its files may be closed meanwhile."""
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 4, 4)
    log.durability.commit()

    def close_once(operation: Operation) -> None:
        if operation.name == "read":
            world.disk.meanwhile = None
            log.maintenance.close_handles()

    world.disk.meanwhile = close_once
    with pytest.raises(StorageOffline, match="is closed"):
        log.truncate_to(6)
    assert not world.health.is_offline


@pytest.mark.parametrize(("records", "bases"), [(0, [0, 2]), (1, [0, 1, 2])])
def test_a_cut_after_empty_segments_finds_the_last_batch(records: int, bases: list[int]) -> None:
    """Rolls have left segments without a batch before the one that is cut."""
    log = World().open_log(CONFIG)
    fill(log, batches=records)
    tag = log.reader.tag
    for base_offset in (records, 2):
        log.roll(base_offset)
    log.append(batch_at(2), origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    assert segment_bases(log) == bases
    assert log.truncate_to(2) == 2
    assert log.reader.tag.last_batch_crc == tag.last_batch_crc
    assert append_values(log, b"new") == 2
    log.maintenance.check_invariants()


def test_a_refused_truncation_leaves_no_snapshot_behind_for_another_history() -> None:
    """An append came while it was planned; its snapshot was on disk and not in memory.

    After a later truncation below it, a start took the producers of the old records from it.
    """
    world = World()
    log = world.open_log(CONFIG)
    for sequence in range(6):
        log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
    log.durability.commit()
    tag = log.reader.tag

    def append_once(operation: Operation) -> None:
        if operation.name == "create" and operation.path.name == snapshot_name(4):
            world.disk.meanwhile = None
            append_values(log, b"meanwhile")

    world.disk.meanwhile = append_once
    with pytest.raises(PreconditionFailed):
        log.truncate_to(4, expected_tag=tag)
    assert log.watermarks.log_end_offset == 7
    assert log.truncate_to(2) == 2
    assert snapshot_name(4) not in world.disk.list_directory(log.directory)
    for sequence in range(4):
        log.append(new_batch(producer_id=5, producer_epoch=0, base_sequence=sequence))
    log.durability.commit()
    world.restart(power_cut=True)
    again = world.open_log(CONFIG)
    assert {one.producer_id: one.last_sequence for one in again.producers.active()} == {3: 1, 5: 3}


@pytest.mark.parametrize("operation", ["open", "open_index", "open_directory", "create"])
@pytest.mark.parametrize("offset", [6, 4, 0])
def test_a_truncation_that_finds_no_open_file_fails_alone(offset: int, operation: str) -> None:
    """The files for the cut are opened before it.

    Wherever that fails, the directory stays online, and the log is the one that it was, its epochs
    on disk included: a new one would have readers told of another log.
    """
    for nth in range(1, 20):
        world = World()
        log = world.open_log(CONFIG)
        values = fill_segments(log, 4, 4, 4)
        log.durability.flush()
        world.disk.fail(operation, error=errno.EMFILE, nth=nth)
        log_id, epochs = (
            log.reader.log_id,
            world.disk.read_bytes(log.directory / LEADER_EPOCH_CHECKPOINT),
        )
        try:
            log.truncate_to(offset)
        except Overloaded:
            assert (log.reader.log_id, log.watermarks.log_end_offset) == (log_id, 12)
            assert world.disk.read_bytes(log.directory / LEADER_EPOCH_CHECKPOINT) == epochs
        is_met = not world.disk.forget_faults()
        assert not world.health.is_offline
        assert log.truncate_to(offset) == offset
        assert append_values(log, b"new") == offset
        log.durability.commit()
        epoch = log.reader.leader_epoch
        assert epochs_of(log)[-1] == (epoch, offset)
        world.restart(power_cut=True)
        again = world.open_log(CONFIG, recovery_point=offset - offset % 4)
        assert read_values(again) == [*values[:offset], b"new"]
        assert (again.reader.leader_epoch, epochs_of(again)[-1]) == (epoch, (epoch, offset))
        if not is_met:
            assert nth > 1
            break


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("offset", range(8))
def test_a_truncation_of_an_index_that_cannot_be_read_is_whole(offset: int, suffix: str) -> None:
    """The index is made anew before the cut, which reads nothing of it."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, 4, 4)
    log.durability.flush()
    for base_offset in (0, 4):
        world.disk.spoil(log.directory / f"{base_offset:020d}{suffix}")
    assert log.truncate_to(offset) == offset
    log.maintenance.check_invariants()
    assert append_values(log, b"new") == offset
    log.durability.commit()
    assert read_values(log) == [*values[:offset], b"new"]
