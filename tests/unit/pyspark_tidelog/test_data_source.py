"""The columns and schemas of the data source."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import OptionError
from tests.support.log_service import LogService


def source(service: LogService, **given: str) -> DefaultSource:
    return DefaultSource({"url": service.url, "subscribe": "t", "retries": "1", **given})


def test_the_columns_are_those_of_the_kafka_source(service: LogService) -> None:
    """A job moves here by changing format and address, headers on demand."""
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert source(service).schema().fieldNames() == names
    assert source(service, includeHeaders="true").schema().fieldNames() == [*names, "headers"]
    assert DefaultSource.name() == "tidelog"


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (StructField("offset", IntegerType()), "column offset is bigint, not int"),
        (StructField("size", LongType()), "there is no column size: choose from key, value"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    service: LogService, field: StructField, sentence: str
) -> None:
    """A projection may leave columns out, not invent or convert them."""
    with pytest.raises(OptionError, match=sentence):
        source(service).reader(StructType([field]))


def test_a_schema_without_columns_is_refused(service: LogService) -> None:
    """Nothing at all cannot be read."""
    with pytest.raises(OptionError, match="a schema needs a column"):
        source(service).reader(StructType([]))
