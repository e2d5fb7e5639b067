"""What DuckDB and Polars count in a table: judges that this project did not write.

They read a folder by its files, and other tables as their formats' own libraries list them: Delta
through delta-rs, Iceberg through PyIceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import deltalake
import duckdb
import polars as pl
from pyiceberg.catalog import load_catalog

_NUMBERS = "CAST(split_part(decode({value}), ':', 1) AS BIGINT)"
_COUNTED = (
    'SELECT count(*), count(DISTINCT (topic, "partition", "offset")), sum("offset"), '
    "sum({numbers}) FROM {rows}"
)


class Counted(NamedTuple):
    """What an engine finds in a table of numbered records."""

    rows: int
    places: int
    """Different topics, partitions and offsets."""
    offsets: int
    """The sum of them."""
    numbers: int
    """The sum of the numbers with which values begin."""

    @classmethod
    def of(cls, *partitions: Iterable[int]) -> Counted:
        """Return what has to be found if the record at each of these offsets has its number."""
        offsets = [offset for partition in partitions for offset in partition]
        return cls(len(offsets), len(offsets), sum(offsets), sum(offsets))


def counted(target: str, environment: Mapping[str, str]) -> dict[str, Counted]:
    """Count a table, named as `--to` does, with each engine."""
    kind, _, place = target.partition(":")
    value = pl.col("value")
    if kind in {"parquet", "json"}:
        files = f"{place}/batches=*/**/*.{kind}"
        if kind == "json":
            lazy, value = pl.scan_ndjson(files), value.str.decode("base64")
            return {
                "duckdb": _by_duckdb(f"read_json('{files}')", value="from_base64(value)"),
                "polars": _by_polars(lazy, value),
            }
        return {
            "duckdb": _by_duckdb(f"read_parquet('{files}')"),
            "polars": _by_polars(pl.scan_parquet(files), value),
        }
    if kind == "delta":
        table = deltalake.DeltaTable(place)
        return {
            "duckdb": _by_duckdb("arrow", table.to_pyarrow_dataset()),
            "polars": _by_polars(pl.scan_delta(place, storage_options={**environment}), value),
        }
    name, _, identifier = place.partition(".")
    endpoint = environment.get("AWS_ENDPOINT_URL")
    iceberg = load_catalog(name, **{"s3.endpoint": endpoint}).load_table(identifier)
    frame = pl.scan_iceberg(iceberg, storage_options={**environment}, reader_override="native")
    return {
        "duckdb": _by_duckdb("arrow", iceberg.scan().to_arrow_batch_reader()),
        "polars": _by_polars(frame, value),
    }


def _by_duckdb(rows: str, arrow: Any = None, *, value: str = "value") -> Counted:
    with duckdb.connect() as connection:
        if arrow is not None:
            connection.register("arrow", arrow)
        query = _COUNTED.format(numbers=_NUMBERS.format(value=value), rows=rows)
        found = connection.execute(query).fetchone()
    assert found is not None
    return Counted(*map(int, found))


def _by_polars(frame: pl.LazyFrame, value: pl.Expr) -> Counted:
    number = value.cast(pl.String).str.split(":").list.first().cast(pl.Int64)
    found = frame.select(
        pl.len().alias("rows"),
        pl.struct("topic", "partition", "offset").n_unique().alias("places"),
        pl.col("offset").sum().alias("offsets"),
        number.sum().alias("numbers"),
    ).collect()
    return Counted(*found.row(0))
