"""Everything at once on a real disk: appends, reads, rolls, retention, topics coming and going."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import OffsetBelowLogStart
from engine.log.log import Log
from engine.records.batch import BatchView
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.builders import SMALL_INDEXES, values_of
from tests.unit.engine.background.listeners import PATIENCE_SECONDS, Listener

WRITERS = 4
APPENDS = 150


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def runtime(tmp_path: Path, listener: Listener) -> Iterator[Runtime]:
    config = EngineConfig(default_topic_config={**SMALL_INDEXES, "file.delete.delay.ms": "1"})
    runtime = Runtime(tmp_path, config, on_commit=listener.committed, on_failure=listener.failed)
    runtime.open()
    yield runtime
    runtime.close()


def write(runtime: Runtime, log: Log, writer: int) -> list[tuple[int, bytes]]:
    """Append one record after another; return where each of them went."""
    written = []
    for number in range(APPENDS):
        value = b"%d:%d" % (writer, number)
        appended = runtime.committer.append(log, values_of([value]), acks_all=number % 3 == 0)
        written.append((appended.base_offset, value))
    return written


def read_all(log: Log, end_offset: int, given_up: threading.Event) -> dict[int, bytes | None]:
    """Read like a consumer that polls, up to an offset, or until a writer has failed."""
    found: dict[int, bytes | None] = {}
    offset = 0
    while offset < end_offset and not given_up.is_set():
        try:
            fetched = log.reader.read(offset, max_bytes=2_000)
        except OffsetBelowLogStart:
            offset = log.watermarks.log_start_offset
            continue
        assert fetched is not None
        position = 0
        while position < len(fetched.data):
            batch = BatchView(fetched.data, position)
            batch.ensure_intact()
            found |= {record.offset: record.value for record in batch.records()}
            position += batch.header.size_bytes
        offset = fetched.next_offset
    return found


@contextmanager
def ending(done: threading.Event) -> Iterator[None]:
    """Set the event at the end, even after an error.

    Otherwise a failure would be a test that hangs.
    """
    try:
        yield
    finally:
        done.set()


def repeat(work: Callable[[], object], until: threading.Event) -> int:
    """Do something over and over until the event; return how often."""
    count = 0
    while not until.is_set():
        work()
        count += 1
    return count


def test_readers_see_every_record_once_while_segments_roll(
    runtime: Runtime, listener: Listener
) -> None:
    """Four writers and two readers on one log: each value is found at the offset it was given."""
    runtime.manager.create_topic("events", 1, {"segment.bytes": 4096, "retention.ms": -1})
    log = runtime.manager.log(TopicPartition("events", 0))
    total = WRITERS * APPENDS
    done = threading.Event()
    with ThreadPoolExecutor(WRITERS + 2) as pool, ending(done):
        writers = [pool.submit(write, runtime, log, number) for number in range(WRITERS)]
        readers = [pool.submit(read_all, log, total, done) for _ in range(2)]
        written = dict(pair for writer in writers for pair in writer.result(PATIENCE_SECONDS))
        log.durability.commit()
        found = [reader.result(PATIENCE_SECONDS) for reader in readers]
    assert sorted(written) == list(range(total))
    assert found == [written, written]
    assert listener.failures == []
    log.maintenance.check_invariants()


def test_retention_and_topics_come_and_go_beside_appends(
    runtime: Runtime, listener: Listener
) -> None:
    """While a log rolls and loses segments, others are made and deleted; nothing goes offline."""
    runtime.manager.create_topic("events", 1, {"segment.bytes": 2048, "retention.bytes": 4096})
    log = runtime.manager.log(TopicPartition("events", 0))
    done = threading.Event()
    names = iter(range(1_000_000))

    def come_and_go() -> None:
        name = f"short-{next(names)}"
        runtime.manager.create_topic(name, 1, {})
        short = runtime.manager.log(TopicPartition(name, 0))
        runtime.committer.append(short, values_of([b"value"]), acks_all=True)
        short.roll()
        runtime.manager.delete_topic(name)

    with ThreadPoolExecutor(WRITERS + 4) as pool:
        with ending(done):
            writers = [pool.submit(write, runtime, log, number) for number in range(WRITERS)]
            beside = [
                pool.submit(repeat, work, done)
                for work in (
                    come_and_go,
                    log.maintenance.run_retention,
                    runtime.manager.checkpoint,
                    log.durability.flush,
                )
            ]
            reader = pool.submit(read_all, log, WRITERS * APPENDS, done)
            written = dict(pair for writer in writers for pair in writer.result(PATIENCE_SECONDS))
            log.durability.commit()
            found = reader.result(PATIENCE_SECONDS)
        assert all(worker.result(PATIENCE_SECONDS) > 0 for worker in beside)
    assert found.items() <= written.items()
    assert log.watermarks.log_start_offset > 0
    assert not runtime.manager.health.is_offline
    assert [error for _, error in listener.failures] == []
    log.maintenance.check_invariants()
