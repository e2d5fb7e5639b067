"""Logs whose old segments only the archive has: what reads find, and what never leaves the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.archive.archived_segments import ArchivedSegments
from engine.archive.manifest import Manifest
from engine.archive.range_cache import RangeCache
from engine.archive.tier import MAX_AT_ONCE
from engine.archive.upkeep import load_manifest
from engine.cleaner.cleaner import remove_old_segments
from engine.errors import (
    ArchiveUnavailable,
    InvalidRequestValue,
    OffsetBelowLogStart,
    PolicyViolation,
)
from engine.log.log import Log
from engine.log.read.segment_files import FileKind
from engine.tools.cold_copy import restore_copy
from engine.types import FetchIsolation, TopicPartition
from tests.support.bucket import Bucket
from tests.support.builders import DATA, World
from tests.support.conformance_places import transaction_of
from tests.support.damage import one_bit_flipped, rewrite
from tests.support.kafka import kafka
from tests.support.logs import (
    append_values,
    fill_segments,
    log_path,
    read_values,
    segment_bases,
)
from tests.support.time import START_MS
from tests.unit.engine.archive.test_archiver import KEEP_MS, Site, restored, site

TIERED = {
    "retention.ms": "-1",
    "remote.storage.enable": "true",
    "local.retention.bytes": "0",
}
ACTIVE = 6
"""Where the only segment on the disk begins, in `tiered`."""


@contextmanager
def tiered(bucket: Bucket, world: World | None = None, **config: str) -> Iterator[Site]:
    """A log of eight one-record batches in four segments, of which the disk has the last."""
    with site(bucket, world, config=TIERED | config) as here:
        here.values = fill_segments(here.log(), 2, 2, 2, 2)
        here.log().durability.commit()
        assert here.archive()
        assert segment_bases(here.log()) == [ACTIVE]
        yield here


@contextmanager
def untiered(bucket: Bucket) -> Iterator[Site]:
    """A log of two archived segments, both on the disk until `release_all`."""
    with site(bucket, config=TIERED | {"local.retention.bytes": "-1"}) as here:
        here.values = fill_segments(here.log(), 2, 2)
        here.log().durability.commit()
        assert here.archive()
        yield here


def release_all(here: Site) -> None:
    """Let the disk keep the active segment only, from the next pass on."""
    here.runtime.manager.update_topic("events", {"local.retention.bytes": "0"})


def manifest_of(here: Site) -> Manifest:
    found = load_manifest(here.bucket, here.log().topic_id, 0)
    assert found is not None
    return found


def answers(log: Log) -> dict[str, Any]:
    """What every kind of read says of a log."""
    reader = log.reader
    segments = reader.listing().segments
    files = {}
    for segment in segments:
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            file = reader.open_file(segment.base_offset, kind)
            at, content = 0, b""
            while at < file.size_bytes:
                content += bytes(reader.read_file(file, at, 50))
                at = len(content)
            files[segment.base_offset, kind] = content
    return {
        "values": read_values(log),
        "from the middle": read_values(log, 3),
        "segments": [one._replace(modified_ms=0) for one in segments],
        "files": files,
        "splits": reader.splits(1, 8, parts=3),
        "bytes": reader.extent_bytes(0, 8),
        "times": [reader.offset_for_time(START_MS + ms) for ms in (-1, 0, 3, 5, 99)],
        "newest": reader.max_timestamp(),
        "look": reader.look_at(2).first_offset,
    }


@kafka(
    "UnifiedLogTest.testStartOffsetsRemoteLogStorageIsEnabled",
    "UnifiedLogTest.testFetchOffsetByTimestampFromRemoteStorage",
    "UnifiedLogTest.testIncrementLocalLogStartOffsetAfterLocalLogDeletion",
)
def test_every_read_of_the_archive_answers_as_one_of_the_disk() -> None:
    """Records, listings, files, splits, offsets by time: before and after segments left the disk.

    And after a restart, once the archive was read.
    """
    with site(Bucket(), config=TIERED | {"local.retention.bytes": "-1"}) as here:
        log = here.log()
        for number in range(8):
            append_values(log, b"%d" % number, timestamp=START_MS + number)
            if number % 2:
                log.roll()
        log.durability.commit()
        assert here.archive()
        before = answers(log)
        assert segment_bases(log) == [0, 2, 4, 6, 8]
        here.runtime.manager.update_topic("events", {"local.retention.bytes": "0"})
        assert here.archive()
        assert segment_bases(log) == [8]
        assert log.reader.local_log_start_offset == 8
        assert log.watermarks.log_start_offset == 0
        assert answers(log) == before
        here.restart()
        assert here.archive()
        assert answers(here.log()) == before


@kafka(
    "LogLoaderTest.testLogStartOffsetWhenRemoteStorageIsEnabled",
    "LogManagerTest.testCheckpointLogStartOffsetForRemoteTopic",
)
@pytest.mark.parametrize("power_cut", [None, False, True])
def test_until_the_archive_was_read_its_records_are_unavailable(power_cut: bool | None) -> None:  # noqa: FBT001  # a case
    """A start does not wait for the bucket; what is on the disk can be read at once."""
    bucket = Bucket()
    with tiered(bucket) as here:
        bucket.is_down = True
        here.restart(power_cut=power_cut)
        log = here.log()
        log.durability.commit()
        assert log.watermarks.log_start_offset == 0
        for look in (
            lambda: read_values(log),
            lambda: log.reader.offset_for_time(START_MS),
            lambda: log.reader.splits(0, 8, parts=2),
            lambda: log.reader.open_file(0, FileKind.LOG),
        ):
            with pytest.raises(ArchiveUnavailable, match="in the archive only"):
                look()
        assert read_values(log, ACTIVE) == here.values[ACTIVE:]
        assert not here.archive()
        bucket.is_down = False
        assert here.archive()
        assert read_values(log) == here.values


def test_a_bucket_that_fails_is_asked_again_after_a_pause() -> None:
    """Its failures never reach what the disk has, nor appends."""
    bucket = Bucket()
    with tiered(bucket) as here:
        log = here.log()
        bucket.is_down = True
        asked = bucket.operations
        with pytest.raises(ArchiveUnavailable, match="did not return"):
            read_values(log)
        with pytest.raises(ArchiveUnavailable, match="try again later"):
            read_values(log)
        assert bucket.operations == asked + 1
        here.commit(b"new")
        assert read_values(log, ACTIVE)[-1] == b"new"
        bucket.is_down = False
        here.world.clock.advance(1_000)
        assert read_values(log) == [*here.values, b"new"]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_an_index_in_the_bucket_is_compared_with_its_checksum(*, is_damaged: bool) -> None:
    """One that is damaged there is not used, and one that is gone is said to be."""
    bucket = Bucket()
    with tiered(bucket, None, **{"index.interval.bytes": "1"}) as here:
        indexes = [one for one in bucket.objects if one.endswith((".index", ".timeindex"))]
        assert indexes
        for name in indexes:
            if is_damaged:
                bucket.objects[name] = bytes(255 - byte for byte in bucket.objects[name])
            else:
                del bucket.objects[name]
        here.restart(power_cut=None)
        assert here.archive()
        said = "is damaged in the archive" if is_damaged else "did not return"
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            with pytest.raises(ArchiveUnavailable, match=said):
                here.log().reader.open_file(0, kind)
            here.world.clock.advance(1_000)
        assert read_values(here.log(), ACTIVE) == here.values[ACTIVE:]


@pytest.mark.parametrize(("largest", "expected"), [(START_MS, START_MS), (-1, -1)])
def test_a_manifest_that_tells_no_place_of_the_largest_time_is_read(
    largest: int, expected: int
) -> None:
    """The first version of it did not: the time index in the bucket does, if there is a time."""
    bucket = Bucket()
    with tiered(bucket, None, **{"index.interval.bytes": "1"}) as here:
        piece = next(one for one in manifest_of(here).pieces if one.base_offset == 0)
        cache = RangeCache(bucket, here.world.clock, 1 << 20)
        earlier = replace(piece, max_timestamp=largest, max_timestamp_offset=-1)
        log = here.log()
        segment = ArchivedSegments(cache).segment(log.directory, earlier, log.config)
        assert segment.maximum.timestamp == expected


def test_nothing_leaves_the_disk_that_was_not_read_back() -> None:
    """An object that is damaged in the bucket is uploaded again, and an earlier moment stays."""
    bucket = Bucket()
    with untiered(bucket) as here:
        then_ms = here.world.clock.now_ms()
        (damaged,) = [
            one
            for one in bucket.objects
            if "-00000000000000000000-" in one and one.endswith(".log")
        ]
        bucket.objects[damaged] = bytes(len(bucket.objects[damaged]))
        release_all(here)
        assert here.archive()
        assert segment_bases(here.log()) == [0, 2]
        assert here.archive()
        assert segment_bases(here.log()) == [2]
        assert read_values(here.log()) == here.values
        assert restored(bucket, then_ms) == here.values


def test_a_missing_object_is_uploaded_again() -> None:
    """As a damaged one: a lifecycle rule of the bucket may have removed it."""
    bucket = Bucket()
    with untiered(bucket) as here:
        for name in [one for one in bucket.objects if one.endswith(".index")]:
            del bucket.objects[name]
        release_all(here)
        here.archive()
        here.archive()
        assert segment_bases(here.log()) == [2]
        assert read_values(here.log()) == here.values


def test_a_segment_that_differs_from_what_was_uploaded_stays() -> None:
    """Which of the two is right is not known; the archive says so once, and goes on."""
    bucket = Bucket()
    with untiered(bucket) as here:
        path = log_path(0)
        rewrite(here.world.fs, path, one_bit_flipped(here.world.fs.read_bytes(path)))
        release_all(here)
        assert not here.archive()
        assert "is not what was uploaded" in str(here.archiver.report.problem)
        assert here.archive()
        assert segment_bases(here.log()) == [0, 2]


def test_a_manifest_that_another_wrote_is_not_built_on() -> None:
    """What the store has must be what was written, before anything is removed."""
    bucket = Bucket()
    with untiered(bucket) as here:
        for name in [one for one in bucket.objects if "/manifest-" in one]:
            del bucket.objects[name]
        release_all(here)
        assert not here.archive()
        assert segment_bases(here.log()) == [0, 2]


@kafka(
    "UnifiedLogTest.testRetentionOnLocalLogDeletion",
)
def test_local_retention_is_by_age_or_by_size() -> None:
    """Kafka's rules: -2 is the retention of the log, and the active segment always stays."""
    with site(Bucket(), config=TIERED | {"local.retention.bytes": "-2"}) as here:
        log = here.log()
        fill_segments(log, 2, 2, 2)
        log.durability.commit()
        here.archive()
        assert segment_bases(log) == [0, 2, 4]
        here.runtime.manager.update_topic("events", {"local.retention.ms": "60000"})
        here.archive()
        assert segment_bases(log) == [0, 2, 4]
        here.world.clock.advance(60_000)
        here.archive()
        assert segment_bases(log) == [4]
        assert remove_old_segments([log]) == 0
        assert len(read_values(log)) == 6


