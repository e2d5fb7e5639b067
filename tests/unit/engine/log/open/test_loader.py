"""Opening a log: what is used, what is rebuilt, what is reported."""

import struct
import zlib
from dataclasses import replace

import pytest

from engine.errors import StoredDataCorrupt
from engine.fs import names
from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.types import AppendOrigin
from tests.support.builders import EVENTS, TOPIC_ID, World, new_batch
from tests.support.kafka import kafka
from tests.support.logs import (
    CONFIG,
    DIRECTORY,
    append_values,
    fill,
    fill_segments,
    log_path,
    read_headers,
    read_values,
    segment_bases,
    with_config,
)
from tests.support.segments import batch_at


def stopped(*segment_sizes: int, clean: bool = True) -> tuple[World, list[bytes]]:
    """A world in which a log with these segments was stopped."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill_segments(log, *segment_sizes)
    log.durability.flush()
    if clean:
        log.close()
    world.restart(power_cut=False)
    return world, values


def names_in(world: World) -> list[str]:
    return [name for name in world.disk.list_directory(DIRECTORY) if name[0] == "0"]


def put(world: World, name: str, content: bytes) -> None:
    world.disk.remove(DIRECTORY / name, missing_ok=True)
    with world.disk.open(DIRECTORY / name, create=True) as file:
        file.append(content)


def test_after_a_crash_nothing_is_shown_before_the_first_commit() -> None:
    """Recovered records were scanned, not synced."""
    world, values = stopped(5, 5, clean=False)
    log = world.open_uncommitted(CONFIG)
    assert (log.watermarks.high_watermark, log.watermarks.log_end_offset) == (0, 10)
    log.durability.commit()
    assert read_values(log) == values


@kafka("LogLoaderTest.testLogRecoversToCorrectOffset")
def test_the_recovery_point_stays_at_its_checkpoint() -> None:
    """A scan is not a sync: only a flush moves it."""
    world, _ = stopped(5, 5, clean=False)
    log = world.open_log(CONFIG, recovery_point=7)
    assert (log.durability.recovery_point, log.durability.recovery.recovered_segments) == (7, 1)
    assert log.durability.flush() == 10


def test_a_recovery_point_beyond_the_end_is_taken_down() -> None:
    """The end is that of the file, and the point is never above it."""
    world, _ = stopped(5, clean=False)
    assert world.open_log(CONFIG, recovery_point=500).durability.recovery_point == 5


def test_leftovers_of_deletions_are_removed() -> None:
    """`.deleted` files go; unknown files stay."""
    world, values = stopped(3)
    for name in ("00000000000000000000.log.deleted", "00000000000000000009.index.deleted"):
        put(world, name, b"old")
    put(world, "notes.txt", b"keep me")
    log = world.open_log(CONFIG, was_clean=True)
    assert read_values(log) == values
    assert [name for name in names_in(world) if name.endswith(".deleted")] == []
    assert world.disk.exists(DIRECTORY / "notes.txt")


@kafka("UnifiedLogTest.testLogReinitializeAfterManualDelete")
def test_an_empty_directory_is_a_log_at_its_start() -> None:
    """The first offset is the noted log start."""
    world = World()
    log = world.open_log(CONFIG, log_start_offset=500)
    assert segment_bases(log) == [500]
    assert append_values(log, b"x") == 500
    log.maintenance.check_invariants()


def test_an_epoch_without_records_is_not_forgotten() -> None:
    """Loading drops the entry, as Kafka does, and the log still never goes back to an older one."""
    world, _ = stopped(3)
    put(world, "leader-epoch-checkpoint", b"0\n2\n0 0\n4 3\n")
    log = world.open_log(CONFIG, was_clean=True)
    assert log.reader.leader_epoch == 4
    append_values(log, b"x")
    log.durability.commit()
    assert read_headers(log)[-1].leader_epoch == 4


def open_shown(world: World, high_watermark: int) -> Log:
    request = LoadRequest(DIRECTORY, CONFIG, 0, 0, was_clean=False, high_watermark=high_watermark)
    log = Log.open(world.context(), EVENTS, TOPIC_ID, request)
    log.durability.commit()
    return log


def test_losing_what_was_shown_begins_an_epoch() -> None:
    """If records are gone that readers had seen, the log is another one to them."""
    world, _ = stopped(3, clean=False)
    assert open_shown(world, 3).reader.leader_epoch == 0
    world.restart(power_cut=False)
    assert open_shown(world, 4).reader.leader_epoch == 1
    world.restart(power_cut=False)
    assert open_shown(world, 3).reader.leader_epoch == 1


def test_messages_of_old_formats_are_read_and_kept() -> None:
    """A log of magic 0 opens, is read, and continues in the new format."""
    world = World()
    world.fs.make_directory(DIRECTORY)
    body = struct.pack(">bbii", 0, 0, -1, 2) + b"hi"
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    put(world, log_path().name, message)
    log = world.open_log(CONFIG)
    assert append_values(log, b"new") == 1
    log.durability.commit()
    assert read_values(log) == [b"hi", b"new"]
    assert world.disk.read_bytes(log_path())[: len(message)] == message


@kafka("LogLoaderTest.testRecoverLastSegmentWithNoSnapshots")
def test_producers_are_rebuilt_without_any_snapshot() -> None:
    """After a crash the batches are enough."""
    world = World()
    log = world.open_log(CONFIG)
    for sequence in range(4):
        log.append(new_batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
        log.roll()
    log.durability.flush()
    world.restart(power_cut=False)
    for name in names_in(world):
        if name.endswith(".snapshot"):
            world.disk.remove(DIRECTORY / name)
    again = world.open_log(CONFIG, recovery_point=4)
    assert [(p.producer_id, p.last_sequence) for p in again.producers.active()] == [(3, 3)]


def test_preallocated_zeros_are_cut_after_a_crash() -> None:
    """A preallocated segment ends after its last batch (4.14)."""
    world = World()
    config = with_config(preallocate=True, segment_bytes=4_096)
    log = world.open_log(config)
    values = fill(log, batches=5)
    log.durability.commit()
    size = log.reader.size_bytes
    world.restart(power_cut=False)
    assert world.disk.size_bytes(log_path()) == 4_096
    again = world.open_log(config)
    assert (read_values(again), again.reader.size_bytes) == (values, size)
    assert (again.durability.recovery.truncated_bytes, again.durability.recovery.damage) == (
        4_096 - size,
        None,
    )


@pytest.mark.parametrize("index", ["sound", "missing", "damaged"])
def test_a_preallocated_tail_that_a_roll_cut_is_cut_again(index: str) -> None:
    """The next segment's name may be on disk before the roll's cut of this one is.

    Nothing below the recovery point is scanned, so the log was offline until a repair.
    """
    world = World()
    config = with_config(preallocate=True, segment_bytes=4_096, index_interval_bytes=0)
    log = world.open_log(config)
    values = fill(log, batches=5)
    recovery_point = log.durability.flush()
    size = log.reader.size_bytes
    log.roll()
    world.fs.sync_directory(DIRECTORY)  # as the flush does that runs beside the roll
    world.restart(power_cut=True)
    assert world.disk.size_bytes(log_path()) == 4_096
    path = DIRECTORY / names.index_name(0)
    if index == "missing":
        world.disk.remove(path)
    elif index == "damaged":
        put(world, path.name, b"\xff" * 17)
    again = world.open_log(config, recovery_point=recovery_point)
    assert (read_values(again), again.reader.size_bytes) == (values, size)
    assert again.durability.recovery.damage is None


def test_what_a_killed_process_cut_is_on_disk_after_the_next_stop() -> None:
    """Its cut of a preallocated tail is only in memory, in a segment that no start scans."""
    world = World()
    world.config = replace(world.config, max_open_sealed_segments=0)
    config = with_config(preallocate=True, segment_bytes=4_096)
    log = world.open_log(config)
    values = fill(log, batches=5)
    recovery_point, size = log.durability.flush(), log.reader.size_bytes
    log.roll()
    world.restart(power_cut=False)
    world.open_log(config, recovery_point=recovery_point).close()
    world.restart(power_cut=True)
    assert world.disk.size_bytes(log_path()) == size
    assert read_values(world.open_log(config, was_clean=True)) == values


def test_zeros_in_place_of_records_below_the_recovery_point_are_no_tail() -> None:
    """They are damage, which a start must not cut away."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=5)
    recovery_point = log.durability.flush()
    log.roll()
    log.durability.flush()
    content = world.disk.read_bytes(log_path())
    world.restart(power_cut=True)
    last = len(content) // 5
    put(world, log_path().name, content[:-last] + bytes(last))
    with pytest.raises(StoredDataCorrupt):
        world.open_log(CONFIG, recovery_point=recovery_point)
    assert world.disk.size_bytes(log_path()) == len(content)


