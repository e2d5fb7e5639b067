"""An Iceberg table: what a snapshot names, and which micro-batches are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.utils.config import Config
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from pyspark_tidelog.errors import JobError, JobFailed, OptionError
from pyspark_tidelog.lake.maintenance import compact_table
from pyspark_tidelog.tables import iceberg
from pyspark_tidelog.tables.iceberg import IcebergPlace, IcebergTable
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.parquet_files import FileWriter, NewFile
from pyspark_tidelog.tables.table import Batch, Staged
from pyspark_tidelog.tables.target import Target, parse_target
from tests.support.object_stores import SECRET, Faults, ObjectStore, bucket_at, moto

SCHEMA = StructType([StructField("offset", LongType()), StructField("day", DateType())])


class Rows:
    """Stands for a data frame: its schema, and rows that tasks write here and now."""

    def __init__(self, rows: Sequence[dict[str, Any]], schema: StructType = SCHEMA) -> None:
        self.rows = rows
        self.schema = schema
        self.columns = schema.fieldNames()

    def write(self, writer: FileWriter) -> tuple[NewFile, ...]:
        types = [(f.name, arrow_type_of(f.dataType)) for f in self.schema.fields]
        return tuple(writer.write(iter([pa.RecordBatch.from_pylist(self.rows, pa.schema(types))])))


def offsets(*numbers: int) -> Any:
    return Rows([{"offset": n, "day": None} for n in numbers])


@pytest.fixture
def table(tmp_path: Path, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> IcebergTable:
    """A table of a catalog in SQLite, its files in a bucket, without a Spark session."""
    return table_in(bucket.url, tmp_path, {}, monkeypatch)


def table_in(
    url: str, folder: Path, told: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> IcebergTable:
    catalog = {
        "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{folder}/catalog.db",
        "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"{url}/warehouse",
    }
    for name, value in {**catalog, **told}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read when it was imported
    monkeypatch.setattr(iceberg, "write_on_executors", lambda rows, writer: rows.write(writer))
    made = IcebergTable(parse_target("iceberg:lake.web.clicks"))
    made.place.store("mine")
    return made


def add(table: IcebergTable, rows: Any, number: int = 0, plan: int = 7) -> Staged:
    staged = table.stage(rows, Batch("job", number, plan))
    table.publish(staged)
    return staged


def rows_in(table: IcebergTable) -> list[tuple[Any, ...]]:
    found = iceberg.current(table.target)
    assert found is not None
    return sorted(pl.from_arrow(found.scan().to_arrow()).rows(), key=repr)  # type: ignore[union-attr] # a frame


def test_a_snapshot_names_its_micro_batch(table: IcebergTable) -> None:
    """And what other engines read is what was written, with its statistics."""
    assert (table.has(Batch("job", 0, 7)), [*table.files()]) == (False, [])
    add(table, offsets(1, 2))
    found = iceberg.current(table.target)
    assert found is not None
    snapshot = found.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert {key: snapshot.summary[key] for key in (iceberg.JOB, iceberg.BATCH, iceberg.PLAN)} == {
        "tidelog.job": "job",
        "tidelog.batch": "0",
        "tidelog.plan": "7",
    }
    assert [*found.scan(row_filter="offset > 2").plan_files()] == []
    assert [batch["offset"].to_pylist() for batch in table.batches(StructType(SCHEMA.fields[:1]))]
    (file,) = table.files()
    assert (file.path.startswith("s3://"), file.size_bytes > 0) == (True, True)


def snapshots_of(table: IcebergTable) -> int:
    found = iceberg.current(table.target)
    assert found is not None
    return len(found.snapshots())


def test_a_table_keeps_few_snapshots_and_lists_few_manifests(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them makes every commit longer; no row goes, and nothing that a reader may need."""
    monkeypatch.setattr(iceberg, "KEPT_SNAPSHOTS", 3)
    found = iceberg.current(table.target)
    assert found is not None
    found.transaction().set_properties(
        {"commit.manifest.min-count-to-merge": "2"}
    ).commit_transaction()
    for number in range(2):
        add(table, offsets(number), number)
    before = iceberg.current(table.target)
    assert before is not None
    replaced = before.current_snapshot()
    assert replaced is not None
    assert compact_table(table, is_job=True).files_after == 1
    for number in range(2, 7):
        add(table, offsets(number), number)
    assert rows_in(table) == [(number, None) for number in range(7)]
    found = iceberg.current(table.target)
    assert found is not None
    assert replaced.snapshot_id in [one.snapshot_id for one in found.snapshots()]
    assert len(found.snapshots()) == 5
    last = found.current_snapshot()
    assert last is not None
    assert len(last.manifests(found.io)) <= 3
    assert len(found.metadata.metadata_log) <= 20
    found.transaction().set_properties(
        {"history.expire.min-snapshots-to-keep": "4"}
    ).commit_transaction()
    for number in range(7, 10):
        add(table, offsets(number), number)
    assert snapshots_of(table) == 6


