"""Unfinished moves: the effects of a restart, a deletion and a full disk."""

import errno
from pathlib import Path

import pytest

from engine.errors import InvalidRequestValue, Recovering, StorageFull, TopicNotFound
from engine.fs import names
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World
from tests.support.filesystem import PowerCut
from tests.support.logs import fill, read_values
from tests.unit.engine.manager.test_directories import A, B, C, opened, restarted
from tests.unit.engine.manager.test_moving import partition_directories, prepared

MOST_STEPS = 100
UNIQUE_ID = "00112233445566778899aabbccddeeff"


def metadata(world: World) -> bytes:
    return world.fs.read_bytes(A / "events-0" / names.PARTITION_METADATA)


def copy_into(world: World, path: Path, content: bytes = b"") -> None:
    """Leave the directory of a move, as another process left it, with this topic id in it."""
    world.fs.make_directory(path)
    if content:
        with world.fs.open(path / names.PARTITION_METADATA, create=True) as file:
            file.append(content)
    world.disk.sync_everything()


def future(directory: Path, unique_id: str = UNIQUE_ID) -> Path:
    return directory / names.future_directory_name(EVENTS, unique_id)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_move_is_wanted_or_not_whenever_the_power_fails(*, power_cut: bool) -> None:
    """Once it was noted it is there after a restart; before, nothing is left of it."""
    for step in range(1, MOST_STEPS):
        world, manager, values = prepared()
        try:
            with world.disk.power_cut_before(step):
                manager.plan_move(EVENTS, B)
            was_noted = True
        except PowerCut:
            was_noted = False
        manager = restarted(world, power_cut=power_cut)
        wanted = manager.unfinished_moves()
        assert wanted in ({}, {EVENTS: B})
        assert wanted or not was_noted
        for log, target in wanted.items():
            manager.move_partition(log, target)
        assert read_values(manager.log(EVENTS)) == values
        world.scheduler.advance(60_000)
        assert partition_directories(world) == ["/b/events-0" if wanted else "/a/events-0"]
        if was_noted:
            return
    raise AssertionError("it takes more steps than anybody expected")


def test_a_move_is_noted_once() -> None:
    """A repeated request is the same move; another target replaces it."""
    world = World()
    manager = opened(world, A, B, C)
    manager.create_topic("events", 1, {})
    manager.plan_move(EVENTS, B)
    manager.plan_move(EVENTS, B)
    assert partition_directories(world) == ["/a/events-0", "/b/events-0-future"]
    manager.plan_move(EVENTS, C)
    assert manager.unfinished_moves() == {EVENTS: C}
    assert partition_directories(world) == ["/a/events-0"]
    assert [name for name in world.fs.list_directory(C) if name.endswith("-future")]
    with pytest.raises(InvalidRequestValue):
        manager.plan_move(EVENTS, Path("/etc"))
    with pytest.raises(TopicNotFound):
        manager.plan_move(TopicPartition("none", 0), B)
    manager.close()
    with pytest.raises(Recovering):
        manager.plan_move(EVENTS, B)


def test_the_copy_of_an_earlier_process_is_not_used() -> None:
    """All leftovers are removed: the original may have lost the copied records."""
    world, manager, values = prepared()
    manager.close()
    copy_into(world, future(B), metadata(world))
    for name in (names.log_name(0), names.log_name(3), "something else"):
        with world.fs.open(future(B) / name, create=True) as file:
            file.append(b"from another life")
    world.fs.make_directory(future(B) / "a directory")
    manager = opened(world)
    assert manager.unfinished_moves() == {EVENTS: B}
    manager.move_partition(EVENTS, B)
    log = manager.log(EVENTS)
    assert read_values(log) == values
    found = world.fs.list_directory(log.directory)
    assert not {"a directory", "something else"} & set(found)
    manager.close()
    assert read_values(opened(world).log(EVENTS)) == values


