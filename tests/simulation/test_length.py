"""Months of simulated time: nothing grows with a log's past.

What a log costs is bounded by what it holds: by its segments, keys and producers. The rules that
these tests assert stand in docs/durability.md.
"""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from engine.config import CleanerConfig, EngineConfig, ScrubConfig
from engine.fs import names
from engine.log.log import Log
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.builders import DATA, new_batch, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.time import ManualClock, ManualScheduler

QUARTER_HOUR_MS = 900_000
KEPT_SEGMENTS = 4
MOST_SEGMENTS = KEPT_SEGMENTS + 2
"""Those that are kept, the active one, and one that waits for the next pass."""
FILES_OF_A_SEGMENT = 4
"""A `.log`, its two indexes and the producers at its beginning."""
FILES_OF_A_LOG = 4
"""The epochs, the topic id, the producers at the end of the log and those of its window."""
FILES_OF_A_DIRECTORY = 8
COMMITS_PER_SECOND = 1_000
CALLS_OF_INDEXES = 100
"""Entries of the indexes, and the checkpoints, of a second."""
CALLS_OF_A_START_PER_FILE = 3
SMALL_CHANGE_BYTES = 1 << 16
"""Index files that have come or gone; a tenth of what the forgotten ids would take."""
SNAPSHOT_HEADER_BYTES = 10
SNAPSHOT_ENTRY_BYTES = 46

pytestmark = pytest.mark.timeout(3_600)

CONFIG = EngineConfig(
    default_topic_config={"segment.index.bytes": "4096"},
    max_producers_per_partition=50,
    cleaner=CleanerConfig(enable=False, chunk_bytes=4_096),
    scrub=ScrubConfig(interval_ms=0),
)

TOPICS = {
    "deleted": {"retention.bytes": "300", "file.delete.delay.ms": "60000"},
    "timed": {"retention.ms": str(KEPT_SEGMENTS * QUARTER_HOUR_MS)},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "both": {"cleanup.policy": "compact,delete", "retention.ms": str(4 * QUARTER_HOUR_MS)},
}


class Cost(NamedTuple):
    """What is there after some rounds, and what they and a start after them took."""

    files: int
    memory_bytes: int
    calls: int
    changes: int
    start_calls: int


