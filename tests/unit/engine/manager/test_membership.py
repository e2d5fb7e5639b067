"""A start is given all the data directories of a log, and no others."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import CleanShutdownMarker
from engine.checkpoint.tidelog_files import read_directory_set
from engine.errors import CorruptCheckpoint, InvalidDataDirectory, StorageOffline
from engine.fs import names
from engine.fs.port import FileSystem
from engine.manager.manager import LogManager
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.damage import rewrite
from tests.support.machine import PowerCut
from tests.unit.engine.manager.test_directories import (
    OTHER,
    A,
    B,
    C,
    assert_serves,
    lose,
    lying_in,
    opened,
    spread,
)

D = Path("/d")


def stopped() -> World:
    """Two directories with one partition each, of three committed records, closed cleanly."""
    world, manager = spread()
    manager.close()
    return world


def without(world: World, *gone: Path) -> World:
    """The world of an operator who declares these directories gone."""
    world.config = replace(world.config, gone_directories=gone)
    return world


def move(fs: FileSystem, source: Path, target: Path) -> None:
    fs.rename(source, target)


def copy(fs: FileSystem, source: Path, target: Path) -> None:
    """Copy the files of a directory, not those of its partitions."""
    fs.make_directory(target)
    for name in fs.list_directory(source):
        if not fs.is_directory(source / name):
            with fs.open(target / name, create=True) as file:
                file.append(fs.read_bytes(source / name))


def test_a_log_of_one_directory_has_no_file_for_it() -> None:
    """There is no other directory to miss; the directory is as in Kafka."""
    world = World()
    opened(world, A).close()
    assert not world.fs.exists(A / names.DIRECTORIES_FILE)


@pytest.mark.parametrize("power_cut", [True, False])
@pytest.mark.parametrize("failing", [A, B])
def test_a_directory_that_fails_after_an_interrupted_first_start_is_taken_back(
    failing: Path, *, power_cut: bool
) -> None:
    """The first start may have written the file of one directory only, while the second fails.

    The next start made a new set for the rest, and then both sets together were refused.
    """
    for step in range(1, 100):
        world = World()
        try:
            with world.disk.power_cut_before(step):
                opened(world)
        except PowerCut:
            world.restart(power_cut=power_cut)
        else:
            assert step > 10
            break
        lose(world, failing)
        manager = opened(world)
        manager.create_topic(EVENTS.topic, 1, {})
        manager.log(EVENTS).append(new_batch(3))
        manager.log(EVENTS).durability.commit()
        manager.close()
        world.restart(power_cut=power_cut)
        manager = opened(world)
        assert_serves(manager.log(EVENTS))
        manager.close()
        with pytest.raises(InvalidDataDirectory, match="belongs to the same log"):
            opened(world, A)


@pytest.mark.parametrize(("given", "missing"), [(A, B), (B, A)])
def test_a_directory_that_is_left_out_stops_the_start(given: Path, missing: Path) -> None:
    """The sentence names it; nothing is made in its place, and the clean stop stays clean."""
    world = stopped()
    with pytest.raises(InvalidDataDirectory, match=f"{missing} belongs to the same log"):
        opened(world, given)
    assert CleanShutdownMarker(world.fs, given).exists()
    manager = opened(world)
    assert all(log.durability.recovery.was_clean for log in manager.logs())
    assert_serves(manager.log(EVENTS))
    assert_serves(manager.log(OTHER))


def test_a_directory_that_is_gone_for_good_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """Declared once: its partitions are created again, and the next start does not require it."""
    world = without(stopped(), B)
    manager = opened(world, A)
    assert "/b is gone" in caplog.text
    assert lying_in(manager) == {"events-0": A, "events-1": A}
    assert_serves(manager.log(EVENTS))
    assert_serves(manager.log(OTHER), records=0)
    manager.close()
    manager = opened(without(world), A)
    assert_serves(manager.log(EVENTS), records=4)
    known = read_directory_set(world.fs, A)
    assert known is not None
    assert set(known.paths.values()) == {"/a"}


def test_a_recreated_partition_is_another_log() -> None:
    """Clients that stored the `log_id` of the lost log learn that it was replaced."""
    world, manager = spread()
    lost, kept = manager.log(OTHER).reader.log_id, manager.log(EVENTS).reader.log_id
    manager.close()
    manager = opened(without(world, B), A)
    anew = manager.log(OTHER).reader.log_id
    assert (anew != lost, manager.log(EVENTS).reader.log_id) == (True, kept)
    assert_serves(manager.log(OTHER), records=0)
    manager.close()
    assert opened(without(world), A).log(OTHER).reader.log_id == anew


def test_a_directory_that_was_forgotten_may_come_back() -> None:
    """It joins like a new one; an operator decides about partitions that exist twice."""
    world = without(stopped(), B)
    opened(world, A).close()
    manager = opened(world)  # the empty copy in A is replaced
    assert_serves(manager.log(OTHER))
    assert lying_in(manager)["events-1"] == B
    manager.close()
    with pytest.raises(InvalidDataDirectory, match="/b"):
        opened(without(world), A)


def test_what_is_said_to_be_gone_and_is_there_is_used() -> None:
    """Only a missing directory can be gone."""
    manager = opened(without(stopped(), A, B, C))
    assert_serves(manager.log(EVENTS))
    assert_serves(manager.log(OTHER))


def test_a_directory_is_known_under_another_path() -> None:
    """By its id: a disk may be mounted elsewhere, and no path is missed."""
    world = stopped()
    move(world.fs, B, D)
    manager = opened(world, A, D)
    assert_serves(manager.log(OTHER))
    manager.close()
    with pytest.raises(InvalidDataDirectory, match="/d belongs"):
        opened(world, A)


def test_a_new_directory_joins() -> None:
    """From then on it is missed like the others."""
    world = stopped()
    opened(world, A, B, C).close()
    with pytest.raises(InvalidDataDirectory, match="/c belongs"):
        opened(world)
    for path in (A, B, C):
        known = read_directory_set(world.fs, path)
        assert known is not None
        assert set(known.paths.values()) == {"/a", "/b", "/c"}


def test_a_directory_that_fails_is_not_missing() -> None:
    """It was given, but cannot be read: its partitions are offline, at its path or another."""
    world = stopped()
    lose(world, B)
    manager = opened(world)
    with pytest.raises(StorageOffline):
        manager.log(OTHER)
    manager.close()
    move(world.fs, B, D)
    world.restart(power_cut=False)
    lose(world, D)
    manager = opened(world, A, D)
    with pytest.raises(StorageOffline):
        manager.log(OTHER)
    manager.close()
    world.restart(power_cut=False)
    assert_serves(opened(world, A, D).log(OTHER))


def test_a_directory_that_lost_its_file_is_known_by_its_path() -> None:
    """And gets it back, with the id it had."""
    world = stopped()
    before = read_directory_set(world.fs, B)
    assert before is not None
    world.fs.remove(B / names.DIRECTORIES_FILE)
    manager = opened(world)
    assert_serves(manager.log(OTHER))
    after = read_directory_set(world.fs, B)
    assert after is not None
    assert after.own_id == before.own_id
    assert after.paths == before.paths


def test_a_new_directory_at_the_path_of_one_that_moved_gets_an_id_of_its_own() -> None:
    """The one that moved keeps the id."""
    world = stopped()
    move(world.fs, B, D)
    manager = opened(world, A, B, D)
    assert_serves(manager.log(OTHER))
    own = [read_directory_set(world.fs, path) for path in (A, B, D)]
    assert len({one.own_id for one in own if one is not None}) == 3


def test_a_copy_of_a_directory_is_refused() -> None:
    """Both would be written to, and only one can be right."""
    world = stopped()
    copy(world.fs, B, D)
    with pytest.raises(InvalidDataDirectory, match="/b and /d are copies"):
        opened(world, A, B, D)


def test_directories_of_different_logs_are_not_mixed() -> None:
    """Their topics files would contradict each other."""
    world = stopped()
    manager = opened(world, C, D)
    manager.create_topic("other", 2, {})
    manager.close()
    with pytest.raises(InvalidDataDirectory, match="/a and /c are data directories of different"):
        opened(world, A, B, C, D)


def damaged(world: World, *paths: Path) -> None:
    for path in paths:
        rewrite(world.fs, path / names.DIRECTORIES_FILE, b"{")


def test_a_damaged_file_is_rebuilt_from_another(caplog: pytest.LogCaptureFixture) -> None:
    """With all of them damaged, a missing one cannot be detected."""
    world = stopped()
    damaged(world, B)
    opened(world).close()
    assert "using the copy of another data directory" in caplog.text
    damaged(world, A)
    manager: LogManager = opened(world)
    manager.log(TopicPartition("events", 1)).append(new_batch())
    manager.close()
    damaged(world, A, B)
    with pytest.raises(CorruptCheckpoint):
        opened(world)
