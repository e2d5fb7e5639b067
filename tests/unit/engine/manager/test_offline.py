"""A log that cannot be opened is offline alone: the others are served, and it is kept."""

import errno
import struct
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import CleanShutdownMarker, OffsetCheckpoint
from engine.errors import CorruptIndex, LogOffline, SegmentOverflow, StoredDataCorrupt
from engine.fs import names
from engine.fs.port import FileSystem
from engine.fs.posix import PosixFileSystem
from engine.log.durability import Durability
from engine.log.state import LogState
from engine.manager.directories import UNSEEN_PRODUCER_IDS
from engine.manager.manager import LogManager
from engine.records.scan import iter_headers
from engine.tools.repair import carry_out, plan_repair
from engine.types import TopicPartition
from tests.support.builders import DATA, EVENTS, SMALL_CONFIG, World, new_batch
from tests.support.damage import rewrite
from tests.unit.engine.manager.test_directories import B, opened, restarted

OTHER = TopicPartition("other", 0)
LOG_FILE = DATA / str(EVENTS) / names.log_name(0)


def two_topics(**changes: str) -> tuple[World, LogManager]:
    """A log of three records that start at 1, and another one."""
    world = World()
    manager = world.open_manager({"other": 1})
    manager.create_topic("events", 1, changes)
    for log in manager.logs():
        log.append(new_batch(3))
        log.durability.commit()
    manager.log(EVENTS).delete_records(1)
    manager.checkpoint()
    return world, manager


def reopened(world: World, *, power_cut: bool = True) -> LogManager:
    world.restart(power_cut=power_cut)
    return world.open_manager()


def reopened_without(world: World) -> LogManager:
    """Start while the log's file may not be opened."""
    world.restart(power_cut=True)
    world.disk.fail("open", error=errno.EACCES, path_end=str(LOG_FILE))
    return world.open_manager()


