"""One contract of the port to object storage, on every side of it; and an archive on an S3 server.

The sides: the bucket in memory that the engine's tests use, a plain directory, and S3 as spoken by
moto, and in `make test-long` by versitygw: neither was written here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from app import buckets
from app.buckets import open_bucket
from engine.archive.archiver import Archiver
from engine.archive.restore import restore, select, verify
from engine.archive.store import ArchiveError, ObjectMissing, ObjectStore, StoreUnavailable
from engine.config import ArchiveConfig
from engine.runtime import Runtime
from engine.types import Buffer
from tests.support import object_stores
from tests.support.bucket import Bucket
from tests.support.builders import DATA, EVENTS, SMALL_CONFIG, World
from tests.support.logs import append_values, fill_segments, read_values

SIDES = (
    "memory",
    "folder",
    "moto",
    pytest.param("versitygw", marks=[pytest.mark.long, pytest.mark.needs("versitygw")]),
)


@pytest.fixture(params=SIDES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """An empty bucket."""
    if request.param == "memory":
        yield Bucket()
    elif request.param == "folder":
        yield open_bucket(f"file://{tmp_path}/not there yet/archive")
    else:
        with object_stores.server_of(request.param, tmp_path) as endpoint:
            bucket = object_stores.ObjectStore(endpoint, new_name()).make_bucket()
            bucket.announced(monkeypatch)
            yield open_bucket(f"{bucket.url}/a folder")


def new_name() -> str:
    """A name that no other test has: moto remembers all of them."""
    return f"archive-{uuid.uuid4().hex}"


def parts(count: int, size_bytes: int) -> list[Buffer]:
    """So many different parts, views and bytes in turn."""
    content = [bytes([number % 251]) * size_bytes for number in range(count)]
    return [memoryview(one) if number % 2 else one for number, one in enumerate(content)]


@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_an_object_is_what_was_put(store: ObjectStore, count: int) -> None:
    """Of no bytes, and of more than one request takes."""
    content = parts(count, 1 << 20)
    store.put("folder/one.log", iter(content), count << 20)
    whole = b"".join(content)
    assert store.get("folder/one.log") == whole
    assert b"".join(store.read("folder/one.log")) == whole
    (listed,) = store.list("folder/")
    assert (listed.name, listed.size_bytes) == ("folder/one.log", count << 20)


def test_a_range_is_a_part_of_an_object(store: ObjectStore) -> None:
    """At its start, in its midst, at its end."""
    whole = b"".join(parts(3, 1 << 20))
    store.put("folder/one.log", [whole], len(whole))
    for position, length in ((0, 1), (1_000_000, 1_500_000), (len(whole) - 7, 7), (0, len(whole))):
        found = store.read_range("folder/one.log", position, length)
        assert found == whole[position : position + length]


def test_only_the_first_of_a_name_is_put_new(store: ObjectStore) -> None:
    """The second is told so, and changes nothing."""
    assert store.put_new("folder/1.json", b"first")
    assert not store.put_new("folder/1.json", b"second")
    assert store.get("folder/1.json") == b"first"


def test_a_missing_object_is_missing(store: ObjectStore) -> None:
    """For all ways of reading."""
    with pytest.raises(ObjectMissing):
        store.get("nothing")
    with pytest.raises(ObjectMissing):
        b"".join(store.read("nothing"))
    with pytest.raises(ObjectMissing):
        store.read_range("nothing", 0, 1)


def test_a_listing_has_what_is_below_a_folder(store: ObjectStore) -> None:
    """And not what is beside one whose name begins alike."""
    for name in ("a/1/x", "a/1/y/z", "a/10/x", "b"):
        store.put_new(name, b"content")
    assert sorted(one.name for one in store.list("a/1/")) == ["a/1/x", "a/1/y/z"]
    assert sorted(one.name for one in store.list("a/")) == ["a/1/x", "a/1/y/z", "a/10/x"]
    assert list(store.list("c/")) == []


def test_what_is_deleted_is_gone_and_may_have_been_before(store: ObjectStore) -> None:
    """One that is missing does not keep the others."""
    for name in ("a/1", "a/2", "a/3"):
        store.put_new(name, b"content")
    store.delete(["a/1", "a/none", "a/3"])
    assert [one.name for one in store.list("a/")] == ["a/2"]
    store.delete([])


def test_content_that_fails_leaves_no_object(store: ObjectStore) -> None:
    """A segment that is truncated while it is uploaded, or a service that stops."""

    def content() -> Iterator[Buffer]:
        yield from parts(18, 1 << 20)
        raise KeyError("the segment is gone")

    for size_bytes in (100, 30 << 20):
        with pytest.raises(KeyError):
            store.put("folder/one.log", content(), size_bytes)
        assert list(store.list("folder/")) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("bucket", "not the URL"),
        ("ftp://bucket/x", "not the URL"),
        ("s3://", "not the URL"),
        ("s3://key:secret@bucket/x", "no credentials"),
        ("s3://bucket/x?region=eu", "no query"),
        ("file://folder/x", "write file:///folder/x"),
        ("file:///proc/none/x", "cannot be used"),
        ("az://account", "cannot be used"),
    ],
)
def test_a_wrong_url_is_told(url: str, said: str) -> None:
    """With what to write instead."""
    with pytest.raises(ArchiveError, match=said):
        open_bucket(url)


def test_a_server_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, without the library's debug output."""
    monkeypatch.setattr(buckets, "MAX_RETRIES", 0)
    nobody = object_stores.ObjectStore("http://127.0.0.1:9", "archive").announced(monkeypatch)
    with pytest.raises(StoreUnavailable) as caught:
        open_bucket(nobody.url).get("x")
    assert "\n" not in str(caught.value)