@kafka(
    "UnifiedLogTest.testActiveSegmentDeletionDueToRetentionTimeBreachWithRemoteStorage",
)
def test_retention_removes_what_only_the_archive_has() -> None:
    """By size and by age of the whole log; the objects go when `archive_keep_ms` is over."""
    bucket = Bucket()
    with tiered(bucket) as here:
        log = here.log()
        later_bytes = sum(one.size_bytes for one in log.reader.listing().segments[1:])
        here.runtime.manager.update_topic("events", {"retention.bytes": str(later_bytes)})
        assert [one.base_offset for one in log.maintenance.run_retention(dry_run=True)] == [0]
        assert remove_old_segments([log]) == 1
        assert log.watermarks.log_start_offset == 2
        with pytest.raises(OffsetBelowLogStart):
            log.reader.read(1, max_bytes=1)
        assert read_values(log) == here.values[2:]
        here.archive()
        assert [one.base_offset for one in manifest_of(here).pieces] == [2, 4, 6]
        here.world.clock.advance(KEEP_MS)
        here.archive()
        assert not [one for one in bucket.objects if f"-{0:020d}-" in one]
        here.runtime.manager.update_topic("events", {"retention.ms": "1000"})
        here.world.clock.advance(2_000)
        remove_old_segments([log])
        assert log.watermarks.log_start_offset == 8
        assert read_values(log) == []


