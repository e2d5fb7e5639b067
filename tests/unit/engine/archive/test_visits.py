"""One visit of a partition's archive, and what may come between: writers and changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.archive import partition
from engine.archive.archiver import Archiver
from engine.archive.documents import Documents
from engine.archive.manifest import Growth, Manifest, ObjectRef, Piece, manifest_prefix
from engine.archive.ownership import WRITERS, claim, read_tokens, write_tokens
from engine.archive.plan import with_piece
from engine.archive.restore import restore, select, verify
from engine.archive.store import ArchiveDamaged, ArchiveError, StoreUnavailable
from engine.archive.upkeep import status
from engine.cleaner.cleaner import LogCleaner
from engine.config import ArchiveConfig, CleanerConfig, EngineConfig
from engine.errors import CorruptCheckpoint, LogReplaced, SegmentNotFound, StorageOffline
from engine.fs import names
from engine.log.log import Log
from engine.log.read.segment_files import FileKind
from engine.records.builder import build_batch
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.bucket import Bucket
from tests.support.builders import DATA, SMALL_CONFIG, World
from tests.support.logs import append_values, fill_segments
from tests.unit.engine.archive.test_archiver import Site, restored, site


def versions_of(here: Site) -> Documents:
    """The versions of the manifest of the log `events`, as another writer sees them."""
    documents = Documents(here.bucket, manifest_prefix(here.log().topic_id, 0))
    documents.load()
    return documents


def test_a_manifest_that_another_process_wrote_meanwhile_is_read_again() -> None:
    """An earlier one that was quicker: what it wrote is corrected."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        other = versions_of(here)
        other.write(0, Manifest("events", here.log().topic_id, 0).fields())
        here.commit(b"two")
        assert here.archive()
        assert restored(bucket) == [b"one", b"two"]


def test_a_catalogue_that_another_process_wrote_meanwhile_is_read_again() -> None:
    """At the next pass."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        other = Documents(bucket, "directory/")
        found = other.load()
        assert found is not None
        other.write(0, found.fields)
        here.log("more")
        assert not here.archive()
        assert here.archive()
        assert set(select(bucket).topics) == {"events", "more"}


def test_a_backlog_is_worked_off_in_several_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other partitions have their turn, and a crash repeats little."""
    monkeypatch.setattr(partition, "VISIT_BYTES", 1)
    bucket = Bucket()
    with site(bucket) as here:
        values = fill_segments(here.log(), 2, 2, 2)
        here.log().durability.commit()
        for count in (2, 4):
            here.archive()
            (archive,) = here.archiver.partitions.values()
            assert archive.has_more
            assert restored(bucket) == values[:count]
        here.archive()
        assert not archive.has_more
        assert restored(bucket) == values


@pytest.mark.parametrize("error", [SegmentNotFound("gone"), LogReplaced("cut")])
def test_a_log_that_changes_during_a_visit_is_decided_on_anew(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The visit ends; the next one archives what there is then."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")

        def fail(*_: object) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(here.log().reader, "open_file", fail)
            here.archive()
        assert here.archiver.lag_ms > 0
        here.archive()
        assert here.archiver.lag_ms == 0
        assert restored(bucket) == [b"one"]


def beside(here: Site, kind: FileKind, act: Callable[[], object]) -> None:
    """Have something happen right before the next pass opens a file of that kind."""
    reader = here.log().reader
    opened, waiting = reader.open_file, [act]

    def open_file(base_offset: int, wanted: FileKind) -> Any:
        if wanted is kind and waiting:
            waiting.pop()()
        return opened(base_offset, wanted)

    reader.open_file = open_file  # type: ignore[assignment,method-assign]  # for one pass


