"""The files of a real broker, served over HTTP from an unchanged copy of its directory."""

import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.golden import (
    ExpectedRecord,
    golden_archive,
    golden_expected,
    golden_partitions,
    golden_records,
)
from tests.support.server import serving

PARTITIONS = [path for path in golden_partitions("clean") if (path / "expected.json").exists()]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service on a copy of the broker's directory."""
    directory = tmp_path_factory.mktemp("golden") / "data"
    shutil.copytree(golden_archive("clean"), directory)
    with serving(directory) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


def name_of(path: Path) -> str:
    return path.name


def log_url(partition: Path) -> str:
    topic, _, number = partition.name.rpartition("-")
    return f"/v1/topics/{topic}/partitions/{number}"


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def read_all(client: httpx.Client, url: str) -> Iterator[ExpectedRecord]:
    """Every record, page by page, in the form of the expectation."""
    while True:
        answer = client.get(url)
        records = answer.raise_for_status().json()["records"]
        for one in records:
            yield ExpectedRecord(
                one["offset"],
                one["timestamp"],
                {"create": 1, "append": 2}[one["timestamp_type"]],
                bytes_of(one["key"]),
                bytes_of(one["value"]),
                tuple((header["key"], bytes_of(header["value"])) for header in one["headers"]),
                one["leader_epoch"],
            )
        if not records:
            return
        url = answer.links["next"]["url"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_a_broker_s_log_is_served_as_a_consumer_got_it(
    client: httpx.Client, partition: Path, isolation: str
) -> None:
    """Records, marks and look-ups by time equal what Kafka's own consumer was given."""
    expected = golden_expected(partition, isolation)
    url = f"{log_url(partition)}/records?encoding=base64&isolation={isolation}&max_bytes=300000"
    assert list(read_all(client, url)) == golden_records(partition, isolation)
    marks = client.get(f"{log_url(partition)}/offsets").json()
    end = "high_watermark" if isolation == "read_uncommitted" else "last_stable_offset"
    assert marks["log_start_offset"] == expected["log_start_offset"]
    assert marks[end] == expected["high_watermark"]  # the end as this consumer saw it
    assert marks["last_stable_offset"] == expected["last_stable_offset"]


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_a_broker_s_log_is_searched_by_time(client: httpx.Client, partition: Path) -> None:
    """The offset of any time is the one that the broker answered."""
    times = golden_expected(partition)["offsets_for_times"]
    for time_ms, offset in list(times.items())[::5]:
        answer = client.get(f"{log_url(partition)}/offsets?timestamp={time_ms}").json()
        assert answer["offset"] == (None if offset == -1 else offset), time_ms
