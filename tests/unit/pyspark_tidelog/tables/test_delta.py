"""A Delta table: what a transaction names, and which micro-batches it is refused for."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.lake.maintenance import compact_table
from pyspark_tidelog.tables import delta
from pyspark_tidelog.tables.delta import DeltaLog, DeltaTable
from pyspark_tidelog.tables.parquet_files import FileWriter
from pyspark_tidelog.tables.storage import Storage
from pyspark_tidelog.tables.table import Batch, Staged
from pyspark_tidelog.tables.target import Target
from tests.support.disk_calls import disk_calls
from tests.support.object_stores import Faults, bucket_at, moto

SCHEMA = StructType([StructField("offset", LongType())])


def staged(folder: Path, *offsets: int, number: int = 0, plan: int = 7) -> Staged:
    """Return what Spark's tasks would have written."""
    rows = pa.record_batch({"offset": pa.array(offsets, pa.int64())})
    writer = FileWriter(Storage.at(str(folder)).open_output, rows.schema, f"batch-{number}")
    files = tuple(writer.write(iter([rows])))
    return Staged(Batch("job", number, plan), len(offsets), SCHEMA, files)


def actions_of(entry: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.read_bytes().splitlines()]


def offsets_in(folder: Path) -> list[int]:
    return sorted(pl.read_delta(str(folder))["offset"].to_list())


def other_driver(folder: Path) -> DeltaTable:
    """The table as another process sees it."""
    return DeltaTable(Target("delta", str(folder)))


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable(Target("delta", str(tmp_path)))


def test_the_files_and_their_names_are_on_disk_before_the_transaction(
    tmp_path: Path, table: DeltaTable
) -> None:
    """And the transaction is before the micro-batch counts as published."""
    with disk_calls() as calls:
        written = staged(tmp_path, 1, 2)
        table.publish(written)
    (file,) = (tmp_path / "batch-0").iterdir()
    made = [call.replace(file.name, "FILE") for call in calls.below(tmp_path)]
    assert made[0].startswith("sync batch-0/FILE of ")
    assert made[1:3] == ["sync batch-0", "sync ."]
    assert made[3].startswith(f"sync _delta_log/{0:020}.json of ")  # delta-rs has created the table
    assert made[4:6] == ["sync _delta_log", "sync ."]
    assert made[6].startswith(f"sync _delta_log/{1:020}.json of ")
    assert made[7:] == ["sync _delta_log"]
    assert [each.path for each in table.files()] == [f"batch-0/{file.name}"]


def test_a_commit_costs_the_same_however_many_were_before(
    tmp_path: Path, table: DeltaTable
) -> None:
    """A driver syncs the whole log once, and then the entries that are new, of others too."""
    table.publish(staged(tmp_path, 0))
    costs = []
    for number in range(1, 24):
        written = staged(tmp_path, number, number=number)
        with disk_calls() as calls:
            table.publish(written)
        names = [call for call in calls.below(tmp_path) if "_delta_log/" in call]
        assert f"{number + 1:020}.json" in names[0]
        costs.append(len(names))
    assert costs == [1] * 23
    rows = pa.table({"offset": pa.array([99], pa.int64())})
    deltalake.write_deltalake(tmp_path, rows, mode="append")
    written = staged(tmp_path, 24, number=24)
    with disk_calls() as calls:
        table.publish(written)
    synced = [call.split()[1] for call in calls.below(tmp_path) if "_delta_log" in call]
    entries = [f"_delta_log/{number:020}.json" for number in (25, 26)]
    assert synced == [entries[0], "_delta_log", entries[1], "_delta_log"]