@pytest.mark.parametrize("path", [future(A), future(B, "ffeeddccbbaa99887766554433221100")])
def test_of_several_directories_one_is_the_move(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A move to the partition's own directory is dropped, and so is a second one."""
    world, manager, values = prepared()
    manager.close()
    copy_into(world, future(B), metadata(world))
    copy_into(world, path, metadata(world))
    manager = opened(world)
    assert manager.unfinished_moves() == {EVENTS: B}
    assert "an incomplete copy without an original" in caplog.text
    manager.move_partition(EVENTS, B)
    world.scheduler.advance(60_000)
    assert partition_directories(world) == ["/b/events-0"]
    assert read_values(manager.log(EVENTS)) == values


def test_the_copy_of_a_topic_that_was_made_again_is_none_of_its_moves() -> None:
    """By its topic id: it was being moved when a topic of that name was deleted."""
    world, manager, _ = prepared()
    of_old_topic = metadata(world)
    manager.delete_topic("events")
    manager.create_topic("events", 1, {})
    world.scheduler.advance(60_000)
    manager.close()
    copy_into(world, future(B), of_old_topic)
    manager = opened(world)
    assert manager.unfinished_moves() == {}
    world.scheduler.advance(60_000)
    assert partition_directories(world) == ["/a/events-0"]


def test_a_move_without_a_topic_id_is_one_too() -> None:
    """A crash came before the file, or it is an old broker's: the name is enough."""
    world, manager, _ = prepared()
    manager.close()
    copy_into(world, future(B))
    assert opened(world).unfinished_moves() == {EVENTS: B}


def test_a_deleted_topic_is_not_moved() -> None:
    """The record of the move is removed with the topic."""
    world, manager, _ = prepared()
    manager.plan_move(EVENTS, B)
    manager.delete_topic("events")
    assert manager.unfinished_moves() == {}
    world.scheduler.advance(60_000)
    assert partition_directories(world) == []
    with pytest.raises(TopicNotFound):
        manager.move_partition(EVENTS, B)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_deletion_that_is_interrupted_takes_the_move_along(*, power_cut: bool) -> None:
    """Wherever the power fails, in the end there is a topic with its move, or neither."""
    for step in range(1, MOST_STEPS):
        world, manager, _ = prepared()
        manager.plan_move(EVENTS, B)
        try:
            with world.disk.power_cut_before(step):
                manager.delete_topic("events")
            was_done = True
        except PowerCut:
            was_done = False
        manager = restarted(world, power_cut=power_cut)
        is_there = "events" in manager.topics()
        assert manager.unfinished_moves() == ({EVENTS: B} if is_there else {})
        world.scheduler.advance(60_000)
        expected = ["/a/events-0", "/b/events-0-future"] if is_there else []
        assert partition_directories(world) == expected
        if was_done:
            assert not is_there
            return
    raise AssertionError("a deletion takes more steps than anybody expected")


def test_a_directory_that_fails_keeps_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    """A topic can still be deleted; its directories there are removed when the disk is back."""
    world, manager, _ = prepared()
    manager.plan_move(EVENTS, B)
    manager.directories[1].fail(OSError(errno.EIO, "broken"))
    manager.delete_topic("events")
    assert manager.topics() == {}
    manager.close()
    manager = restarted(world)
    assert manager.topics() == {}
    assert "it has no original" in caplog.text
    assert partition_directories(world)[-1] == "/b/events-0-future"


@pytest.mark.parametrize(
    ("name", "path_end"), [("make_directory", "-future"), ("append", "partition.metadata.tmp")]
)
def test_a_full_disk_takes_no_note(name: str, path_end: str) -> None:
    """Nothing is left, and there is no move."""
    world, manager, _ = prepared()
    world.disk.fail(name, error=errno.ENOSPC, path_end=path_end)
    with pytest.raises(StorageFull):
        manager.plan_move(EVENTS, B)
    assert manager.unfinished_moves() == {}
    assert partition_directories(world) == ["/a/events-0"]


def test_a_move_that_came_to_nothing_is_not_tried_again() -> None:
    """The disk was full: the caller got the error, and the next start does not fill it again."""
    world, manager, values = prepared()
    world.disk.fail("append", error=errno.ENOSPC, path_end="00000000000000000000.log")
    with pytest.raises(StorageFull):
        manager.move_partition(EVENTS, B)
    assert manager.unfinished_moves() == {}
    manager = restarted(world)
    assert manager.unfinished_moves() == {}
    assert read_values(manager.log(EVENTS)) == values


def test_what_was_appended_between_two_starts_is_moved_too() -> None:
    """The move continues with the present log."""
    world, manager, values = prepared()
    manager.plan_move(EVENTS, B)
    manager.close()
    manager = opened(world)
    values += fill(manager.log(EVENTS), batches=2, first=len(values))
    manager.log(EVENTS).durability.commit()
    manager.move_partition(EVENTS, B)
    assert read_values(manager.log(EVENTS)) == values
