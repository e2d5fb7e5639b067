"""Lakes made by hand, without Spark: what a job would have left, or must never have."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.identity import Terms, claimed
from pyspark_tidelog.lake.layout import Layout, parse_partition_column
from pyspark_tidelog.tables.folders import group_name
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.places import FolderPlace
from tests.support.kafka_batches import SentRecord

Row = dict[str, Any]


class HandMadeLake:
    """A lake of one topic, and its checkpoint."""

    def __init__(
        self,
        folder: Path,
        *,
        kind: str = "parquet",
        topic_ids: Mapping[str, str] | None = None,
        schema: str | None = None,
        partition_by: Sequence[str] = (),
        added: tuple[str, ...] = (),
        rescue: str | None = None,
    ) -> None:
        self.folder = folder / "lake"
        self.checkpoint = folder / "checkpoint"
        self.kind = kind
        values = None if schema is None else parse_schema(schema)
        by = tuple(map(parse_partition_column, partition_by))
        self.layout = Layout(values, by, rescue=rescue)
        terms = Terms(
            f"{kind}:{self.folder}",
            topic_ids or {"t": "first"},
            None if values is None else values.jsonValue(),
            tuple(partition_by),
            None if values is None else f"parquet:{self.folder / '_quarantine'}",
            added=added,
            rescue=rescue,
        )
        folders = [self.folder, *([self.folder / "_quarantine"] if values else [])]
        with claimed(
            Checkpoint(str(self.checkpoint)), [*map(FolderPlace, folders)], terms
        ) as identity:
            self.job_id = identity.job_id

    def put(
        self, batch_id: int, rows: Sequence[Row], *, leaf: str = "", without: Sequence[str] = ()
    ) -> Path:
        """Publish rows as one file; columns in the names of folders are in `leaf`."""
        fields = [f for f in self.layout.rows.fields if f.name not in without]
        kept = StructType([f for f in fields if f"{f.name}=" not in leaf])
        file = _new_file(self.folder, batch_id, leaf, self.kind)
        if self.kind == "json":
            names = kept.fieldNames()
            lines = [json.dumps({n: _as_json(row.get(n)) for n in names}) for row in rows]
            file.write_text("".join(f"{line}\n" for line in lines))
        else:
            _write_parquet(file, kept, rows)
        return file

    def put_bad(self, batch_id: int, rows: Sequence[Row]) -> None:
        file = _new_file(self.folder / "_quarantine", batch_id, "", "parquet")
        _write_parquet(file, self.layout.bad_rows, rows)

    def commit(self, batch_id: int, end: Mapping[str, int], start: int = 0) -> None:
        """Note in the checkpoint, as Spark does, how far a micro-batch went."""
        offset = {
            "version": 1,
            "offsets": {"t": dict(end)},
            "initial": {"t": dict.fromkeys(end, start)},
            "topic_ids": {"t": "first"},
        }
        for name, lines in (("offsets", ["v1", "{}", json.dumps(offset)]), ("commits", ["v1"])):
            (self.checkpoint / name).mkdir(exist_ok=True)
            (self.checkpoint / name / str(batch_id)).write_text("\n".join(lines))


def _new_file(folder: Path, batch_id: int, leaf: str, kind: str) -> Path:
    place = folder / group_name(batch_id) / f"batch_id={batch_id}" / leaf
    place.mkdir(parents=True)
    return place / f"part-{batch_id}.{kind}"


def _write_parquet(file: Path, schema: StructType, rows: Sequence[Row]) -> None:
    fields = [(field.name, arrow_type_of(field.dataType)) for field in schema.fields]
    pq.write_table(pa.Table.from_pylist(list(rows), pa.schema(fields)), file)


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int) and value > 1 << 40:  # the microseconds of a test's time
        return f"2026-08-29T10:40:00.{value % 1_000_000:06d}Z"
    return value


def rows_of(records: Sequence[SentRecord], *, partition: int = 0, first: int = 0) -> list[Row]:
    """Return the records as a lake without a schema has them, from one offset on."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": 0,
        }
        for offset, record in enumerate(records, first)
    ]
