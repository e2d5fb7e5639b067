"""Numbered documents: one writer adds the next, and the newest is found whatever a listing says."""

from __future__ import annotations

from random import Random

import pytest

from engine.archive.documents import Documents, Overtaken, decode, encode
from engine.archive.store import ArchiveDamaged, ArchiveFenced, StoredObject, StoreUnavailable
from tests.support.bucket import Bucket

PREFIX = "folder/thing-"


def written(bucket: Bucket, count: int) -> Documents:
    """A document of so many versions by writer 1."""
    documents = Documents(bucket, PREFIX)
    for number in range(count):
        documents.write(1, {"value": number})
    return documents


def test_the_newest_version_is_found_and_old_ones_go() -> None:
    """Of many versions the last two stay, and another reader finds the last."""
    bucket = Bucket()
    written(bucket, 7)
    found = Documents(bucket, PREFIX).load()
    assert found is not None
    assert (found.number, found.writer, found.fields) == (7, 1, {"value": 6})
    names = [name for name in bucket.objects if name.endswith(".json")]
    assert len(names) == 2


def test_nothing_is_there_before_the_first() -> None:
    """An empty folder has no version."""
    assert Documents(Bucket(), PREFIX).load() is None


@pytest.mark.parametrize("behind", range(9))
def test_a_listing_that_is_late_is_seen_through_or_refused(
    behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows how the folder was some versions ago; never is an old version taken for the newest.

    Before the first version the folder was empty, which is the most dangerous of them.
    """
    bucket = Bucket()
    documents, listings = Documents(bucket, PREFIX), [list[StoredObject]()]
    for number in range(8):
        documents.write(1, {"value": number})
        listings.append(list(bucket.list("folder/")))
    monkeypatch.setattr(bucket, "list", lambda _: iter(listings[8 - behind]))
    reader = Documents(bucket, PREFIX)
    if behind <= 1:
        found = reader.load()
        assert found is not None
        assert found.number == 8
    else:
        with pytest.raises(StoreUnavailable, match="as it was"):
            reader.load()


def test_of_two_writers_the_later_one_wins() -> None:
    """The earlier one is told so at its next version, whatever it had read before."""
    bucket = Bucket()
    earlier = written(bucket, 3)
    later = Documents(bucket, PREFIX)
    later.load()
    later.write(2, {"value": "taken over"})
    with pytest.raises(ArchiveFenced, match="later writer"):
        earlier.write(1, {"value": 3})
    found = Documents(bucket, PREFIX).load()
    assert found is not None
    assert found.fields == {"value": "taken over"}


def test_an_earlier_writer_that_was_quicker_is_noticed() -> None:
    """The later one has to read again, since what it decided on has changed."""
    bucket = Bucket()
    earlier = written(bucket, 3)
    later = Documents(bucket, PREFIX)
    later.load()
    earlier.write(1, {"value": 3})
    with pytest.raises(Overtaken):
        later.write(2, {"value": "decided before"})
    later.load()
    assert later.write(2, {"value": "decided after"}).number == 5


def test_a_lost_answer_is_no_conflict() -> None:
    """The same bytes under that number are one's own."""
    bucket = Bucket()
    documents = written(bucket, 1)
    bucket.objects[documents.name_of(2)] = encode(2, 1, {"value": "mine"})
    assert documents.write(1, {"value": "mine"}).number == 2


def test_a_torn_version_is_passed_over() -> None:
    """A reader takes the one before it, a writer the number after it."""
    bucket = Bucket()
    documents = written(bucket, 3)
    name = documents.name_of(3)
    bucket.objects[name] = bucket.objects[name][:-20]
    reader = Documents(bucket, PREFIX)
    found = reader.load()
    assert found is not None
    assert found.fields == {"value": 1}
    assert reader.write(2, {"value": "again"}).number == 4


def test_only_torn_versions_are_damage() -> None:
    """Nothing is made up in their place."""
    bucket = Bucket()
    documents = written(bucket, 1)
    bucket.objects[documents.name_of(1)] = b"{"
    with pytest.raises(ArchiveDamaged):
        Documents(bucket, PREFIX).load()


GOOD = encode(1, 1, {"value": 1})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD.replace(b'"value":1', b'"value":2'), "checksum"),
        (GOOD.replace(b'"version":1', b'"version":2'), "checksum"),
        (b"[]", "not a document"),
        (b"", "not a document"),
        (b"\xff", "not a document"),
        (b"[" * 100_000, "not a document"),
    ],
    ids=["value", "version", "list", "empty", "binary", "deep"],
)
def test_a_changed_document_is_damaged(content: bytes, said: str) -> None:
    """Whatever was changed in it."""
    with pytest.raises(ArchiveDamaged, match=said):
        decode(content, "name")


def test_a_document_of_a_later_version_asks_for_a_later_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its content may mean something that this program would lose."""
    monkeypatch.setattr("engine.archive.documents.VERSION", 2)
    content = encode(1, 1, {})
    monkeypatch.undo()
    with pytest.raises(ArchiveDamaged, match="use a later one"):
        decode(content, "name")


def test_old_versions_that_could_not_be_deleted_are_deleted_later() -> None:
    """Those that exist have consecutive numbers, so that a late listing leads to the last."""
    bucket = Bucket(Random(5))
    documents = written(bucket, 2)
    for number in range(40):
        bucket.trouble = 0.4
        try:
            documents.write(1, {"value": number})
        except (StoreUnavailable, Overtaken):
            bucket.trouble = 0
            documents.load()
        numbers = sorted(int(n[-25:-5]) for n in bucket.objects if n.endswith(".json"))
        assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_a_torn_version_that_no_listing_shows_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader asks for it, since a listing may be late, and takes the one before it."""
    bucket = Bucket()
    documents = written(bucket, 2)
    listed = list(bucket.list("folder/"))
    bucket.objects[documents.name_of(3)] = b"{"
    monkeypatch.setattr(bucket, "list", lambda _: iter(listed))
    found = Documents(bucket, PREFIX).load()
    assert found is not None
    assert found.number == 2


def test_a_torn_version_of_another_writer_is_no_reason_to_stop() -> None:
    """It may have died in the midst of it: the next number is free."""
    bucket = Bucket()
    documents = written(bucket, 1)
    bucket.objects[documents.name_of(2)] = b"{"
    with pytest.raises(Overtaken):
        documents.write(1, {"value": "mine"})
    documents.load()
    assert documents.write(1, {"value": "mine"}).number == 3
