"""The files of one task: every row once, in bounded memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_tidelog.tables import parquet_files
from pyspark_tidelog.tables.parquet_files import FileWriter, NewFile, split_by
from pyspark_tidelog.tables.storage import Storage


def batch(*rows: tuple[int, str | None, int | None]) -> pa.RecordBatch:
    columns: list[tuple[Any, ...]] = [*zip(*rows, strict=True)] or [(), (), ()]
    return pa.record_batch(
        {
            "n": pa.array(columns[0], pa.int64()),
            "text": pa.array(columns[1], pa.string()),
            "day": pa.array(columns[2], pa.int32()).cast(pa.date32()),
        }
    )


def writer(folder: Path) -> FileWriter:
    return FileWriter(
        Storage.at(str(folder)).open_output,
        pa.schema([("n", pa.int64())]),
        "data",
        keys_of=lambda found: [found["text"], found["day"]],
    )


def rows_in(folder: Path, files: list[NewFile]) -> list[tuple[tuple[object, ...], list[int]]]:
    found = [(file.key, pq.read_table(folder / file.path)["n"].to_pylist()) for file in files]
    return sorted(found, key=repr)


def test_each_combination_of_values_has_files_of_its_own(tmp_path: Path) -> None:
    """Null and the empty text are two values; the order within a part stays."""
    given = [batch((1, "a", 1), (2, None, 1), (3, "a", 1)), batch((4, "a", None), (5, "", 1))]
    files = [*writer(tmp_path).write(iter([*given, batch()]))]
    day = given[0]["day"][0].as_py()
    assert rows_in(tmp_path, files) == sorted(
        [(("a", day), [1, 3]), ((None, day), [2]), (("a", None), [4]), (("", day), [5])], key=repr
    )
    assert all(file.size_bytes == (tmp_path / file.path).stat().st_size for file in files)


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    """Nor does it make a folder."""
    assert [*writer(tmp_path).write(iter([batch()]))] == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("file_bytes", "open_files"), [(1 << 30, 2), (1, 100), (1 << 30, 100)])
def test_memory_and_open_files_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, file_bytes: int, open_files: int
) -> None:
    """The largest part is written when many wait; a file ends at its size or for another."""
    monkeypatch.setattr(parquet_files, "ROW_GROUP_BYTES", 400)
    monkeypatch.setattr(parquet_files, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(parquet_files, "OPEN_FILES", open_files)
    given = [batch(*((n, "abcdefg"[n % k], n % 2) for n in range(60))) for k in (1, 7, 2, 5)]
    files = [*writer(tmp_path).write(iter(given))]
    found = [n for _, rows in rows_in(tmp_path, files) for n in rows]
    assert sorted(found) == sorted([*range(60)] * 4)
    keys = {file.key for file in files}
    is_unlimited = file_bytes > 1 and open_files == 100
    assert (len(files) == len(keys)) == is_unlimited


def test_many_columns_do_not_overflow() -> None:
    """Codes of combinations stay as small as their number."""
    column = pa.array(range(2_000), pa.int64())
    rows = pa.record_batch({"n": column})
    parts = [*split_by(rows, [column] * 8)]
    assert len(parts) == 2_000


def test_spark_gets_a_row_for_each_file(tmp_path: Path) -> None:
    """And the writer travels to its executors."""
    (rows,) = FileWriter(
        Storage.at(str(tmp_path)).open_output, pa.schema([("n", pa.int64())]), "data"
    )(iter([batch((1, "a", 1))]))
    file = pickle.loads(rows["file"][0].as_py())
    assert rows_in(tmp_path, [file]) == [((), [1])]
