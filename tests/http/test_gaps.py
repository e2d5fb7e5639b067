"""Reads and splits of a compacted topic: a reader that loops always reaches its end (R4)."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.records.batch import BatchView
from engine.records.scan import iter_headers
from tests.support.builders import new_batch
from tests.support.compaction import keyed
from tests.support.service import BATCHES, RAW, RECORDS, Api, running

pytestmark = pytest.mark.anyio

COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "retention_ms": "-1",
}
LOG = "/v1/topics/events/partitions/0"
MOST_READS = 60
"""More than any of these loops may take."""


@dataclass
class Gappy:
    """A log with gaps inside batches, between batches and at the end of a segment."""

    api: Api
    end: int
    offsets: dict[str, list[int]]
    """What readers of each isolation see."""


async def append(api: Api, batch: bytearray) -> None:
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201, answer.text


async def transaction(api: Api, producer_id: int, action: str) -> None:
    """Append two records in a transaction that ends so."""
    identity: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
    await append(api, new_batch(2, base_sequence=0, is_transactional=True, **identity))
    body = {**identity, "action": action}
    answer = await api.client.post(f"{LOG}/transactions", json=body)
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def gappy(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Gappy]:
    async with running(tmp_path) as api:
        await api.create(**COMPACTED)
        for number in range(20):  # offsets 3 to 13 go
            key = "k" if 3 <= number < 15 else f"u{number}"
            await append(api, keyed((key, str(number))))
        await append(api, keyed(("a", "1"), ("z", "1"), ("z", "2"), ("b", "1"), ("z", "3")))
        await transaction(api, 7, "abort")
        await transaction(api, 8, "commit")
        await append(api, keyed(("a", "2"), ("b", "2"), ("z", "4")))
        await append(api, keyed(("last", "1"), ("last", "2")))
        api.log().roll()
        await append(api, keyed(("last", "3")))
        await append(api, keyed(("open", "1")))
        compacted = await api.client.post(f"{LOG}/compact")
        assert compacted.status_code == 200, compacted.text
        assert api.log().reader.segments_count == 2
        end = api.log().watermarks.high_watermark
        offsets = {isolation: await visible(api, isolation) for isolation in ISOLATIONS}
        yield Gappy(api, end, offsets)


ISOLATIONS = ("read_uncommitted", "read_committed")


async def visible(api: Api, isolation: str) -> list[int]:
    """The offsets of all records, from one read without bounds."""
    answer = await api.client.get(RECORDS, params={"isolation": isolation})
    return [record["offset"] for record in answer.json()["records"]]


def in_json(body: bytes) -> list[int]:
    return [record["offset"] for record in json.loads(body)["records"]]


def in_lines(body: bytes) -> list[int]:
    return [json.loads(line)["offset"] for line in body.splitlines()]


def in_columns(body: bytes) -> list[int]:
    table = pa.ipc.open_stream(io.BytesIO(body)).read_all()
    offsets: list[int] = table.column("offset").to_pylist()
    return offsets


def in_batches(body: bytes) -> list[int]:
    return [
        record.offset
        for position, header in iter_headers(body)
        if not header.is_control
        for record in BatchView(body, position).records()
    ]


BOUNDS = (0, 2, 3, 10, 14, 21, 22, 25, 27, 30, 34)
"""Before, in and after each kind of gap."""

VIEWS = {
    "json": (RECORDS, "application/json", in_json),
    "ndjson": (RECORDS, "application/x-ndjson", in_lines),
    "arrow": (RECORDS, "application/vnd.apache.arrow.stream", in_columns),
    "raw": (BATCHES, "*/*", in_batches),
}
"""The path of each, its parameters, and the offsets in a response."""


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
async def test_a_loop_ends_wherever_the_range_ends(
    gappy: Gappy, view: str, isolation: str, max_bytes: int
) -> None:
    """Start and end in gaps, inside batches, at the ends of segments: nothing lost or doubled."""
    path, accept, offsets_in = VIEWS[view]
    for start, end in combinations([*BOUNDS, gappy.end], 2):
        found: list[int] = []
        offset, reads = start, 0
        while offset < end:
            query = {"offset": offset, "end_offset": end, "max_bytes": max_bytes}
            answer = await gappy.api.client.get(
                path, params=query | {"isolation": isolation}, headers={"accept": accept}
            )
            assert answer.status_code == 200, answer.text
            found += [one for one in offsets_in(answer.content) if offset <= one < end]
            next_offset = int(answer.headers["log-next-offset"])
            assert next_offset > offset
            assert next_offset <= end or view == "raw"
            assert ("link" in answer.headers) is (next_offset < end)
            offset, reads = next_offset, reads + 1
            assert reads < MOST_READS
        assert found == [one for one in gappy.offsets[isolation] if start <= one < end]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("view", VIEWS)
async def test_a_stream_goes_past_every_gap(gappy: Gappy, view: str, isolation: str) -> None:
    """One response has the records of a loop of reads, wherever it begins and ends (V1)."""
    path, accept, offsets_in = VIEWS[view]
    for start, end in combinations([*BOUNDS, gappy.end], 2):
        query: dict[str, Any] = {"offset": start, "end_offset": end, "isolation": isolation}
        query |= {"stream": "true", "max_bytes": 1}
        answer = await gappy.api.client.get(path, params=query, headers={"accept": accept})
        found = [one for one in offsets_in(answer.content) if start <= one < end]
        assert found == [one for one in gappy.offsets[isolation] if start <= one < end]
        assert view == "raw" or found == offsets_in(answer.content)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_every_split_of_a_plan_can_be_read_to_its_end(gappy: Gappy, isolation: str) -> None:
    """For any number and size of splits, and with `fetchMany` too."""
    for wish in ({"min_splits": 7}, {"max_records": 4}, {"max_records": 1}):
        body = {"isolation": isolation, **wish}
        made = await gappy.api.client.post("/v1/topics/events/splits", json=body)
        assert made.status_code == 200, made.text
        found: list[int] = []
        for split in made.json()["splits"]:
            offset, end = split["start_offset"], split["end_offset"]
            while offset < end:
                wanted = {"topic": "events", "partition": 0, "isolation": isolation}
                wanted |= {"offset": offset, "end_offset": end}
                body = {"partitions": [wanted], "max_bytes": 1}
                answer = await gappy.api.client.post("/v1/fetch", json=body)
                (entry,) = answer.json()["partitions"]
                found += [record["offset"] for record in entry["records"]]
                assert offset < entry["next_offset"] <= end
                offset = entry["next_offset"]
        assert found == gappy.offsets[isolation]


async def test_a_long_poll_whose_end_is_in_a_gap_does_not_wait(gappy: Gappy) -> None:
    """More data cannot bring it anything."""
    query = {"offset": 4, "end_offset": 10, "max_wait_ms": 60_000}
    answer = await gappy.api.client.get(RECORDS, params=query)
    assert (answer.json()["records"], answer.json()["next_offset"]) == ([], 10)


async def test_a_read_that_stops_at_a_gap_says_that_the_end_was_reached(gappy: Gappy) -> None:
    """`ended_by` is `end_offset`, not the byte budget that had room."""
    for offset in (0, 5):
        query = {"offset": offset, "end_offset": 10, "explain": "1"}
        answer = await gappy.api.client.get(BATCHES, params=query)
        assert answer.headers["log-next-offset"] == "10"
        assert answer.headers["log-explain"].endswith("ended_by=end_offset")
