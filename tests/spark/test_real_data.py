"""A real job on real data: every flight out of New York in 2013, and the weather it met."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere in Spark
from pyspark.sql.streaming.query import StreamingQuery

from demo.data import FLIGHTS, WEATHER_ROWS, load_flights, load_weather
from tests.support.kafka_batches import SentRecord

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

pytestmark = [pytest.mark.spark, pytest.mark.long]

MICRO_BATCHES = 6
BATCH_RECORDS = 500  # half a day of flights: the partitions are that far apart, and no week
PARTITIONS = (4, 1)
AFTER_ALL_MS = 1_420_070_400_000  # 2015
FIELDS = ("origin STRING, dep_delay INT", "origin STRING, precip DOUBLE")
RESULT = ["day", "origin", "is_wet", "flights", "departed", "minutes_late"]


def in_order(table: pa.Table) -> pa.Table:
    """Sort the rows by time, as their reporters send them."""
    return table.sort_by([("time_hour", "ascending")])


def feed(tidelog: ServiceProcess, topic: str, rows: pa.Table, partitions: int) -> None:
    """Append each row as JSON under its time."""
    tidelog.put_topic(topic, partitions)
    for number, batch in enumerate(rows.to_batches(max_chunksize=BATCH_RECORDS)):
        records = [
            SentRecord(milliseconds(row["time_hour"]), None, msgspec.json.encode(row))
            for row in batch.to_pylist()
        ]
        tidelog.append(topic, records, partition=number % partitions)


def end_all_days(tidelog: ServiceProcess, topic: str, partitions: int) -> None:
    """Append to each partition a record of long after, of an airport that no other topic knows.

    Without any, it would be filtered out before it moved the watermark: nothing joins a null.
    """
    value = msgspec.json.encode({"origin": topic})
    for partition in range(partitions):
        tidelog.append(topic, [SentRecord(AFTER_ALL_MS, None, value)], partition=partition)


def milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def stream(spark: SparkSession, url: str, topic: str, fields: str, at_once: int) -> DataFrame:
    reader = spark.readStream.format("tidelog").options(url=url, subscribe=topic)
    records = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(at_once)).load()
    row = F.from_json(records["value"].cast("string"), fields)
    return records.select("timestamp", row.alias("row")).select("timestamp", "row.*")


def joined(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return how late flights were, by day and airport, in hours with rain or snow and without."""
    met = flights.withWatermark("timestamp", "7 days").join(
        weather.withWatermark("timestamp", "7 days"), ["origin", "timestamp"]
    )
    day = F.window("timestamp", "1 day")
    return (
        met.groupBy(day, "origin", (F.col("precip") > 0).alias("is_wet"))
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.sum("dep_delay").alias("minutes_late"),
        )
        .withColumn("day", F.date_format("window.start", "yyyy-MM-dd"))
        .select(*RESULT)
    )


def expected(flights: pa.Table, weather: pa.Table) -> list[tuple[Any, ...]]:
    """Return what pandas makes of the same rows."""
    left = flights.select(["origin", "time_hour", "dep_delay"]).to_pandas()
    right = weather.select(["origin", "time_hour", "precip"]).to_pandas()
    met: pd.DataFrame = left.merge(right, on=["origin", "time_hour"])
    met["day"] = met["time_hour"].str[:10]
    met["is_wet"] = met["precip"] > 0
    found = met.groupby(["day", "origin", "is_wet"], as_index=False).agg(
        flights=("time_hour", "size"),
        departed=("dep_delay", "count"),
        minutes_late=("dep_delay", lambda delays: delays.sum(min_count=1)),
    )
    plain = found[RESULT].astype(object)
    return sorted(plain.where(plain.notna(), None).itertuples(index=False, name=None))


def test_flights_and_their_weather_joined_in_a_stream_are_what_pandas_makes_of_them(
    spark: SparkSession, tidelog: ServiceProcess, topic: str, tmp_path: Path
) -> None:
    """A year, two streams, each day written once it is over; nothing late, and bounded state."""
    tables = {
        f"{topic}-flights": in_order(load_flights().rows),
        f"{topic}-weather": in_order(load_weather().rows),
    }
    streams = []
    for (name, rows), partitions, fields in zip(tables.items(), PARTITIONS, FIELDS, strict=True):
        feed(tidelog, name, rows, partitions)
        end_all_days(tidelog, name, partitions)
        streams.append(stream(spark, tidelog.url, name, fields, -(-len(rows) // MICRO_BATCHES)))
    told: list[tuple[Any, ...]] = []
    query = (
        joined(*streams)
        .writeStream.foreachBatch(lambda rows, _: told.extend(map(tuple, rows.collect())))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(280)
    assert sorted(told) == expected(*tables.values())
    assert len(told) > 365 * 3
    assert_bounded(query)


def assert_bounded(query: StreamingQuery) -> None:
    """Fail unless the watermark passed over no row, and let go of those it had passed."""
    states = [state for report in query.recentProgress for state in report.stateOperators]
    assert sum(state.numRowsDroppedByWatermark for state in states) == 0
    kept = max(state.numRowsTotal for state in states)
    assert kept < (FLIGHTS + WEATHER_ROWS) / 2
