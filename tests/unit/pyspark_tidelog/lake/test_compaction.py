"""Many files into few, each row once at every instant."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake import compaction
from pyspark_tidelog.lake.compaction import Compacted
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.maintenance import compact_table
from pyspark_tidelog.tables.durable_files import exchange_folders, locked
from pyspark_tidelog.tables.folders import FolderTable, data_files
from pyspark_tidelog.tables.places import LOCK_NAME
from pyspark_tidelog.tables.table import Batch
from pyspark_tidelog.tables.target import Target
from tests.support.disk_calls import disk_calls
from tests.support.kafka_batches import numbered
from tests.support.lakes import HandMadeLake, rows_of


@pytest.fixture(params=["parquet", "json"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> HandMadeLake:
    """Three micro-batches of one group in two partition folders, one of the next."""
    made = HandMadeLake(tmp_path, kind=request.param, partition_by=["partition"])
    for batch_id, leaf in ((0, 0), (1, 1), (7, 0), (1_000, 0)):
        rows = rows_of(numbered(5, first=batch_id), partition=leaf, first=batch_id)
        made.put(batch_id, rows, leaf=f"partition={leaf}")
    return made


def offsets(lake: HandMadeLake) -> list[int]:
    """Return the visible files of the folder."""
    table = ds.dataset(lake.folder, format=lake.kind, partitioning="hive").to_table()
    return sorted(table["offset"].to_pylist())


EVERY = sorted([*range(5), *range(1, 6), *range(7, 12), *range(1_000, 1_005)])


def test_a_group_is_merged_and_takes_part_in_the_job(lake: HandMadeLake) -> None:
    """Its micro-batches count as there, the partition folders stay, a second time does nothing."""
    assert Lake(str(lake.folder)).compact() == Compacted(3, 2)
    assert offsets(lake) == EVERY
    sink = FolderTable(Target(lake.kind, str(lake.folder)))
    assert [sink.has(Batch("job", n)) for n in (0, 1, 7, 8, 1_000, 1_001)] == [
        *(True,) * 3,
        False,
        True,
        False,
    ]
    assert [f.partition for f in data_files(lake.folder)] == [
        (("partition", text),) for text in "010"
    ]
    assert Lake(str(lake.folder)).compact() == Compacted()


def test_small_files_go_after_the_exchange_is_on_disk(lake: HandMadeLake) -> None:
    """Otherwise a power cut could undo the exchange, and leave a group without its files."""
    with disk_calls() as calls:
        Lake(str(lake.folder)).compact()
    assert calls.below(lake.folder)[-3:] == ["sync batches=0", "sync .", "remove _merging"]


def test_what_came_after_a_compaction_is_merged_by_the_next(lake: HandMadeLake) -> None:
    """Into the same group, which is never forgotten to reach as far as it did."""
    Lake(str(lake.folder)).compact()
    lake.put(1_002, rows_of(numbered(5), first=2_000), leaf="partition=0")
    assert Lake(str(lake.folder)).compact() == Compacted(2, 1)
    assert offsets(lake) == [*EVERY, *range(2_000, 2_005)]
    assert FolderTable(Target(lake.kind, str(lake.folder))).has(Batch("job", 1_001))


def test_the_newest_group_is_the_jobs_while_it_runs(lake: HandMadeLake) -> None:
    """Older ones are merged all the same."""
    lake.put(1_001, rows_of(numbered(5), first=2_000), leaf="partition=0")
    with locked(lake.folder / LOCK_NAME) as is_held:
        assert is_held
        assert Lake(str(lake.folder)).compact() == Compacted(3, 2)
    assert Lake(str(lake.folder)).compact() == Compacted(2, 1)


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_files_that_are_large_enough_are_taken_as_they_are(tmp_path: Path, kind: str) -> None:
    """No byte of them is written again; only their small neighbours are merged."""
    lake = HandMadeLake(tmp_path, kind=kind)
    large = lake.put(0, rows_of(numbered(5_000)))
    number, size_bytes = large.stat().st_ino, large.stat().st_size
    for batch_id in (1, 2, 3):
        lake.put(batch_id, rows_of(numbered(1), first=10_000 + batch_id))
    done = Lake(str(lake.folder)).compact(target_bytes=size_bytes)
    assert done == Compacted(4, 2)
    assert next(data_files(lake.folder)).path.stat().st_ino == number
    assert offsets(lake) == [*range(5_000), 10_001, 10_002, 10_003]


def test_a_compaction_that_was_killed_left_nothing_that_counts(
    lake: HandMadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the one step the lake is as it was; the next compaction clears up."""

    class Killed(BaseException):
        pass

    def die(_one: Path, _other: Path) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "exchange_folders", die)
        with pytest.raises(Killed):
            Lake(str(lake.folder)).compact()
    assert (lake.folder / "_merging").exists()
    assert offsets(lake) == EVERY
    assert Lake(str(lake.folder)).compact() == Compacted(3, 2)
    assert offsets(lake) == EVERY
    assert not (lake.folder / "_merging").exists()


