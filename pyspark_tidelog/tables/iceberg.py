"""Iceberg tables: Spark's tasks write the Parquet files, PyIceberg commits them, without a jar.

The snapshot of a micro-batch names the job, the micro-batch and a digest of its offsets; so does a
property of the table, which is changed in the same commit and outlives the snapshot, with the
number of the job's run. A commit is refused if the table has changed since this was checked, so of
two drivers that commit the same micro-batch the second one finds it there.

The catalog is configured as PyIceberg's documentation says: `.pyiceberg.yaml`, or the environment
(`PYICEBERG_CATALOG__NAME__URI`, …). Where it says nothing about S3, `AWS_…` variables are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Final, cast

import pyarrow as pa
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import Table as CatalogTable
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from requests import Session

from pyspark_tidelog.errors import JobError, JobFailed, OptionError
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.leases import Claim, Held
from pyspark_tidelog.tables.parquet_files import (
    BATCH_FOLDER,
    FileWriter,
    NewFile,
    write_on_executors,
)
from pyspark_tidelog.tables.storage import sentence_of, storage_failure
from pyspark_tidelog.tables.table import (
    Batch,
    DataFile,
    Staged,
    refuse_other_plan,
    refuse_replaced_run,
)
from pyspark_tidelog.tables.target import Target

TIMEOUT_S = 60.0
"""To connect, and between two pieces of an answer."""


class RestCatalogWithTimeout(RestCatalog):
    """A catalog whose requests fail when the server accepts them and does not answer."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUT_S)  # type: ignore[method-assign] # get, post, … call it
        return session


def limit_waits() -> None:
    """Let PyIceberg open REST catalogs with this limit."""
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, conf: RestCatalogWithTimeout(name, **conf)


JOB: Final = "tidelog.job"
BATCH: Final = "tidelog.batch"
PLAN: Final = "tidelog.plan"

KEPT_SNAPSHOTS: Final = 20
"""Of a table, unless its property says otherwise: each makes every commit 1.4 ms longer."""

KEPT_COMPACTIONS: Final = 10
"""What these have replaced stays, for the readers that began before them."""

_BOUNDED: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(KEPT_SNAPSHOTS),
}
"""Of a new table: each commit writes its metadata to a new file, and names the files before."""