def test_a_commit_to_a_bucket_reads_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many requests for the thirtieth micro-batch as for the third."""
    requests = Faults()
    with moto(requests) as endpoint:
        bucket = bucket_at(endpoint).announced(monkeypatch)
        table = DeltaTable(Target("delta", f"{bucket.url}/t"))
        costs = []
        for number in range(30):
            written = staged(tmp_path, number, number=number)
            requests.counted = 0
            assert not table.has(written.batch)
            table.publish(written)
            costs.append(requests.counted)
        assert table.has(written.batch)
    assert set(costs[2:]) == {costs[2]}
    assert costs[2] == 5  # its own last entry and the one after it, twice, and the new entry


def test_a_filter_on_any_column_finds_its_rows(tmp_path: Path, table: DeltaTable) -> None:
    """Files of delta-rs have the ranges of all columns; those of some only mislead its readers."""
    rows = pa.record_batch({"offset": pa.array([1, 2], pa.int64()), "topic": ["a", "b"]})
    writer = FileWriter(Storage.at(str(tmp_path)).open_output, rows.schema, "batch-0")
    schema = StructType([*SCHEMA.fields, StructField("topic", StringType())])
    table.publish(Staged(Batch("job", 0, 7), 2, schema, tuple(writer.write(iter([rows])))))
    deltalake.write_deltalake(tmp_path, pa.Table.from_batches([rows]), mode="append")
    found = deltalake.DeltaTable(tmp_path).to_pyarrow_dataset()
    for condition in (pc.field("topic") == "a", pc.field("offset") == 2):
        assert found.filter(condition).count_rows() == 2


def test_a_micro_batch_is_committed_once(tmp_path: Path, table: DeltaTable) -> None:
    """A second driver with the same micro-batch adds nothing, whatever files it has written."""
    first, second = staged(tmp_path, 1), staged(tmp_path, 1)
    assert not table.has(first.batch)
    table.publish(first)
    table.publish(second)
    assert table.has(second.batch)
    assert offsets_in(tmp_path) == [1]


def test_what_another_driver_commits_is_seen(tmp_path: Path, table: DeltaTable) -> None:
    """Also right after a commit of this one, when it remembers what it has written itself."""
    for number in range(3):
        table.publish(staged(tmp_path, number, number=number))
    written = staged(tmp_path, 3, number=3)
    other_driver(tmp_path).publish(written)
    assert table.has(written.batch)
    table.publish(written)
    assert offsets_in(tmp_path) == [0, 1, 2, 3]


def test_another_driver_that_commits_right_after_is_seen(
    tmp_path: Path, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a commit of this one and the look at what it has become."""
    table.publish(staged(tmp_path, 0))
    write = DeltaLog.append
    following = staged(tmp_path, 2, number=2)

    def followed(*args: Any) -> bool:
        monkeypatch.setattr(DeltaLog, "append", write)
        is_done = write(*args)
        other_driver(tmp_path).publish(following)
        return is_done

    monkeypatch.setattr(DeltaLog, "append", followed)
    table.publish(staged(tmp_path, 1, number=1))
    assert table.has(following.batch)


def test_what_a_compaction_has_brought_along_is_seen(tmp_path: Path, table: DeltaTable) -> None:
    """It takes over what another driver has committed in between."""
    for number in range(3):
        table.publish(staged(tmp_path, number, number=number))
    opened = table.current()
    assert opened is not None
    following = staged(tmp_path, 3, number=3)
    other_driver(tmp_path).publish(following)
    opened.optimize.compact()
    assert table.has(following.batch)
    table.publish(following)
    assert offsets_in(tmp_path) == [0, 1, 2, 3]


def test_a_table_that_was_removed_is_not_remembered(tmp_path: Path, table: DeltaTable) -> None:
    """A transaction after the removed ones would be the only one of its log."""
    for number in range(3):
        table.publish(staged(tmp_path, number, number=number))
    shutil.rmtree(tmp_path / "_delta_log")
    assert table.current() is None
    table.publish(staged(tmp_path, 3, number=3))
    assert offsets_in(tmp_path) == [3]


