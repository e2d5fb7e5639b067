"""Spark's logs of a checkpoint, in a folder or copied to an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_tidelog.errors import JobError, OptionError
from pyspark_tidelog.lake import checkpoint as module
from pyspark_tidelog.lake.checkpoint import KEPT_BATCHES, Checkpoint
from tests.support.disk_calls import disk_calls
from tests.support.object_stores import ObjectStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def plan(checkpoint: Checkpoint, batch_id: int, *, end: int | None = None) -> None:
    """Write what Spark writes before a micro-batch."""
    stop = 10 * (batch_id + 1) if end is None else end
    offset = {
        "version": 1,
        "offsets": {"t": {"0": stop}},
        "initial": {"t": {"0": 0}},
        "topic_ids": {"t": "id"},
    }
    write(checkpoint, "offsets", batch_id, f"v1\n{{}}\n{json.dumps(offset)}")
    (checkpoint.folder / "metadata").write_text('{"id": "q"}')


def write(checkpoint: Checkpoint, log: str, batch_id: int, text: str = "v1\n{}") -> None:
    (checkpoint.folder / log).mkdir(exist_ok=True, parents=True)
    (checkpoint.folder / log / str(batch_id)).write_text(text)


def test_an_entry_that_a_power_cut_left_empty_is_no_entry(folder: Path) -> None:
    """The newest of Spark's two logs is taken back if it says nothing; none that does."""
    checkpoint = Checkpoint(str(folder))
    with checkpoint.claim():
        for number in (9, 10):
            write(checkpoint, "offsets", number)
            write(checkpoint, "commits", number)
    (folder / "offsets" / "10").write_text("")
    (folder / "offsets" / ".10.crc").write_text("")
    with checkpoint.claim():
        assert [path.name for path in (folder / "offsets").iterdir()] == ["9"]
        assert checkpoint.last_commit() == 10


def test_the_plan_of_a_micro_batch_has_to_be_there(folder: Path) -> None:
    """Nothing is written to the lake for offsets that are not recorded."""
    checkpoint = Checkpoint(str(folder))
    (folder / "offsets").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        checkpoint.sync_plan(3)
    write(checkpoint, "offsets", 3, "v1")
    with disk_calls() as calls:
        checkpoint.sync_plan(3)
    assert calls.below(folder) == ["sync offsets/3 of 2 bytes", "sync offsets"]


def test_spark_is_given_a_folder_of_the_local_file_system(folder: Path) -> None:
    """A cluster's default file system is another one."""
    assert Checkpoint(str(folder)).location == f"file://{folder}"


@pytest.mark.parametrize("name", ["hdfs://cluster/ck", "dbfs://x", "http://x/y", "file://host/x"])
def test_a_place_that_can_be_no_checkpoint_is_refused(name: str) -> None:
    """With the places that can."""
    with pytest.raises(OptionError, match=r"folder of this machine, or in an object store \(s3://"):
        Checkpoint(name)


def test_a_job_goes_on_from_a_bucket_on_another_machine(bucket: ObjectStore) -> None:
    """The folder of the first run is gone; Spark finds what it needs to repeat the last batch."""
    name = f"{bucket.url}/ck/"
    first = Checkpoint(name)
    with first.claim():
        assert (first.has_begun(), first.last_commit(), first.run) == (False, None, 1)
        for number in range(3):
            plan(first, number)
            first.sync_plan(number)
            if number < 2:
                write(first, "commits", number)
    assert not first.folder.exists()
    second = Checkpoint(name)
    with second.claim():
        assert (second.has_begun(), second.last_commit(), second.run) == (True, 1, 2)
        (ranges,) = second.planned_ranges(2)
        assert (ranges.start_offset, ranges.end_offset) == (20, 30)
        assert (second.folder / "metadata").read_text() == '{"id": "q"}'
        second.sync_plan(2)
        write(second, "commits", 2)
    with Checkpoint(name).open():
        assert sorted(bucket.names("ck/")) == [
            "ck/_tidelog-holder.json",
            *(f"ck/commits/{number}" for number in range(3)),
            "ck/metadata",
            *(f"ck/offsets/{number}" for number in range(3)),
        ]


def test_a_plan_in_a_bucket_is_never_replaced(bucket: ObjectStore) -> None:
    """A driver that was replaced cannot plan a micro-batch again, whatever its lease says."""
    checkpoint = Checkpoint(f"{bucket.url}/ck")
    with checkpoint.open():
        plan(checkpoint, 0)
        digest = checkpoint.sync_plan(0)
        assert checkpoint.sync_plan(0) == digest
        plan(checkpoint, 0, end=11)
        with pytest.raises(JobError, match=r"another job has planned micro-batch 0 of s3://.*/ck:"):
            checkpoint.sync_plan(0)


def test_old_copies_are_removed(bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark removes its own, so that a start does not list years of micro-batches."""
    assert KEPT_BATCHES == 100
    monkeypatch.setattr(module, "KEPT_BATCHES", 3)
    checkpoint = Checkpoint(f"{bucket.url}/ck")
    with checkpoint.claim():
        for number in range(8):
            plan(checkpoint, number)
            checkpoint.sync_plan(number)
            write(checkpoint, "commits", number)
    kept = [f"ck/offsets/{number}" for number in range(3, 8)]
    assert bucket.names("ck/offsets") == kept
    assert bucket.names("ck/commits") == [name.replace("offsets", "commits") for name in kept]
