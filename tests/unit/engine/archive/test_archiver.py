"""The archiver beside one data directory: what is uploaded, when, and what its report says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.archive.archiver import Archiver
from engine.archive.ownership import read_tokens
from engine.archive.restore import restore, select, verify
from engine.archive.store import ArchiveError, ArchiveFenced, StoreUnavailable
from engine.archive.upkeep import status, unnamed
from engine.config import ArchiveConfig, EngineConfig
from engine.errors import InvalidDataDirectory
from engine.fs import names
from engine.log.log import Log
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.bucket import Bucket
from tests.support.builders import DATA, EVENTS, SMALL_CONFIG, World
from tests.support.logs import append_values, fill_segments, read_values

KEEP_MS = 1_000_000
NEVER = {"retention.ms": "-1"}


class Site:
    """A data directory with an archive, whose passes a test runs."""

    def __init__(
        self,
        bucket: Bucket,
        world: World | None = None,
        config: Mapping[str, str] = NEVER,
        directories: Sequence[Path] = (DATA,),
    ) -> None:
        self.world = world or World()
        self.config = config
        """That of the topics."""
        self.directories = directories
        self.values: list[bytes] = []
        """What a test has appended first."""
        self.bucket = bucket
        self.open(take_over=False)

    def open(self, *, take_over: bool) -> None:
        self.runtime = Runtime(
            self.directories,
            SMALL_CONFIG,
            fs=self.world.fs,
            clock=self.world.clock,
            scheduler=self.world.scheduler,
            recorder=self.world.recorder,
        )
        self.runtime.open()
        self.archiver = self.new_archiver(take_over=take_over)

    def new_archiver(self, *, take_over: bool) -> Archiver:
        return Archiver(
            self.runtime.manager,
            self.bucket,
            fs=self.world.fs,
            clock=self.world.clock,
            config=ArchiveConfig(keep_ms=KEEP_MS, take_over=take_over),
            recorder=self.world.recorder,
        )

    def log(self, topic: str = "events") -> Log:
        manager = self.runtime.manager
        if topic not in manager.topics():
            manager.create_topic(topic, 1, self.config)
        return manager.log(TopicPartition(topic, 0))

    def commit(self, *values: bytes) -> None:
        append_values(self.log(), *values)
        self.log().durability.commit()

    def archive(self) -> bool:
        """Let a second pass, and run a pass."""
        self.world.clock.advance(1_000)
        return self.archiver.run_pass()

    def restart(self, *, power_cut: bool | None = None) -> None:
        """Stop, cleanly unless told otherwise, and start again."""
        if power_cut is None:
            self.runtime.close()
        self.world.restart(power_cut=bool(power_cut))
        self.open(take_over=False)

    @property
    def phase(self) -> str:
        return self.archiver.report.phase.value

    def close(self) -> None:
        self.runtime.close()


@contextmanager
def site(bucket: Bucket, world: World | None = None, **options: Any) -> Iterator[Site]:
    """A site that is closed at the end."""
    opened = Site(bucket, world, **options)
    try:
        yield opened
    finally:
        opened.close()


def restored(bucket: Bucket, until_ms: int | None = None, topic: str = "events") -> list[bytes]:
    """What a restore into a new directory has of a topic."""
    world = World()
    chosen = select(bucket, until_ms=until_ms)
    restore(bucket, world.fs, DATA, chosen, lambda *_: None, threads=1)
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
    runtime.open()
    values = read_values(runtime.manager.log(TopicPartition(topic, 0)))
    runtime.close()
    return [value for value in values if value is not None]


def test_only_what_is_committed_is_archived() -> None:
    """An append that no sync has reached is not in the bucket, and is in it after the commit."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        append_values(here.log(), b"two")
        assert here.archive()
        assert restored(bucket) == [b"one"]
        here.log().durability.commit()
        assert here.archive()
        assert restored(bucket) == [b"one", b"two"]