def test_a_log_start_that_a_crash_lost_is_that_of_the_archive() -> None:
    """Retention is not on the disk before the next checkpoint, but the archive may know it."""
    with tiered(Bucket()) as here:
        here.log().delete_records(3)
        assert here.archive()
        here.restart(power_cut=True)
        assert here.log().watermarks.log_start_offset == 0
        here.log().durability.commit()
        assert here.archive()
        assert here.log().watermarks.log_start_offset == 3
        assert read_values(here.log()) == here.values[3:]


@kafka(
    "UnifiedLogTest.testSegmentDeletionEnabledBeforeUploadToRemoteTierWhenLogStartOffsetMovedAhead",
)
def test_records_are_deleted_that_only_the_archive_has() -> None:
    """The log starts where it was told to, in the midst of an archived segment."""
    with tiered(Bucket()) as here:
        here.runtime.manager.delete_records(here.log(), 3)
        assert read_values(here.log()) == here.values[3:]
        here.archive()
        here.restart(power_cut=True)
        here.archive()
        assert here.log().watermarks.log_start_offset == 3
        assert read_values(here.log()) == here.values[3:]


def test_a_truncation_reaches_down_to_what_the_disk_has() -> None:
    """Below that it is refused, and changes nothing; at it, the log goes on after the archive."""
    with tiered(Bucket()) as here:
        log = here.log()
        with pytest.raises(InvalidRequestValue, match="truncate to 6 or above"):
            here.runtime.manager.truncate(log, 5)
        assert read_values(log) == here.values
        here.runtime.manager.truncate(log, ACTIVE)
        here.commit(b"instead")
        assert read_values(log) == [*here.values[:ACTIVE], b"instead"]
        assert log.watermarks.log_start_offset == 0
        here.archive()
        assert restored(here.bucket) == [*here.values[:ACTIVE], b"instead"]


