"""What is known of damage: bounded, durable, and never in the way of anything."""

from pathlib import Path

import pytest

from engine.errors import StoredDataCorrupt
from engine.fs.directories import replace_atomically
from engine.fs.names import DAMAGE_FILE
from engine.log import damage
from engine.log.damage import KnownDamage
from engine.log.log import Log
from engine.log.results import DamagedPlace
from engine.manager.manager import LogManager
from engine.types import TopicPartition
from tests.support.builders import World, new_batch
from tests.support.damage import rewrite

LOG = TopicPartition("events", 0)


def found(world: World, position: int) -> StoredDataCorrupt:
    """Damage at a place of the log's first segment."""
    file = world.directory / "events-0" / f"{0:020}.log"
    return StoredDataCorrupt(
        f"{file}, byte {position}: a checksum", file=file, position=position, offset=position
    )


def known(world: World) -> KnownDamage:
    """What a start finds."""
    result = KnownDamage(world.fs, world.directory, world.clock)
    result.load()
    return result


@pytest.fixture
def world() -> World:
    world = World()
    world.fs.make_directory(world.directory)
    return world


def test_places_are_kept_once_without_the_directory(world: World) -> None:
    """The same place is one, however often it is read; its path begins at the partition."""
    places = known(world)
    for position in (7, 3, 7):
        places.note(LOG, found(world, position))
    assert [place.position for place in places.places] == [3, 7]
    assert places.places[0].problem.startswith("events-0/")
    places.save()
    assert known(world).places == places.places


def test_only_what_is_damaged_still_is_kept(world: World) -> None:
    """A review forgets the others, in the file too; without any the file is empty."""
    places = known(world)
    for position in range(4):
        places.note(LOG, found(world, position))
    places.review(lambda place: place.position % 2 == 1)
    assert [place.position for place in known(world).places] == [1, 3]
    places.review(lambda _: False)
    assert known(world).places == ()


def test_without_damage_nothing_is_written(world: World) -> None:
    """A healthy service has no such file, and an unchanged one is not written again."""
    places = known(world)
    places.review(lambda _: True)
    assert not world.fs.exists(world.directory / DAMAGE_FILE)
    places.note(LOG, found(world, 1))
    places.save()
    world.fs.remove(world.directory / DAMAGE_FILE)
    places.save()
    assert not world.fs.exists(world.directory / DAMAGE_FILE)


def test_a_file_that_cannot_be_used_is_ignored(world: World) -> None:
    """Nothing depends on it: damaged, of a later version, or unwritable."""
    path = world.directory / DAMAGE_FILE
    for content in (b"", b"{", b'{"version": 1}', b'{"version": 1, "places": [["a"]]}'):
        replace_atomically(world.fs, path, content)
        assert known(world).places == ()


def test_a_disk_that_refuses_the_file_loses_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places stay in memory, and the next pass writes them."""
    places = known(world)
    places.note(LOG, found(world, 1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(damage, "write_json", full)
        places.save()
    assert len(places.places) == 1
    places.save()
    assert known(world).places == places.places


def flipped(world: World, log: Log, position: int) -> None:
    """Change a byte of the log's only segment."""
    path = log.directory / f"{0:020}.log"
    content = bytearray(world.fs.read_bytes(path))
    content[position] ^= 1
    rewrite(world.fs, path, bytes(content))


def place_at(position: int, offset: int) -> DamagedPlace:
    return DamagedPlace("events", 0, f"{0:020}.log", position, offset, "a checksum", 0)


def test_a_place_is_looked_at_again_by_offset_or_by_position(world: World) -> None:
    """Damage that states no offset is looked for where it lies; what is whole is none."""
    log = world.open_log()
    sizes = [len(new_batch(1))] * 3
    for _ in sizes:
        log.append(new_batch(1))
    log.durability.commit()
    flipped(world, log, sizes[0] + 65)
    assert log.reader.is_damaged(place_at(sizes[0], 1))
    assert log.reader.is_damaged(place_at(sizes[0], -1))
    assert not log.reader.is_damaged(place_at(0, 0))
    assert not log.reader.is_damaged(place_at(0, -1))
    assert not log.reader.is_damaged(place_at(0, 99))  # behind the end: it was truncated
    gone = place_at(0, -1)._replace(file=f"{77:020}.log")
    assert not log.reader.is_damaged(gone)
    assert world.health.is_offline is False


A, B = Path("/data/a"), Path("/data/b")


def opened(world: World) -> LogManager:
    """Two data directories, open."""
    manager = LogManager(
        [A, B],
        fs=world.fs,
        clock=world.clock,
        scheduler=world.scheduler,
        recorder=world.recorder,
        config=world.config,
    )
    manager.open()
    return manager


def test_a_place_of_a_log_that_cannot_be_seen_is_kept(world: World) -> None:
    """While its directory is offline; that of a deleted topic is forgotten."""
    manager = opened(world)
    manager.create_topic("events", 2, {})
    logs = [manager.log(TopicPartition("events", number)) for number in range(2)]
    for log in logs:
        file = log.directory / f"{0:020}.log"
        log.reader.note_damage(StoredDataCorrupt("x", file=file, position=0, offset=0))
    failed = next(log for log in logs if log.directory.parent == B)
    failed.durability.health.fail(OSError(5, "Input/output error"))
    assert manager.offline_partitions() == [failed.topic_partition]
    manager.review_damage()
    assert [place.log for place in manager.damage] == [failed.topic_partition]  # the other is whole
    online = next(log for log in logs if log.directory.parent == A)
    file = online.directory / f"{0:020}.log"
    online.reader.note_damage(StoredDataCorrupt("x", file=file, position=0, offset=0))
    manager.delete_topic("events")
    assert manager.offline_partitions() == []
    manager.review_damage()
    assert [place.log for place in manager.damage] == [failed.topic_partition]


def test_places_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is broken everywhere does not fill the memory."""
    monkeypatch.setattr(damage, "MAX_PLACES", 3)
    places = known(world)
    for position in range(9):
        places.note(LOG, found(world, position))
    assert len(places.places) == 3