def test_a_pass_with_nothing_new_uploads_nothing() -> None:
    """Neither objects nor manifests: an idle log costs no request that writes."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        before = dict(bucket.objects)
        here.archive()
        here.archive()
        assert bucket.objects == before


def test_a_sealed_segment_has_its_indexes_and_snapshot() -> None:
    """It is uploaded whole, and the files of a restored directory equal the original's."""
    bucket = Bucket()
    with site(bucket) as here:
        fill_segments(here.log(), 3, 2)
        here.log().durability.commit()
        here.archive()
        world, folder = World(), DATA / "events-0"
        restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)
        found = set(world.fs.list_directory(folder))
        assert {f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"} <= found
        assert {f"{3:020d}.snapshot", f"{3:020d}.log"} <= found
        for name in (f"{0:020d}.log", f"{3:020d}.log", f"{3:020d}.snapshot"):
            original = here.world.fs.read_bytes(folder / name)
            assert world.fs.read_bytes(folder / name) == original


def test_a_store_that_fails_delays_and_is_caught_up_with() -> None:
    """The report says why; appends go on; the next pass archives everything."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        bucket.is_down = True
        here.commit(b"two")
        assert not here.archive()
        assert here.phase == "failing"
        assert "503" in str(here.archiver.report.problem)
        assert here.archiver.lag_ms == 1_000
        bucket.is_down = False
        assert here.archive()
        assert here.phase == "running"
        assert here.archiver.report.problem is None
        assert here.archiver.lag_ms == 0
        assert restored(bucket) == [b"one", b"two"]


def test_a_store_that_cannot_be_reached_does_not_stop_a_start() -> None:
    """The archive is claimed by the first pass that reaches it."""
    bucket = Bucket()
    bucket.is_down = True
    with site(bucket) as here:
        here.commit(b"one")
        assert not here.archive()
        assert here.phase == "starting"
        bucket.is_down = False
        assert here.archive()


def test_the_lag_in_bytes_is_what_is_not_archived() -> None:
    """Across segments, and 0 once it is archived."""
    bucket = Bucket()
    with site(bucket) as here:
        fill_segments(here.log(), 2, 2)
        here.log().durability.commit()
        here.archive()
        (archive,) = here.archiver.partitions.values()
        assert archive.lag_bytes == 0
        size_bytes = here.log().reader.size_bytes
        here.log().roll()
        here.commit(b"more")
        assert archive.lag_bytes == here.log().reader.size_bytes - size_bytes
        here.archive()
        assert archive.lag_bytes == 0


def test_another_directory_is_refused_and_may_take_over() -> None:
    """Then the first one is fenced at its next manifest, says so, and its records stay out."""
    bucket = Bucket()
    with site(bucket) as first, site(bucket) as second:
        first.commit(b"one")
        first.archive()
        assert not second.archive()
        assert second.phase == "fenced"
        assert "--archive-take-over" in str(second.archiver.report.problem)
    world = World()
    restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)
    with site(bucket, first.world) as old, site(bucket, world) as new:
        assert old.archive()
        new.close()
        new.open(take_over=True)
        assert new.archive()
        old.commit(b"too late")
        assert not old.archive()
        assert old.phase == "fenced"
        assert "later writer" in str(old.archiver.report.problem)
        new.commit(b"two")
        assert new.archive()
        assert restored(bucket) == [b"one", b"two"]


def test_a_start_that_finds_the_archive_taken_opens_nothing() -> None:
    """The runtime raises, and its directory can be locked again."""
    bucket = Bucket()
    with site(bucket) as first:
        first.commit(b"one")
        first.archive()
    world = World()
    refused = Runtime(DATA, SMALL_CONFIG, fs=world.fs, archive=bucket)
    with pytest.raises(ArchiveFenced, match="another data directory"):
        refused.open()
    with site(Bucket(), world) as free:
        free.commit(b"served")


def test_a_restart_continues_its_own_archive() -> None:
    """Also when the process ended between noting its claim and making it."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        world = here.world
    tokens = read_tokens(world.fs, DATA)
    with site(bucket, world) as here:
        bucket.trouble = 1
        here.archive()
        bucket.trouble = 0
        assert len(read_tokens(world.fs, DATA)) >= len(tokens)
    with site(bucket, world) as here:
        here.commit(b"two")
        assert here.archive()
        assert restored(bucket) == [b"one", b"two"]


def test_a_restore_to_an_earlier_time_finds_what_was_removed_since() -> None:
    """Truncated, deleted, and made again under its name; until its time is over."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        first_ms = here.world.clock.now_ms()
        here.commit(b"two")
        here.archive()
        second_ms = here.world.clock.now_ms()
        here.runtime.manager.truncate(here.log(), 1)
        here.commit(b"other")
        here.archive()
        third_ms = here.world.clock.now_ms()
        here.runtime.manager.delete_topic("events")
        here.commit(b"new")
        here.archive()
        assert restored(bucket, first_ms) == [b"one"]
        assert restored(bucket, second_ms) == [b"one", b"two"]
        assert restored(bucket, third_ms) == [b"one", b"other"]
        assert restored(bucket) == [b"new"]
        here.world.clock.advance(KEEP_MS)
        here.archive()
        here.archive()
        with pytest.raises(KeyError):
            select(bucket, until_ms=third_ms).topics["events"]
        assert restored(bucket) == [b"new"]
        assert len([name for name in bucket.objects if name.endswith(".log")]) == 1


@contextmanager
def losing_answers(bucket: Bucket) -> Iterator[None]:
    """Carry out each put of a document, and answer that it failed."""
    written = bucket.put_new

    def lose(name: str, content: bytes) -> bool:
        written(name, content)
        raise StoreUnavailable("the answer was lost")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bucket, "put_new", lose)
        yield


def test_a_manifest_whose_answer_was_lost_does_not_outlive_what_it_says() -> None:
    """It names a record that is truncated before the next pass, which must say so."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        here.commit(b"two")
        with losing_answers(bucket):
            assert not here.archive()
        here.runtime.manager.truncate(here.log(), 1)
        assert here.archive()
        assert restored(bucket) == [b"one"]


def test_a_catalogue_whose_answer_was_lost_does_not_outlive_a_topic() -> None:
    """The same for topics."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        here.log("short")
        with losing_answers(bucket):
            assert not here.archive()
        here.runtime.manager.delete_topic("short")
        assert here.archive()
        assert set(select(bucket).topics) == {"events"}


def test_what_no_manifest_names_is_found_once_its_writer_is_gone() -> None:
    """An upload that was given up; those of the present writer may be named yet."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        orphan = next(name for name in bucket.objects if name.endswith(".log"))
        orphan = orphan.replace("-1.log", "-99.log")
        bucket.objects[orphan] = b"given up"
        stray = "logs/AAAAAAAAAAAAAAAAAAAAAA/0/manifest-begun"
        bucket.objects[stray] = b""  # of a topic whose deletion no listing had shown whole
        assert [one.name for one in unnamed(bucket).objects] == [stray]
        world = here.world
    with site(bucket, world) as here:
        here.commit(b"two")
        here.archive()
        assert {one.name for one in unnamed(bucket).objects} == {orphan, stray}
        (told,) = status(bucket)
        assert (told.log, told.archived_offset, told.objects) == (EVENTS, 2, 2)


# -- what is wrong in the bucket -----------------------------------------------------------------


def pieces_of(bucket: Bucket) -> list[str]:
    """The objects with records, oldest first."""
    return sorted(name for name in bucket.objects if name.endswith(".log"))


@pytest.mark.parametrize("harm", ["missing", "cut", "changed"])
def test_a_restore_ends_before_a_damaged_object_and_says_which(harm: str) -> None:
    """The partition is a prefix, the others are whole, and the directory can be served."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        here.commit(b"two")
        here.archive()
    first, second = pieces_of(bucket)
    content = bucket.objects.pop(second)
    if harm == "cut":
        bucket.objects[second] = content[:-1]
    elif harm == "changed":
        bucket.objects[second] = content[:-1] + b"?"
    (problem,) = verify(bucket, select(bucket), lambda *_: None)
    assert second in problem
    assert "offsets from 1 on" in problem
    world = World()
    (done,) = restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)
    assert done.end_offset == 1
    assert second in str(done.problem)
    assert restored(bucket) == [b"one"]
    assert first in bucket.objects


def test_a_restore_that_was_interrupted_goes_on_and_cannot_be_served_before() -> None:
    """What is complete is not read again; the directory is refused until the end."""
    bucket = Bucket()
    with site(bucket) as here:
        fill_segments(here.log(), 2, 2, 2)
        here.log().durability.commit()
        here.archive()
    world, chosen, read = World(), select(bucket), bucket.get
    last = pieces_of(bucket)[-1]

    def fail(name: str) -> bytes:
        if name == last:
            raise StoreUnavailable("503 Slow Down")
        return read(name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bucket, "get", fail)
        with pytest.raises(StoreUnavailable):
            restore(bucket, world.fs, DATA, chosen, lambda *_: None, threads=1)
    with pytest.raises(InvalidDataDirectory, match="has not ended"):
        Runtime(DATA, SMALL_CONFIG, fs=world.fs).open()
    names_read: list[str] = []

    def note(name: str) -> bytes:
        names_read.append(name)
        return read(name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bucket, "get", note)
        restore(bucket, world.fs, DATA, chosen, lambda *_: None, threads=1)
    assert [name for name in names_read if name.endswith(".log")] == [last]
    assert names.RESTORE_FILE not in world.fs.list_directory(DATA)
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
    runtime.open()
    runtime.close()


def test_a_directory_with_other_content_is_not_restored_into() -> None:
    """It names what is there, and leaves it."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
        world = World()
        world.fs.make_directory(DATA / "events-0")
        with pytest.raises(ArchiveError, match="events-0"):
            restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)