def test_a_table_keeps_what_the_last_compactions_have_replaced(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what all of them have: a job that merges each hour would slow down within weeks."""
    monkeypatch.setattr(iceberg, "KEPT_SNAPSHOTS", 3)
    monkeypatch.setattr(iceberg, "KEPT_COMPACTIONS", 2)
    counts = []
    for number in range(12):
        add(table, offsets(number), number)
        if number % 2:
            assert compact_table(table, is_job=True).files_after == 1
            counts.append(snapshots_of(table))
    assert counts[3:] == [counts[3]] * 3
    assert sorted(rows_in(table)) == [(number, None) for number in range(12)]


def test_a_micro_batch_is_committed_once(table: IcebergTable) -> None:
    """A second driver with the same micro-batch adds nothing; nor does one after expiry."""
    first = table.stage(offsets(1), Batch("job", 0, 7))
    add(table, offsets(1))
    table.publish(first)
    assert rows_in(table) == [(1, None)]
    assert table.has(Batch("job", 0, 7))
    assert not table.has(Batch("job", 1, 8))
    assert not table.has(Batch("another", 0, 7))


def test_two_drivers_that_race_commit_one_micro_batch(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has looked before the first committed; the catalog refuses its commit."""
    add(table, offsets(0))
    second = table.stage(offsets(1), Batch("job", 1, 7))
    looked: list[int] = []
    holds = iceberg.holds

    def raced(found: Any, batch: Batch) -> bool:
        answer = holds(found, batch)
        looked.append(1)
        if len(looked) == 1:
            add(table, offsets(1), 1)
        return answer

    monkeypatch.setattr(iceberg, "holds", raced)
    table.publish(second)
    assert rows_in(table) == [(0, None), (1, None)]


@pytest.mark.parametrize("instant", ["before it looks", "before its commit"])
def test_a_driver_that_was_replaced_while_it_was_paused_cannot_commit(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    """It sleeps over its lease; the driver that took over has committed in the meantime."""

    def of_run(run: int, number: int) -> Staged:
        return table.stage(offsets(number), Batch("job", number, 7, run))

    table.publish(of_run(1, 0))
    asleep = of_run(1, 2)
    holds = iceberg.holds

    def raced(found: Any, batch: Batch) -> bool:
        answer = holds(found, batch)
        monkeypatch.setattr(iceberg, "holds", holds)
        table.publish(of_run(2, 1))
        return answer

    if instant == "before its commit":
        monkeypatch.setattr(iceberg, "holds", raced)
    else:
        table.publish(of_run(2, 1))
    with pytest.raises(JobError, match=r"run 2 of this job has written .*, and this is run 1"):
        table.publish(asleep)
    assert rows_in(table) == [(0, None), (1, None)]


def test_a_table_of_a_version_without_runs_goes_on(table: IcebergTable) -> None:
    """Its property names job, micro-batch and plan."""
    found = iceberg.current(table.target)
    assert found is not None
    with found.transaction() as transaction:
        transaction.set_properties({iceberg.BATCH: "job 3 7"})
    assert table.has(Batch("job", 3, 7, run=1))
    add(table, offsets(1), 4)
    assert table.has(Batch("job", 4, 7))


def test_a_copy_of_the_checkpoint_is_refused(table: IcebergTable) -> None:
    """It plans other offsets for the same number, and would skip or repeat records."""
    add(table, offsets(1))
    with pytest.raises(JobError, match="micro-batch 0 with other offsets"):
        add(table, offsets(1, 2), plan=8)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # of a package that is not needed
def test_partitions_and_new_columns(table: IcebergTable) -> None:
    """Dates, text and null; rows of before have null in a column that was added."""
    parted = IcebergTable(table.target, ("day", "page"))
    schema = StructType([*SCHEMA.fields, StructField("page", StringType())])
    days = [None, *pa.array([15_000, 15_001], pa.int32()).cast(pa.date32()).to_pylist()]
    rows = [{"offset": n, "day": days[n % 3], "page": f"/{n % 2}"} for n in range(12)]
    add(parted, Rows(rows, schema))
    wider = StructType([*schema.fields, StructField("name", StringType())])
    more: Any = Rows([{"offset": 12, "day": days[1], "page": None, "name": "x"}], wider)
    add(parted, more, 1)
    found = iceberg.current(table.target)
    assert found is not None
    assert [each.name for each in found.spec().fields] == ["day", "page"]
    assert len([*parted.files()]) == 7
    told = found.scan(row_filter=f"day == '{days[1]}'", selected_fields=("offset", "name"))
    assert sorted(told.to_arrow().to_pylist(), key=repr) == sorted(
        [{"offset": n, "name": None} for n in (1, 4, 7, 10)] + [{"offset": 12, "name": "x"}],
        key=repr,
    )
    assert pl.scan_iceberg(found).select(pl.col("offset").sum()).collect().item() == 78
    assert duckdb.from_arrow(found.scan().to_arrow()).shape[0] == 13


def test_a_table_belongs_to_one_job(table: IcebergTable) -> None:
    """Its identity is a property, which only the catalog changes."""
    assert table.place.load() == "mine"
    assert table.place.has_data()
    table.place.store("renewed")
    assert (table.place.load(), str(table.place)) == ("renewed", "iceberg:lake.web.clicks")
    other = IcebergPlace(Target("iceberg", "lake.web.other"))
    with other.claim():
        assert (other.load(), other.has_data()) == (None, False)
    assert [*IcebergTable(other.target).files()] == []
    with pytest.raises(JobFailed, match="was dropped while the job ran"):
        IcebergTable(other.target).publish(Staged(Batch("job", 0), 0, SCHEMA))


def test_of_two_jobs_one_claims_a_table(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found no table; the catalog keeps one."""
    monkeypatch.setattr(iceberg, "current", lambda _target: None)
    with pytest.raises(JobError, match=r"another job has just claimed iceberg:lake\.web\.clicks"):
        table.place.store("second")


def test_a_failed_commit_is_one_sentence_without_secrets(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is gone between the files and the commit."""
    staged = table.stage(offsets(1), Batch("job", 0, 7))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(
        JobFailed, match=r"^iceberg:lake\.web\.clicks cannot be read: [^\n]*$"
    ) as failed:
        table.publish(staged)
    assert SECRET not in str(failed.value)


@pytest.mark.long
def test_a_server_in_trouble_gets_each_micro_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third request is refused, torn, not answered or loses its answer, and jobs restart."""
    faults = Faults()
    with moto(faults) as endpoint:
        store = bucket_at(endpoint)
        told = {**store.environment, "PYICEBERG_CATALOG__LAKE__S3__REQUEST_TIMEOUT": "0.3"}
        table = table_in(store.url, tmp_path, told, monkeypatch)
        added = faults.add_through(table, lambda number: add(table, offsets(number), number, 0))
        assert rows_in(table) == [(number, None) for number in range(added)]


def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stops with a sentence, and finds the micro-batch when it is started again."""
    staged = table.stage(offsets(1), Batch("job", 0, 7))
    commit = SqlCatalog.commit_table

    def lost(*args: Any) -> Any:
        commit(*args)
        raise CommitStateUnknownException("the connection was cut")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", lost)
        with pytest.raises(JobFailed, match=r"failed: the connection was cut"):
            table.publish(staged)
    assert table.has(staged.batch)
    table.publish(staged)
    assert rows_in(table) == [(1, None)]


def test_a_table_that_always_changes_first_ends_the_job_with_a_sentence(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer wins every race."""
    staged = table.stage(offsets(1), Batch("job", 0, 7))

    def late(*_args: Any) -> Any:
        raise CommitFailedException("branch main has changed")

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    with pytest.raises(JobFailed, match=r"^the commit to .* failed: branch main has changed$"):
        table.publish(staged)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("iceberg:lake", "must be iceberg:CATALOG.NAMESPACE.TABLE"),
        ("iceberg:lake.web", "must be iceberg:CATALOG.NAMESPACE.TABLE"),
        ("iceberg:nowhere.web.clicks", "the Iceberg catalog nowhere cannot be opened: .*URI"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(text: str, sentence: str) -> None:
    """With what to write, or what to configure."""
    with pytest.raises(OptionError, match=sentence):
        IcebergTable(parse_target(text)).has(Batch("job", 0))


def test_tables_of_many_topics_have_names_in_one_namespace() -> None:
    """A topic with a dot would be a namespace."""
    parent = parse_target("iceberg:lake.web")
    assert str(parent.child("clicks")) == "iceberg:lake.web.clicks"
    with pytest.raises(OptionError, match=r"cannot be named a\.b"):
        parent.child("a.b")
