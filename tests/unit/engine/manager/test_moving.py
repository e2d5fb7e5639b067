"""Moving a partition to another data directory, undisturbed and interrupted at every step."""

import errno
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.cleaner.cleaner import LogCleaner
from engine.config import CleanerConfig
from engine.errors import (
    InvalidRequestValue,
    OffsetBelowLogStart,
    StorageFull,
    StorageOffline,
)
from engine.fs import names
from engine.log.log import Log
from engine.log.maintenance import Maintenance
from engine.manager.manager import LogManager
from engine.topic_values import ConfigValue
from engine.types import Buffer, TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.filesystem import PowerCut
from tests.support.kafka import kafka
from tests.support.logs import append_values, fill, fill_segments, read_pieces, read_values
from tests.unit.engine.manager.test_directories import A, B, opened, restarted

MOST_STEPS = 400
CONFIG = CleanerConfig(enable=False)


def prepared() -> tuple[World, LogManager, list[bytes]]:
    """A partition of three segments in the first of two directories; all of it committed."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {"retention.ms": "-1"})
    log = manager.log(EVENTS)
    values = fill_segments(log, 3, 2, 1)
    log.durability.flush()
    manager.checkpoint()
    return world, manager, values


def partition_directories(world: World) -> list[str]:
    """The partition directories of both data directories, without the ids of those on their way."""
    return sorted(
        f"{path}/{name.partition('.')[0]}{name[name.rfind('-') :] if '.' in name else ''}"
        for path in (A, B)
        for name in world.fs.list_directory(path)
        if world.fs.is_directory(path / name)
    )


def carried_out(manager: LogManager) -> bool:
    """Do what the mover does after a start; return whether there was a move."""
    unfinished = manager.unfinished_moves()
    for log, target in unfinished.items():
        manager.move_partition(log, target)
    return bool(unfinished)


def joined(log: Log) -> bytes:
    return b"".join(map(bytes, read_pieces(log)))


@kafka("LogManagerTest.testMetricsAreRemovedWhenMovingCurrentToFutureLog")
def test_a_partition_moves_and_whoever_holds_the_log_goes_on() -> None:
    """The same object, the same bytes and offsets, appends after it; the old files go later."""
    world, manager, values = prepared()
    log = manager.log(EVENTS)
    log_id, marks, before = log.reader.log_id, log.watermarks, joined(log)
    manager.move_partition(EVENTS, B)
    assert manager.log(EVENTS) is log
    assert (log.directory, log.reader.log_id, log.watermarks.log_end_offset) == (
        B / "events-0",
        log_id,
        marks.log_end_offset,
    )
    assert joined(log) == before
    values += fill(log, batches=2, first=len(values))
    log.durability.commit()
    log.maintenance.check_invariants()
    assert read_values(log) == values
    assert partition_directories(world) == ["/a/events-0-delete", "/b/events-0"]
    world.scheduler.advance(60_000)
    assert partition_directories(world) == ["/b/events-0"]
    lines = [
        OffsetCheckpoint(world.fs, path / names.RECOVERY_POINT_CHECKPOINT).read() for path in (A, B)
    ]
    assert lines == [{}, {EVENTS: 6}]
    assert read_values(restarted(world).log(EVENTS)) == values


def test_a_copy_is_taken_over_as_a_clean_stop_leaves_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing of it has to be rebuilt: its indexes have their last entries and no empty room."""
    world, manager, _ = prepared()
    manager.move_partition(EVENTS, B)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    log = manager.log(EVENTS)
    sizes = [
        world.fs.size_bytes(path)
        for segment in log.reader.segments
        for path in (segment.indexes.offset_path, segment.indexes.time_path)
    ]
    assert max(sizes) <= 12


def test_a_move_to_where_the_partition_is_does_nothing() -> None:
    """And one to a path that is not a data directory is refused."""
    world, manager, _ = prepared()
    manager.move_partition(EVENTS, A)
    assert partition_directories(world) == ["/a/events-0"]
    with pytest.raises(InvalidRequestValue, match="/c is not a data directory"):
        manager.move_partition(EVENTS, Path("/c"))