def test_a_truncation_between_decision_and_upload_is_seen() -> None:
    """What was to be uploaded is another record by now."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one", b"two")
        here.commit(b"three")

        def change() -> None:
            here.runtime.manager.truncate(here.log(), 2)
            here.commit(b"a much longer record in its place")

        beside(here, FileKind.LOG, change)
        here.archive()
        here.archive()
        assert restored(bucket) == [b"one", b"two", b"a much longer record in its place"]


class Compacted:
    """A compacted topic whose cleaner a test runs."""

    def __init__(self, here: Site) -> None:
        here.runtime.manager.create_topic(
            "keys", 1, {"cleanup.policy": "compact", "retention.ms": "-1"}
        )
        self.log = here.runtime.manager.log(TopicPartition("keys", 0))
        self._here = here
        self._cleaner = LogCleaner(
            here.runtime.manager,
            clock=here.world.clock,
            config=CleanerConfig(enable=False),
            recorder=here.world.recorder,
        )
        self._cleaner.start()

    def put(self, *values: bytes) -> None:
        for value in values:
            now_ms = self._here.world.clock.now_ms()
            self.log.append(build_batch([(now_ms, b"key", value, ())]))
        self.log.durability.commit()

    def clean(self) -> None:
        self._cleaner.clean_now(self.log)


def test_a_segment_that_is_compacted_between_its_files_is_uploaded_anew() -> None:
    """Its indexes would belong to other bytes."""
    bucket = Bucket()
    with site(bucket) as here:
        topic = Compacted(here)
        topic.put(b"1", b"2", b"3")
        topic.log.roll()
        topic.put(b"4")
        reader, opened, waiting = topic.log.reader, topic.log.reader.open_file, [topic.clean]

        def open_file(base_offset: int, kind: FileKind) -> Any:
            if kind is FileKind.OFFSET_INDEX and waiting:
                waiting.pop()()
            return opened(base_offset, kind)

        reader.open_file = open_file  # type: ignore[method-assign]  # for one pass
        here.archive()
        here.archive()
        assert verify(bucket, select(bucket), lambda *_: None) == []
        assert restored(bucket, topic="keys") == [b"3", b"4"]


def test_an_active_segment_is_compared_after_a_restart_if_it_may_be_compacted() -> None:
    """The same bytes are added to; others, of before a compaction, are uploaded anew."""
    bucket = Bucket()
    with site(bucket) as here:
        Compacted(here).put(b"1", b"2")
        here.archive()
        world = here.world
    with site(bucket, world) as here:
        put_more(here, b"3")
        here.archive()
        assert len([name for name in bucket.objects if name.endswith(".log")]) == 2
    with site(bucket, world) as here:
        documents = versions_of_keys(here, bucket)
        found = documents.load()
        assert found is not None
        manifest = Manifest.of(found, "the manifest")
        first, *others = manifest.pieces
        ref = first.objects["log"]
        other = replace(first, objects={"log": ref._replace(crc32c=ref.crc32c ^ 1)})
        documents.write(found.writer, replace(manifest, pieces=(other, *others)).fields())
        put_more(here, b"4")
        here.archive()
        assert restored(bucket, topic="keys") == [b"1", b"2", b"3", b"4"]


def put_more(here: Site, value: bytes) -> None:
    """Append to the compacted topic as it was found at a start."""
    log = here.runtime.manager.log(TopicPartition("keys", 0))
    log.append(build_batch([(here.world.clock.now_ms(), b"key", value, ())]))
    log.durability.commit()


def versions_of_keys(here: Site, bucket: Bucket) -> Documents:
    topic_id = here.runtime.manager.topic("keys").topic_id
    return Documents(bucket, manifest_prefix(topic_id, 0))


def test_of_many_moments_of_a_segment_every_other_one_is_kept() -> None:
    """The last one always; a restore to a time between takes the one before it."""
    manifest = Manifest("events", "id", 0)
    ref = {"log": ObjectRef("name", 1, 0)}
    for number in range(9):
        piece = Piece(0, number, 1, number, number + 1, 0, -1, number, False, "", ref)
        manifest = with_piece(manifest, piece, goes_on=True, max_growth=4)
    sealed = Piece(0, 0, 9, 0, 9, 0, -1, 9, True, "", ref)
    manifest = with_piece(manifest, sealed, goes_on=True, max_growth=4)
    (whole,) = manifest.pieces
    assert whole.growth == (Growth(0, 1, 1), Growth(4, 5, 5), Growth(8, 9, 9))


def test_a_claim_that_another_process_made_meanwhile_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was a stranger: the archive is refused after all."""
    bucket, world = Bucket(), World()
    written = Documents.write

    def overtaken(self: Documents, writer: int, fields: Any) -> Any:
        monkeypatch.setattr(Documents, "write", written)
        stranger = Documents(bucket, WRITERS)
        stranger.load()
        stranger.write(1, {"token": "a stranger's"})
        return self.write(writer, fields)

    monkeypatch.setattr(Documents, "write", overtaken)
    with pytest.raises(ArchiveError, match="another data directory"):
        claim(bucket, world.fs, [DATA], take_over=False, now_ms=0)


