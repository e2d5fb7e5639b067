"""The cleaner at work while others append, read, roll and remove, on real files."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from tests.support.builders import World
from tests.support.compaction import Compacted, newest
from tests.support.logs import batches_in, read_records

KEYS = 20
ROUNDS = 25


@contextmanager
def running(*works: Callable[[], None]) -> Iterator[None]:
    """Repeat each work on a thread until the block ends; fail if one of them did."""
    done = threading.Event()
    failures: list[BaseException] = []

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


class Appender:
    """Appends batches of numbered values, and remembers the last of each key."""

    def __init__(self, compacted: Compacted) -> None:
        self._compacted = compacted
        self._count = 0
        self.last: dict[str, str | None] = {}

    def __call__(self) -> None:
        number = self._count
        self._count += 1
        pairs = [(f"key-{(number + step) % KEYS}", f"{number}") for step in range(3)]
        self._compacted.put(*pairs)
        self.last |= dict(pairs)
        if number % 10 == 0:
            self._compacted.log.roll()
        self._compacted.log.durability.commit()


def read_all(log: Log) -> None:
    """Read from the start: whole and right batches, ascending, the value that was appended."""
    at = log.watermarks.log_start_offset
    end = log.watermarks.high_watermark
    last = -1
    while at < end:
        fetched = log.reader.read(at, max_bytes=500)
        assert fetched is not None
        for batch in batches_in(fetched.data):
            batch.ensure_intact()
            for record in batch.records():
                assert record.offset > last
                assert record.value is not None
                assert int(record.value) == record.offset // 3
                last = record.offset
        assert fetched.next_offset > at
        at = fetched.next_offset


def test_nobody_notices_the_cleaner(tmp_path: Path) -> None:
    """Readers see right records in order, and every key keeps its last value."""
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    compacted = Compacted(world, {"segment.bytes": 2000, "file.delete.delay.ms": 0})
    appender = Appender(compacted)
    appender()
    log = compacted.log
    rounds = 0
    with running(appender, lambda: read_all(log), lambda: read_all(log)):
        while rounds < ROUNDS:
            rounds += compacted.cleaner.run_pass() is not None
    log.maintenance.check_invariants()
    assert newest(compacted.pairs()) == appender.last
    while compacted.cleaner.run_pass() is not None:
        pass
    sealed_end = log.reader.segments[-1].base_offset
    keys = [record.key for record in read_records(log) if record.offset < sealed_end]
    assert len(keys) == len(set(keys))
    compacted.close()


def test_truncation_and_retention_beside_the_cleaner(tmp_path: Path) -> None:
    """The first one wins, and the log stays consistent."""
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    compacted = Compacted(world, {"segment.bytes": 2000, "file.delete.delay.ms": 0})
    appender = Appender(compacted)
    log = compacted.log

    def truncate() -> None:
        marks = log.watermarks
        log.truncate_to(max(marks.log_start_offset, marks.log_end_offset - 10))

    def remove() -> None:
        marks = log.watermarks
        log.delete_records(min((marks.log_start_offset + 5), marks.high_watermark))
        log.maintenance.run_retention()

    def append() -> None:
        with turns:
            appender()

    def take_away() -> None:
        with turns:
            truncate()
        remove()

    turns = threading.Lock()  # a truncation during a commit is not tested here
    with running(append, take_away):
        for _ in range(ROUNDS):
            compacted.cleaner.run_pass()
            log.maintenance.check_invariants()
    assert not compacted.cleaner.uncleanable
    assert not compacted.manager.health.is_offline
    compacted.close()
    compacted.open()
    compacted.log.maintenance.check_invariants()