def test_a_rebuilt_index_keeps_the_snapshots_above_it() -> None:
    """Only snapshots still have producers whose batches retention has removed."""
    world = World()
    log = world.open_log(CONFIG)
    log.append(new_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    fill_segments(log, 2)
    log.roll()
    fill_segments(log, 3, 3)
    log.durability.commit()
    log.delete_records(3)
    log.maintenance.run_retention()
    log.durability.flush()
    log.close()
    world.restart(power_cut=False)
    snapshots = [log_path(offset, suffix=".snapshot") for offset in (6, 9)]
    before = [world.disk.read_bytes(path) for path in snapshots]
    world.disk.remove(log_path(3, suffix=".index"))
    again = world.open_uncommitted(CONFIG, log_start_offset=3, was_clean=True)
    assert again.durability.recovery.recovered_segments == 1
    assert [entry.producer_id for entry in again.producers.active()] == [7]
    assert [world.disk.read_bytes(path) for path in snapshots] == before


@pytest.mark.parametrize("was_clean", [False, True])
def test_a_log_that_ends_below_its_start_begins_anew_there(*, was_clean: bool) -> None:
    """Deleted records are not served again, and no offset gets another record."""
    world = World()
    log = world.open_log(CONFIG)
    fill_segments(log, 3, 3)
    log.durability.flush()
    log.close()
    world.restart(power_cut=False)
    again = world.open_uncommitted(
        CONFIG, log_start_offset=17, was_clean=was_clean, high_watermark=17
    )
    marks = again.watermarks
    assert (marks.log_start_offset, marks.log_end_offset) == (17, 17)
    assert again.append(new_batch()).base_offset == 17


@pytest.mark.parametrize("entries", [[], [(-1, 2), (-1, 3)], [(-1, 3)]])
def test_a_time_index_without_a_time_is_rebuilt(entries: list[tuple[int, int]]) -> None:
    """The times are in the first batches; the last ones, which a start checks, have none."""
    world = World()
    log = world.open_log(with_config(index_interval_bytes=100))
    for offset in range(10):
        times = {} if offset < 4 else {"timestamp": -1}
        log.append(batch_at(offset, **times), origin=AppendOrigin.REPLICATION)
    log.durability.flush()
    log.close()
    name = log_path(suffix=".timeindex").name
    before = world.disk.read_bytes(DIRECTORY / name)
    put(world, name, b"".join(struct.pack(">qi", *entry) for entry in entries))
    world.restart(power_cut=False)
    again = world.open_uncommitted(log.config, was_clean=True)
    newest = again.reader.max_timestamp()
    assert newest is not None
    assert newest.offset == 3
    again.close()
    assert world.disk.read_bytes(DIRECTORY / name) == before