def test_a_truncation_between_reading_back_and_removal_keeps_the_disk() -> None:
    """What the archive has may be other records than the disk's by then."""
    with site(Bucket(), config=TIERED) as here:
        log = here.log()
        fill_segments(log, 2, 2)
        log.durability.commit()
        due = log.maintenance.due_for_release()
        assert len(due.segments) == 1
        here.runtime.manager.truncate(log, 1)
        here.commit(b"other")
        log.roll()
        assert not here.runtime.manager.release(log, due)
        assert segment_bases(log) == [0, 2]


@kafka(
    "LogConfigTest.testDisableRemoteLogStorage",
)
def test_the_switch_stays_on_while_only_the_archive_has_records() -> None:
    """Otherwise a restart would take the disk's first segment for the log's."""
    with tiered(Bucket()) as here:
        manager = here.runtime.manager
        with pytest.raises(PolicyViolation, match="delete the records before 6"):
            manager.update_topic("events", {"remote.storage.enable": "false"})
        assert here.log().config.remote_storage_enable
        manager.delete_records(here.log(), ACTIVE)
        manager.update_topic("events", {"remote.storage.enable": "false"})
        assert not here.log().config.remote_storage_enable


def test_an_open_transaction_stays_on_the_disk() -> None:
    """A read_committed reader's bound must lie where its position is known."""
    with site(Bucket(), config=TIERED) as here:
        log = here.log()
        transaction = transaction_of(log, 7)
        fill_segments(log, 2)
        transaction.send(1)
        log.roll()
        fill_segments(log, 2, 2)
        log.durability.commit()
        here.archive()
        assert segment_bases(log)[0] == 0
        transaction.abort()
        log.durability.commit()
        here.archive()
        assert segment_bases(log)[0] > 2