_KEPT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"
_COMMITS: Final = 10  # attempts, each after another commit came first
_S3: Final = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
}


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Iceberg table that one job writes."""

    target: Target
    partition_by: tuple[str, ...] = ()

    @property
    def place(self) -> IcebergPlace:
        return IcebergPlace(self.target)

    def has(self, batch: Batch) -> bool:
        return holds(current(self.target), batch)

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        """Let the tasks write the files to the table's location, where no snapshot names them."""
        table = _require(self.target)
        self._evolve(table, rows.schema)
        keys = self.partition_by
        written = schema_to_pyarrow(table.schema())
        writer = FileWriter(
            IcebergOutput(table.location(), table.io.properties).open_output,
            pa.schema([each for each in written if each.name in rows.columns]),
            f"data/{BATCH_FOLDER}{batch.number}",
            keys_of=partial(_columns, keys),
        )
        files = write_on_executors(rows, writer)
        return Staged(batch, sum(f.metadata.num_rows for f in files), rows.schema, files)

    def publish(self, staged: Staged) -> None:
        """Commit the files as one snapshot."""
        try:
            self._commit(staged)
        except (CommitFailedException, RESTError, OSError) as error:
            raise JobFailed(f"the commit to {self.target} failed: {sentence_of(error)}") from error

    def files(self) -> Iterator[DataFile]:
        table = current(self.target)
        if table is not None:
            for task in table.scan().plan_files():
                yield DataFile(task.file.file_path, task.file.file_size_in_bytes)

    def batches(self, columns: StructType) -> Iterator[pa.RecordBatch]:
        table = current(self.target)
        if table is not None and table.current_snapshot() is not None:
            held = table.schema().column_names
            names = tuple(name for name in columns.fieldNames() if name in held)
            yield from table.scan(selected_fields=names).to_arrow_batch_reader()

    def _evolve(self, table: CatalogTable, schema: StructType) -> None:
        """Add the columns that the table does not have yet, and partition a new table."""
        fields = [(each.name, arrow_type_of(each.dataType)) for each in schema.fields]
        known = set(table.schema().column_names)
        if any(name not in known for name, _ in fields):
            with table.update_schema() as schema_update:
                schema_update.union_by_name(pa.schema(fields))
        if table.spec().is_unpartitioned() and table.current_snapshot() is None:
            with table.update_spec() as spec_update:
                for name in self.partition_by:
                    spec_update.add_identity(name)

    def _commit(self, staged: Staged) -> None:
        batch = staged.batch
        names = {JOB: batch.job_id, BATCH: str(batch.number), PLAN: str(batch.plan)}
        for attempt in range(_COMMITS):
            table = without_retries(_require(self.target))
            if holds(table, batch):
                return  # another driver, or an attempt whose answer was lost
            try:
                with table.transaction() as transaction:
                    transaction.set_properties({BATCH: _written(batch)})
                    update = transaction.update_snapshot(snapshot_properties=names)
                    with update.merge_append() as append:
                        for file in staged.files:
                            append.append_data_file(_added(table, file))
                    if old := _expired(table):
                        ExpireSnapshots(transaction=transaction).by_ids(old).commit()
            except CommitFailedException:
                if attempt == _COMMITS - 1:
                    raise
            else:
                return


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """The table as a place that holds the identity of its job, as a property."""

    target: Target

    def __str__(self) -> str:
        return str(self.target)

    @contextmanager
    def claim(self) -> Iterator[Claim]:
        """Do nothing: the catalog keeps two jobs apart, commit by commit."""
        yield Held()

    def load(self) -> str | None:
        table = current(self.target)
        return None if table is None else table.properties.get(JOB)

    def store(self, text: str) -> None:
        """Create the table without columns; the first micro-batch adds them."""
        table = current(self.target)
        if table is not None:
            with table.transaction() as transaction:
                transaction.set_properties({JOB: text})
            return
        catalog, identifier = open_catalog(self.target)
        try:
            with _catalog_errors(self.target, "created"):
                catalog.create_namespace_if_not_exists(identifier[:-1])
                catalog.create_table(identifier, Schema(), properties={**_BOUNDED, JOB: text})
        except TableAlreadyExistsError as error:
            raise JobError(
                f"another job has just claimed {self.target}: choose another table"
            ) from error

    def has_data(self) -> bool:
        return current(self.target) is not None


@dataclass(frozen=True, slots=True)
class IcebergOutput:
    """The location of a table. It can be pickled to executors."""

    location: str
    properties: Mapping[str, str] = field(repr=False)
    """Of the table's file system; they contain secrets."""

    @contextmanager
    def open_output(self, name: str) -> Iterator[BinaryIO]:
        """Create a file; when the block ends it is durable."""
        path = f"{self.location}/{name}"
        with load_file_io({**self.properties}, path).new_output(path).create() as stream:
            yield cast("BinaryIO", stream)


def open_catalog(target: Target) -> tuple[Catalog, tuple[str, ...]]:
    """Return the catalog and the name of the table in it; raise OptionError if there is none."""
    name, *identifier = target.place.split(".")
    if len(identifier) < 2 or not all(identifier):
        raise OptionError(f"{target} must be iceberg:CATALOG.NAMESPACE.TABLE")
    limit_waits()
    try:
        catalog = load_catalog(name)
        known = {key: os.environ[each] for each, key in _S3.items() if each in os.environ}
        missing = {key: text for key, text in known.items() if key not in catalog.properties}
        if missing:
            catalog = load_catalog(name, **missing)
    except ValueError as error:
        raise OptionError(
            f"the Iceberg catalog {name} cannot be opened: {sentence_of(error)}; configure it as "
            f"PyIceberg's documentation says, such as PYICEBERG_CATALOG__{name.upper()}__URI"
        ) from error
    except (RESTError, OSError) as error:
        raise JobFailed(
            f"the Iceberg catalog {name} cannot be reached: {sentence_of(error)}"
        ) from error
    except Exception as error:
        raise OptionError(
            f"the Iceberg catalog {name} cannot be opened: its database refuses: {_of_sql(error)}"
        ) from error
    return catalog, tuple(identifier)


