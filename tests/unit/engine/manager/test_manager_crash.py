"""Every step of making, growing and deleting a topic, interrupted by a kill and by a power cut."""

from collections.abc import Callable, Iterator

import pytest

from engine.fs.names import DirectoryKind, parse_partition_directory
from engine.manager.manager import LogManager
from engine.types import TopicPartition
from tests.support.builders import DATA, World, new_batch
from tests.support.filesystem import PowerCut
from tests.support.time import START_MS

KEPT = TopicPartition("kept", 0)
MOST_STEPS = 200


def prepared() -> tuple[World, LogManager]:
    """A data directory with an unchanged topic, and one to be grown or deleted."""
    world = World()
    manager = world.open_manager({"kept": 1, "events": 2})
    for log in manager.logs():
        log.append(new_batch(3))
        log.durability.flush()
    manager.checkpoint()
    return world, manager


def interrupted(
    change: Callable[[LogManager], object], *, power_cut: bool
) -> Iterator[tuple[LogManager, World, bool]]:
    """Yield what a restart finds, for an interruption before each step of the change and after it.

    The flag says whether the change had returned.
    """
    for step in range(1, MOST_STEPS):
        world, manager = prepared()
        try:
            with world.disk.power_cut_before(step):
                change(manager)
            was_done = True
        except PowerCut:
            was_done = False
        world.restart(power_cut=power_cut)
        yield world.open_manager(), world, was_done
        if was_done:
            return
    raise AssertionError("the change takes more steps than anybody expected")


def live(world: World, topic: str) -> list[int]:
    """The partitions of a topic that have a live directory."""
    parsed = [
        parse_partition_directory(name)
        for name in world.fs.list_directory(DATA)
        if world.fs.is_directory(DATA / name)
    ]
    return [p.partition for p in parsed if p.topic == topic and p.kind is DirectoryKind.LIVE]


