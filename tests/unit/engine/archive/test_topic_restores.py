"""A topic comes back from the archive under another name, whole or not at all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from engine.archive.topic_restores import RestoreState, TopicRestore, TopicRestores
from engine.errors import (
    ArchiveUnavailable,
    InvalidTopicName,
    Overloaded,
    PolicyViolation,
    Recovering,
    StorageFull,
    TopicConflict,
    TopicNotFound,
)
from engine.fs.port import Space
from engine.types import TopicPartition
from tests.support.bucket import Bucket
from tests.support.builders import DATA, World, new_batch
from tests.support.logs import append_values, read_records, read_values
from tests.unit.engine.archive.test_archiver import Site, site

COPY = TopicPartition("copy", 0)


def allowed(_: int) -> None:
    """Any number of partitions."""


@contextmanager
def restores(here: Site) -> Iterator[TopicRestores]:
    """The restores of a site; after the block the one that was started has ended."""
    found = TopicRestores(here.runtime.manager, here.bucket, here.world.fs)
    try:
        yield found
    finally:
        found._thread.shutdown()  # noqa: SLF001 - `stop` would give it up


def restored_as(here: Site, name: str, source: str, until_ms: int | None = None) -> TopicRestore:
    with restores(here) as found:
        found.start(name, source, until_ms, allowed)
    report = found.report(name)
    assert report is not None
    return report


def filled(here: Site) -> list[tuple[int, bytes | None]]:
    """Three small segments with a producer, a truncation and deleted records, archived."""
    for number in range(6):
        log = here.log()
        log.append(new_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number))
        if number % 2:
            log.roll()
    append_values(here.log(), b"cut off")
    here.runtime.manager.truncate(here.log(), 12)
    here.commit(b"after the truncation")
    here.runtime.manager.delete_records(here.log(), 3)
    assert here.archive()
    return offsets_and_values(here)


def offsets_and_values(here: Site, topic: str = "events") -> list[tuple[int, bytes | None]]:
    log = here.runtime.manager.log(TopicPartition(topic, 0))
    return [(one.offset, one.value) for one in read_records(log)]


def test_what_was_deleted_comes_back_as_it_was() -> None:
    """Offsets, records, epochs and producers; beside the others, and after a restart, too."""
    with site(Bucket()) as here:
        before = filled(here)
        original = here.log()
        moment_ms = here.world.clock.now_ms()
        here.runtime.manager.delete_topic("events")
        assert here.archive()
        report = restored_as(here, "copy", "events", moment_ms)
        assert (report.state, report.problems) == (RestoreState.DONE, ())
        assert report.restored_bytes == report.total_bytes > 0
        for _ in range(2):
            log = here.runtime.manager.log(COPY)
            assert offsets_and_values(here, "copy") == before
            assert log.watermarks.log_start_offset == 3
            assert log.watermarks.high_watermark == 13
            assert log.watermarks.leader_epoch > original.watermarks.leader_epoch
            assert [one.producer_id for one in log.producers.active()] == [7]
            assert log.topic_id != original.topic_id
            here.restart(power_cut=True)
        assert "events" not in here.runtime.manager.topics()


def test_nothing_of_it_is_removed_by_what_removed_the_original() -> None:
    """Retention, compaction and tiering of the original are off, its other values stay."""
    config = {"retention.ms": "60000", "max.message.bytes": "2000", "cleanup.policy": "compact"}
    with site(Bucket(), config=config) as here:
        here.log().append(new_batch())
        here.log().durability.commit()
        assert here.archive()
        restored_as(here, "copy", "events")
        overrides = here.runtime.manager.topic("copy").overrides
        assert overrides == {
            "cleanup.policy": "delete",
            "max.message.bytes": "2000",
            "retention.bytes": "-1",
            "retention.ms": "-1",
        }
        assert here.runtime.manager.topic("copy").may_have_gaps


def test_it_takes_appends_and_is_archived_itself() -> None:
    """It is a topic like any other."""
    bucket = Bucket()
    with site(bucket) as here:
        here.commit(b"one")
        assert here.archive()
        restored_as(here, "copy", "events")
        log = here.runtime.manager.log(COPY)
        append_values(log, b"two")
        log.durability.commit()
        assert here.archive()
        assert restored_as(here, "second", "copy").state is RestoreState.DONE
        again = here.runtime.manager.log(TopicPartition("second", 0))
        assert read_values(again) == [b"one", b"two"]


def test_a_damaged_object_ends_a_partition_before_it() -> None:
    """What comes before is there, and the report says what is missing."""
    bucket = Bucket()
    with site(bucket) as here:
        before = filled(here)
        damaged = sorted(name for name in bucket.objects if name.endswith(".log"))[1]
        bucket.objects[damaged] = bucket.objects[damaged][:-1] + b"\xff"
        report = restored_as(here, "copy", "events")
        assert report.state is RestoreState.DONE
        assert damaged in report.problems[0]
        found = offsets_and_values(here, "copy")
        assert found == before[: len(found)]
        assert len(found) < len(before)


def test_a_bucket_that_stops_answering_leaves_nothing() -> None:
    """Neither topic nor files nor a reserved name; the report says why."""
    bucket = Bucket()
    with site(bucket) as here:
        filled(here)
        with restores(here) as found:
            found.start("copy", "events", None, allowed)
            bucket.is_down = True
        report = found.report("copy")
        assert report is not None
        if report.state is RestoreState.FAILED:  # or else it was faster
            assert report.problems
            assert "copy" not in here.runtime.manager.topics()
            assert not here.world.fs.exists(DATA / "copy-0")
            here.runtime.manager.create_topic("copy", 1, {})


Meddle = Callable[[Site], None]


def is_down(here: Site) -> None:
    here.bucket.is_down = True


@pytest.mark.parametrize(
    ("name", "source", "meddle", "expected"),
    [
        ("events", "events", None, TopicConflict),
        ("copy", "other", None, TopicNotFound),
        ("co/py", "events", None, InvalidTopicName),
        ("__consumer_offsets", "events", None, InvalidTopicName),
        ("copy", "events", is_down, ArchiveUnavailable),
    ],
)
def test_what_cannot_be_restored_is_refused_at_once(
    name: str, source: str, meddle: Meddle | None, expected: type[Exception]
) -> None:
    """With the reason; nothing is queued."""
    with site(Bucket()) as here:
        filled(here)
        if meddle is not None:
            meddle(here)
        with restores(here) as found, pytest.raises(expected):
            found.start(name, source, None, allowed)
        assert found.report(name) is None


def test_a_disk_that_is_too_small_is_told_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both numbers, less a reserve; directories of one file system are counted once."""
    with site(Bucket(), directories=(DATA, DATA.with_name("second"))) as here:
        filled(here)
        monkeypatch.setattr(here.world.fs, "space", lambda _: Space(10_000, 1_000))
        with restores(here) as found, pytest.raises(StorageFull, match="have 500"):
            found.start("copy", "events", None, allowed)


