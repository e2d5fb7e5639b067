"""A lake of folders: what is published, and what a reader finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.tables.folders import (
    MERGED,
    FolderTable,
    data_files,
    group_name,
    merged_through,
)
from pyspark_tidelog.tables.table import Batch, Staged
from pyspark_tidelog.tables.target import Target
from tests.support.disk_calls import disk_calls


def staged(sink: FolderTable, batch_id: int, *files: str) -> None:
    """Leave what Spark would have written."""
    for name in files:
        file = sink.folder / "_writing" / f"batch_id={batch_id}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def publish(sink: FolderTable, batch_id: int) -> None:
    sink.publish(Staged(Batch("job", batch_id), 0, StructType()))


def test_a_micro_batch_appears_whole_and_once(tmp_path: Path) -> None:
    """Nothing before it is published, all of it afterwards, and nothing is left beside."""
    sink = FolderTable(Target("parquet", str(tmp_path)))
    staged(sink, 1_003, "part-0.parquet", "a=1/part-1.parquet")
    assert (sink.has(Batch("job", 1_003)), [*data_files(tmp_path)]) == (False, [])
    publish(sink, 1_003)
    assert sink.has(Batch("job", 1_003))
    assert not sink.has(Batch("job", 1_002))
    assert [(str(f.path.relative_to(tmp_path)), f.partition) for f in data_files(tmp_path)] == [
        ("batches=1000/batch_id=1003/a=1/part-1.parquet", (("a", "1"),)),
        ("batches=1000/batch_id=1003/part-0.parquet", ()),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["batches=1000"]


def test_a_micro_batch_is_on_disk_step_by_step(tmp_path: Path) -> None:
    """The group has its name before it holds anything; what was staged goes at the very end."""
    sink = FolderTable(Target("parquet", str(tmp_path)))
    staged(sink, 3, "part-0.parquet")
    with disk_calls() as calls:
        publish(sink, 3)
    renamed = "rename batches=0/batch_id=3"
    assert calls.below(tmp_path) == ["sync .", renamed, "sync batches=0", "remove _writing"]


def test_folder_names_give_the_columns_back(tmp_path: Path) -> None:
    """Escapes, equals signs and null as Hive writes them; hidden files are none."""
    sink = FolderTable(Target("json", str(tmp_path)))
    names = ("c=a%2Fb=%25/d=__HIVE_DEFAULT_PARTITION__/x.json", "c=1/.x.crc", "c=1/_SUCCESS")
    staged(sink, 0, *names)
    publish(sink, 0)
    assert [file.partition for file in data_files(tmp_path)] == [(("c", "a/b=%"), ("d", None))]


def test_files_come_in_the_order_of_their_micro_batches(tmp_path: Path) -> None:
    """By number, not by name."""
    sink = FolderTable(Target("parquet", str(tmp_path)))
    for batch_id in (10_000, 9, 10, 2_000):
        staged(sink, batch_id, "x.parquet")
        publish(sink, batch_id)
    found = [file.path.parent.name for file in data_files(tmp_path)]
    assert found == ["batch_id=9", "batch_id=10", "batch_id=2000", "batch_id=10000"]


def test_what_was_merged_is_there(tmp_path: Path) -> None:
    """Up to the micro-batch that compaction noted; a damaged note is not guessed at."""
    group = tmp_path / group_name(1_500)
    group.mkdir()
    sink = FolderTable(Target("parquet", str(tmp_path)))
    assert merged_through(group) == -1
    (group / MERGED).write_text('{"through": 1500}')
    assert sink.has(Batch("job", 1_500))
    assert not sink.has(Batch("job", 1_501))
    (group / MERGED).write_text('{"through": ')
    with pytest.raises(JobError, match=r"_merged\.json is damaged"):
        sink.has(Batch("job", 1_500))