def assert_untouched(manager: LogManager) -> None:
    assert manager.log(KEPT).watermarks.high_watermark == 3
    assert not manager.topic("kept").adopted


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_topic_is_made_whole_or_not_at_all(power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Whichever step of createTopic is the last, a start finds no topic or all its partitions."""
    outcomes = set()
    for manager, world, was_done in interrupted(
        lambda manager: manager.create_topic("new", 2, {"retention.ms": "5"}), power_cut=power_cut
    ):
        assert_untouched(manager)
        exists = "new" in manager.topics()
        outcomes.add(exists)
        assert exists or not was_done
        assert live(world, "new") == ([0, 1] if exists else [])
        topic, created = manager.create_topic("new", 2, {"retention.ms": "5"})
        assert created is not exists
        for number in range(2):
            log = manager.log(TopicPartition("new", number))
            assert log.topic_id == topic.topic_id
            assert log.append(new_batch()).base_offset == 0
            assert log.durability.commit() == 1
    assert outcomes == {False, True}


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_topic_grows_by_all_partitions_or_none(power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Whichever step of updateTopic is the last, old records stay and the numbers are whole."""
    outcomes = set()
    for manager, world, was_done in interrupted(
        lambda manager: manager.update_topic("events", {"retention.ms": "-1"}, 4),
        power_cut=power_cut,
    ):
        assert_untouched(manager)
        topic = manager.topic("events")
        outcomes.add(topic.partitions)
        assert topic.partitions == (4 if was_done else topic.partitions)
        assert live(world, "events") == list(range(topic.partitions))
        assert bool(topic.overrides) == (topic.partitions == 4)
        ends = [
            manager.log(TopicPartition("events", number)).watermarks.high_watermark
            for number in range(topic.partitions)
        ]
        assert ends == [3, 3, 0, 0][: topic.partitions]
    assert outcomes == {2, 4}


@pytest.mark.parametrize("power_cut", [False, True])
def test_an_adopted_topic_grows_by_all_partitions_or_none(
    power_cut: bool,  # noqa: FBT001 - parametrized
) -> None:
    """A start completes partitions that were recorded, but none that the broker had elsewhere.

    It skipped adopted topics, so their new partitions were listed and did not exist.
    """
    outcomes = set()
    for step in range(1, MOST_STEPS):
        world = World()
        world.fs.make_directory(DATA / "broker-1")
        world.fs.sync_directory(DATA)
        manager = world.open_manager()
        with world.disk.power_cut_before(step):
            try:
                manager.update_topic("broker", {"retention.ms": "-1"}, 4)
                was_done = True
            except PowerCut:
                was_done = False
        world.restart(power_cut=power_cut)
        manager = world.open_manager()
        topic = manager.topic("broker")
        outcomes.add(topic.partitions)
        assert topic.partitions == (4 if was_done else topic.partitions)
        assert live(world, "broker") == list(range(1, topic.partitions))
        for number in range(2, topic.partitions):
            log = manager.log(TopicPartition("broker", number))
            assert log.append(new_batch()).base_offset == 0
        if was_done:
            break
    assert outcomes == {2, 4}


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_topic_is_deleted_whole_or_not_at_all(power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Whichever step of deleteTopic is the last, no part of a deleted topic comes back."""
    outcomes = set()
    for manager, world, was_done in interrupted(
        lambda manager: manager.delete_topic("events"), power_cut=power_cut
    ):
        assert_untouched(manager)
        exists = "events" in manager.topics()
        outcomes.add(exists)
        assert not (exists and was_done)
        if exists:
            ends = [
                manager.log(TopicPartition("events", number)).watermarks.high_watermark
                for number in range(2)
            ]
            assert ends == [3, 3]
            continue
        assert live(world, "events") == []
        manager.create_topic("events", 2, {})
        world.restart(power_cut=False)  # the old topic's checkpoint lines must not return
        marks = world.open_manager().log(TopicPartition("events", 0)).watermarks
        assert (marks.log_start_offset, marks.log_end_offset) == (0, 0)
        world.scheduler.advance(60_000)
        assert not any(name.endswith("-delete") for name in world.fs.list_directory(DATA))
    assert outcomes == {False, True}


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_close_loses_nothing_that_was_committed(power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Whichever step of a close is the last, the records are there, marked clean or recovered."""
    seen = set()
    for manager, _, was_done in interrupted(LogManager.close, power_cut=power_cut):
        assert_untouched(manager)
        was_clean = manager.log(KEPT).durability.recovery.was_clean
        seen.add(was_clean)
        assert was_clean or not was_done
    assert seen == {False, True}


def test_what_the_marker_vouches_for_is_on_disk() -> None:
    """A power cut right after a clean stop changes no byte of any file, indexes included."""
    world, manager = prepared()
    manager.log(KEPT).append(new_batch(2))
    manager.close()
    paths = [DATA / "kept-0" / name for name in world.fs.list_directory(DATA / "kept-0")]
    before = {path.name: world.fs.read_bytes(path) for path in paths}
    world.restart(power_cut=True)
    assert {path.name: world.fs.read_bytes(path) for path in paths} == before
    log = world.open_manager().log(KEPT)
    assert log.durability.recovery.was_clean
    assert log.reader.listing().segments[0].largest_timestamp == START_MS


def test_a_clean_stop_puts_on_disk_what_a_flush_was_to_bring_there() -> None:
    """The snapshot of a roll and the names that retention took, though all records were flushed."""
    world, manager = prepared()
    kept, other = (manager.log(log) for log in (KEPT, TopicPartition("events", 1)))
    batch = new_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    kept.append(batch)
    kept.durability.flush()
    kept.roll()
    other.roll()
    other.delete_records(3)
    assert other.maintenance.run_retention()
    manager.close()
    world.restart(power_cut=True)
    manager = world.open_manager()
    assert manager.log(KEPT).watermarks.last_stable_offset == 3
    marks = manager.log(TopicPartition("events", 1)).watermarks
    assert (marks.log_start_offset, marks.log_end_offset) == (3, 3)


def test_a_checkpoint_remembers_a_log_start_that_retention_made_the_first_offset() -> None:
    """The names that it took may come back with a power cut, the records may not."""
    world, manager = prepared()
    log = manager.log(KEPT)
    log.roll()
    log.append(new_batch(2))
    log.durability.flush()
    log.delete_records(3)
    assert log.maintenance.run_retention()
    manager.checkpoint()
    world.restart(power_cut=True)
    marks = world.open_manager().log(KEPT).watermarks
    assert (marks.log_start_offset, marks.log_end_offset) == (3, 5)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_start_that_is_interrupted_can_be_tried_again(power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Whichever step of a start after a crash is the last, the next start finds everything."""
    for step in range(1, MOST_STEPS):
        world, manager = prepared()
        manager.log(KEPT).append(new_batch(2))
        world.restart(power_cut=False)
        with world.disk.power_cut_before(step):
            try:
                world.open_manager()
                was_done = True
            except PowerCut:
                was_done = False
        world.restart(power_cut=power_cut)
        end = world.open_manager().log(KEPT).watermarks.high_watermark
        assert end == 5 if was_done or not power_cut else end in {3, 5}
        if was_done:
            return
    raise AssertionError("a start takes more steps than anybody expected")
