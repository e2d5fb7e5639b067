"""Files that cannot be examined are not treated as missing, and the caller gets an error.

`os.path.lexists` and `isdir` return False for every error, and on the simulated disk these calls
never failed.
"""

from __future__ import annotations

import errno

import pytest

from engine.errors import Overloaded, StorageOffline
from engine.fs import names
from engine.types import FetchIsolation
from tests.support.builders import EVENTS, World
from tests.support.logs import CONFIG, append_values, read_values
from tests.unit.engine.log.test_log_transactions import ABORT, Producer

COMMITTED = FetchIsolation.TXN_COMMITTED


def test_aborted_records_are_not_shown_if_their_index_cannot_be_looked_for() -> None:
    """A segment without the file has no aborted transactions, so a failed check is an error."""
    world = World()
    log = world.open_log(CONFIG)
    producer = Producer(log, 7)
    producer.write(b"never")
    log.roll()
    producer.end(ABORT)
    append_values(log, b"shown")
    end = log.durability.flush()
    log.close()
    log = world.open_uncommitted(CONFIG, recovery_point=end, was_clean=True)
    assert read_values(log) == [b"never", b"shown"]
    world.disk.fail("look", path_end=names.TXN_INDEX_SUFFIX)
    with pytest.raises(StorageOffline):
        log.reader.read(0, max_bytes=1, isolation=COMMITTED)


def test_a_topic_is_not_created_in_an_unreadable_directory() -> None:
    """Its directory may exist and hold data; a bare OSError was raised."""
    world = World()
    manager = world.open_manager()
    world.disk.fail("look", path_end=names.partition_directory_name(EVENTS))
    with pytest.raises(StorageOffline):
        manager.create_topic(EVENTS.topic, 1, {})
    (health,) = manager.directories
    assert health.is_offline


@pytest.mark.parametrize(
    ("error", "told"), [(errno.EIO, StorageOffline), (errno.EMFILE, Overloaded)]
)
def test_a_file_that_cannot_be_looked_at_is_reported_to_a_listing(
    error: int, told: type[Exception]
) -> None:
    """A listing reads each file's modification time; a failure was a bare OSError."""
    world = World()
    log = world.open_log(CONFIG)
    append_values(log, b"one")
    log.roll()
    log.durability.commit()
    world.disk.fail("look", error=error)
    with pytest.raises(told):
        log.reader.listing()
    assert world.health.is_offline == (told is StorageOffline)


def test_a_log_that_was_closed_lists_nothing() -> None:
    """A topic may be deleted during the request; it was a bare ValueError."""
    log = World().open_log(CONFIG)
    log.close()
    with pytest.raises(StorageOffline, match="is closed"):
        log.reader.listing()
