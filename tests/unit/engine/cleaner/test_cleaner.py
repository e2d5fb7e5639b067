"""The cleaner as a whole: its choices, marks, refusals and failures."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.cleaner.cleaner import LogCleaner
from engine.config import CleanerConfig
from engine.errors import PolicyViolation, Recovering
from engine.fs.names import CLEANER_CHECKPOINT
from engine.metrics import NullRecorder
from engine.throttle import CHECK_INTERVAL_MS
from engine.types import TopicPartition
from tests.support.builders import DATA, EVENTS, World
from tests.support.compaction import OVERRIDES, Compacted, keyed, newest
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka
from tests.support.logs import segment_bases
from tests.support.time import ManualClock

CHECKPOINT = DATA / CLEANER_CHECKPOINT


class CorruptionCount(NullRecorder):
    """Counts the damage that was reported."""

    def __init__(self) -> None:
        self.found: list[TopicPartition] = []

    def corrupt_data_found(self, log: TopicPartition) -> None:
        self.found.append(log)


class Alarm(ManualClock):
    """Runs a step once, when monotonic time is next read: as a round begins."""

    step: Callable[[], object] | None = None

    def monotonic_ms(self) -> int:
        step, self.step = self.step, None
        if step is not None:
            step()
        return super().monotonic_ms()


def dirty(world: World | None = None, /, **overrides: Any) -> Compacted:
    """A log with something to clean."""
    compacted = Compacted(world or World(), overrides)
    compacted.put(("a", "1"), ("b", "1"))
    compacted.put(("a", "2"))
    compacted.seal()
    return compacted


def flip_a_bit(compacted: Compacted, position: int = 70) -> None:
    path = compacted.log.reader.segments[0].records.path
    compacted.world.disk._inode(path).content[position] ^= 1  # noqa: SLF001 - damage


@kafka("LogCleanerManagerTest.testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio")
def test_the_dirtiest_log_comes_first_and_clean_ones_are_left() -> None:
    """One log a pass until none is due."""
    compacted = dirty()
    compacted.manager.create_topic("dirtier", 1, OVERRIDES)
    compacted.manager.create_topic("deleting", 1, {})
    for topic in ("dirtier", "deleting"):
        log = compacted.manager.log(TopicPartition(topic, 0))
        log.append(keyed(("a", "1")))
        log.roll()
        log.durability.commit()
    assert compacted.cleaner.run_pass() is not None
    assert compacted.cleaner.run_pass() is not None
    compacted.put(("c", "x" * 10))
    compacted.seal()
    dirtier = compacted.manager.log(TopicPartition("dirtier", 0))
    dirtier.append(keyed(("a", "x" * 500)))
    dirtier.roll()
    dirtier.durability.commit()
    passes = [compacted.cleaner.run_pass() for _ in range(3)]
    assert [None if one is None else one.log.topic for one in passes] == [
        "dirtier",
        EVENTS.topic,
        None,
    ]


@kafka("LogCleanerManagerTest.testUpdateCheckpointsShouldAddOffsetToPartition")
def test_marks_survive_a_restart() -> None:
    """Clean offsets are not cleaned again."""
    compacted = dirty()
    assert compacted.cleaner.run_pass() is not None
    assert compacted.checkpoint() == "0\n1\nevents 0 3\n"
    compacted.close()
    compacted.open()
    assert compacted.cleaner.run_pass() is None
    compacted.put(("a", "3"))
    assert compacted.clean().first_dirty_offset == 3
    assert newest(compacted.pairs()) == {"a": "3", "b": "1"}


@kafka("LogCleanerManagerTest.testUpdateCheckpointsShouldRemovePartitionData")
def test_the_mark_of_a_deleted_topic_goes_with_it() -> None:
    """A topic made again under its name is dirty from its start."""
    compacted = dirty()
    compacted.cleaner.run_pass()
    compacted.manager.delete_topic(EVENTS.topic)
    compacted.manager.create_topic(EVENTS.topic, 1, OVERRIDES)
    for number in range(6):
        compacted.put(("a", str(number)))
    compacted.seal()
    report = compacted.cleaner.run_pass()
    assert report is not None
    assert report.first_dirty_offset == 0
    compacted.manager.delete_topic(EVENTS.topic)
    compacted.cleaner.run_pass()
    assert compacted.checkpoint() == "0\n0\n"


@kafka("LogCleanerManagerTest.testMaybeTruncateCheckpointShouldTruncateData")
def test_a_truncated_log_is_dirty_from_its_start() -> None:
    """Its mark may lie in records written since."""
    compacted = dirty()
    compacted.cleaner.run_pass()
    compacted.log.truncate_to(2)
    for number in range(4):
        compacted.put(("b", str(number)))
    assert compacted.clean().first_dirty_offset == 0
    assert newest(compacted.pairs()) == {"b": "3"} | newest(compacted.pairs()[:1])
    assert [key for key, _ in compacted.pairs()].count("b") == 1


@kafka("LogCleanerManagerTest.testCheckpointUpdatedForInvalidOffsetNotSelected")
@pytest.mark.parametrize("mark", [1, 4], ids=["below the log start", "beyond the log end"])
def test_a_mark_outside_the_log_is_put_right(mark: int) -> None:
    """Even if the log is not chosen."""
    compacted = dirty(**{"min.cleanable.dirty.ratio": 1})
    compacted.log.delete_records(2)
    compacted.close()
    with compacted.world.fs.open(CHECKPOINT, create=True) as file:
        file.truncate(0)
        file.append(b"0\n1\nevents 0 %d\n" % mark)
    compacted.open()
    assert compacted.cleaner.run_pass() is None
    assert compacted.checkpoint() == "0\n1\nevents 0 2\n"


def test_a_damaged_checkpoint_costs_a_round(caplog: pytest.LogCaptureFixture) -> None:
    """Everything counts as dirty, and the file is written again."""
    compacted = dirty()
    compacted.cleaner.run_pass()
    compacted.close()
    with compacted.world.fs.open(CHECKPOINT) as file:
        file.append(b"rubbish\n")
    compacted.open()
    assert "count as dirty" in caplog.text
    assert compacted.cleaner.run_pass() is not None
    assert compacted.checkpoint() == "0\n1\nevents 0 3\n"


@kafka(
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldConsiderCleanupPolicyCompactDeleteLogs",
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldConsiderCleanupPolicyCompactLogs",
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldNotConsiderCleanupPolicyDeleteLogs",
)
def test_retention_of_compacted_logs_is_the_cleaners() -> None:
    """By time with `compact,delete`, by log start alone with `compact`; others are not touched."""
    world = World()
    compacted = Compacted(world, {"cleanup.policy": "compact,delete", "retention.ms": 1000})
    for topic, policy in (("compacted", "compact"), ("deleting", "delete")):
        compacted.manager.create_topic(
            topic, 1, OVERRIDES | {"cleanup.policy": policy, "retention.ms": 1000}
        )
    for log in compacted.manager.logs():
        for number in range(2):
            log.append(keyed((f"k{number}", "x" * 10)))
            log.roll()
        log.append(keyed(("last", "x")))
        log.durability.commit()
    world.clock.advance(1001)
    while compacted.cleaner.run_pass() is not None:
        pass
    starts = {
        log.topic_partition.topic: log.watermarks.log_start_offset
        for log in compacted.manager.logs()
    }
    assert starts == {EVENTS.topic: 3, "compacted": 0, "deleting": 0}
    kept = compacted.manager.log(TopicPartition("compacted", 0))
    assert segment_bases(kept) == [0, 2]
    kept.delete_records(2)
    compacted.cleaner.run_pass()
    assert segment_bases(kept) == [2]


@kafka(
    "LogCleanerManagerTest.testGrabFilthiestCompactedLogIgnoresUncleanablePartitions",
    "LogCleanerManagerTest.testLogsWithSegmentsToDeleteShouldNotConsiderUncleanablePartitions",
)
def test_a_log_that_cannot_be_cleaned_is_given_up_until_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is reported once, its segments stay, others continue."""
    recorder = CorruptionCount()
    compacted = Compacted(World(recorder=recorder))
    compacted.put(("a", "1"), ("b", "1"))
    compacted.seal()
    flip_a_bit(compacted)
    before = compacted.file(0, ".log")
    assert compacted.cleaner.run_pass() is None
    assert compacted.cleaner.run_pass() is None
    assert recorder.found == [EVENTS]
    assert "checksum" in compacted.cleaner.uncleanable[EVENTS]
    assert caplog.text.count("is not compacted until restart") == 1
    assert compacted.file(0, ".log") == before
    compacted.log.truncate_to(0)
    compacted.put(("a", "1"))
    compacted.clean()
    assert not compacted.cleaner.uncleanable, "another log by now"


