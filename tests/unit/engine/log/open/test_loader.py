"""Opening a log: what is used, what is rebuilt, what is reported."""

import struct
import zlib

import pytest

from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.types import AppendOrigin, EpochOffset
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


@kafka("LogLoaderTest.testCleanShutdownFile")
def test_a_clean_start_scans_nothing() -> None:
    """Even with recovery point 0 nothing is scanned."""
    world, values = stopped(5, 5)
    log = world.open_uncommitted(CONFIG, was_clean=True)
    assert (log.durability.recovery.was_clean, log.durability.recovery.recovered_segments) == (
        True,
        0,
    )
    assert log.watermarks.high_watermark == log.durability.recovery_point == 10
    assert read_values(log) == values


def test_after_a_crash_nothing_is_shown_before_the_first_commit() -> None:
    """What was found was scanned, not synced."""
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
    """The end is what the file says, and the point never lies above it."""
    world, _ = stopped(5, clean=False)
    assert world.open_log(CONFIG, recovery_point=500).durability.recovery_point == 5


@kafka("LogLoaderTest.testLogRecoversToCorrectOffset")
def test_entries_and_end_are_the_same_after_reopening() -> None:
    """Index tails and the log end do not depend on how the log was stopped."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=60)
    active = log._core.state.local.active  # noqa: SLF001 - there is no public way to see entries
    entries = list(active.indexes.offset.entries())
    maximum = active.maximum
    log.close()
    world.restart(power_cut=False)
    again = world.open_log(CONFIG, was_clean=True)
    reopened = again._core.state.local.active  # noqa: SLF001 - as above
    assert list(reopened.indexes.offset.entries()) == entries
    assert (reopened.maximum, again.watermarks.log_end_offset) == (maximum, 60)


@kafka("LogLoaderTest.testIndexRebuild", "LogLoaderTest.testRecoverWithEmptyActiveSegment")
@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_indexes_are_rebuilt(suffix: str, *, was_clean: bool) -> None:
    """Offsets and times are found again."""
    world, values = stopped(40, 40, 0)
    for name in names_in(world):
        if name.endswith(suffix):
            world.disk.remove(DIRECTORY / name)
    log = world.open_log(CONFIG, was_clean=was_clean, recovery_point=80)
    assert read_values(log) == values
    found = log.reader.max_timestamp()
    assert found is not None
    assert found.offset == 0
    for offset in (0, 39, 40, 79):
        fetched = log.reader.read(offset, max_bytes=1)
        assert fetched is not None
        assert fetched.first_offset == offset


@kafka("LogLoaderTest.testCorruptIndexRebuild")
@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [b"\xff" * 24, b"x", bytes(240), b"\7" * 480])
def test_nonsense_in_an_index_is_rebuilt(suffix: str, content: bytes, *, was_clean: bool) -> None:
    """Every record is found, whatever stands in an index."""
    world, values = stopped(40, 40)
    for base_offset in (0, 40):
        put(world, log_path(base_offset, suffix=suffix).name, content)
    log = world.open_log(CONFIG, was_clean=was_clean, recovery_point=80)
    for offset in range(0, 80, 3):
        assert read_values(log, offset)[:2] == values[offset : offset + 2]


@kafka("LogLoaderTest.testBogusIndexSegmentsAreRemoved")
def test_indexes_without_a_log_are_removed() -> None:
    """They belong to nothing."""
    world, values = stopped(3)
    for suffix in (".index", ".timeindex", ".txnindex"):
        put(world, log_path(77, suffix=suffix).name, b"bogus")
    log = world.open_log(CONFIG, was_clean=True)
    assert read_values(log) == values
    assert [name for name in names_in(world) if "77" in name] == []


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


@kafka("UnifiedLogTest.testLoadEmptyLog")
def test_empty_files_are_a_log() -> None:
    """Zero bytes of log and index are usable."""
    world = World()
    world.fs.make_directory(DIRECTORY)
    for suffix in (".log", ".index"):
        put(world, log_path(0, suffix=suffix).name, b"")
    log = world.open_log(CONFIG)
    assert append_values(log, b"x") == 0


@kafka("UnifiedLogTest.testLogReinitializeAfterManualDelete")
def test_an_empty_directory_is_a_log_at_its_start() -> None:
    """The first offset is the noted log start."""
    world = World()
    log = world.open_log(CONFIG, log_start_offset=500)
    assert segment_bases(log) == [500]
    assert append_values(log, b"x") == 500
    log.maintenance.check_invariants()


@kafka("LogLoaderTest.testLogEndLessThanStartAfterReopen")
def test_a_log_behind_its_start_begins_anew_there() -> None:
    """What is left is below the log start and goes."""
    world, _ = stopped(3, 2)
    log = world.open_log(CONFIG, log_start_offset=100, was_clean=False)
    assert segment_bases(log) == [100]
    assert append_values(log, b"x") == 100
    assert log.producers.active() == ()
    log.maintenance.check_invariants()


def test_a_log_start_inside_a_segment_is_kept() -> None:
    """The later of checkpoint and first segment counts."""
    world, _ = stopped(3, 3)
    assert world.open_log(CONFIG, log_start_offset=2).watermarks.log_start_offset == 2
    world.restart(power_cut=False)
    world.disk.remove(log_path(0))
    assert world.open_log(CONFIG, log_start_offset=1).watermarks.log_start_offset == 3


@kafka("LogLoaderTest.testLogRecoversForLeaderEpoch")
def test_missing_epochs_are_found_in_the_batches() -> None:
    """Recovery notes each epoch again."""
    world = World()
    log = world.open_log(CONFIG)
    for offset, epoch in enumerate((0, 0, 3, 5)):
        batch = batch_at(offset)
        batch[12:16] = epoch.to_bytes(4, "big")
        log.append(batch, origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    world.restart(power_cut=False)
    world.disk.remove(DIRECTORY / "leader-epoch-checkpoint")
    again = world.open_log(CONFIG)
    assert again.reader.leader_epoch == 5
    epochs = again._core.state.epochs  # noqa: SLF001 - there is no public way to see it
    assert epochs.entries == (EpochOffset(0, 0), EpochOffset(3, 2), EpochOffset(5, 3))


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
    """A log of magic 0 opens, is read, and goes on in the new format."""
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


@kafka(
    "UnifiedLogTest.testInitializationOfProducerSnapshotsUpgradePath",
    "LogLoaderTest.testSkipTruncateAndReloadIfNewMessageFormatAndCleanShutdown",
)
def test_snapshots_are_written_where_they_help() -> None:
    """At the last two bases and the end."""
    world, _ = stopped(2, 2, 2)
    for name in names_in(world):
        if name.endswith(".snapshot"):
            world.disk.remove(DIRECTORY / name)
    world.open_log(CONFIG, was_clean=True)
    found = [int(name[:20]) for name in names_in(world) if name.endswith(".snapshot")]
    assert found == [2, 4, 6]


@kafka(
    "LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot",
    "UnifiedLogTest.testLoadingLogDeletesProducerStateSnapshotsPastLogEndOffset",
)
def test_stray_snapshots_go() -> None:
    """Those of no segment and above the end are removed, the newest at the end stays."""
    world, _ = stopped(3, 3)
    snapshot = world.disk.read_bytes(log_path(6, suffix=".snapshot"))
    for offset in (1, 5, 60):
        put(world, log_path(offset, suffix=".snapshot").name, snapshot)
    world.open_log(CONFIG, was_clean=True)
    found = [int(name[:20]) for name in names_in(world) if name.endswith(".snapshot")]
    assert found == [3, 6]


@kafka("LogLoaderTest.testRecoverLastSegmentWithNoSnapshots")
def test_producers_are_rebuilt_without_any_snapshot() -> None:
    """After a crash the batches tell."""
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


@kafka("LogLoaderTest.testReopenThenTruncate")
def test_reopened_and_cut_is_one_segment() -> None:
    """Truncation after a reopening works on what was loaded."""
    world, values = stopped(3, 3)
    log = world.open_log(CONFIG, was_clean=True)
    log.truncate_to(3)
    assert segment_bases(log) in ([0], [0, 3])
    assert (read_values(log), log.watermarks.log_end_offset) == (values[:3], 3)


def test_an_index_that_is_made_anew_costs_no_snapshot_above_it() -> None:
    """Only they know producers whose batches retention has removed."""
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


@pytest.mark.parametrize("entries", [[], [(-1, 2), (-1, 3)], [(-1, 3)]])
def test_a_time_index_that_knows_no_time_is_made_anew(entries: list[tuple[int, int]]) -> None:
    """The times are in the first batches, and the last ones have none to tell it by."""
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
