"""One checkpoint belongs to one sink and one log; every way to mix them up is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_tidelog.checkpoint import IDENTITY_NAME, Identity, claimed, local_folder
from pyspark_tidelog.errors import JobError, OptionError

IDS = {"t": "id"}


class Place:
    """A checkpoint and a sink, claimed as the job claims them."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.sink = folder / "lake"

    def claim(
        self, *, sink: Path | None = None, checkpoint: Path | None = None, ids: dict[str, str] = IDS
    ) -> Identity:
        folder = sink or self.sink
        with claimed(
            checkpoint or self.checkpoint, folder, sink=f"parquet:{folder}", topic_ids=ids
        ) as identity:
            return identity


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
        ("a checkpoint of another query", "is the checkpoint of some other query"),
        ("a sink with files", "holds files that no job of tidelog wrote: choose another"),
        ("a sink of another job", "belongs to another checkpoint than .*: use that one"),
        ("a damaged mark", "_tidelog-job.json is damaged"),
        ("a mark of the future", "was written by another version of tidelog: 99"),
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
    if mixed_up == "a sink of another job":
        place.claim(sink=other, checkpoint=other)
        (other / IDENTITY_NAME).replace(place.sink / IDENTITY_NAME)
    elif mixed_up == "a damaged mark":
        mark.write_text(mark.read_text()[:-5])
    elif mixed_up == "a mark of the future":
        mark.write_text('{"version": 99}')
    with pytest.raises(JobError, match=sentence):
        place.claim(
            sink=other if mixed_up == "another sink" else None,
            checkpoint=other if mixed_up == "a new checkpoint" else None,
            ids={"other topics": {"u": "id"}, "a topic made again": {"t": "new"}}.get(
                mixed_up, IDS
            ),
        )


def test_two_jobs_do_not_share_a_checkpoint_at_a_time(place: Place) -> None:
    """The second is refused while the first runs, and may run after it."""
    with (
        claimed(place.checkpoint, place.sink, sink=f"parquet:{place.sink}", topic_ids=IDS),
        pytest.raises(JobError, match="another job is running on the checkpoint"),
    ):
        place.claim()
    place.claim()


def test_a_folder_that_cannot_be_made_is_named(place: Place) -> None:
    """A file where the sink should be is told before Spark starts."""
    place.sink.write_text("")
    with pytest.raises(JobError, match="lake cannot be made a folder: File exists"):
        place.claim()


def test_a_folder_may_be_written_as_an_address(tmp_path: Path) -> None:
    """Spark writes local folders as file: addresses; other file systems are refused for now."""
    assert local_folder("o", f"file://{tmp_path}") == local_folder("o", str(tmp_path)) == tmp_path
    assert local_folder("o", "lake") == Path.cwd() / "lake"
    for text in ("s3a://bucket/x", ""):
        with pytest.raises(OptionError, match="o must be a folder of this machine"):
            local_folder("o", text)
