"""The verifier finds whatever a lake can have wrong, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.lake import Lake
from pyspark_tidelog.lake.verifier import Difference, Verdict
from pyspark_tidelog.partitions import TopicPartition
from pyspark_tidelog.tables.places import IDENTITY_NAME
from tests.support.kafka_batches import SentRecord, numbered
from tests.support.lakes import HandMadeLake, Row, rows_of
from tests.support.log_service import LogService, MemoryLog

FIRST = TopicPartition("t", 0)
SENT = [SentRecord(1_788_000_000_000, None, None), *numbered(99, first=1)]


@pytest.fixture
def log(service: LogService) -> MemoryLog:
    """A log of a hundred records, in batches of ten."""
    made = service.make("t")[0]
    for first in range(0, 100, 10):
        made.append(SENT[first : first + 10])
    return made


@pytest.fixture(params=["parquet", "json"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> HandMadeLake:
    return HandMadeLake(tmp_path, kind=request.param)


def verdict(
    lake: HandMadeLake,
    service: LogService,
    *,
    with_checkpoint: bool = False,
    turn_offsets: int = 7,
) -> Verdict:
    """Compare in turns so small that most borders are one."""
    return Lake(str(lake.folder)).verify(
        {"url": service.url, "retries": "0"},
        checkpoint=str(lake.checkpoint) if with_checkpoint else None,
        turn_offsets=turn_offsets,
    )


def changed(row: Row, **more: object) -> Row:
    return {**row, **more}


def test_a_lake_that_is_right_is_found_right(
    lake: HandMadeLake, service: LogService, log: MemoryLog
) -> None:
    """Whatever the order of its files, and however far it is."""
    lake.put(1, rows_of(SENT[40:90], first=40))
    lake.put(0, rows_of(SENT[:40]))
    found = verdict(lake, service)
    assert (found, found.is_same) == (Verdict(rows=90, behind=10), True)


WRONG: dict[str, tuple[Callable[[list[Row]], list[Row]], str, int]] = {
    "a row is missing": (lambda rows: rows[:50] + rows[51:], "missing", 50),
    "a row is there twice": (lambda rows: [*rows, rows[33]], "repeated", 33),
    "a value is another": (
        lambda rows: [*rows[:7], changed(rows[7], value=b"x"), *rows[8:]],
        "different",
        7,
    ),
    "a null became empty": (lambda rows: [changed(rows[0], key=b""), *rows[1:]], "different", 0),
    "a time is another": (
        lambda rows: [*rows[:-1], changed(rows[-1], timestamp=1_788_000_000_000_001)],
        "different",
        99,
    ),
    "an offset is not of the log": (
        lambda rows: [*rows, changed(rows[-1], offset=100)],
        "unknown",
        100,
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_lake_that_is_wrong_is_found_out(
    lake: HandMadeLake, service: LogService, log: MemoryLog, wrong: str
) -> None:
    """What it is, how often, and where first."""
    spoil, kind, offset = WRONG[wrong]
    lake.put(0, spoil(rows_of(SENT)))
    found = verdict(lake, service)
    assert not found.is_same
    assert getattr(found, kind) == 1
    assert found.first == Difference(FIRST, offset, kind)
    counted = found.rows + found.missing + found.repeated + found.different
    assert counted == 100, "every record of the log is counted once"


def test_the_first_of_many_differences_is_named(
    lake: HandMadeLake, service: LogService, log: MemoryLog
) -> None:
    """By topic, partition and offset, whatever kind it is."""
    rows = rows_of(SENT)
    lake.put(0, [*rows[:20], *rows[30:40], changed(rows[41], value=None), *rows[42:], rows[60]])
    found = verdict(lake, service)
    assert (found.missing, found.different, found.repeated, found.rows) == (11, 1, 1, 87)
    assert found.first is not None
    assert found.first.sentence == "topic t, partition 0, offset 20 is not in the lake"


def test_a_log_of_another_partition_or_with_holes(
    lake: HandMadeLake, service: LogService, log: MemoryLog
) -> None:
    """Offsets the log left out are not asked for; a partition it lacks is not believed."""
    del log.batches[3]  # as compaction, or an aborted transaction, leaves it
    rows = [row for row in rows_of(SENT) if not 30 <= row["offset"] < 40]
    lake.put(0, rows)
    assert verdict(lake, service, turn_offsets=50) == Verdict(rows=90)
    lake.put(1, [changed(rows[5], partition=3), changed(rows[5], offset=35)])
    found = verdict(lake, service, turn_offsets=50)
    assert (found.rows, found.unknown) == (90, 2)
    assert found.first == Difference(FIRST, 35, "unknown")


def test_what_retention_took_is_counted_and_not_missed(
    lake: HandMadeLake, service: LogService, log: MemoryLog
) -> None:
    """The lake keeps it; there is nothing left to compare it with."""
    lake.put(0, rows_of(SENT))
    log.start_offset = 30
    assert verdict(lake, service) == Verdict(rows=70, gone=30)


def test_a_checkpoint_tells_what_has_to_be_there(
    lake: HandMadeLake, service: LogService, log: MemoryLog
) -> None:
    """Rows lost at both ends are found only with it; what is not yet done may be there or not."""
    lake.put(0, rows_of(SENT[10:60], first=10))
    assert verdict(lake, service) == Verdict(rows=50, behind=40)
    assert verdict(lake, service, with_checkpoint=True) == Verdict(rows=50, behind=40)
    lake.commit(9, {"0": 50}, start=5)
    lake.commit(10, {"0": 70}, start=5)
    found = verdict(lake, service, with_checkpoint=True)
    assert (found.rows, found.missing, found.behind) == (50, 15, 30)
    assert found.first == Difference(FIRST, 5, "missing")


def test_an_empty_lake_is_behind_and_not_wrong(
    lake: HandMadeLake, service: LogService, log: MemoryLog
) -> None:
    """Until a checkpoint says otherwise."""
    assert verdict(lake, service) == Verdict(behind=100)
    lake.commit(0, {"0": 100})
    assert verdict(lake, service, with_checkpoint=True).missing == 100


VALUES = [json.dumps({"id": n, "c": "" if n % 2 else "x"}).encode() for n in range(10)]
BAD = b"no JSON"


@pytest.fixture
def columns(tmp_path: Path, service: LogService) -> HandMadeLake:
    """A log of ten values that fit and one that does not, and a lake with their columns."""
    records = [SentRecord(1_788_000_000_000, b"k", value) for value in (*VALUES, BAD)]
    service.make("t")[0].append(records)
    return HandMadeLake(tmp_path, schema="id INT, c STRING", partition_by=["c", "day=date('x')"])


def columns_of(record: Row) -> Row:
    return {f"_{name}": value for name, value in record.items() if name != "value"}


def fill(lake: HandMadeLake, *, bad: bool = True, fake: bool = False) -> None:
    """Put the rows where they belong, or the last one where it does not."""
    records = rows_of([SentRecord(1_788_000_000_000, b"k", v) for v in (*VALUES, BAD)])
    for batch_id, leaf in enumerate(("c=x", "c=__HIVE_DEFAULT_PARTITION__")):
        rows = [
            {"id": n, **columns_of(record)}
            for n, record in enumerate(records[:10])
            if n % 2 == batch_id
        ]
        lake.put(batch_id, rows, leaf=f"{leaf}/day=2013-01-01")
    if bad:
        lake.put_bad(0, [{**records[10], "reason": "whatever"}])
    if fake:
        lake.put(2, [{"id": None, **columns_of(records[10])}], leaf="c=x/day=2013-01-01")


def test_columns_are_compared_with_the_values_they_came_from(
    columns: HandMadeLake, service: LogService
) -> None:
    """Those in the names of folders, too, where an empty text is none."""
    fill(columns)
    assert verdict(columns, service) == Verdict(rows=11, quarantined=1)


def test_a_bad_row_has_to_be_in_quarantine_and_nowhere_else(
    columns: HandMadeLake, service: LogService
) -> None:
    """Dropped it would be missing; as a row of nulls it would be a lie."""
    fill(columns, bad=False)
    columns.commit(0, {"0": 11})
    assert verdict(columns, service, with_checkpoint=True).missing == 1
    fill_again = HandMadeLake(
        columns.folder.parent / "other", schema="id INT, c STRING", partition_by=["c", "day=1"]
    )
    fill(fill_again, bad=False, fake=True)
    found = verdict(fill_again, service)
    assert (found.rows, found.different) == (10, 1)


def test_a_lake_that_was_moved_takes_its_quarantine_along(
    columns: HandMadeLake, service: LogService
) -> None:
    """What lies inside is looked for inside."""
    fill(columns)
    moved = columns.folder.rename(columns.folder.with_name("moved"))
    assert Lake(str(moved)).verify({"url": service.url}) == Verdict(rows=11, quarantined=1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("another topic", "was filled from another topic t than the service has now"),
        ("a foreign checkpoint", "is not the checkpoint of"),
        ("a damaged checkpoint", "offsets/0 cannot be read"),
        ("a damaged file", "cannot be read"),
        ("a damaged mark", f"{IDENTITY_NAME} in .* is damaged"),
    ],
)
def test_what_cannot_be_compared_is_said(
    lake: HandMadeLake, service: LogService, log: MemoryLog, wrong: str, sentence: str
) -> None:
    """In a sentence, and never as a verdict."""
    file = lake.put(0, rows_of(SENT))
    lake.commit(0, {"0": 100})
    if wrong == "another topic":
        service.topic_ids["t"] = "second"
    elif wrong == "a foreign checkpoint":
        (lake.checkpoint / IDENTITY_NAME).unlink()
    elif wrong == "a damaged checkpoint":
        (lake.checkpoint / "offsets" / "0").write_text("v1\n{}\n{")
    elif wrong == "a damaged file":
        file.write_bytes(b"\xff" * 100)
        sentence = sentence if lake.kind == "parquet" else "holds a line that no job wrote"
    else:
        (lake.folder / IDENTITY_NAME).write_text("{")
    with pytest.raises(JobError, match=sentence):
        verdict(lake, service, with_checkpoint=True)
