"""What the columns of rows become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from pyspark_tidelog.errors import TidelogError
from pyspark_tidelog.records.encode import encode_headers
from pyspark_tidelog.sink.writer import records_of


def test_the_option_goes_before_the_column() -> None:
    """As in Kafka's sink; without it every row needs a topic."""
    batch = pa.record_batch({"value": ["a", "b"], "topic": ["x", None]})
    assert records_of(batch, "t")["topic"].to_pylist() == ["t", "t"]
    with pytest.raises(TidelogError, match="column topic is null in a row: set the option topic"):
        records_of(batch, None)


def test_a_row_without_a_time_is_of_now() -> None:
    """And one with a time keeps it, to the millisecond."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    times = pa.array([moment, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"value": pa.array(["a", "b"]), "timestamp": times})
    before_ms = int(datetime.now(UTC).timestamp() * 1000)
    given, now = records_of(batch, "t")["timestamp"].to_pylist()
    assert given == 1_767_323_045_678
    assert now >= before_ms
    assert records_of(batch.select(["value"]), "t")["timestamp"].to_pylist()[0] >= before_ms


@pytest.mark.parametrize("given", [None, [], [("h", b"1")]])
def test_headers_are_encoded_only_where_there_are_some(given: Any) -> None:
    """A column that is empty throughout costs nothing."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    lists = None if given is None else [{"key": k, "value": v} for k, v in given]
    batch = pa.record_batch(
        {"value": pa.array(["a"]), "headers": pa.array([lists], pa.list_(pair))}
    )
    encoded = records_of(batch, "t").to_pydict().get("headers")
    assert encoded == ([encode_headers(lists)] if given else None)