@kafka("LogCleanerManagerTest.testGrabFilthiestCompactedLogThrowsException")
def test_a_log_that_cannot_be_judged_is_given_up() -> None:
    """Its damage shows when the first dirty header is read."""
    compacted = dirty(**{"max.compaction.lag.ms": 1000})
    flip_a_bit(compacted, position=16)
    assert compacted.cleaner.run_pass() is None
    assert EVENTS in compacted.cleaner.uncleanable


def test_cleaning_at_once_needs_no_dirt() -> None:
    """Even if little or nothing is dirty: tombstones may have reached their delete horizon."""
    compacted = dirty(**{"min.cleanable.dirty.ratio": 1})
    compacted.put(("a", None))
    compacted.seal()
    assert compacted.cleaner.run_pass() is None
    assert compacted.cleaner.clean_now(compacted.log).end_offset == 4
    assert compacted.pairs() == [("b", "1"), ("a", None)]
    compacted.world.clock.advance(86_400_000)
    report = compacted.cleaner.clean_now(compacted.log)
    assert (report.first_dirty_offset, report.end_offset, report.keys_count) == (4, 4, 0)
    assert compacted.pairs() == [("b", "1")]


def test_cleaning_at_once_takes_as_many_rounds_as_it_needs() -> None:
    """With a small map the report is that of all rounds together."""
    compacted = dirty()
    compacted.cleaner = compacted.new_cleaner(dedupe_buffer_bytes=2 * 24)
    report = compacted.cleaner.clean_now(compacted.log)
    assert (report.first_dirty_offset, report.end_offset, report.keys_count) == (0, 3, 3)
    assert compacted.pairs() == [("b", "1"), ("a", "2")]