def test_aborted_transactions_are_filtered_in_the_archive_too() -> None:
    """Their transaction index is an object like the others."""
    with site(Bucket(), config=TIERED) as here:
        log = here.log()
        aborted, kept = transaction_of(log, 7), transaction_of(log, 8)
        aborted.send(2)
        kept.send(1)
        log.roll()
        aborted.abort()
        kept.commit()
        log.roll()
        here.commit(b"plain")
        committed = FetchIsolation.TXN_COMMITTED
        before = read_values(log, isolation=committed)
        assert len(before) == 2
        here.archive()
        assert len(segment_bases(log)) == 1
        assert read_values(log, isolation=committed) == before
        here.restart()
        here.archive()
        assert read_values(here.log(), isolation=committed) == before


def test_a_log_moves_without_what_only_the_archive_has() -> None:
    """The copy has the disk's part, starts where the log does, and reads go on."""
    other = Path("/other")
    world = World()
    world.fs.make_directory(other)
    world.fs.sync_directory(other.parent)
    with site(Bucket(), world, config=TIERED, directories=(DATA, other)) as here:
        log = here.log()
        values = fill_segments(log, 2, 2, 2)
        log.durability.commit()
        assert here.archive()
        manager = here.runtime.manager
        target = other if log.directory.parent == DATA else DATA
        manager.plan_move(log.topic_partition, target)
        manager.move_partition(log.topic_partition, target)
        assert log.directory.parent == target
        assert segment_bases(log) == [4]
        assert read_values(log) == values
        here.restart(power_cut=True)
        here.log().durability.commit()
        assert here.archive()
        assert here.log().watermarks.log_start_offset == 0
        assert read_values(here.log()) == values


def test_a_restored_directory_has_all_of_the_log() -> None:
    """What only the archive had is on the new disk, until local retention finds it there again."""
    bucket = Bucket()
    with tiered(bucket) as here:
        assert restored(bucket) == here.values


def test_a_plain_copy_is_whole_with_the_archive() -> None:
    """Without it, the records that only the archive has are unavailable."""
    bucket, world = Bucket(), World()
    with tiered(bucket, world) as here:
        copy = Path("/copy")
        (copied,) = restore_copy(world.fs, DATA, copy, lambda *_: None)
        assert (copied.first_offset, copied.end_offset) == (ACTIVE, 8)
        values = here.values
    with site(bucket, world, directories=(copy,)) as there:
        with pytest.raises(ArchiveUnavailable):
            read_values(there.log())
        there.archiver = there.new_archiver(take_over=True)
        assert there.archive()
        assert read_values(there.log()) == values


def test_a_backlog_leaves_the_disk_a_few_segments_at_a_time() -> None:
    """So that other logs get their turn."""
    with site(Bucket(), config=TIERED) as here:
        log = here.log()
        fill_segments(log, *[1] * (MAX_AT_ONCE + 3))
        log.durability.commit()
        here.archive()
        assert segment_bases(log)[0] == MAX_AT_ONCE
        here.archive()
        assert segment_bases(log) == [MAX_AT_ONCE + 2]


def test_another_directory_that_takes_an_archive_over_does_not_trust_its_gaps() -> None:
    """Between two segments of the archive the directory may have had records of its own."""
    bucket = Bucket()
    with tiered(bucket) as here:
        manifest = manifest_of(here)
        here.restart()
        log, first = here.log(), manifest.pieces[1]
        archive = here.archiver
        archive.run_pass()
        (partition,) = archive.partitions.values()
        tier = partition._tier  # noqa: SLF001  # what a take-over calls
        pieces = (manifest.pieces[0], *manifest.pieces[2:])
        assert first.base_offset == 2
        tier.show(replace(manifest, pieces=pieces), is_own=False)
        with pytest.raises(ArchiveUnavailable):
            read_values(log)
        assert read_values(log, 4) == here.values[4:]


def test_what_is_in_the_bucket_of_a_log_that_was_deleted_and_made_again_is_not_its() -> None:
    """The new topic has another id, and begins at 0 on the disk."""
    with tiered(Bucket()) as here:
        here.runtime.manager.delete_topic("events")
        here.commit(b"new")
        here.archive()
        assert read_values(here.log()) == [b"new"]
        assert here.log().topic_partition == TopicPartition("events", 0)
