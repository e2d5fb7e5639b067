"""What a row is."""

from __future__ import annotations

import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.lake.ddl import parse_schema
from pyspark_tidelog.lake.layout import (
    Layout,
    PartitionColumn,
    parse_partition_column,
    require_partition_type,
)
from pyspark_tidelog.tables.target import parse_target


def test_without_a_schema_a_row_is_a_record() -> None:
    """With its headers where they are wanted."""
    assert Layout().rows.fieldNames() == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]
    assert Layout(has_headers=True).rows.fieldNames()[-1] == "headers"


def test_with_a_schema_the_record_stands_beside_its_fields() -> None:
    """A field may be called like a column of the record."""
    layout = Layout(parse_schema("offset STRING, id INT"))
    assert layout.rows.fieldNames() == [
        *("offset", "id"),
        *("_key", "_topic", "_partition", "_offset", "_timestamp", "_timestampType"),
    ]
    assert layout.bad_rows.fieldNames()[-1] == "reason"


@pytest.mark.parametrize(
    ("schema", "partition_by", "sentence"),
    [
        ("_Offset INT", (), "two columns _Offset"),
        ("id INT", ("day",), "there is no column day to partition by: choose from id, _key"),
        ("id INT", ("ID=1",), "there is a column ID already"),
        ("id MAP<INT,INT>", (), "cannot be map<int,int>"),
        (None, ("day=",), "is NAME, NAME=EXPRESSION"),
        (None, ("a b",), "is NAME, NAME=EXPRESSION"),
    ],
)
def test_columns_in_each_others_way_are_refused(
    schema: str | None, partition_by: tuple[str, ...], sentence: str
) -> None:
    """Before Spark starts, with the name."""
    with pytest.raises(OptionError) as refused:
        Layout(
            None if schema is None else parse_schema(schema),
            tuple(map(parse_partition_column, partition_by)),
        )
    assert sentence in str(refused.value)


def test_columns_to_partition_by_may_be_made() -> None:
    """An equals sign in the expression is the expression's."""
    assert parse_partition_column("late = delay = 3") == PartitionColumn("late", "delay = 3")
    with pytest.raises(OptionError, match="column x is double: a partition column must be"):
        require_partition_type("x", parse_schema("x DOUBLE")["x"].dataType)


def test_a_part_of_time_is_a_column_of_its_own() -> None:
    """Named as Iceberg names it; an unknown function needs a name."""
    day = PartitionColumn("timestamp_day", "to_date(timestamp)")
    assert parse_partition_column("day( timestamp )") == day
    assert parse_partition_column("hour(seen)").name == "seen_hour"
    with pytest.raises(OptionError, match=r"one of year, month, day, hour of a column, such as"):
        parse_partition_column("week(timestamp)")


@pytest.mark.parametrize("text", ["tape:x", "parquet:", "lake", "parquet:ftp://b/x", ":x"])
def test_a_sink_that_does_not_exist_is_refused(text: str) -> None:
    """What can be written is said."""
    with pytest.raises(OptionError, match="must be"):
        parse_target(text)