def test_tokens_that_are_no_texts_are_damage() -> None:
    """Somebody wrote the file by hand."""
    world = World()
    write_tokens(world.fs, DATA, [1])  # type: ignore[list-item]  # that is the fault
    with pytest.raises(CorruptCheckpoint):
        read_tokens(world.fs, DATA)


@pytest.mark.parametrize("name", ["directory/", "logs/"])
def test_documents_that_mean_nothing_are_damage(name: str) -> None:
    """Well formed, with a right checksum, and without what they must have."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        if name == "directory/":
            documents = Documents(bucket, name)
            documents.load()
            documents.write(9, {"topics": 7})
            with pytest.raises(ArchiveDamaged, match="catalogue"):
                select(bucket)
        else:
            versions_of(here).write(9, {"topic": "events"})
            (problem,) = select(bucket).problems
            assert "not the manifest" in problem


def test_pieces_that_do_not_fit_are_damage() -> None:
    """A chain with a gap would make a segment with holes."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        documents = versions_of(here)
        found = documents.load()
        assert found is not None
        manifest = Manifest.of(found, "the manifest")
        (piece,) = manifest.pieces
        documents.write(9, replace(manifest, pieces=(replace(piece, position=5),)).fields())
        (problem,) = select(bucket).problems
        assert "do not fit" in problem


def test_a_restore_without_an_index_makes_it_anew() -> None:
    """Only the log is needed; what is derived may be damaged in the bucket."""
    bucket = Bucket()
    with site(bucket) as here:
        values = fill_segments(here.log(), 3, 2)
        here.log().durability.commit()
        here.archive()
    for name in list(bucket.objects):
        if name.endswith((".index", ".snapshot")):
            bucket.objects[name] = b"damaged"
    world = World()
    (done,) = restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)
    assert done.problem is None
    assert restored(bucket) == values


def test_a_torn_line_of_the_journal_is_passed_over() -> None:
    """The power went while it was written: its file is written again."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
    world = World()
    with world.fs.open(DATA / names.RESTORE_FILE, create=True) as file:
        file.append(b'{"restore_of": "memory://bucket"}\n{"file": "events-0/0000')
    restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
    runtime.open()
    runtime.close()


def test_a_rate_makes_an_upload_wait_and_a_stop_ends_it() -> None:
    """A stop does not wait for the rest of a large segment."""
    bucket, world = Bucket(), World()
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
    runtime.open()
    runtime.manager.create_topic("events", 1, {"retention.ms": "-1"})
    log = runtime.manager.log(TopicPartition("events", 0))
    append_values(log, b"x" * 100)
    log.durability.commit()
    archiver = Archiver(
        runtime.manager,
        bucket,
        fs=world.fs,
        clock=world.clock,
        config=ArchiveConfig(max_bytes_per_second=0.001),
        recorder=world.recorder,
    )
    archiver.start()
    while not bucket.operations:
        pass  # the archiver has a thread of its own
    archiver._stopping.set()  # noqa: SLF001 - without the last pass
    archiver.stop()
    assert not [name for name in bucket.objects if name.endswith(".log")]
    runtime.close()


def test_an_error_that_nobody_foresaw_does_not_end_the_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is reported, and the next pass tries again."""
    bucket, world = Bucket(), World()
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler, archive=bucket)
    asked: list[str] = []

    def fail(_: str) -> Any:
        asked.append("once")
        raise ZeroDivisionError

    monkeypatch.setattr(bucket, "list", fail)
    runtime.open()
    assert runtime.archiver is not None
    while runtime.archiver.report.phase.value != "failing":
        pass  # the archiver has a thread of its own
    runtime.close()
    assert asked