def test_a_number_of_partitions_that_is_not_allowed_is_refused() -> None:
    """By the system's limit of open files, which the caller knows."""

    def too_many(partitions: int) -> None:
        raise PolicyViolation(f"{partitions} are too many")

    with site(Bucket()) as here:
        filled(here)
        with restores(here) as found, pytest.raises(PolicyViolation, match="1 are too many"):
            found.start("copy", "events", None, too_many)


def test_the_name_is_taken_while_it_is_restored() -> None:
    """By nothing else, and not twice; the name of a topic that failed is free again."""
    with site(Bucket()) as here:
        filled(here)
        manager = here.runtime.manager
        tried: list[str] = []

        def fill_and_try(*_: object) -> NoReturn:
            for attempt in (
                lambda: manager.create_topic("copy", 1, {}),
                lambda: manager.restore_topic("copy", 1, {}, fill_and_try, was_compacted=False),
            ):
                with pytest.raises(TopicConflict, match="is being restored"):
                    attempt()
                tried.append("refused")
            raise OSError(28, "No space left on device")

        with pytest.raises(StorageFull):
            manager.restore_topic("copy", 1, {}, fill_and_try, was_compacted=False)
        assert tried == ["refused"] * 2
        assert manager.create_topic("copy", 1, {})[1]


