"""The cleaner's reports to the recorder: Kafka's gauges of LogCleaner and LogCleanerManager."""

import threading
from typing import Any

import pytest

from engine.cleaner.offset_map import SLOT_BYTES
from engine.fs import names
from engine.metrics import NullRecorder
from engine.types import TopicPartition
from tests.support.builders import DATA, EVENTS, World
from tests.support.compaction import OVERRIDES, Compacted, keyed
from tests.support.kafka import kafka
from tests.support.machine import Operation
from tests.support.time import START_MS


class Meters(NullRecorder):
    """Keeps the newest report of each kind, and the sum of what passed the throttle."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, Any]] = []
        self.looks: list[dict[str, Any]] = []
        self.stuck: dict[str, tuple[int, int]] = {}
        self.io_bytes = 0

    def compacted(self, log: TopicPartition, **figures: Any) -> None:
        self.rounds.append({"log": log, **figures})

    def cleaner_looked(self, **figures: Any) -> None:
        self.looks.append(figures)

    def uncleanable(self, directory: str, *, logs: int, size_bytes: int) -> None:
        self.stuck[directory] = (logs, size_bytes)

    def cleaner_io(self, *, size_bytes: int) -> None:
        self.io_bytes += size_bytes


def metered(**overrides: Any) -> tuple[Compacted, Meters]:
    meters = Meters()
    return Compacted(World(recorder=meters), overrides), meters


@kafka("LogCleanerTest.testMaxCleanTimeSecs")
def test_a_round_tells_what_it_read_wrote_and_kept_in_mind() -> None:
    """Bytes before and after, how long it took, and the map's share; all bytes pass one meter."""
    compacted, meters = metered()
    world = compacted.world

    def take_time(operation: Operation) -> None:
        if operation.name == "append" and operation.path.name.endswith(names.CLEANED_SUFFIX):
            world.clock.advance(1_234)

    compacted.cleaner = compacted.new_cleaner(dedupe_buffer_bytes=8 * SLOT_BYTES)
    compacted.put(("a", "1"), ("b", "1"))
    compacted.put(("a", "2"))
    compacted.seal()
    before = compacted.log.reader.size_bytes
    world.disk.meanwhile = take_time
    report = compacted.cleaner.run_pass()
    world.disk.meanwhile = None
    assert report is not None
    assert report.duration_ms == 1_234
    assert meters.rounds == [
        {
            "log": EVENTS,
            "read_bytes": before,
            "written_bytes": compacted.log.reader.size_bytes,
            "duration_ms": 1_234,
            "map_utilization": 2 / 8,
        }
    ]
    assert compacted.log.reader.size_bytes < before
    assert meters.io_bytes == 2 * before + compacted.log.reader.size_bytes, (
        "mapped, copied, written"
    )


def test_a_look_tells_the_dirtiest_and_the_most_overdue() -> None:
    """The share of dirty bytes of all logs, due or not, and the longest wait past the lag."""
    compacted, meters = metered(**{"min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": 60_000})
    assert compacted.cleaner.run_pass() is None
    assert meters.looks == [{"dirty_ratio": 0.0, "delay_ms": 0}]
    compacted.put(("a", "1"))
    compacted.seal()
    compacted.world.clock.set_wall(START_MS + 60_007)
    compacted.cleaner.run_pass()
    compacted.cleaner.run_pass()
    assert meters.looks[1:] == [
        {"dirty_ratio": 1.0, "delay_ms": 7},
        {"dirty_ratio": 0.0, "delay_ms": 0},
    ]


def test_of_several_logs_the_dirtiest_is_told() -> None:
    """One that is half clean does not hide one that was never cleaned."""
    compacted, meters = metered()
    compacted.put(("a", "1"))
    compacted.clean()
    compacted.put(("b", "1"))
    compacted.seal()
    compacted.manager.create_topic("other", 1, OVERRIDES)
    other = compacted.manager.log(TopicPartition("other", 0))
    other.append(keyed(("a", "1")))
    other.roll()
    other.durability.commit()
    meters.looks.clear()
    compacted.cleaner.run_pass()
    compacted.cleaner.run_pass()
    shares = [look["dirty_ratio"] for look in meters.looks]
    assert shares[0] == 1.0
    assert 0 < shares[1] < 1


def test_logs_that_were_given_up_count_with_their_dirty_bytes() -> None:
    """In their directory, as long as they are given up; clean ones do not count."""
    compacted, meters = metered()
    compacted.manager.create_topic("good", 1, OVERRIDES)
    good = compacted.manager.log(TopicPartition("good", 0))
    for log in (compacted.log, good):
        log.append(keyed(("a", "1")))
        log.roll()
        log.durability.commit()
    path = compacted.log.reader.segments[0].records.path
    compacted.world.disk._inode(path).content[65] ^= 1  # noqa: SLF001 - damage
    while compacted.cleaner.run_pass() is not None:
        pass
    compacted.cleaner.run_pass()
    assert set(compacted.cleaner.uncleanable) == {EVENTS}
    assert meters.stuck == {str(DATA): (1, compacted.log.reader.segments[0].size_bytes)}
    compacted.log.truncate_to(0)
    compacted.cleaner.run_pass()
    assert meters.stuck == {str(DATA): (0, 0)}


class Fatal(Meters):
    """Ends the thread that looks for something to clean."""

    def __init__(self) -> None:
        super().__init__()
        self.died = threading.Event()

    def cleaner_looked(self, **figures: Any) -> None:
        raise SystemExit

    def cleaner_died(self) -> None:
        self.died.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_by_itself_is_counted() -> None:
    """An error outside a pass ends it; a stopped thread has not died."""
    for recorder, is_dead in ((Fatal(), True), (Meters(), False)):
        died = getattr(recorder, "died", threading.Event())
        compacted = Compacted(World(recorder=recorder))
        cleaner = compacted.new_cleaner(enable=True, backoff_ms=1 if is_dead else 60_000)
        assert not is_dead or died.wait(10)
        cleaner.stop()
        assert died.is_set() is is_dead