def test_a_topic_that_is_not_archived_is_named() -> None:
    """With those that are."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
    with pytest.raises(ArchiveError, match=r"'other' is not in .* it has events"):
        select(bucket, topics=["other"])
    with pytest.raises(ArchiveError, match="no archive"):
        select(Bucket())


def test_producer_ids_are_never_given_out_twice() -> None:
    """A restored directory begins far above what the archive knew of."""
    bucket = Bucket()
    with site(bucket) as here:
        first, _ = here.runtime.manager.allocate_producer()
        here.commit(b"one")
        here.archive()
    world = World()
    restore(bucket, world.fs, DATA, select(bucket), lambda *_: None, threads=1)
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
    runtime.open()
    again, _ = runtime.manager.allocate_producer()
    runtime.close()
    assert again > first + 1_000_000


def test_the_passes_run_on_threads_of_their_own() -> None:
    """With the runtime: what is committed is in the bucket soon, and a stop ends the threads."""
    bucket, world = Bucket(), World()
    config = EngineConfig(
        default_topic_config=SMALL_CONFIG.default_topic_config,
        archive=ArchiveConfig(interval_ms=1),
    )
    runtime = Runtime(DATA, config, fs=world.fs, scheduler=world.scheduler, archive=bucket)
    runtime.open()
    assert runtime.archiver is not None
    runtime.manager.create_topic("events", 1, NEVER)
    log = runtime.manager.log(EVENTS)
    append_values(log, b"one")
    log.durability.commit()
    while runtime.archiver.lag_ms or not runtime.archiver.partitions:
        pass
    runtime.close()
    assert restored(bucket) == [b"one"]


def test_the_way_of_an_archive_is_a_folder(tmp_path: Path) -> None:
    """Names have no part that a file system or a store could read as another place."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        here.archive()
    for name in bucket.objects:
        path = tmp_path / name
        assert path.resolve().is_relative_to(tmp_path)
        assert name == name.strip("/")


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
def test_an_archive_of_every_version_is_restored(version: str) -> None:
    """Written by `make_golden` when that version was the present one."""
    bucket = Bucket()
    for path in (GOLDEN / version).rglob("*"):
        if path.is_file():
            bucket.objects[path.relative_to(GOLDEN / version).as_posix()] = path.read_bytes()
    world, chosen = World(), select(bucket)
    assert verify(bucket, chosen, lambda *_: None) == []
    done = restore(bucket, world.fs, DATA, chosen, lambda *_: None, threads=1)
    runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
    runtime.open()
    found = {str(log.topic_partition): read_values(log) for log in runtime.manager.logs()}
    ends = {str(one.log): one.end_offset for one in done}
    runtime.close()
    twice = [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert found == {"events-0": twice, "events-1": twice[:2], "keys-0": twice}
    assert ends == {"events-0": 6, "events-1": 3, "keys-0": 6}
    then = select(bucket, until_ms=min(one.since_ms for one in chosen.topics.values()))
    assert set(then.topics) == {"events", "keys", "gone"}
