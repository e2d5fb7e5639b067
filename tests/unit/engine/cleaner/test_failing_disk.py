"""A disk that fails while the cleaner chooses: whose fault it is, and what is still asked of it."""

import errno

from tests.support.compaction import OVERRIDES, Compacted, keyed


def test_a_disk_that_cannot_be_read_is_asked_once() -> None:
    """The log that met it is given up; of the others nothing is read and none is blamed."""
    compacted = Compacted(overrides={"max.compaction.lag.ms": 1000})
    compacted.manager.create_topic("other", 1, OVERRIDES | {"max.compaction.lag.ms": 1000})
    for log in compacted.manager.logs():
        log.append(keyed(("a", "1")))
        log.roll()
        log.commit()
    compacted.world.disk.fail("read", path_end=".log")
    assert compacted.cleaner.run_pass() is None
    assert compacted.manager.health.is_offline
    assert len(compacted.cleaner.uncleanable) == 1


def test_a_log_that_finds_no_file_is_looked_at_again() -> None:
    """Too many open files are nobody's fault: the next pass cleans it. It was given up for good."""
    compacted = Compacted(overrides={"max.compaction.lag.ms": 1000})
    compacted.put(("a", "1"), ("a", "2"))
    compacted.seal()
    compacted.world.disk.fail("read", error=errno.EMFILE, path_end=".log")
    assert compacted.cleaner.run_pass() is None
    assert compacted.cleaner.uncleanable == {}
    compacted.world.clock.advance(2_000)
    assert compacted.cleaner.run_pass() is not None
