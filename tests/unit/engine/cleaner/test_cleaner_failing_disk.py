"""A disk that fails while the cleaner selects: which log is affected, and what still works."""

import errno

from engine.cleaner.cleaner import LogCleaner
from engine.types import TopicPartition
from tests.support.builders import World
from tests.support.compaction import BY_HAND, OVERRIDES, Compacted, keyed
from tests.support.machine import Operation, os_error
from tests.unit.engine.manager.test_directories import opened


def test_a_disk_that_cannot_be_read_is_asked_once() -> None:
    """The log that met it is given up; of the others nothing is read and none is blamed."""
    compacted = Compacted(overrides={"max.compaction.lag.ms": 1000})
    compacted.manager.create_topic("other", 1, OVERRIDES | {"max.compaction.lag.ms": 1000})
    for log in compacted.manager.logs():
        log.append(keyed(("a", "1")))
        log.roll()
        log.durability.commit()
    compacted.world.disk.fail("read", path_end=".log")
    assert compacted.cleaner.run_pass() is None
    assert compacted.manager.health.is_offline
    assert len(compacted.cleaner.uncleanable) == 1


def test_a_log_that_finds_no_file_is_looked_at_again() -> None:
    """Too many open files are not the log's fault: the next pass cleans it.

    It was given up until a restart.
    """
    compacted = Compacted(overrides={"max.compaction.lag.ms": 1000})
    compacted.put(("a", "1"), ("a", "2"))
    compacted.seal()
    compacted.world.disk.fail("read", error=errno.EMFILE, path_end=".log")
    assert compacted.cleaner.run_pass() is None
    assert compacted.cleaner.uncleanable == {}
    compacted.world.clock.advance(2_000)
    assert compacted.cleaner.run_pass() is not None


def test_a_log_on_a_full_disk_leaves_the_turn_to_the_next_dirtiest() -> None:
    """The dirtiest log was the only one tried, again and again, until its disk had space."""
    world = World()
    manager = opened(world)
    logs = []
    for name, records in (("large", 20), ("middle", 10), ("small", 5)):
        manager.create_topic(name, 1, OVERRIDES)
        logs.append(log := manager.log(TopicPartition(name, 0)))
        for _ in range(records):
            log.append(keyed(("a", "1")))
        log.durability.commit()
        log.roll()
    large, middle, small = logs
    full = {large.directory.parent}
    assert middle.directory.parent not in full
    assert small.directory.parent in full
    tried = []

    def find_no_space(operation: Operation) -> None:
        if operation.name == "append" and operation.path.suffix == ".cleaned":
            tried.append(operation.path.parent.name)
            if operation.path.parent.parent in full:
                raise os_error(errno.ENOSPC, operation.path)

    cleaner = LogCleaner(manager, clock=world.clock, config=BY_HAND, recorder=world.recorder)
    cleaner.start()
    world.disk.meanwhile = find_no_space
    cleaned = [cleaner.run_pass() for _ in range(2)]
    assert [None if one is None else one.log.topic for one in cleaned] == ["middle", None]
    assert tried == ["large-0", "middle-0", "small-0"]
    full.clear()
    cleaned = [cleaner.run_pass() for _ in range(3)]
    assert [None if one is None else one.log.topic for one in cleaned] == ["large", "small", None]
    assert cleaner.uncleanable == {}


def test_a_log_whose_directory_fails_meanwhile_is_not_read() -> None:
    """It was among those to be cleaned; its turn came after its directory had gone offline."""
    world = World()
    manager = opened(world)
    logs = []
    for name in ("first", "second"):
        manager.create_topic(name, 1, OVERRIDES)
        logs.append(log := manager.log(TopicPartition(name, 0)))
        for _ in range(5 if name == "second" else 10):
            log.append(keyed(("a", "1")))
        log.durability.commit()
        log.roll()
    first, second = logs
    assert first.directory.parent != second.directory.parent
    touched: list[str] = []

    def fail_both(operation: Operation) -> None:
        if operation.name == "append" and operation.path.suffix == ".cleaned":
            second.durability.health.fail(os_error(errno.EIO, operation.path))
            raise os_error(errno.ENOSPC, operation.path)
        if second.durability.health.is_offline and operation.path.parent == second.directory:
            touched.append(operation.name)

    world.disk.meanwhile = fail_both
    cleaner = LogCleaner(manager, clock=world.clock, config=BY_HAND, recorder=world.recorder)
    cleaner.start()
    assert cleaner.run_pass() is None
    assert second.durability.health.is_offline
    assert not first.durability.health.is_offline
    assert "read" not in touched
    assert cleaner.uncleanable == {}
