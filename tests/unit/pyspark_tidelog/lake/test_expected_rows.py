"""The verifier compares the columns that a schema has gained, by the schema of their time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_tidelog.lake.expected_rows import prints_of
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Verdict
from tests.support.kafka_batches import SentRecord
from tests.support.lakes import HandMadeLake, Row, rows_of
from tests.support.log_service import LogService

VALUES = [{"id": n, "name": f"n{n}", "price": n * 10} for n in range(9)]
SENT = [SentRecord(1_788_000_000_000, b"k", json.dumps(value).encode()) for value in VALUES]
GAINED = (3, 6)
"""The offsets at which the lake gained `name`, and later `price`."""


@pytest.fixture(params=["parquet", "json"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> HandMadeLake:
    return HandMadeLake(
        tmp_path,
        kind=request.param,
        schema="id INT, name STRING, price INT",
        added=("name", "price"),
    )


def rows() -> list[Row]:
    """Return what a job writes that ran with one schema after the other."""
    found: list[Row] = []
    for record, value in zip(rows_of(SENT), VALUES, strict=True):
        about = {f"_{name}": each for name, each in record.items() if name != "value"}
        known = {"id": value["id"]}
        for name, offset in zip(("name", "price"), GAINED, strict=True):
            known[name] = value[name] if record["offset"] >= offset else None
        found.append({**known, **about})
    return found


def verdict(lake: HandMadeLake, service: LogService, *, sent: list[SentRecord]) -> Verdict:
    """Compare in turns of two offsets, so that most schemas change in the middle of one."""
    service.make("t")[0].append(sent)
    return Lake(str(lake.folder)).verify({"url": service.url, "retries": "0"}, turn_offsets=2)


def test_rows_of_each_schema_are_right(lake: HandMadeLake, service: LogService) -> None:
    """Null before the column was there, the value afterwards."""
    lake.put(0, rows())
    assert verdict(lake, service, sent=SENT) == Verdict(rows=9)


def test_files_of_before_do_not_have_the_column(tmp_path: Path, service: LogService) -> None:
    """As they are written by a job that does not know it."""
    lake = HandMadeLake(tmp_path, schema="id INT, name STRING, price INT", added=("name", "price"))
    lake.put(0, rows()[:3], without=("name", "price"))
    lake.put(1, rows()[3:6], without=("price",))
    lake.put(2, rows()[6:])
    assert verdict(lake, service, sent=SENT) == Verdict(rows=9)


@pytest.mark.parametrize(
    ("offset", "column", "value"),
    [
        (8, "price", 7),  # another value
        (8, "price", None),  # lost after the column was there
        (7, "name", None),
        (4, "name", "other"),
        (0, "id", 5),  # before the first column was gained
    ],
)
def test_a_gained_column_with_a_wrong_value_is_found_out(
    lake: HandMadeLake, service: LogService, offset: int, column: str, value: object
) -> None:
    """Changed, lost, or of a column that was always there."""
    found = rows()
    found[offset][column] = value
    lake.put(0, found)
    result = verdict(lake, service, sent=SENT)
    assert (result.rows, result.different) == (8, 1)
    assert result.first is not None
    assert result.first.offset == offset


def test_a_field_that_the_job_passed_over_is_found_out(tmp_path: Path, service: LogService) -> None:
    """Null in the lake and a value in the log: the verifier decodes by itself."""
    lake = HandMadeLake(tmp_path, schema="größe INT")
    sent = [SentRecord(1_788_000_000_000, b"k", '{"größe": 5}'.encode())]
    about = {f"_{name}": each for name, each in rows_of(sent)[0].items() if name != "value"}
    lake.put(0, [{"größe": None, **about}])
    result = verdict(lake, service, sent=sent)
    assert (result.rows, result.different) == (0, 1)


def test_rescued_fields_are_compared(tmp_path: Path, service: LogService) -> None:
    """From the record on at which the column was gained; then a lost field is a difference."""
    lake = HandMadeLake(tmp_path, schema="id INT", added=("more",), rescue="more")
    rescued = [None, '{"/name":"n1","/price":10}', '{"/name":"n2"}']
    found: list[Row] = []
    for record, value, more in zip(rows_of(SENT[:3]), VALUES, rescued, strict=False):
        about = {f"_{name}": each for name, each in record.items() if name != "value"}
        found.append({"id": value["id"], "more": more, **about})
    lake.put(0, found)
    result = verdict(lake, service, sent=SENT[:3])
    assert (result.rows, result.different) == (2, 1)
    assert result.first is not None
    assert result.first.offset == 2


def test_a_field_had_to_fit_only_once_its_column_was_there(
    lake: HandMadeLake, service: LogService
) -> None:
    """Before, the record is a row; afterwards the same value is a bad record."""
    sent = [*SENT]
    poison = json.dumps({"id": 1, "price": "no"}).encode()
    sent[1] = sent[8] = SentRecord(1_788_000_000_000, b"k", poison)
    found = rows()
    lake.put(0, found[:8])
    lake.put_bad(0, [{**rows_of(sent)[8], "reason": "whatever"}])
    assert verdict(lake, service, sent=sent) == Verdict(rows=9, quarantined=1)


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_a_record_without_headers_is_the_same_as_null_and_as_an_empty_list(make: Any) -> None:
    """Earlier releases wrote the list; only headers are like that, and only as a whole."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    some = [{"key": "a", "value": None}]
    rows = pa.record_batch({"headers": pa.array([None, [], some], make(pair))})
    none, empty, one = prints_of(rows)
    assert none == empty != one
    data = pa.record_batch(
        {
            "data": pa.array(
                [None, [], some], make(pa.struct([("key", pa.string()), ("value", pa.string())]))
            )
        }
    )
    assert len({*prints_of(data)}) == 3