def assert_only_the_other_is_served(manager: LogManager) -> None:
    with pytest.raises(LogOffline, match="tidelog repair") as caught:
        manager.log(EVENTS)
    assert caught.value.facts()["topic"] == "events"
    assert [one.topic_partition for one in manager.offline_logs] == [EVENTS]
    assert not manager.health.is_offline
    manager.log(OTHER).append(new_batch())
    manager.log(OTHER).durability.commit()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        OSError(errno.ELOOP, "Too many levels of symbolic links"),
        OSError(errno.ENXIO, "No such device or address"),
        CorruptIndex("wrong", file="/data/events-0/0.index"),
        StoredDataCorrupt("damaged", file="/data/events-0/0.log", position=5, offset=1),
        SegmentOverflow("too far", segment="0.log", offset=2**40),
        ValueError("mmap length is greater than file size"),
        IndexError("slot 7"),
        struct.error("unpack requires a buffer of 61 bytes"),
        AssertionError(),
        MemoryError(),
    ],
    ids=lambda error: f"{type(error).__name__}-{getattr(error, 'errno', '')}",
)
@pytest.mark.parametrize(
    "step", [(LogState, "__init__"), (Durability, "flush")], ids=["load", "flush"]
)
def test_whatever_keeps_a_log_from_being_opened_leaves_the_others_open(
    error: Exception, step: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of one log is reported for that log, with the place and advice."""
    world, _ = two_topics()
    world.restart(power_cut=True)
    owner, name = step
    original = getattr(owner, name)

    def failing(self: object, *args: object, **options: object) -> object:
        told = (self, getattr(self, "_core", None), *args)
        if any(getattr(one, "topic_partition", one) == EVENTS for one in told):
            raise error
        return original(self, *args, **options)

    monkeypatch.setattr(owner, name, failing)
    assert_only_the_other_is_served(world.open_manager())


def test_an_io_error_of_one_file_takes_the_directory_offline() -> None:
    """EIO is a failure of the disk, for any file."""
    world, manager = two_topics()
    world.restart(power_cut=True)
    world.disk.fail("open", error=errno.EIO, path_end=str(LOG_FILE))
    manager = world.new_manager()
    with pytest.raises(Exception, match="/data is offline until restart"):
        manager.open()


def test_an_offline_log_keeps_its_lines_in_the_checkpoints() -> None:
    """Its deleted records do not return, and records below its recovery point are not scanned."""
    world, manager = two_topics()
    manager.log(EVENTS).durability.flush()
    manager.checkpoint()
    files = (
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
    )
    lines = [OffsetCheckpoint(world.fs, DATA / name).read()[EVENTS] for name in files]
    assert lines == [3, 1, 3]
    manager = reopened_without(world)
    assert_only_the_other_is_served(manager)
    manager.checkpoint()
    manager.close()
    assert [OffsetCheckpoint(world.fs, DATA / name).read()[EVENTS] for name in files] == lines
    manager = reopened(world)
    assert manager.log(EVENTS).watermarks.log_start_offset == 1
    assert manager.log(EVENTS).watermarks.high_watermark == 3
    assert not manager.offline_logs


def test_a_directory_with_an_offline_log_is_not_left_clean() -> None:
    """The next start would use a tail that was never scanned."""
    world, _ = two_topics()
    manager = reopened_without(world)
    manager.close()
    assert not CleanShutdownMarker(world.fs, DATA).exists()
    manager = reopened(world)
    assert not manager.log(EVENTS).durability.recovery.was_clean
    manager.close()
    assert CleanShutdownMarker(world.fs, DATA).exists()


def test_a_topic_with_an_offline_log_can_be_deleted() -> None:
    """Its directory is removed too: the next start would adopt an unknown one."""
    world, _ = two_topics()
    manager = reopened_without(world)
    manager.delete_topic("events")
    assert not manager.offline_logs
    world.scheduler.advance(60_000)
    assert not world.fs.exists(LOG_FILE.parent)
    manager.close()
    assert EVENTS not in OffsetCheckpoint(world.fs, DATA / names.LOG_START_CHECKPOINT).read()
    assert set(reopened(world).topics()) == {"other"}


def test_an_offline_log_on_a_disk_that_fails_is_deleted_by_the_next_start() -> None:
    """The topics file has the deletion; meanwhile its directory stays."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 2, {})
    manager.close()
    world.restart(power_cut=True)
    file = B / "events-1" / names.PARTITION_METADATA
    world.disk.fail("read", error=errno.EACCES, path_end=str(file))
    manager = opened(world)
    assert [one.directory.parent for one in manager.offline_logs] == [B]
    manager.directories[1].fail(OSError(errno.EIO, "broken"))
    manager.delete_topic("events")
    assert world.fs.exists(file)
    manager.close()
    manager = restarted(world)
    assert not manager.topics()
    assert not manager.offline_logs


def test_producer_ids_pass_those_that_an_offline_log_may_hold() -> None:
    """It is unknown which ids have written there."""
    world, manager = two_topics()
    highest, _ = manager.allocate_producer()
    manager = reopened_without(world)
    assert manager.allocate_producer()[0] > highest + UNSEEN_PRODUCER_IDS


def test_an_offline_log_is_not_created_again() -> None:
    """A directory whose topic id cannot be read is not completed, and no other one is made."""
    world, manager = two_topics()
    manager.close()
    world.restart(power_cut=True)
    metadata = LOG_FILE.parent / names.PARTITION_METADATA
    before = world.fs.read_bytes(metadata)
    world.disk.fail("read", error=errno.EACCES, path_end=str(metadata))
    manager = world.open_manager()
    assert_only_the_other_is_served(manager)
    manager.close()
    assert world.fs.read_bytes(metadata) == before
    assert reopened(world).log(EVENTS).watermarks.high_watermark == 3


def break_last_frame(fs: FileSystem, path: Path) -> None:
    """Make the length of the last batch negative: nothing after its position can be read."""
    content = bytearray(fs.read_bytes(path))
    *_, last = (at for at, _ in iter_headers(bytes(content)))
    content[last + 8 : last + 12] = b"\xff\xff\xff\xff"
    rewrite(fs, path, bytes(content))


def test_a_log_that_failed_to_open_keeps_no_file_open(tmp_path: Path) -> None:
    """Everything that was opened before the failure is closed: descriptors and maps."""
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    manager = world.open_manager({"other": 1, "events": 1})
    manager.log(EVENTS).append(new_batch(2))
    manager.log(EVENTS).durability.commit()
    manager.close()
    break_last_frame(world.fs, tmp_path / str(EVENTS) / names.log_name(0))
    manager = world.open_manager()
    assert_only_the_other_is_served(manager)
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    folder = str(tmp_path / str(EVENTS))
    assert not [link for link in links if link.startswith(folder)]
    assert folder not in mapped
    manager.close()


def test_repair_cuts_an_offline_log_and_the_next_start_serves_it() -> None:
    """A log whose framing is broken cannot be opened; `tidelog repair --cut` ends it there."""
    world, manager = two_topics()
    manager.log(EVENTS).append(new_batch(2))
    manager.log(EVENTS).durability.commit()
    manager.close()
    break_last_frame(world.fs, LOG_FILE)
    manager = reopened(world, power_cut=False)
    assert_only_the_other_is_served(manager)
    manager.close()
    world.restart(power_cut=False)
    CleanShutdownMarker(world.fs, DATA).write()
    carried = carry_out(world.fs, DATA, plan_repair(world.fs, DATA, cut=True), SMALL_CONFIG)
    assert not carried.offline
    assert reopened(world).log(EVENTS).watermarks.high_watermark == 3


def test_repair_names_the_log_that_it_cannot_open() -> None:
    """What no tool can repair is reported, not skipped."""
    world, manager = two_topics()
    manager.close()
    world.restart(power_cut=True)
    plan = plan_repair(world.fs, DATA)
    world.disk.fail("read", error=errno.EACCES, path_end="events-0/leader-epoch-checkpoint")
    carried = carry_out(world.fs, DATA, plan, SMALL_CONFIG)
    assert [one.topic_partition for one in carried.offline] == [EVENTS]