@contextmanager
def traced_memory() -> Iterator[None]:
    """Have Python count the memory that is allocated."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@dataclass
class Weeks:
    """A runtime on a disk in memory, whose rounds are quarters of an hour."""

    disk: ForgetfulDisk
    clock: ManualClock
    config: EngineConfig = CONFIG
    round: int = 0

    def __post_init__(self) -> None:
        self.start()
        for topic, config in TOPICS.items():
            self.runtime.manager.create_topic(topic, 1, config)

    def start(self) -> int:
        """Start anew; return how many calls of the disk that took."""
        before = self.disk.calls
        self.scheduler = ManualScheduler(self.clock)
        self.runtime = Runtime(
            DATA, self.config, fs=self.disk, clock=self.clock, scheduler=self.scheduler
        )
        self.runtime.open()
        return self.disk.calls - before

    def log(self, topic: str) -> Log:
        return self.runtime.manager.log(TopicPartition(topic, 0))

    def pass_rounds(self, count: int) -> Cost:
        calls, changes = self.disk.calls, 0
        for _ in range(count):
            self.pass_round()
            changes += len(self.disk.changes)
            self.disk.changes.clear()
        calls, memory_bytes = self.disk.calls - calls, self.memory_bytes()
        files = sum(
            len(self.disk.list_directory(DATA / name)) if self.disk.is_directory(DATA / name) else 1
            for name in self.disk.list_directory(DATA)
        )
        self.runtime.close()
        return Cost(files, memory_bytes, calls, changes, self.start())

    def memory_bytes(self) -> int:
        """What the engine and its disk hold."""
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    def compact(self) -> None:
        while self.runtime.cleaner.run_pass() is not None:
            pass

    def pass_round(self) -> None:
        """Append with new producers, roll, compact, and let time pass."""
        self.round += 1
        for topic in TOPICS:
            log = self.log(topic)
            log.append(new_batch(3, timestamp=self.clock.now_ms()))
            log.append(
                new_batch(
                    producer_id=self.round,
                    producer_epoch=0,
                    base_sequence=0,
                    timestamp=self.clock.now_ms(),
                )
            )
            log.roll()
            log.durability.commit()
        self.compact()
        self.scheduler.advance(QUARTER_HOUR_MS)


@pytest.mark.parametrize("rounds", [80, pytest.param(10_000, marks=pytest.mark.long)])
def test_nothing_grows_with_rolls_retention_and_compaction(rounds: int) -> None:
    """Files, memory, and the calls and changes of a round and of a start stay what they were."""
    weeks = Weeks(with_data(ForgetfulDisk()), ManualClock())
    with traced_memory():
        weeks.pass_rounds(CONFIG.max_producers_per_partition)  # until all that is kept is there
        first, last = weeks.pass_rounds(rounds // 2), weeks.pass_rounds(rounds // 2)
    segments = sum(weeks.log(topic).reader.segments_count for topic in TOPICS)
    assert segments <= MOST_SEGMENTS * len(TOPICS)
    assert last.files <= (
        FILES_OF_A_SEGMENT * segments + FILES_OF_A_LOG * len(TOPICS) + FILES_OF_A_DIRECTORY
    )
    assert last.start_calls <= CALLS_OF_A_START_PER_FILE * last.files
    for before, after in zip(first[1:4], last[1:4], strict=True):
        assert after < 1.02 * before, (first, last)
    for topic in TOPICS:
        assert len(weeks.log(topic).producers.active()) == CONFIG.max_producers_per_partition


@pytest.mark.parametrize("seconds", [2, pytest.param(600, marks=pytest.mark.long)])
def test_a_thousand_commits_a_second_cost_one_sync_each(seconds: int) -> None:
    """Whatever was committed before: an append is one write, its commit one sync."""
    weeks = Weeks(with_data(ForgetfulDisk()), ManualClock())
    log = weeks.log("timed")
    log.append(new_batch(timestamp=weeks.clock.now_ms()))
    log.durability.commit()
    for _ in range(seconds):
        before = weeks.disk.calls
        for _ in range(COMMITS_PER_SECOND):
            log.append(new_batch(timestamp=weeks.clock.now_ms()))
            log.durability.commit()
        assert weeks.disk.calls - before <= 2 * COMMITS_PER_SECOND + CALLS_OF_INDEXES
        weeks.disk.changes.clear()
        weeks.scheduler.advance(1_000)


@pytest.mark.parametrize(
    ("ids", "most"), [(2_000, 50), pytest.param(1_000_000, 10_000, marks=pytest.mark.long)]
)
def test_producers_beyond_the_limit_leave_nothing_behind(ids: int, most: int) -> None:
    """Memory, snapshots and a start are those of the ids that are remembered."""
    config = replace(CONFIG, max_producers_per_partition=most)
    weeks = Weeks(with_data(ForgetfulDisk()), ManualClock(), config)
    log = weeks.log("compacted")
    sizes = []
    with traced_memory():
        for producer_id in range(ids):
            log.append(
                new_batch(
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    timestamp=weeks.clock.now_ms(),
                )
            )
            weeks.scheduler.advance(1)
            if (producer_id + 1) % (ids // 4) == 0:
                log.roll()
                log.durability.commit()
                weeks.compact()
                weeks.disk.changes.clear()
                weeks.scheduler.advance(QUARTER_HOUR_MS)
                snapshot = log.directory / names.snapshot_name(producer_id + 1)
                sizes.append((weeks.disk.size_bytes(snapshot), weeks.memory_bytes()))
    assert len(log.producers.active()) == most
    assert {size for size, _ in sizes} == {SNAPSHOT_HEADER_BYTES + most * SNAPSHOT_ENTRY_BYTES}
    assert sizes[-1][1] < 1.05 * sizes[1][1] + SMALL_CHANGE_BYTES
    weeks.runtime.close()
    assert weeks.start() <= CALLS_OF_A_START_PER_FILE * (
        FILES_OF_A_SEGMENT
        + (FILES_OF_A_LOG + FILES_OF_A_SEGMENT) * len(TOPICS)
        + FILES_OF_A_DIRECTORY
    )
    assert len(weeks.log("compacted").producers.active()) == most
