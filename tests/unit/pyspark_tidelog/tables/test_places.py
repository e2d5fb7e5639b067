"""Places that hold the identity of a job, and keep a second one out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.durable_files import locked
from pyspark_tidelog.tables.leases import HOLDER_NAME
from pyspark_tidelog.tables.places import LOCK_NAME, FolderPlace, ObjectPlace
from pyspark_tidelog.tables.storage import Storage
from tests.support.object_stores import ObjectStore


def test_a_place_holds_the_identity_of_one_job(bucket: ObjectStore) -> None:
    """A table without one that has data is not of a tidelog job."""
    storage = Storage.at(f"{bucket.url}/t")
    place = ObjectPlace(storage)
    with place.claim():
        assert (place.load(), place.has_data()) == (None, False)
        place.store("mine")
        place.store("still mine")
        assert (place.load(), place.has_data()) == ("still mine", False)
    storage.create("_delta_log/0.json", b"")
    assert place.has_data()


def test_of_two_jobs_one_claims_a_table(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found no identity; the store keeps one."""
    place = ObjectPlace(Storage.at(f"{bucket.url}/t"))
    place.store("first")
    monkeypatch.setattr(ObjectPlace, "load", lambda _self: None)
    with pytest.raises(JobError, match=r"another job has just claimed s3://.*/t: choose another"):
        place.store("second")


def test_a_folder_names_the_process_that_holds_it(tmp_path: Path) -> None:
    """While a job runs, a second one is refused with its process; each run has a number."""
    place = FolderPlace(tmp_path / "t")
    with place.claim() as first:
        assert first.run == 1
        first.ensure_held()
        with (
            pytest.raises(JobError, match=r"running on .*/t: process \d+ on .*, since .* UTC"),
            place.claim(),
        ):
            pass
    with place.claim() as second:
        assert second.run == 2
    assert not place.has_data()


def test_a_folder_that_a_killed_process_has_held_is_free(tmp_path: Path) -> None:
    """Its lock went with it; the sentence about a compaction does not name it."""
    place = FolderPlace(tmp_path)
    with place.claim():
        document = (tmp_path / HOLDER_NAME).read_text()
    (tmp_path / HOLDER_NAME).write_text(document.replace(f'"pid": {os.getpid()}', '"pid": 4194305'))
    with locked(tmp_path / LOCK_NAME), pytest.raises(JobError, match=f"on {tmp_path}$"):
        place.claim().__enter__()
    with place.claim() as claim:
        assert claim.run == 2


def test_a_damaged_note_of_the_holder_is_named(tmp_path: Path) -> None:
    """Its number of the run cannot be guessed: a lower one would be refused by the tables."""
    (tmp_path / HOLDER_NAME).write_text("{")
    with pytest.raises(JobError, match=f"{HOLDER_NAME} in {tmp_path} is damaged"):
        FolderPlace(tmp_path).claim().__enter__()