def test_a_bucket_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A read finds nothing, and a write says why it cannot."""
    with object_stores.server_of("moto", tmp_path) as endpoint:
        object_stores.ObjectStore(endpoint, "none").announced(monkeypatch)
        with pytest.raises((ObjectMissing, StoreUnavailable), match="s3://none"):
            open_bucket("s3://none/x").put_new("a", b"")


# -- an archive on a real server -----------------------------------------------------------------


def until_archived(archiver: Archiver, tries: int = 60) -> None:
    """Run passes until one archives everything."""
    for _ in range(tries):
        if archiver.run_pass():
            return
    raise AssertionError(archiver.report)


def test_an_archive_in_a_bucket_whose_server_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every third request is refused, cut, never answered, or answered into nothing."""
    monkeypatch.setattr(buckets, "REQUEST_TIMEOUT", timedelta(milliseconds=300))
    monkeypatch.setattr(buckets, "RETRY_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(buckets, "MAX_RETRIES", 1)
    faults, world = object_stores.Faults(), World()
    with object_stores.moto(faults) as endpoint:
        bucket = object_stores.ObjectStore(endpoint, new_name()).make_bucket()
        bucket.announced(monkeypatch)
        store = open_bucket(bucket.url)
        runtime = Runtime(DATA, SMALL_CONFIG, fs=world.fs, scheduler=world.scheduler)
        runtime.open()
        runtime.manager.create_topic("events", 1, {"retention.ms": "-1"})
        log = runtime.manager.log(EVENTS)
        archiver = Archiver(
            runtime.manager,
            store,
            fs=world.fs,
            clock=world.clock,
            config=ArchiveConfig(),
            recorder=world.recorder,
        )
        faults.every = 3
        values = fill_segments(log, 2, 2, 1)
        for number in range(6):
            log.durability.commit()
            until_archived(archiver)
            values.append(b"%d" % number)
            append_values(log, values[-1])
        log.durability.commit()
        until_archived(archiver)
        assert min(faults.happened[fault] for fault in object_stores.FAULTS) > 0
        faults.every = 0
        assert verify(store, select(store), lambda *_: None) == []
        copy = World()
        restore(store, copy.fs, DATA, select(store), lambda *_: None)
        again = Runtime(DATA, SMALL_CONFIG, fs=copy.fs, scheduler=copy.scheduler)
        again.open()
        assert read_values(again.manager.log(EVENTS)) == values
        again.close()
        runtime.close()


def test_what_was_written_to_a_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, and every directory that leads to it: a power cut takes none of them."""
    synced: list[str] = []
    real: Callable[[int], None] = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    store = open_bucket(f"file://{tmp_path}/archive")
    monkeypatch.setattr(os, "fsync", note)
    store.put("logs/id/one.log", [b"content"], 7)
    assert synced == ["one.log", "id", "logs", "archive"]
    synced.clear()
    store.put_new("writers/1.json", b"{}")
    assert synced == ["1.json", "writers", "archive"]
