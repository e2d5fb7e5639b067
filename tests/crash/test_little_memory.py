"""A log that finds no memory is refused or waits, alone: the disk has not failed.

A look-up or a roll that could not open an index took the whole data directory offline until a
restart, for reads as well.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from engine.errors import Overloaded
from engine.log.log import Log
from engine.types import FetchIsolation
from tests.support.builders import World, new_batch
from tests.support.logs import CONFIG, append_values, fill, read_values, with_config

PASSING = pytest.mark.parametrize(
    "error", [errno.ENOMEM, errno.EAGAIN, errno.EINTR], ids=errno.errorcode.get
)


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
    """It was refused as a whole; the indexes of a new segment are opened for its second append."""
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