def test_only_compacted_logs_are_cleaned() -> None:
    """A log without compact in its policy is refused, for every caller."""
    compacted = dirty()
    compacted.manager.update_topic(EVENTS.topic, {"cleanup.policy": "delete"})
    assert compacted.cleaner.run_pass() is None
    with pytest.raises(PolicyViolation):
        compacted.cleaner.clean_now(compacted.log)


def test_nothing_is_cleaned_before_the_start_and_after_the_stop() -> None:
    """Nor while the directory is offline: reads would be useless and writes wrong."""
    compacted = dirty()
    early = LogCleaner(
        compacted.manager,
        clock=compacted.world.clock,
        config=CleanerConfig(enable=False),
        recorder=compacted.world.recorder,
    )
    assert early.run_pass() is None
    with pytest.raises(Recovering):
        early.clean_now(compacted.log)
    with pytest.raises(Recovering):
        early.preview(compacted.log)
    compacted.cleaner.stop()
    assert compacted.cleaner.run_pass() is None
    with pytest.raises(Recovering):
        compacted.cleaner.clean_now(compacted.log)
    other = compacted.new_cleaner()
    compacted.manager.health.fail(OSError("gone"))
    assert other.run_pass() is None
    other.stop()


def test_a_log_that_changes_meanwhile_is_cleaned_another_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The background gives up the round; a caller of `clean_now` gets a second one."""
    caplog.set_level(logging.INFO)
    for by_hand in (False, True):
        clock = Alarm()
        compacted = dirty(World(clock=clock))
        clock.step = partial(compacted.log.truncate_to, 2)
        if by_hand:
            compacted.cleaner.clean_now(compacted.log)
            assert "cleaning it again" in caplog.text
        else:
            assert compacted.cleaner.run_pass() is None
            assert "was not compacted" in caplog.text
        assert not compacted.cleaner.uncleanable
        assert newest(compacted.pairs()) == {"a": "1", "b": "1"}


class ReadAlarm(ForgetfulDisk):
    """Takes a step, once, when a `.log` file is next read."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], object]] = []

    def enter(self, name: str, path: Path) -> None:
        if name == "read" and path.suffix == ".log" and self.steps:
            self.steps.pop()()
        super().enter(name, path)


def test_bytes_that_go_while_they_are_read_are_no_damage() -> None:
    """A truncation between two reads of a file is neither the disk's fault nor the log's."""
    recorder = CorruptionCount()
    disk = ReadAlarm()
    compacted = Compacted(World(fs=disk, recorder=recorder))
    compacted.put(("a", "1"))
    compacted.put(("a", "2"))
    compacted.seal()
    disk.steps.append(partial(compacted.log.truncate_to, 1))
    assert compacted.cleaner.run_pass() is None
    assert disk.steps == []
    assert not compacted.cleaner.uncleanable
    assert recorder.found == []
    assert compacted.pairs() == [("a", "1")]


