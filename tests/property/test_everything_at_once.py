"""All operations at once on a real disk: producers, readers, and whatever removes records.

Every value has its sender, its number, whether it is committed, and a checksum. So a reader can
detect wrong bytes, missing or repeated records, and aborted ones by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from engine.clock import SystemClock
from engine.config import CleanerConfig, EngineConfig
from engine.errors import OffsetBelowLogStart, PartitionNotFound, StorageOffline, TopicNotFound
from engine.log.log import Log
from engine.records.builder import build_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import Codec
from engine.runtime import Runtime, run_retention_pass
from engine.topic_values import ConfigValue
from engine.types import AppendOrigin, FetchIsolation, TopicPartition
from tests.support.crew import Crew, sealed, unsealed
from tests.support.logs import batches_in, read_records
from tests.unit.engine.background.listeners import Listener

COMMITTED = FetchIsolation.TXN_COMMITTED
TOPIC: dict[str, ConfigValue] = {
    "segment.bytes": 20_000,
    "index.interval.bytes": 500,
    "file.delete.delay.ms": 1,
}
DELETED = TOPIC | {"retention.bytes": 150_000}
COMPACTED = TOPIC | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": 1,
}
CONFIG = EngineConfig(
    commit_interval_ms=5,
    cleaner=CleanerConfig(backoff_ms=20),
    default_topic_config={"segment.index.bytes": "16384"},
)
KEYS = 12


def content_of(producer_id: int, number: int, *, is_committed: bool) -> bytes:
    padding = b"." * (number % 60)
    return sealed(b"%d %d %d %s" % (producer_id, number, is_committed, padding))


@dataclass
class Producer:
    """Sends numbered records, in transactions or without; remembers the last value of each key."""

    runtime: Runtime
    log: Log
    producer_id: int
    is_transactional: bool
    sequence: int = 0
    number: int = 0
    last: dict[bytes, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.producer_id)

    def __call__(self) -> None:
        chance = self.random.random()
        if not self.is_transactional:
            self.last |= self.send(is_committed=True)
        elif chance < 0.7:
            for _ in range(self.random.randint(1, 3)):
                self.last |= self.send(is_committed=True)
            self.end(ControlType.COMMIT)
        else:
            self.send(is_committed=False)
            self.end(ControlType.ABORT)

    def send(self, *, is_committed: bool) -> dict[bytes, bytes]:
        """Append a batch, now and then repeatedly; return its keys and values."""
        numbers = range(self.number, self.number + self.random.randint(1, 6))
        pairs = [
            (
                b"%d/%d" % (self.producer_id, self.random.randrange(KEYS)),
                content_of(self.producer_id, number, is_committed=is_committed),
            )
            for number in numbers
        ]
        codec = self.random.choice(list(Codec))
        bases = {self.append(pairs, codec) for _ in range(self.random.choice([1, 1, 1, 2]))}
        assert len(bases) == 1, "a repeated append went somewhere else"
        self.sequence += len(numbers)
        if is_committed:
            self.number = numbers.stop
        return dict(pairs)

    def append(self, pairs: list[tuple[bytes, bytes]], codec: Codec) -> int:
        now_ms = SystemClock().now_ms()
        batch = build_batch(
            [(now_ms - index % 3, key, value, ()) for index, (key, value) in enumerate(pairs)],
            codec=codec,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            is_transactional=self.is_transactional,
        )
        acks_all = self.random.random() < 0.5
        return self.runtime.committer.append(self.log, batch, acks_all=acks_all).base_offset

    def end(self, how: ControlType) -> None:
        marker = build_end_marker(
            how,
            producer_id=self.producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=SystemClock().now_ms(),
        )
        origin = AppendOrigin.COORDINATOR
        self.runtime.committer.append(self.log, marker, acks_all=False, origin=origin)


@dataclass
class Reader:
    """Follows a log from wherever it begins."""

    log: Log
    isolation: FetchIsolation
    max_bytes: int
    offset: int = 0
    records: int = 0
    expected: dict[int, int] = field(default_factory=dict)
    """The next number of each producer."""

    def __call__(self) -> None:
        try:
            fetched = self.log.reader.read(
                self.offset, max_bytes=self.max_bytes, isolation=self.isolation
            )
        except OffsetBelowLogStart:
            self.offset = self.log.watermarks.log_start_offset
            self.expected.clear()
            return
        assert fetched is not None
        bound = fetched.watermarks.bound(self.isolation).offset
        at = self.offset
        for batch in batches_in(fetched.data):
            batch.ensure_intact()
            if batch.header.is_control:
                continue
            for record in batch.records():
                if record.offset >= self.offset:
                    assert at <= record.offset < bound
                    at = record.offset + 1
                    self.take(unsealed(record.value))
        assert max(at, self.offset) <= fetched.next_offset <= max(bound, self.offset)
        self.offset = fetched.next_offset

    def take(self, content: bytes) -> None:
        """Fail if a record is missing, comes twice or was aborted."""
        producer_id, number, is_committed = map(int, content.split()[:3])
        if not is_committed:
            assert self.isolation is not COMMITTED, "an aborted record was read"
            return
        expected = self.expected.get(producer_id, number)
        if self.log.config.is_compacted:
            assert number >= expected
        else:
            assert number == expected
        self.expected[producer_id] = number + 1
        self.records += 1


@dataclass
class Scene:
    """A runtime with a log that loses its oldest records, and one that is compacted."""

    runtime: Runtime

    def __post_init__(self) -> None:
        self.names = map("short-{}".format, itertools.count())
        manager = self.runtime.manager
        manager.create_topic("deleted", 1, DELETED)
        manager.create_topic("compacted", 1, COMPACTED)
        self.deleted, self.compacted = (
            manager.log(TopicPartition(name, 0)) for name in ("deleted", "compacted")
        )
        self.producers = [
            Producer(self.runtime, log, 10 * index + number, is_transactional=number > 1)
            for index, log in enumerate((self.deleted, self.compacted))
            for number in range(4)
        ]
        self.readers = [
            Reader(log, isolation, max_bytes)
            for log in (self.deleted, self.compacted)
            for isolation, max_bytes in (
                (COMMITTED, 4_000),
                (COMMITTED, 1),
                (FetchIsolation.HIGH_WATERMARK, 50_000),
            )
        ]

    def roll(self) -> None:
        for log in (self.deleted, self.compacted):
            if log.reader.segments[-1].size_bytes > 3_000:
                log.roll()

    def take_away(self) -> None:
        marks = self.deleted.watermarks
        self.deleted.delete_records(min(marks.log_start_offset + 20, marks.high_watermark))
        run_retention_pass(self.runtime.manager.logs())

    def roll_and_look_up(self) -> None:
        """Roll first: a thread that only rolled would find nothing to do, and take all the time."""
        self.roll()
        for log in (self.deleted, self.compacted):
            timestamp = SystemClock().now_ms() - 20
            found = log.reader.offset_for_time(timestamp)
            assert found is None or found.timestamp >= timestamp
            log.reader.max_timestamp()
            log.maintenance.check_invariants()
            ends = [segment.next_offset for segment in log.reader.listing().segments]
            assert ends == sorted(ends)

    def come_and_go(self) -> None:
        """Make a topic, use it, delete it."""
        name = next(self.names)
        manager = self.runtime.manager
        manager.create_topic(name, 1, TOPIC)
        log = manager.log(TopicPartition(name, 0))
        producer = Producer(self.runtime, log, 99, is_transactional=True)
        for _ in range(5):
            producer()
        log.roll()
        manager.delete_topic(name)
        with pytest.raises(TopicNotFound):
            manager.log(TopicPartition(name, 0))

    def read_what_comes_and_goes(self) -> None:
        """Read topics that may be deleted at any moment: correct bytes, or that error."""
        manager = self.runtime.manager
        for name in manager.topics():
            try:
                log = manager.log(TopicPartition(name, 0))
                reader = Reader(log, FetchIsolation.HIGH_WATERMARK, 4_000)
                reader()
            except (TopicNotFound, PartitionNotFound, StorageOffline):
                assert name.startswith("short-")

    def flush_and_checkpoint(self) -> None:
        self.deleted.durability.flush()
        self.compacted.durability.flush()
        self.runtime.manager.checkpoint()

    def play(self, seconds: float) -> None:
        crew = Crew(seconds)
        for producer in self.producers:
            crew.add(producer)
        for reader in self.readers:
            crew.add(reader)
        crew.add(self.take_away)
        crew.add(self.roll_and_look_up)
        crew.add(self.come_and_go)
        crew.add(self.read_what_comes_and_goes)
        crew.add(self.flush_and_checkpoint)
        crew.add(lambda: self.runtime.cleaner.clean_now(self.compacted))
        crew.run()

    def check_end(self) -> None:
        """All readers reach the end, and each key has its last value."""
        for log in (self.deleted, self.compacted):
            log.durability.commit()
            log.maintenance.check_invariants()
            marks = log.watermarks
            assert marks.last_stable_offset == marks.high_watermark == marks.log_end_offset
        for reader in self.readers:
            while reader.offset < reader.log.watermarks.high_watermark:
                reader()
            assert reader.records
        expected = {
            key: value
            for producer in self.producers
            if producer.log is self.compacted
            for key, value in producer.last.items()
        }
        assert last_values(self.compacted) == expected
        assert not self.runtime.cleaner.uncleanable
        assert not self.runtime.manager.health.is_offline
        assert self.deleted.watermarks.log_start_offset > 0
        assert self.compacted.reader.segments[0].base_offset == 0


def last_values(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in read_records(log, isolation=COMMITTED)}


@contextmanager
def opened(directory: Path, listener: Listener) -> Iterator[Runtime]:
    runtime = Runtime(directory, CONFIG, on_commit=listener.committed, on_failure=listener.failed)
    runtime.open()
    try:
        yield runtime
    finally:
        runtime.close()


@pytest.mark.parametrize("seconds", [2, pytest.param(180, marks=pytest.mark.long)])
def test_all_operations_at_once_do_not_disturb_each_other(tmp_path: Path, seconds: float) -> None:
    """No wrong byte, gap, deadlock or error for readers and writers, and a restart agrees."""
    listener = Listener()
    with opened(tmp_path, listener) as runtime:
        scene = Scene(runtime)
        scene.play(seconds)
        scene.check_end()
        before = last_values(scene.compacted)
        kept = read_records(scene.deleted)
    with opened(tmp_path, listener) as runtime:
        logs = {log.topic_partition.topic: log for log in runtime.manager.logs()}
        assert all(
            log.durability.recovery.was_clean and not log.durability.recovery.damage
            for log in logs.values()
        )
        assert last_values(logs["compacted"]) == before
        assert read_records(logs["deleted"]) == kept
    assert {error for _, error in listener.failures} == set()