def test_what_is_not_in_the_batches_moves_too() -> None:
    """Log start, leader epoch, and producers whose batches retention has removed."""
    world, manager, _ = prepared()
    log = manager.log(EVENTS)
    log.append(new_batch(producer_id=7, producer_epoch=1, base_sequence=0))
    log.truncate_to(6)
    log.append(new_batch(producer_id=9, producer_epoch=2, base_sequence=0))
    log.roll()
    append_values(log, b"last")
    log.durability.commit()
    log.delete_records(7)
    log.maintenance.run_retention()
    log_id, producers, start = (
        log.reader.log_id,
        log.producers.active(),
        log.watermarks.log_start_offset,
    )
    assert [entry.producer_id for entry in producers] == [9]
    manager.move_partition(EVENTS, B)
    for is_restarted in (False, True):
        moved = restarted(world).log(EVENTS) if is_restarted else log
        assert moved.reader.log_id == log_id
        assert moved.watermarks.log_start_offset == start == 7
        known = [entry.producer_id for entry in moved.producers.active()]
        assert known == ([] if is_restarted else [9])  # recovery only knows batches, as Kafka's
        assert read_values(moved) == [b"last"]
        with pytest.raises(OffsetBelowLogStart):
            moved.reader.read(6, max_bytes=100)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_move_that_is_interrupted_leaves_one_whole_copy(power_cut: bool) -> None:  # noqa: FBT001 - parametrized
    """Whichever step is the last, the next start serves every record, and appends continue.

    And the requested move is carried out in the end.
    """
    endings = set()
    for step in range(1, MOST_STEPS):
        world, manager, values = prepared()
        was_done = moved_until(world, manager, step)
        manager = restarted(world, power_cut=power_cut)
        log = manager.log(EVENTS)
        assert read_values(log) == values
        assert not manager.topic("events").adopted
        append_values(log, b"more")
        log.durability.commit()
        was_in = log.directory.parent
        was_resumed = carried_out(manager)
        endings.add((was_in, was_resumed, log.directory.parent))
        assert log.directory == B / "events-0" or not was_done
        assert manager.unfinished_moves() == {}
        assert read_values(log) == [*values, b"more"]
        world.scheduler.advance(60_000)
        assert partition_directories(world) == [str(log.directory)]
        assert read_values(restarted(world).log(EVENTS)) == [*values, b"more"]
        if was_done:
            break
    else:
        raise AssertionError("a move takes more steps than anybody expected")
    assert endings == {(A, False, A), (A, True, B), (B, False, B)}


def moved_until(world: World, manager: LogManager, step: int) -> bool:
    """Move, with the power cut before this step; return whether it came to an end before."""
    try:
        with world.disk.power_cut_before(step):
            manager.move_partition(EVENTS, B)
    except PowerCut:
        return False
    return True


def faults() -> Iterator[tuple[str, str]]:
    yield "make_directory", "-future"
    yield "append", ".log"
    yield "sync", "00000000000000000000.log"
    yield "rename", "/a/events-0"
    yield "rename", "-future"
    yield "sync_directory", "/a"


@pytest.mark.parametrize(("name", "path_end"), list(faults()))
def test_a_move_that_a_disk_fails_loses_nothing(name: str, path_end: str) -> None:
    """The records are served by the next start, from one of the directories, and only once."""
    world, manager, values = prepared()
    world.disk.fail(name, path_end=path_end)
    with pytest.raises(StorageOffline):
        manager.move_partition(EVENTS, B)
    manager.close()
    manager = restarted(world)
    assert read_values(manager.log(EVENTS)) == values
    carried_out(manager)
    assert read_values(manager.log(EVENTS)) == values
    world.scheduler.advance(60_000)
    assert len(partition_directories(world)) == 1


def test_a_log_whose_copy_cannot_be_opened_takes_no_writes() -> None:
    """After the first rename the copy is the log: the old files must not grow any more."""
    world, manager, values = prepared()
    log = manager.log(EVENTS)
    world.disk.fail("rename", path_end="-future")
    with pytest.raises(StorageOffline):
        manager.move_partition(EVENTS, B)
    with pytest.raises(StorageOffline):
        log.append(new_batch())
    manager.close()
    world.restart(power_cut=True)
    world.disk.fail("open", path_end=f"{B}/{names.LOCK_FILE}")
    manager = opened(world)  # without B it is unknown, and nothing is removed or created
    with pytest.raises(StorageOffline):
        manager.log(EVENTS)
    world.scheduler.advance(60_000)
    assert partition_directories(world) == ["/a/events-0-delete", "/b/events-0-future"]
    manager.close()
    assert read_values(restarted(world).log(EVENTS)) == values


def test_a_full_disk_ends_a_move_and_nothing_else() -> None:
    """The copy is removed, both directories stay online, and the next try succeeds."""
    world, manager, values = prepared()
    world.disk.fail("append", error=errno.ENOSPC, path_end="00000000000000000000.log")
    with pytest.raises(StorageFull):
        manager.move_partition(EVENTS, B)
    assert partition_directories(world) == ["/a/events-0"]
    manager.move_partition(EVENTS, B)
    assert read_values(manager.log(EVENTS)) == values