def test_two_drivers_that_race_commit_one_micro_batch(
    tmp_path: Path, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has looked before the first committed; the transaction itself is refused."""
    table.publish(staged(tmp_path, 0, number=0))
    first, second = staged(tmp_path, 1, number=1), staged(tmp_path, 1, number=1)
    write = DeltaLog.append
    attempts: list[int] = []

    def raced(*args: Any) -> bool:
        attempts.append(1)
        if len(attempts) == 1:
            other_driver(tmp_path).publish(first)
        return write(*args)

    monkeypatch.setattr(DeltaLog, "append", raced)
    table.publish(second)
    assert (len(attempts), offsets_in(tmp_path)) == (2, [0, 1])


def test_a_copy_of_the_checkpoint_is_refused(tmp_path: Path, table: DeltaTable) -> None:
    """It plans other offsets for the same number, and would skip or repeat records."""
    table.publish(staged(tmp_path, 1))
    other = staged(tmp_path, 1, 2, plan=8)
    with pytest.raises(JobError, match="micro-batch 0 with other offsets"):
        table.publish(other)
    with pytest.raises(JobError, match="a second job uses a copy of the checkpoint"):
        table.has(other.batch)
    assert table.has(Batch("job", 0, 7))
    assert not table.has(Batch("job", 1, 9))


@pytest.mark.parametrize("instant", ["before it looks", "before its commit"])
def test_a_driver_that_was_replaced_while_it_was_paused_cannot_commit(
    tmp_path: Path, table: DeltaTable, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    """It sleeps over its lease; the driver that took over has committed in the meantime."""

    def of_run(run: int, number: int) -> Staged:
        made = staged(tmp_path, number, number=number)
        return replace(made, batch=made.batch._replace(run=run))

    table.publish(of_run(1, 0))
    asleep = of_run(1, 2)
    write = DeltaLog.append

    def wake(*args: Any) -> bool:
        monkeypatch.setattr(DeltaLog, "append", write)
        other_driver(tmp_path).publish(of_run(2, 1))
        return write(*args)

    if instant == "before its commit":
        monkeypatch.setattr(DeltaLog, "append", wake)
    else:
        other_driver(tmp_path).publish(of_run(2, 1))
    with pytest.raises(JobError, match=r"run 2 of this job has written .*, and this is run 1"):
        table.publish(asleep)
    with pytest.raises(JobError, match="another job has taken its checkpoint over"):
        table.has(of_run(1, 0).batch)
    assert offsets_in(tmp_path) == [0, 1]


def test_a_column_that_the_schema_has_gained_is_added(tmp_path: Path, table: DeltaTable) -> None:
    """Rows of before have null there."""
    table.publish(staged(tmp_path, 1))
    wider = StructType([*SCHEMA.fields, StructField("name", StringType())])
    rows = pa.record_batch({"offset": pa.array([2], pa.int64()), "name": ["x"]})
    files = FileWriter(Storage.at(str(tmp_path)).open_output, rows.schema, "b").write(iter([rows]))
    more = replace(staged(tmp_path, number=1), schema=wider, files=tuple(files))
    table.publish(more)
    found = pl.read_delta(str(tmp_path)).sort("offset")
    assert found.rows() == [(1, None), (2, "x")]


def test_an_entry_names_a_file_as_the_one_of_delta_rs(tmp_path: Path, table: DeltaTable) -> None:
    """Each ASCII character, and some others, in the name and in the value of its partition."""
    every = "".join(map(chr, range(1, 128))).replace("/", "") + "ü\u2028ー😀"
    parted = DeltaTable(Target("delta", str(tmp_path)), ("page",))
    (made,) = staged(tmp_path, 1).files
    file = replace(made, path=f"page={every}/x.parquet", key=(every,))
    (tmp_path / file.path).parent.mkdir()
    schema = StructType([*SCHEMA.fields, StructField("page", StringType())])
    parted.publish(Staged(Batch("job", 0, 7), 1, schema, (file,)))
    opened = deltalake.DeltaTable(tmp_path)
    action = AddAction(file.path, file.size_bytes, {"page": every}, 1, True, '{"numRecords": 1}')
    opened.create_write_transaction([action], "append", opened.schema(), ["page"])
    ours, theirs = (
        next(told["add"] for told in actions_of(entry) if "add" in told)
        for entry in sorted((tmp_path / "_delta_log").glob("*.json"))[1:]
    )
    assert ours == {each: theirs[each] for each in ours} | {
        "modificationTime": ours["modificationTime"]
    }
    assert {each for each in theirs if theirs[each] is not None} == {*ours}


@pytest.mark.parametrize(
    ("feature", "changed"),
    [
        ("a constraint", {"configuration": {"delta.constraints.positive": "offset > 0"}}),
        ("mapped columns", {"schemaString": '{"fields": [{"delta.columnMapping.id": 1}]}'}),
        ("an invariant", {"schemaString": '{"fields": [{"delta.invariants": "x"}]}'}),
        ("the table feature rowTracking", {"writerFeatures": ["appendOnly", "rowTracking"]}),
        ("the table feature inCommitTimestamp", {"writerFeatures": ["inCommitTimestamp"]}),
    ],
)
def test_a_feature_that_an_append_does_not_honour_is_refused(
    tmp_path: Path, table: DeltaTable, feature: str, changed: dict[str, Any]
) -> None:
    """Somebody turns it on while the job runs, and before it starts again."""
    table.publish(staged(tmp_path, 1))
    log = tmp_path / "_delta_log"
    told = actions_of(log / f"{0:020}.json")
    if "writerFeatures" in changed:
        action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7} | changed}
    else:
        action = {"metaData": next(each["metaData"] for each in told if "metaData" in each)}
        action["metaData"] |= changed
    (log / f"{2:020}.json").write_text(json.dumps(action))
    for driver in (table, other_driver(tmp_path)):
        with pytest.raises((JobError, JobFailed)) as refused:
            driver.publish(staged(tmp_path, 2, number=1))
        if driver is table or "schemaString" not in changed:  # which delta-rs cannot read
            assert f"has {feature}, which the job's files would not respect" in str(refused.value)
    assert not (log / f"{3:020}.json").exists()


def test_a_table_with_other_partitions_is_refused(tmp_path: Path, table: DeltaTable) -> None:
    """The values of its files' partitions would have the names of other columns."""
    table.publish(staged(tmp_path, 1))
    parted = DeltaTable(Target("delta", str(tmp_path)), ("page",))
    with pytest.raises(JobError, match=r"is partitioned by \(\), and this job's files by"):
        parted.publish(staged(tmp_path, 2, number=1))


def test_a_table_that_was_created_again_is_not_taken_for_the_first(
    tmp_path: Path, table: DeltaTable
) -> None:
    """Its log has entries of the same numbers."""
    for number in range(3):
        table.publish(staged(tmp_path, number, number=number))
    shutil.rmtree(tmp_path / "_delta_log")
    for number in range(5):
        other_driver(tmp_path).publish(staged(tmp_path, 10 + number, number=number))
    assert table.has(Batch("job", 4, 7))
    table.publish(staged(tmp_path, 20, number=5))
    assert offsets_in(tmp_path) == [10, 11, 12, 13, 14, 20]


@pytest.mark.parametrize(("interval", "expected"), [(None, [100, 200]), ("90", [90, 180, 270])])
def test_checkpoints_are_written_and_a_new_driver_continues_from_one(
    tmp_path: Path,
    table: DeltaTable,
    monkeypatch: pytest.MonkeyPatch,
    interval: str | None,
    expected: list[int],
) -> None:
    """At every hundredth version, later on every second one of them, or as the table says."""
    monkeypatch.setattr(delta, "_FEW", 100)
    (file,) = staged(tmp_path, 0).files
    for number in range(301):
        if number == 1 and interval is not None:
            deltalake.DeltaTable(tmp_path).alter.set_table_properties(
                {"delta.checkpointInterval": interval}
            )
        made = replace(file, path=f"{number}.parquet")
        table.publish(Staged(Batch("job", number, 7), 1, SCHEMA, (made,)))
    log = tmp_path / "_delta_log"
    found = [int(each.name.partition(".")[0]) for each in sorted(log.glob("*.checkpoint.parquet"))]
    assert found == expected
    for entry in sorted(log.glob("*.json"))[:100]:
        entry.unlink()
    assert other_driver(tmp_path).has(Batch("job", 300, 7))
    assert table.has(Batch("job", 300, 7))
    assert len([*table.files()]) == 301


def test_a_checkpoint_is_on_disk_before_the_micro_batch_counts_as_published(
    tmp_path: Path, table: DeltaTable
) -> None:
    """Entries that it makes superfluous may be removed from then on."""
    (file,) = staged(tmp_path, 0).files
    for number in range(99):
        table.publish(Staged(Batch("job", number, 7), 1, SCHEMA, (file,)))
    with disk_calls() as calls:
        table.publish(Staged(Batch("job", 99, 7), 1, SCHEMA, (file,)))
    made = [call.partition(" of ")[0] for call in calls.below(tmp_path)]
    assert made[-3:] == [
        f"sync _delta_log/{100:020}.checkpoint.parquet",
        "sync _delta_log/_last_checkpoint",
        "sync _delta_log",
    ]


def test_a_checkpoint_that_fails_is_reported_and_costs_nothing_else(
    tmp_path: Path,
    table: DeltaTable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The micro-batch is in the table; readers only take longer."""

    def fail(_: deltalake.DeltaTable) -> None:
        raise DeltaError("no space left")

    monkeypatch.setattr(deltalake.DeltaTable, "create_checkpoint", fail)
    (file,) = staged(tmp_path, 0).files
    for number in range(101):
        table.publish(Staged(Batch("job", number, 7), 1, SCHEMA, (file,)))
    assert table.has(Batch("job", 100, 7))
    (told,) = caplog.messages
    assert told == f"delta:{tmp_path}: no checkpoint was written: no space left"


@pytest.mark.parametrize("text", ["/1", "a b=c%d", "ü", "", None])
def test_a_partition_is_read_back_by_every_engine(tmp_path: Path, text: str | None) -> None:
    """From the log or from the name of the folder, whatever its characters are."""
    parted = DeltaTable(Target("delta", str(tmp_path)), ("page",))
    rows = pa.record_batch({"offset": pa.array([1], pa.int64()), "page": pa.array([text])})
    rows = rows.cast(pa.schema([("offset", pa.int64()), ("page", pa.string())]))
    writer = FileWriter(
        Storage.at(str(tmp_path)).open_output,
        pa.schema([("offset", pa.int64())]),
        "batch-0",
        ("page",),
        lambda batch: [batch["page"]],
    )
    schema = StructType([*SCHEMA.fields, StructField("page", StringType())])
    parted.publish(Staged(Batch("job", 0), 1, schema, tuple(writer.write(iter([rows])))))
    assert pl.read_delta(str(tmp_path)).rows() == [(1, text or None)]
    dataset = deltalake.DeltaTable(tmp_path).to_pyarrow_dataset()
    assert dataset.to_table().to_pylist() == [{"offset": 1, "page": text or None}]
    assert duckdb.from_arrow(dataset).fetchall() == [(1, text or None)]


def test_a_failure_is_one_sentence(tmp_path: Path, table: DeltaTable) -> None:
    """The library's error has colours and lines."""
    table.publish(staged(tmp_path, 1))
    (tmp_path / "_delta_log" / f"{2:020}.json").write_text("{nonsense")
    with pytest.raises(JobFailed, match=r"^entry 2 of the log of delta:.* is damaged: [^\n]*$"):
        table.publish(staged(tmp_path, 2, number=1))
    with pytest.raises(JobFailed, match=r"^delta:.* cannot be read: [^\n\x1b]*$"):
        other_driver(tmp_path).publish(staged(tmp_path, 2, number=1))
    with pytest.raises(JobError, match=r"^delta:.* cannot be compacted: [^\n\x1b]*$"):
        compact_table(table)
