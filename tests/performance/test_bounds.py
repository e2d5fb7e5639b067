"""What one operation may cost the disk and the memory: bounds that catch accidents."""

import tracemalloc
from pathlib import Path

from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from tests.support.builders import World, new_batch
from tests.support.logs import fill, with_config

BATCH = 60_000
SLACK = 32 * 1024


def changes_by(world: World, log: Log) -> list[str]:
    """What happened to the disk while four batches were appended, by the name of the operation."""
    before = len(world.disk.changes)
    fill(log, batches=4)
    return [change.name for change in world.disk.changes[before:]]


def test_an_append_is_one_write() -> None:
    """Between index entries nothing but the batch is written, and nothing is synced."""
    world = World()
    log = world.open_log(with_config(index_interval_bytes=1_000_000))
    fill(log, batches=1)
    assert changes_by(world, log) == ["append"] * 4


def test_a_commit_is_one_sync_however_much_it_carries() -> None:
    """A hundred appends share the sync of their one file, and so does the next commit."""
    world = World()
    log = world.open_log(with_config(segment_bytes=1_000_000))
    log.durability.commit()
    for _ in range(2):
        fill(log, batches=100)
        before = len(world.disk.changes)
        log.durability.commit()
        assert [change.name for change in world.disk.changes[before:]] == ["sync"]


def peak_bytes_of_a_read(log: Log, max_bytes: int) -> tuple[int, int]:
    """How much was read, and the most memory that was taken at one time for it."""
    tracemalloc.start()
    try:
        fetched = log.reader.read(0, max_bytes=max_bytes)
        assert fetched is not None
        return len(fetched.data), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_read_holds_its_bytes_once(tmp_path: Path) -> None:
    """However much is read, it is in memory a single time: no join, no copy for the caller."""
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    log = world.open_log(with_config(segment_bytes=100_000_000))
    for _ in range(64):
        log.append(new_batch(1, value=b"x" * BATCH))
    log.durability.commit()
    for batches in (2, 32):
        read, peak = peak_bytes_of_a_read(log, batches * (BATCH + 100))
        assert read >= (batches - 1) * BATCH
        assert peak < read + SLACK


def test_an_append_holds_no_copy_of_the_batch(tmp_path: Path) -> None:
    """Offsets and epoch are stamped into the caller's own buffer, which is what is written."""
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    log = world.open_log(with_config(segment_bytes=100_000_000, max_message_bytes=10_000_000))
    batch = new_batch(1, value=b"x" * 4_000_000)
    tracemalloc.start()
    try:
        log.append(batch, checked=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < SLACK