def test_a_partition_that_fails_again_and_again_is_not_always_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After three failures in a row a pass ends, and the next one begins behind them."""
    bucket = Bucket()
    with site(bucket) as here:
        for number in range(8):
            log = here.log(f"topic-{number}")
            append_values(log, b"one")
            log.durability.commit()
        put = bucket.put
        refused = {here.log(f"topic-{number}").topic_id for number in range(6)}

        def fail(name: str, content: Any, size_bytes: int) -> None:
            if name.split("/")[1] in refused:
                raise StoreUnavailable("too large")
            put(name, content, size_bytes)

        monkeypatch.setattr(bucket, "put", fail)
        for _ in range(4):
            here.archive()
        archived = {
            str(log)
            for log, one in here.archiver.partitions.items()
            if one.state.archived_offset == 1
        }
        assert archived == {"topic-6-0", "topic-7-0"}


def test_a_disk_that_fails_is_reported_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the data directory is not one of the archive."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")

        def fail(_: object) -> Any:
            raise StorageOffline("the disk", directory="data")

        with monkeypatch.context() as patched:
            patched.setattr(here.log().reader, "committed", fail)
            assert not here.archive()
        assert here.archive()


def test_a_stop_archives_what_is_left() -> None:
    """With one thread for several partitions, long before the next pass."""
    bucket, world = Bucket(), World()
    config = EngineConfig(
        default_topic_config=SMALL_CONFIG.default_topic_config,
        archive=ArchiveConfig(interval_ms=3_600_000, threads=1),
    )
    runtime = Runtime(DATA, config, fs=world.fs, scheduler=world.scheduler, archive=bucket)
    runtime.open()
    assert runtime.archiver is not None
    while runtime.archiver.report.phase.value != "running":
        pass  # the archiver has a thread of its own
    runtime.manager.create_topic("events", 3, {"retention.ms": "-1"})
    for log in runtime.manager.logs():
        append_values(log, b"one")
        log.durability.commit()
    runtime.close()
    assert restored(bucket) == [b"one"]
    assert {one.manifest.archived_offset for one in select(bucket).partitions} == {1}


def test_a_partition_of_which_nothing_is_archived_yet_has_no_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its topic is in the catalogue already; a restore makes the partition anew, empty."""
    bucket = Bucket()
    with pytest.raises(ArchiveError, match="no archive"):
        list(status(bucket))
    listed = bucket.list

    def fail_for_logs(prefix: str) -> Any:
        if prefix.startswith("logs/"):
            raise StoreUnavailable("503 Slow Down")
        return listed(prefix)

    with site(bucket) as here:
        here.commit(b"one")
        with monkeypatch.context() as patched:
            patched.setattr(bucket, "list", fail_for_logs)
            assert not here.archive()
        assert list(status(bucket)) == []
        assert select(bucket).partitions == []
        assert restored(bucket) == []


def test_a_runtime_with_an_archive_may_be_closed_before_it_is_opened() -> None:
    """Nothing was started, and the bucket was never asked."""
    bucket, world = Bucket(), World()
    Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler, archive=bucket).close()
    assert not bucket.operations


def test_a_log_that_is_moved_while_its_gaps_are_read_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restore without the gaps would cut the log at one."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"zero")
        here.commit(b"one", b"two", b"three")
        here.runtime.manager.truncate(here.log(), 2)  # inside a batch: it leaves a gap
        here.commit(b"four")
        real = here.log().directory
        places = iter([DATA / "moved-away"])
        monkeypatch.setattr(Log, "directory", property(lambda _: next(places, real)))
        here.archive()
        monkeypatch.undo()
        (found,) = select(bucket).partitions
        assert found.manifest.gaps
        assert restored(bucket) == [b"zero", b"four"]