def current(target: Target) -> CatalogTable | None:
    """Return the current version of the table, or None if there is none yet."""
    catalog, identifier = open_catalog(target)
    try:
        with _catalog_errors(target, "read"):
            return catalog.load_table(identifier)
    except NoSuchTableError:
        return None


@contextmanager
def _catalog_errors(target: Target, done: str) -> Iterator[None]:
    """Raise OptionError for a catalog that is not configured for this, JobFailed for others."""
    try:
        yield
    except (RESTError, OSError) as error:
        raise storage_failure(target, done, error) from error
    except ValueError as error:
        name = target.place.partition(".")[0].upper()
        raise OptionError(
            f"{target} cannot be {done}: {sentence_of(error)}; set "
            f"PYICEBERG_CATALOG__{name}__WAREHOUSE to the folder or URL of its tables"
        ) from error
    except Exception as error:
        text = _of_sql(error)
        raise JobFailed(
            f"{target} cannot be {done}, because its catalog's database refuses: {text}",
            is_permanent="unable to open database file" in text,
        ) from error


def _of_sql(error: Exception) -> str:
    """Return what the database of a catalog says; raise any other error again.

    SQLAlchemy's errors are known by their module: the package is there for SQL catalogs only.
    """
    if not type(error).__module__.startswith("sqlalchemy."):
        raise error
    return sentence_of(error).partition("(Background on this error")[0].strip()


def _expired(table: CatalogTable) -> list[int]:
    """Return the snapshots that the next commit expires: the oldest beyond those that are kept.

    The table's property says how many, as in Iceberg's own procedure. Branches and tags stay, and
    so does what the last compactions have replaced: a reader may still need its files, which a
    vacuum removes once no snapshot names them.
    """
    snapshots = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    kept = int(table.properties.get(_KEPT_PROPERTY, KEPT_SNAPSHOTS))
    needed = {ref.snapshot_id for ref in table.metadata.refs.values()}
    replacing = [
        one
        for one in snapshots
        if one.summary is not None and one.summary.operation is not Operation.APPEND
    ]
    for one in replacing[-KEPT_COMPACTIONS:]:
        needed |= {one.snapshot_id, one.parent_snapshot_id or one.snapshot_id}
    old = (one.snapshot_id for one in snapshots[: max(len(snapshots) + 1 - kept, 0)])
    return [snapshot_id for snapshot_id in old if snapshot_id not in needed]


def _require(target: Target) -> CatalogTable:
    table = current(target)
    if table is None:
        raise JobFailed(f"the table {target} was dropped while the job ran")
    return table


def _columns(names: tuple[str, ...], batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in names]


def without_retries(table: CatalogTable) -> CatalogTable:
    """Let a commit fail if the table has changed; PyIceberg would append the files once more.

    And let it merge the manifests of many commits into one: each commit lists all of them.
    """
    properties = {
        **table.metadata.properties,
        "commit.retry.num-retries": "0",
        "commit.manifest-merge.enabled": "true",
    }
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _written(batch: Batch) -> str:
    return f"{batch.job_id} {batch.number} {batch.plan} {batch.run}"


def holds(table: CatalogTable | None, batch: Batch) -> bool:
    """Whether it is in the table; raise JobError for another plan, or a run that was replaced."""
    last = last_batch(table, batch.job_id)
    refuse_replaced_run(batch, last.run)
    if batch.number == last.number:
        refuse_other_plan(batch, last.plan)
    return batch.number <= last.number


def last_batch(table: CatalogTable | None, job_id: str) -> Batch:
    """Return the last micro-batch of a job in the table, -1 if there is none."""
    text = "" if table is None else table.properties.get(BATCH, "")
    owner, *numbers = text.split() or [""]
    return Batch(job_id, *map(int, numbers)) if owner == job_id else Batch(job_id, -1)


def _added(table: CatalogTable, file: NewFile) -> IcebergFile:
    """Return the manifest's entry of a file."""
    schema, spec = table.schema(), table.spec()
    statistics = data_file_statistics_from_parquet_metadata(
        file.metadata,
        compute_statistics_plan(schema, table.properties),
        parquet_path_to_id_mapping(schema),
    )
    values = [*map(PartitionFieldValue, spec.fields, file.key)]
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=PartitionKey(values, spec, schema).partition,
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