def test_a_stop_gives_it_up() -> None:
    """At the next piece; what waits is not begun, and later ones are refused."""
    with site(Bucket()) as here:
        filled(here)
        found = TopicRestores(here.runtime.manager, here.bucket, here.world.fs)
        read = here.bucket.read

        def stop_and_read(name: str) -> Iterator[object]:
            found._stopping.set()  # noqa: SLF001 - `stop` waits for this thread
            return read(name)

        here.bucket.read = stop_and_read  # type: ignore[method-assign,assignment]  # between two pieces
        found.start("copy", "events", None, allowed)
        found.stop()
        report = found.report("copy")
        assert report is not None
        assert (report.state, report.problems) == (RestoreState.FAILED, ("the service stops",))
        assert "copy" not in here.runtime.manager.topics()
        with pytest.raises(Recovering):
            found.start("again", "events", None, allowed)


def test_old_reports_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts what is remembered; what has ended goes first."""
    monkeypatch.setattr("engine.archive.topic_restores.MAX_RESTORES", 2)
    with site(Bucket()) as here:
        here.commit(b"one")
        assert here.archive()
        with restores(here) as found:
            for name in ("a", "b", "c"):
                found.start(name, "events", None, allowed)
                found._thread.submit(int).result()  # noqa: SLF001 - it has ended
        assert [found.report(name) is None for name in ("a", "b", "c")] == [True, False, False]


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_a_restore_that_is_cut_at_any_change_is_whole_or_gone(power_cut: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """After the next start either every record is there or no trace of the topic is."""
    for change in itertools.count(1):
        world = World()
        here = Site(Bucket(), world)
        before = filled(here)
        with world.disk.power_cut_before(change):
            report = restored_as(here, "copy", "events")
        if report.state is RestoreState.DONE:
            assert change > 10
            break
        here.restart(power_cut=power_cut)
        topics = here.runtime.manager.topics()
        if "copy" in topics:
            assert offsets_and_values(here, "copy") == before
        else:
            assert not [one for one in world.fs.list_directory(DATA) if one == "copy-0"]
        assert offsets_and_values(here) == before
        here.close()


def test_a_name_is_restored_once_at_a_time_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is under way; a mistake of ours fails one restore, and the next one goes on."""
    monkeypatch.setattr("engine.archive.topic_restores.MAX_RESTORES", 2)
    with site(Bucket()) as here:
        here.commit(b"one")
        assert here.archive()
        begun, may_go_on = threading.Event(), threading.Event()

        def fail_late(_: str) -> NoReturn:
            begun.set()
            may_go_on.wait()
            raise ZeroDivisionError("by mistake")

        with monkeypatch.context() as patched, restores(here) as found:
            patched.setattr(here.bucket, "read", fail_late)
            found.start("copy", "events", None, allowed)
            begun.wait()
            with pytest.raises(TopicConflict, match="is being restored"):
                found.start("copy", "events", None, allowed)
            found.start("second", "events", None, allowed)
            with pytest.raises(Overloaded):
                found.start("third", "events", None, allowed)
            may_go_on.set()
        report = found.report("copy")
        assert report is not None
        assert report.problems == ("ZeroDivisionError: by mistake",)
        assert restored_as(here, "copy", "events").state is RestoreState.DONE


def test_a_partition_that_was_never_archived_is_empty() -> None:
    """The topic has as many partitions as the original."""
    with site(Bucket()) as here:
        here.commit(b"one")
        assert here.archive()
        here.runtime.manager.update_topic("events", partitions=2)
        catalog_only = dict(here.bucket.objects)
        assert here.archive()
        of_second = {name for name in here.bucket.objects.keys() - catalog_only if "/1/" in name}
        for name in of_second:
            del here.bucket.objects[name]
        assert restored_as(here, "copy", "events").state is RestoreState.DONE
        sizes = [log.reader.size_bytes for log in here.runtime.manager.logs_of("copy")]
        assert [size > 0 for size in sizes] == [True, False]


def test_a_name_that_was_taken_meanwhile_is_refused() -> None:
    """Between the request and its turn."""
    with site(Bucket()) as here:
        here.commit(b"one")
        assert here.archive()
        with restores(here) as found:
            gate = threading.Event()
            found._thread.submit(gate.wait)  # noqa: SLF001 - the one before it
            found.start("copy", "events", None, allowed)
            here.runtime.manager.create_topic("copy", 1, {})
            gate.set()
        report = found.report("copy")
        assert report is not None
        assert report.state is RestoreState.FAILED
        assert "exists" in report.problems[0]
        assert read_values(here.runtime.manager.log(COPY)) == []
