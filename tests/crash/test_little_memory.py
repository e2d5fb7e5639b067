"""A log that finds no memory is refused or waits, alone: the disk has not failed.

A look-up or a roll that could not map an index took the whole data directory offline until a
restart, for reads as well.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.stock import opened as opened_on_disk
from engine.errors import Overloaded
from engine.log.log import Log
from engine.types import FetchIsolation, TopicPartition
from tests.support.builders import World, new_batch
from tests.support.logs import CONFIG, append_values, fill, read_values, with_config

PAGE_BYTES = resource.getpagesize()
SPARE_BYTES = 4 << 20
INDEX_BYTES = 64 << 20
PASSING = pytest.mark.parametrize(
    "error", [errno.ENOMEM, errno.EAGAIN, errno.EINTR], ids=errno.errorcode.get
)


@contextmanager
def memory_left(size_bytes: int) -> Iterator[None]:
    """Allow this process to map that many more bytes inside the block."""
    mapped_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE_BYTES
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped_bytes + size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_process_without_memory_refuses_one_log_and_serves_the_others(tmp_path: Path) -> None:
    """The first append after a start that needs an index entry maps indexes that do not fit."""
    with opened_on_disk(tmp_path) as manager:
        for name, index_bytes in (("used", 4096), ("large", INDEX_BYTES)):
            manager.create_topic(name, 1, {"segment.index.bytes": str(index_bytes)})
            append_values(manager.log(TopicPartition(name, 0)), b"zero")
    with opened_on_disk(tmp_path) as manager:
        used, large = (manager.log(TopicPartition(name, 0)) for name in ("used", "large"))
        append_values(used, b"one")
        append_values(large, b"one" * 2000)
        used.durability.commit()
        with memory_left(SPARE_BYTES):
            with pytest.raises(Overloaded) as refused:
                append_values(large, b"two")
            append_values(used, b"two")
            used.durability.commit()
            assert read_values(used) == [b"zero", b"one", b"two"]
        assert refused.value.facts() == {"limit": "memory"}
        assert not manager.health.is_offline
        append_values(large, b"three")
        large.durability.commit()
        assert read_values(large) == [b"zero", b"one" * 2000, b"three"]


@PASSING
def test_a_read_that_fails_for_now_leaves_its_directory_readable(error: int) -> None:
    """Its log serves the next read, and all other logs continue."""
    world = World()
    log = world.open_log(with_config(segment_bytes=200))
    values = fill(log, batches=6)
    log.durability.flush()  # the indexes of sealed segments rest
    world.disk.fail("open_index", error=error)
    with pytest.raises(Overloaded):
        read_values(log)
    assert not world.disk.forget_faults(), "it was not met"
    assert not world.health.is_offline
    assert read_values(log) == values


def fill_until_refused(log: Log) -> list[bytes]:
    """Append until something is missing; return the values that were appended."""
    values: list[bytes] = []
    with suppress(Overloaded):
        while True:
            append_values(log, value := b"%050d" % len(values))
            values.append(value)
    return values


@PASSING
@pytest.mark.parametrize("operation", ["open", "open_index"])
def test_a_roll_that_fails_for_now_is_made_by_the_next_append(operation: str, error: int) -> None:
    """It was refused as a whole; the indexes of a new segment are mapped for its second append."""
    world = World()
    log = world.open_log(with_config(segment_bytes=200))
    values = fill(log, batches=2 if operation == "open" else 3)
    world.disk.fail(operation, error=error)
    more = fill_until_refused(log)
    assert not world.disk.forget_faults(), "it was not met"
    assert not world.health.is_offline
    append_values(log, b"again")
    log.durability.commit()
    assert read_values(log) == [*values, *more, b"again"]


def test_a_log_start_inside_an_open_transaction_needs_no_memory_to_move() -> None:
    """The place of the first undecided record is looked up again with the next change.

    What had been done by then was answered by an error, and the directory was offline.
    """
    world = World()
    log = world.open_log(CONFIG)
    log.append(
        new_batch(3, producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    log.roll()
    append_values(log, b"later")
    log.durability.flush()  # the indexes of the sealed segment rest
    world.disk.fail("open_index", error=errno.ENOMEM)
    assert log.delete_records(2) == 2
    assert not world.disk.forget_faults(), "it was not met"
    assert not world.health.is_offline
    assert log.watermarks.last_stable_offset == 2
    assert log.watermarks.bound(FetchIsolation.TXN_COMMITTED).is_offset_only
    append_values(log, b"last")
    log.durability.commit()
    assert not log.watermarks.bound(FetchIsolation.TXN_COMMITTED).is_offset_only
