"""One checkpoint belongs to one sink and one log; every way to mix them up is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.identity import Identity, Terms, claimed
from pyspark_tidelog.tables.durable_files import locked
from pyspark_tidelog.tables.places import IDENTITY_NAME, LOCK_NAME, FolderPlace

IDS = {"t": "id"}

OTHER_TERMS: dict[str, dict[str, Any]] = {
    "other topics": {"topic_ids": {"u": "id"}},
    "a topic made again": {"topic_ids": {"t": "new"}},
    "another schema": {"schema": {"type": "struct", "fields": []}},
    "other partitions": {"partition_by": ("topic",)},
    "headers": {"include_headers": True},
    "another isolation": {"isolation": "read_committed"},
}


class Place:
    """A checkpoint and a sink, claimed as the job claims them."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.sink = folder / "lake"

    def claim(
        self,
        *,
        sink: Path | None = None,
        checkpoint: Path | None = None,
        terms: dict[str, Any] | None = None,
    ) -> Identity:
        folder = sink or self.sink
        given = {"sink": f"parquet:{folder}", "topic_ids": IDS} | (terms or {})
        places = [
            FolderPlace(Path(each))
            for each in (folder, given.get("bad_records", "").partition(":")[2])
            if each
        ]
        with claimed(
            Checkpoint(str(checkpoint or self.checkpoint)), places, Terms(**given)
        ) as identity:
            return identity


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        ("id INT, a STRING", "id BIGINT, a STRING", "(- id int, + id bigint): use the options"),
        ("id INT, a STRING", "id INT", "(- a string)"),
        ("id INT", "id INT, b DATE NOT NULL", "(+ b date NOT NULL)"),
        ("id INT, a STRUCT<x: INT>", "id INT, a STRUCT<x: DATE>", "(- a struct<x:int>, + a "),
        ("id INT, a INT", "a INT, id INT", "(the same columns in another order)"),
        (
            ", ".join(f"c{n} INT" for n in range(12)),
            ", ".join(f"c{n} DATE" for n in range(12)),
            "- c4 int, + c4 date and 14 more)",
        ),
    ],
)
def test_what_differs_between_two_schemas_is_said(
    tmp_path: Path, before: str, now: str, difference: str
) -> None:
    """Column by column, as what was and what would be."""
    place = Place(tmp_path)
    place.claim(terms={"schema": parse_schema(before).jsonValue()})
    (place.checkpoint / "offsets").mkdir()
    (place.checkpoint / "offsets" / "0").touch()
    with pytest.raises(JobError) as refused:
        place.claim(terms={"schema": parse_schema(now).jsonValue()})
    assert difference in str(refused.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_second_run_finds_what_the_first_one_marked(place: Place) -> None:
    """Checkpoint and sink carry the same name, which stays."""
    first = place.claim()
    (place.sink / "batch_id=0").mkdir()
    (place.checkpoint / "offsets").mkdir()
    assert place.claim() == first
    marks = [json.loads((f / IDENTITY_NAME).read_text()) for f in (place.checkpoint, place.sink)]
    assert [mark["job_id"] for mark in marks] == [first.job_id] * 2


def test_a_first_run_that_died_between_both_marks_is_taken_up(place: Place) -> None:
    """The checkpoint is marked first; a sink without data and without mark is then still ours."""
    first = place.claim()
    (place.sink / IDENTITY_NAME).unlink()
    assert place.claim() == first
    assert (place.sink / IDENTITY_NAME).exists()


@pytest.mark.parametrize(
    ("mixed_up", "sentence"),
    [
        ("another sink", "belongs to the sink parquet:.*lake, not to parquet:.*other"),
        ("a new checkpoint", "was filled with another checkpoint than .*other, which is new"),
        ("other topics", "belongs to the topics t, not to u: choose a new checkpoint and sink"),
        ("a topic made again", "belongs to another topic t than the service has now"),
        ("a checkpoint of another query", "is the checkpoint of another query"),
        ("a sink with files", "holds files that no tidelog job wrote: choose another"),
        ("a sink of another job", "belongs to another checkpoint than .*: use that one"),
        ("a damaged mark", "_tidelog-job.json in .* is damaged"),
        ("a mark of the future", "was written by another version of tidelog"),
        ("another schema", r"belongs to a job with another schema \("),
        ("other partitions", "belongs to a job with other columns to partition by"),
        ("headers", "belongs to a job with another setting of --headers"),
        ("another isolation", "belongs to a job with another isolation level"),
    ],
)
def test_a_mix_up_is_refused_with_a_sentence(place: Place, mixed_up: str, sentence: str) -> None:
    """Nothing is read and nothing is written before it is clear what belongs together."""
    other = place.sink.parent / "other"
    mark = place.checkpoint / IDENTITY_NAME
    if mixed_up == "a checkpoint of another query":
        (place.checkpoint / "offsets").mkdir(parents=True)
    elif mixed_up == "a sink with files":
        place.sink.mkdir()
        (place.sink / "data.parquet").touch()
    else:
        place.claim()
        (place.checkpoint / "offsets").mkdir()
    if mixed_up == "a sink of another job":
        place.claim(sink=other, checkpoint=other.with_name("third"))
        (other / IDENTITY_NAME).replace(place.sink / IDENTITY_NAME)
    elif mixed_up == "a damaged mark":
        mark.write_text(mark.read_text()[:-5])
    elif mixed_up == "a mark of the future":
        mark.write_text('{"version": 99}')
    with pytest.raises(JobError, match=sentence):
        place.claim(
            sink=other if mixed_up == "another sink" else None,
            checkpoint=other if mixed_up == "a new checkpoint" else None,
            terms=OTHER_TERMS.get(mixed_up),
        )


def test_until_something_is_planned_rows_may_be_made_otherwise(place: Place) -> None:
    """A mistake in the first run's options does not cost the checkpoint; afterwards it does."""
    place.claim(terms={"partition_by": ("nonsense",)})
    second = place.claim(terms={"partition_by": ("topic",)})
    (place.checkpoint / "offsets").mkdir()
    assert place.claim(terms={"partition_by": ("topic",)}) == second
    with pytest.raises(JobError, match="other columns to partition by"):
        place.claim()


def test_a_table_of_bad_records_belongs_to_one_job_as_well(place: Place, tmp_path: Path) -> None:
    """Its folders carry the numbers of micro-batches, too, and another job's would be taken."""
    terms = {"bad_records": f"parquet:{tmp_path}/bad"}
    place.claim(terms=terms)
    assert (tmp_path / "bad" / IDENTITY_NAME).exists()
    other = tmp_path / "other"
    with pytest.raises(JobError, match=r"bad belongs to another checkpoint than .*other"):
        place.claim(sink=tmp_path / "x", checkpoint=other, terms=terms)


def test_a_place_for_bad_records_can_be_added_and_not_changed(place: Place, tmp_path: Path) -> None:
    """A job that such a record has stopped goes on with one; those before stay where they are."""
    first = place.claim()
    (place.checkpoint / "offsets").mkdir()
    added = place.claim(terms={"bad_records": f"parquet:{tmp_path}/bad"})
    assert (added.job_id, added.terms.bad_records) == (first.job_id, f"parquet:{tmp_path}/bad")
    for terms in ({}, {"bad_records": f"parquet:{tmp_path}/other"}):
        with pytest.raises(JobError, match="a job with another place for bad records"):
            place.claim(terms=terms)


def test_a_schema_may_gain_columns_and_nothing_else(place: Place) -> None:
    """A column that was added stays known, because rows of before have null there."""

    def schema(ddl: str) -> dict[str, Any]:
        return {"schema": parse_schema(ddl).jsonValue()}

    place.claim(terms=schema("id BIGINT"))
    (place.checkpoint / "offsets").mkdir()
    assert place.claim(terms=schema("id BIGINT, b STRING")).terms.added == ("b",)
    both = place.claim(terms=schema("id BIGINT, b STRING, a DATE"))
    assert both.terms.added == ("b", "a")
    assert place.claim(terms=schema("id BIGINT, b STRING, a DATE")) == both
    for ddl in ("id INT, b STRING, a DATE", "b STRING, a DATE", "id BIGINT, c INT NOT NULL"):
        with pytest.raises(JobError, match="a job with another schema"):
            place.claim(terms=schema(ddl))


@pytest.mark.parametrize("busy", ["checkpoint", "lake"])
def test_two_do_not_work_on_a_folder_at_a_time(place: Place, busy: str) -> None:
    """The second is refused while the first runs, and may run after it."""
    place.claim()
    with (
        locked(place.checkpoint.with_name(busy) / LOCK_NAME),
        pytest.raises(JobError, match=f"another job or a compaction is running on .*{busy}"),
    ):
        place.claim()
    place.claim()


def test_one_folder_is_not_two(place: Place) -> None:
    """Spark's notes do not belong into a table."""
    with pytest.raises(JobError, match="must be at places of their own"):
        place.claim(checkpoint=place.sink)


def test_a_folder_that_cannot_be_made_is_named(place: Place) -> None:
    """A file in place of the sink is reported before Spark starts."""
    place.sink.write_text("")
    with pytest.raises(JobError, match=r"lake.* cannot be read: Not a directory"):
        place.claim()


def test_a_folder_that_cannot_be_written_leaves_no_mark(place: Place) -> None:
    """The checkpoint is unused until the sink can be used, so that another may be named."""
    (place.sink.parent / "file").write_text("")
    with pytest.raises(JobError, match=r"file/lake.* cannot be read: Not a directory"):
        place.claim(sink=place.sink.parent / "file" / "lake")
    place.claim()
