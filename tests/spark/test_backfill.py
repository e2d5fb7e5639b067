"""A large range is read from closed segments, with the same records as an ordinary read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.errors import DataLossError
from pyspark_tidelog.sink.options import WriteOptions
from pyspark_tidelog.sink.writer import BatchWriter
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import OffsetRange
from tests.support.kafka_batches import SentRecord, numbered
from tests.support.watching import Watched, watching

if TYPE_CHECKING:
    from tests.spark.conftest import ServiceProcess

SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
SEGMENTS = 4
BATCHES = 10  # a segment, of 20 records each
FETCH_BYTES = 1_000  # about two batches


def fill(tidelog: ServiceProcess, topic: str, batch: Callable[[int], list[SentRecord]]) -> None:
    """Append closed segments of ten batches, and a batch to the active one."""
    for number in range(SEGMENTS * BATCHES):
        tidelog.append(topic, batch(number * 20))
        if number % BATCHES == BATCHES - 1:
            tidelog.call("POST", f"/v1/topics/{topic}/partitions/0/roll")
    tidelog.append(topic, batch(SEGMENTS * BATCHES * 20))


@pytest.fixture
def watched(tidelog: ServiceProcess) -> Iterator[Watched]:
    with watching(tidelog.url) as stand:
        yield stand


def read(
    url: str, topic: str, start: int, end: int, **options: str
) -> list[tuple[int, bytes | None]]:
    given = {"url": url, "subscribe": topic, "fetchBytes": str(FETCH_BYTES), **options}
    wanted = [OffsetRange(topic, 0, start, end)]
    batches = read_ranges(Options.parse(given), ("offset", "value"), wanted)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def rows(text: str, count: int) -> pa.RecordBatch:
    values = pa.array([text.encode()] * count)
    return pa.record_batch({"value": values, "partition": pa.array([0] * count, pa.int32())})


def downloads(watched: Watched) -> list[str]:
    return [path for path in watched.paths if path.endswith("/log")]


@pytest.mark.parametrize(("start", "end"), [(0, 820), (7, 813), (205, 655), (150, 590)])
def test_closed_segments_are_read_whole_or_in_part(
    tidelog: ServiceProcess, topic: str, watched: Watched, start: int, end: int
) -> None:
    """Whatever the range begins and ends with; what is not in closed segments comes as usual."""
    fill(tidelog, topic, lambda first: numbered(20, first=first))
    assert read(watched.url, topic, start, end) == read(
        tidelog.url, topic, start, end, fetchBytes="1000000"
    )
    assert len(downloads(watched)) >= 2
    ordinary = [path for path in watched.paths if "/batches?" in path]
    assert len(ordinary) < (end - start) / 40 / 2


def test_a_small_range_is_read_as_usual(
    tidelog: ServiceProcess, topic: str, watched: Watched
) -> None:
    """Eight answers or less do not pay for a list of segments."""
    fill(tidelog, topic, lambda first: numbered(20, first=first))
    assert [offset for offset, _ in read(watched.url, topic, 0, 300)] == [*range(300)]
    assert downloads(watched) == []


def test_a_segment_that_breaks_off_is_asked_for_again(
    tidelog: ServiceProcess, topic: str, watched: Watched
) -> None:
    """After its last whole batch; a batch larger than an answer is read all the same."""
    fill(tidelog, topic, lambda first: numbered(20, first=first, size_bytes=500))
    cuts = iter([None, 35_000, 9_000, 100])
    watched.cut_after = lambda path: next(cuts, None) if path.endswith("/log") else None
    assert [offset for offset, _ in read(watched.url, topic, 0, 820)] == [*range(820)]
    assert len(downloads(watched)) > 2 * SEGMENTS


def test_a_segment_compacted_meanwhile_is_read_as_usual(
    tidelog: ServiceProcess, topic: str, watched: Watched
) -> None:
    """Its other bytes are never mixed with those that were read before."""
    tidelog.call(
        "PATCH",
        f"/v1/topics/{topic}",
        json.dumps({"config": {"cleanup.policy": "compact"}}).encode(),
    )
    fill(
        tidelog,
        topic,
        lambda first: [
            SentRecord(first + n, b"%d" % (n % 7), b"%d" % (first + n)) for n in range(20)
        ],
    )

    def compact(path: str) -> None:
        if len(downloads(watched)) == 2 and path.endswith("/log"):
            tidelog.call("POST", f"/v1/topics/{topic}/partitions/0/compact", b"{}")

    watched.on_request = compact
    found = read(watched.url, topic, 0, 820)
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert all(value == b"%d" % offset for offset, value in found)
    left = read(tidelog.url, topic, 0, 820)
    assert len(left) < 200
    assert set(left) <= set(found)


def test_a_segment_removed_meanwhile_is_data_loss(
    tidelog: ServiceProcess, topic: str, watched: Watched
) -> None:
    """As in an ordinary read, whose error it is."""
    fill(tidelog, topic, lambda first: numbered(20, first=first))

    def remove(path: str) -> None:
        if path.endswith("/segments/200/log"):
            tidelog.call(
                "POST",
                f"/v1/topics/{topic}/partitions/0/delete-records",
                b'{"before_offset": 600}',
            )

    watched.on_request = remove
    with pytest.raises(DataLossError, match=r"offsets 200 to 599 of .* were deleted"):
        read(watched.url, topic, 0, 820)


def test_aborted_transactions_stay_hidden(
    tidelog: ServiceProcess, topic: str, watched: Watched
) -> None:
    """Segments without transactions are downloaded; the service filters the rest."""
    fill(tidelog, topic, lambda first: numbered(20, first=first))
    path = f"/v1/topics/{topic}/partitions"
    tidelog.call("POST", f"{path}/0/roll")
    for number in range(20):
        writer = BatchWriter(WriteOptions(Endpoint(tidelog.url), topic), SCHEMA, overwrite=False)
        result = writer.write(iter([rows(f"{number}", 20)]))
        (writer.abort if number % 2 else writer.commit)([result])
    tidelog.call("POST", f"{path}/0/roll")
    end = tidelog.call("GET", f"{path}/0")["high_watermark"]
    committed = read(watched.url, topic, 0, end, **{"isolation.level": "read_committed"})
    assert len(downloads(watched)) > SEGMENTS
    values = [value for _, value in committed[820:]]
    assert values == [b"%d" % number for number in range(0, 20, 2) for _ in range(20)]
    everything = read(watched.url, topic, 0, end)
    assert [offset for offset, _ in everything] == sorted({offset for offset, _ in everything})
    assert len(everything) == 820 + 20 * 20