def test_a_reader_overtaken_fails_rather_than_leave_rows_out(lake: HandMadeLake) -> None:
    """It listed the lake before the step and opens the files after it."""
    listed = ds.dataset(lake.folder, format=lake.kind, partitioning="hive")
    Lake(str(lake.folder)).compact()
    with pytest.raises(FileNotFoundError):
        listed.to_table()


def test_merged_rows_lie_in_few_row_groups(tmp_path: Path) -> None:
    """As many small files as there were, they are read in one go."""
    lake = HandMadeLake(tmp_path)
    for batch_id in range(20):
        lake.put(batch_id, rows_of(numbered(2), first=batch_id * 2))
    Lake(str(lake.folder)).compact()
    (file,) = data_files(lake.folder)
    assert pq.read_metadata(file.path).num_row_groups == 1
    assert offsets(lake) == [*range(40)]


def test_two_compactions_do_not_run_at_once(lake: HandMadeLake) -> None:
    """The second says so; nor does a vacuum, which would remove what the first writes."""
    for attempt in (Lake.compact, partial(Lake.vacuum, hours=1)):
        lock = lake.folder / "_tidelog-compaction.lock"
        with locked(lock), pytest.raises(JobError, match="another"):
            attempt(Lake(str(lake.folder)))


def test_a_job_compacts_its_newest_group_itself(lake: HandMadeLake) -> None:
    """Between two micro-batches nothing of it is being written, though the job holds its lock."""
    lake.put(1_001, rows_of(numbered(5), first=2_000), leaf="partition=0")
    table = FolderTable(Target(lake.kind, str(lake.folder)))
    with locked(lake.folder / LOCK_NAME):
        assert compact_table(table, is_job=True) == Compacted(5, 3)
    assert offsets(lake) == [*EVERY, *range(2_000, 2_005)]


def test_a_vacuum_removes_what_was_left_and_not_what_is_being_written(lake: HandMadeLake) -> None:
    """Published files are none of its business."""
    for name in ("_writing/batch_id=9", "_merging/batches=0"):
        (lake.folder / name).mkdir(parents=True)
        (lake.folder / name / "part-0").write_bytes(b"half")
    with locked(lake.folder / LOCK_NAME):
        assert Lake(str(lake.folder)).vacuum(hours=1) == 1
        assert (lake.folder / "_writing/batch_id=9/part-0").exists()
    assert Lake(str(lake.folder)).vacuum(hours=1) == 1
    assert Lake(f"{lake.kind}:{lake.folder}").vacuum(hours=1) == 0
    assert offsets(lake) == EVERY


def test_an_empty_lake_and_a_folder_that_is_none(tmp_path: Path) -> None:
    """Nothing to merge is nothing done; anything else is refused."""
    lake = HandMadeLake(tmp_path)
    assert Lake(str(lake.folder)).compact() == Compacted()
    with pytest.raises(JobError, match="is not a lake: no tidelog job has written it"):
        Lake(str(tmp_path))


def test_folders_change_places_in_one_step_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no such step the sentence says so, and nothing has moved."""
    for name in ("one", "other"):
        (tmp_path / name / name).mkdir(parents=True)
    exchange_folders(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists()
    with pytest.raises(FileNotFoundError):
        exchange_folders(tmp_path / "one", tmp_path / "none")

    class Elsewhere:
        def __init__(self, *_: object, **__: object) -> None:
            """Know no `renameat2`."""

    monkeypatch.setattr("ctypes.CDLL", Elsewhere)
    with pytest.raises(JobError, match="cannot be exchanged in one step"):
        exchange_folders(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists()
