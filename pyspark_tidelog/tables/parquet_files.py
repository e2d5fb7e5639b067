"""Writes the rows of a micro-batch into Parquet files, inside Spark's tasks.

Each attempt of a task writes files with unique names, and Spark returns the list of one attempt of
each task; files of other attempts are never part of a table.
"""

from __future__ import annotations

import io
import pickle
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

ROW_GROUP_BYTES: Final = 32 << 20
"""Arrow bytes that a task holds at most; then its largest part is written."""

FILE_BYTES: Final = 128 << 20
"""Parquet bytes after which a file is complete."""

OPEN_FILES: Final = 32

COMPRESSION: Final = "zstd"
"""Half the bytes of Snappy for JSON, in less time. It is the default of Iceberg."""

_DIFFERENT: Final = frozenset({"offset", "timestamp", "value"})
"""Columns whose values differ: a dictionary would be built, and given up at a megabyte."""

NULL: Final = "__HIVE_DEFAULT_PARTITION__"

Key = tuple[Any, ...]


BATCH_FOLDER: Final = "batch-"
"""The folder of the files of a micro-batch, followed by its number."""


def batch_of(path: str) -> int | None:
    """Return the micro-batch that wrote a file, by its path; None for a file of another writer."""
    number = path.partition("/")[0].removeprefix(BATCH_FOLDER)
    return int(number) if path.startswith(BATCH_FOLDER) and number.isdecimal() else None


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is written, and not part of the table yet."""

    path: str
    size_bytes: int
    metadata: pq.FileMetaData
    key: Key = ()
    """The values of the partition columns."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes the files of one task. It can be pickled to executors."""

    open_output: Callable[[str], AbstractContextManager[BinaryIO | io.BufferedIOBase]]
    schema: pa.Schema
    """Of the files."""
    folder: str
    """Before the names of the files."""
    partition_by: tuple[str, ...] = ()
    """Columns in the names of further folders, as Hive writes them: Polars reads them there."""
    keys_of: Callable[[pa.RecordBatch], Sequence[pa.Array]] = lambda _batch: ()
    """Computes the partition columns of a batch."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[NewFile]:
        """Write the batches, and yield each file when it is complete."""
        parts: dict[Key, _Part] = {}
        for batch in batches:
            for key, rows in split_by(batch, self.keys_of(batch)):
                if key not in parts:
                    parts[key] = _Part(key)
                parts[key].add(rows.select(self.schema.names).cast(self.schema))
            while sum(part.waiting_bytes for part in parts.values()) > ROW_GROUP_BYTES:
                largest = max(parts.values(), key=lambda part: part.waiting_bytes)
                largest.flush(self)
                if largest.written_bytes >= FILE_BYTES or _open_files(parts) > OPEN_FILES:
                    yield parts.pop(largest.key).close()
        for part in parts.values():
            part.flush(self)
            yield part.close()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the same, and yield the files as rows of Spark."""
        for file in self.write(batches):
            yield pa.RecordBatch.from_pydict({"file": pa.array([pickle.dumps(file)], pa.binary())})


def write_on_executors(rows: DataFrame, writer: FileWriter) -> tuple[NewFile, ...]:
    """Let Spark's tasks write the rows, and return their files."""
    with warnings.catch_warnings():
        # PySpark warns about the newest pandas, which nothing here uses.
        warnings.simplefilter("ignore", FutureWarning)
        written = rows.mapInArrow(writer.__call__, "file binary")
    return tuple(pickle.loads(row["file"]) for row in written.collect())  # noqa: S301 -- our tasks


def split_by(
    batch: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each distinct key."""
    if not keys:
        yield (), batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    for array in keys:
        coded = array.dictionary_encode(null_encoding="encode")
        codes = codes * len(coded.dictionary) + np.asarray(coded.indices)
        _, codes = np.unique(codes, return_inverse=True)  # so that the product stays small
    order = np.argsort(codes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(places):
            key = tuple(array[int(places[0])].as_py() for array in keys)
            yield key, batch.take(pa.array(places))


def _hive_name(column: str, value: object) -> str:
    text = NULL if value in {None, ""} else quote(str(value), safe="")
    return f"{quote(column, safe='')}={text}"


def _open_files(parts: dict[Key, _Part]) -> int:
    return sum(part.is_open for part in parts.values())


@dataclass(slots=True)
class _Part:
    """The rows of one partition: those that wait, and the file they go to."""

    key: Key
    waiting_bytes: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _file: _OpenFile | None = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def written_bytes(self) -> int:
        return 0 if self._file is None else self._file.written_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes

    def flush(self, writer: FileWriter) -> None:
        """Write the waiting rows as one row group."""
        if not self._waiting:
            return
        if self._file is None:
            self._file = _OpenFile(writer, self.key)
        self._file.write(pa.Table.from_batches(self._waiting, writer.schema))
        self._waiting.clear()
        self.waiting_bytes = 0

    def close(self) -> NewFile:
        assert self._file is not None, "a part holds rows"
        return self._file.close()


def _with_dictionary(schema: pa.Schema) -> list[str] | bool:
    """Return the columns that get one: all if some are nested, whose names in files are others."""
    if any(pa.types.is_nested(each.type) for each in schema):
        return True
    return [name for name in schema.names if name not in _DIFFERENT]


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, writer: FileWriter, key: Key) -> None:
        folders = [writer.folder, *map(_hive_name, writer.partition_by, key)]
        self._path = f"{'/'.join(folders)}/{uuid.uuid4().hex}.parquet"
        self._key = key
        self._opened = writer.open_output(self._path)
        self._metadata: list[pq.FileMetaData] = []
        self._output = pa.PythonFile(self._opened.__enter__(), mode="w")
        self._writer = pq.ParquetWriter(
            self._output,
            writer.schema,
            compression=COMPRESSION,
            use_dictionary=_with_dictionary(writer.schema),
            metadata_collector=self._metadata,
        )

    @property
    def written_bytes(self) -> int:
        return int(self._output.tell())

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self) -> NewFile:
        self._writer.close()
        size_bytes = self.written_bytes
        self._output.flush()
        self._opened.__exit__(None, None, None)
        return NewFile(self._path, size_bytes, self._metadata[0], self._key)