def test_a_copy_without_an_original_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The original was moved away: serving or removing the copy would be a guess."""
    world = World()
    name = "gone-0.00112233445566778899aabbccddeeff-future"
    manager = opened(world)
    manager.close()
    world.fs.make_directory(B / name)
    manager = opened(world)
    assert manager.topics() == {}
    assert world.fs.exists(B / name)
    assert "it has no original" in caplog.text


def test_batches_larger_than_a_segment_may_be_now_are_moved() -> None:
    """segment.bytes was lowered after they were written; the copy takes them all the same."""
    _world, manager, _ = prepared()
    log = manager.log(EVENTS)
    large = b"x" * 1000
    append_values(log, large)
    log.durability.commit()
    manager.update_topic("events", {"segment.bytes": 500})
    manager.move_partition(EVENTS, B)
    assert read_values(log)[-1] == large
    assert log.config.segment_bytes == 500


def read_slowly(log: Log, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        while not stop.is_set():
            pieces: list[Buffer] = list(read_pieces(log, 0))
            assert len(b"".join(map(bytes, pieces))) > 0
    except BaseException as error:  # noqa: BLE001 - raised on the main thread
        failures.append(error)


def test_readers_notice_nothing_of_many_moves() -> None:
    """A continuous reader sees the whole log, in whatever directory."""
    _world, manager, values = prepared()
    log = manager.log(EVENTS)
    stop = threading.Event()
    failures: list[BaseException] = []
    reader = threading.Thread(target=read_slowly, args=(log, stop, failures))
    reader.start()
    for number in range(10):
        manager.move_partition(EVENTS, A if number % 2 else B)
        values += fill(log, batches=1, first=len(values))
        log.durability.commit()
    stop.set()
    reader.join()
    assert failures == []
    assert read_values(log) == values


def test_a_move_leaves_the_lines_of_other_logs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash during the move finds the checkpoints of both directories as they were."""
    world, manager, _ = prepared()
    manager.create_topic("other", 1, {})
    other = manager.log(TopicPartition("other", 0))
    assert other.directory.parent == B
    fill(other, batches=5)
    other.durability.flush()
    other.delete_records(3)
    manager.checkpoint()

    def die(*_: object) -> None:
        raise PowerCut

    monkeypatch.setattr(Maintenance, "relocate", die)
    with pytest.raises(PowerCut):
        manager.move_partition(EVENTS, B)
    lines = OffsetCheckpoint(world.fs, B / names.RECOVERY_POINT_CHECKPOINT).read()
    assert lines == {EVENTS: 6, other.topic_partition: 5}
    log = restarted(world).log(other.topic_partition)
    assert log.watermarks.log_start_offset == 3


def test_an_empty_log_moves() -> None:
    """Without a record, a snapshot or an epoch there is still a partition."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {})
    manager.move_partition(EVENTS, B)
    append_values(manager.log(EVENTS), b"first")
    manager.log(EVENTS).durability.commit()
    assert read_values(restarted(world).log(EVENTS)) == [b"first"]


def test_what_is_appended_while_a_partition_moves_moves_too() -> None:
    """It may be more than one chunk, which is then copied while the log is locked."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {"segment.bytes": "1000000"})
    log = manager.log(EVENTS)
    log.append(new_batch(1))
    told: list[int] = []

    def append_behind(*_progress: int) -> None:
        if not told:  # once: all that was there has been copied
            for _ in range(3):
                log.append(new_batch(1, value=bytes(600_000)))
        told.append(log.watermarks.log_end_offset)

    manager.move_partition(EVENTS, B, progress=append_behind)
    assert told[0] == log.watermarks.log_end_offset == 4
    assert log.directory.parent == B
    log.durability.commit()
    assert read_values(log)[1:] == [bytes(600_000)] * 3


@pytest.mark.parametrize("copied", [1, 2])
def test_a_partition_that_is_truncated_while_it_is_copied_is_copied_again(copied: int) -> None:
    """The copy may then be longer than the log: the next read failed beyond the log end."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {"segment.bytes": "1000000"})
    log = manager.log(EVENTS)
    for _ in range(3):
        log.append(new_batch(1, value=bytes(600_000)))
    cuts: list[int] = []

    def cut(_: int, copied_offset: int, __: int) -> None:
        if not cuts and copied_offset == copied:
            cuts.append(log.truncate_to(1))

    manager.move_partition(EVENTS, B, progress=cut)
    assert cuts == [1]
    assert log.directory.parent == B
    assert log.watermarks.log_end_offset == 1
    assert len(read_values(log)) == 1


@kafka("LogCleanerManagerTest.testAlterCheckpointDirShouldRemoveDataInSrcDirAndAddInNewDir")
def test_a_compacted_log_that_moved_counts_as_dirty() -> None:
    """Records copied before they were cleaned have to be cleaned again: its mark is not used."""
    world = World()
    manager = opened(world)
    settings: dict[str, ConfigValue] = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0,
        "retention.ms": -1,
    }
    manager.create_topic("events", 1, settings)
    log = manager.log(EVENTS)
    for _ in range(3):
        log.append(new_batch())
        log.roll()
    log.durability.commit()
    cleaner = LogCleaner(manager, clock=world.clock, config=CONFIG, recorder=world.recorder)
    cleaner.start()
    assert cleaner.run_pass() is not None
    assert cleaner.run_pass() is None
    manager.move_partition(EVENTS, B)
    log.append(new_batch())
    log.roll()
    log.durability.commit()
    report = cleaner.run_pass()
    assert report is not None
    cleaner.stop()
    marks = [OffsetCheckpoint(world.fs, path / names.CLEANER_CHECKPOINT).read() for path in (A, B)]
    assert marks == [{}, {EVENTS: 4}]
    assert len(read_values(log)) == 1