@kafka("LogCleanerTest.testCleanSegmentsWithAbort")
def test_a_stop_ends_a_round_under_way() -> None:
    """The round changes nothing, and its caller gets an error."""
    clock = Alarm()
    compacted = dirty(World(clock=clock))
    before = compacted.pairs()
    stopper = threading.Thread(target=compacted.cleaner.stop)

    def stop() -> None:
        stopper.start()
        assert compacted.cleaner._stopping.wait(10)  # noqa: SLF001 - the instant that matters

    clock.step = stop
    with pytest.raises(Recovering):
        compacted.cleaner.clean_now(compacted.log)
    stopper.join()
    assert compacted.pairs() == before


def test_a_full_disk_is_met_again_another_time() -> None:
    """The log is not at fault: the next pass tries again."""
    compacted = dirty()
    compacted.world.disk.remaining_bytes = 0
    assert compacted.cleaner.run_pass() is None
    assert not compacted.cleaner.uncleanable
    compacted.world.disk.remaining_bytes = 1 << 30
    assert compacted.cleaner.run_pass() is not None


def test_a_failing_disk_is_no_fault_of_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    """The directory goes offline; the log is not blamed, and retention does not try."""
    compacted = dirty(**{"cleanup.policy": "compact,delete", "retention.ms": 1000})
    compacted.world.clock.advance(2000)
    compacted.world.disk.fail("rename", path_end=".log")
    assert compacted.cleaner.run_pass() is None
    assert compacted.manager.health.is_offline
    assert not compacted.cleaner.uncleanable
    assert "retention of events-0 failed" in caplog.text


def test_marks_that_cannot_be_written_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Cleaned segments stay cleaned; after a restart they are cleaned again."""
    compacted = dirty()
    compacted.world.disk.fail("rename", path_end=f"{CLEANER_CHECKPOINT}.tmp")
    assert compacted.cleaner.run_pass() is not None
    assert "checkpoint was not written" in caplog.text
    compacted.crash(power_cut=True)
    assert compacted.cleaner.run_pass() is not None
    assert newest(compacted.pairs()) == {"a": "2", "b": "1"}


def test_a_slow_cleaner_waits_and_can_be_stopped_waiting() -> None:
    """The throttle's pause ends with the stop."""
    clock = Alarm()
    compacted = dirty(World(clock=clock))
    cleaner = compacted.new_cleaner(max_bytes_per_second=0.001)
    stopper = threading.Thread(target=cleaner.stop)

    def be_late() -> None:
        clock.advance(CHECK_INTERVAL_MS + 1)
        stopper.start()

    clock.step = be_late
    with pytest.raises(Recovering):
        cleaner.clean_now(compacted.log)
    stopper.join()


class Signalling(NullRecorder):
    """Reports when both logs have lost segments; the first pass fails."""

    def __init__(self) -> None:
        self.passes = self.removals = 0
        self.done = threading.Event()

    def cleaner_looked(self, *, dirty_ratio: float, delay_ms: int) -> None:
        self.passes += 1
        if self.passes == 1:
            raise RuntimeError("a recorder must not raise")

    def segments_deleted(self, log: TopicPartition, *, count: int, size_bytes: int) -> None:
        self.removals += 1
        if self.removals == 2:
            self.done.set()


def test_the_thread_goes_on_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    """It cleans and removes old segments; an error in a pass is reported and does not end it."""
    recorder = Signalling()
    compacted = Compacted(
        World(recorder=recorder), {"cleanup.policy": "compact,delete", "retention.ms": 1000}
    )
    compacted.manager.create_topic("second", 1, compacted.overrides | OVERRIDES)
    second = compacted.manager.log(TopicPartition("second", 0))
    for log in (compacted.log, second):
        log.append(keyed(("a", "1"), ("a", "2")))
        log.roll()
        log.durability.commit()
        log.maintenance.update_config(compacted.log.config)
    compacted.world.clock.advance(2000)
    cleaner = compacted.new_cleaner(enable=True, backoff_ms=1)
    assert recorder.done.wait(10)
    cleaner.stop()
    assert "a pass of the cleaner failed" in caplog.text
    assert [log.reader.first_segment_base_offset for log in (compacted.log, second)] == [2, 2]
