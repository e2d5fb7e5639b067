"""Plans for pullers of much data: protocol rules B1 to B6."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.operations.read.offsets import _shares
from engine.records.scan import iter_headers
from tests.support.builders import new_batch
from tests.support.service import BATCHES, RAW, RECORDS, Api, running
from tests.support.time import OF_ANY_YEAR, START_MS

pytestmark = pytest.mark.anyio

SPLITS = "/v1/topics/events/splits"
LOG = "/v1/topics/events/partitions/0"


@pytest.fixture
async def topic(tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Partition 0 has much, 1 little, 2 nothing; batches of ten records."""
    monkeypatch.setattr("app.operations.read.offsets.DEFAULT_SPLIT_BYTES", 5000)
    async with running(tmp_path, max_splits=50) as api:
        await api.create("events", 3, **OF_ANY_YEAR)
        for partition, batches in ((0, 30), (1, 3)):
            for number in range(batches):
                path = f"/v1/topics/events/partitions/{partition}/records"
                await api.append(*["x" * 100] * 10, path=path, timestamp=START_MS + number)
        yield api


async def plan(api: Api, status: int = 200, **wanted: object) -> dict[str, Any]:
    answer = await api.client.post(SPLITS, json=wanted)
    assert answer.status_code == status, answer.text
    made: dict[str, Any] = answer.json()
    return made


def ensure_complete(made: dict[str, Any]) -> None:
    """Fail unless the splits of each partition are its range, and its bytes theirs."""
    for one in made["partitions"]:
        splits = [split for split in made["splits"] if split["partition"] == one["partition"]]
        if one["start_offset"] == one["end_offset"]:
            assert not splits
            continue
        assert splits[0]["start_offset"] == one["start_offset"]
        assert splits[-1]["end_offset"] == one["end_offset"]
        assert all(a["end_offset"] == b["start_offset"] for a, b in pairwise(splits))
        assert sum(split["size_bytes"] for split in splits) == one["size_bytes"]
        assert {split["log_id"] for split in splits} == {one["log_id"]}


async def test_a_plan_is_what_there_is(topic: Api) -> None:
    """Without a wish: all partitions, from the log start to the high watermark (B1)."""
    made = await plan(topic)
    ensure_complete(made)
    ranges = [(one["start_offset"], one["end_offset"]) for one in made["partitions"]]
    assert ranges == [(0, 300), (0, 30), (0, 0)]
    size = topic.log().reader.size_bytes
    assert made["partitions"][0]["size_bytes"] == size
    assert len([one for one in made["splits"] if one["partition"] == 0]) == -(-size // 5000)


async def test_reading_the_splits_reads_every_batch_once(topic: Api) -> None:
    """Pulled one by one, in any order, with their log_id: the log, byte for byte (B2)."""
    made = await plan(topic, partitions=[0], min_splits=7)
    ensure_complete(made)
    assert len(made["splits"]) == 7
    pulled = b""
    for split in made["splits"]:
        query = {
            "offset": split["start_offset"],
            "end_offset": split["end_offset"],
            "log_id": split["log_id"],
        }
        answer = await topic.client.get(BATCHES, params=query)
        assert len(answer.content) == split["size_bytes"]
        assert "immutable" in answer.headers["cache-control"]
        pulled += answer.content
    assert len(pulled) == topic.log().reader.size_bytes
    offsets = [header.base_offset for _, header in iter_headers(pulled)]
    assert offsets == list(range(0, 300, 10))


async def test_splits_are_shared_out_by_bytes(topic: Api) -> None:
    """The larger partition gets more of them, a small one keeps one, an empty one none (B3)."""
    made = await plan(topic, min_splits=11)
    ensure_complete(made)
    counts = [one["partition"] for one in made["splits"]]
    assert (counts.count(0), counts.count(1)) == (10, 1)
    sizes = [one["size_bytes"] for one in made["splits"]]
    assert max(sizes) - min(sizes) <= topic.log().reader.size_bytes // 30
    few = await plan(topic, target_bytes=1, max_splits=4)
    ensure_complete(few)
    assert len(few["splits"]) == 4
    assert len((await plan(topic, max_splits=1))["splits"]) == 2


@pytest.mark.parametrize(("sizes", "count"), [([], 5), ([0, 0], 5), ([7, 1, 1], 3), ([9, 4, 1], 9)])
def test_shares_make_the_largest_part_small(sizes: list[int], count: int) -> None:
    """Every partition has one, all are given away, and moving one would not help (B3)."""
    shares = _shares(sizes, count)
    assert sum(shares) == (max(count, len(sizes)) if sizes else 0)
    assert all(shares)
    worst = max((size / share for size, share in zip(sizes, shares, strict=True)), default=0)
    for size, share in zip(sizes, shares, strict=True):
        if share > 1:  # without one of its parts it would be the worst, or as bad
            assert size / (share - 1) >= worst


async def test_records_bound_a_split_too(topic: Api) -> None:
    """`max_records` cuts further, between batches, never below one (B3)."""
    made = await plan(topic, partitions=[0], max_records=25)
    ensure_complete(made)
    assert {one["end_offset"] - one["start_offset"] for one in made["splits"]} <= {10, 20}
    made = await plan(topic, partitions=[1], max_records=1)
    ensure_complete(made)
    assert [one["end_offset"] for one in made["splits"]] == [10, 20, 30]


@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        ({"start": 15, "end": 25, "partitions": [1, 0, 1]}, [(15, 25), (15, 25)]),
        ({"start": {"0": 3, "1": "latest", "2": "earliest"}}, [(3, 300), (30, 30), (0, 0)]),
        ({"start": f"ts:{START_MS + 2}"}, [(20, 300), (20, 30), (0, 0)]),
        ({"end": f"ts:{START_MS + 2}"}, [(0, 20), (0, 20), (0, 0)]),
        ({"start": "latest"}, [(300, 300), (30, 30), (0, 0)]),
        ({"start": "0", "end": {"0": "7", "1": 0, "2": 0}}, [(0, 7), (0, 0), (0, 0)]),
    ],
)
async def test_cuts_are_numbers_words_or_times(
    topic: Api, wanted: dict[str, Any], ranges: list[tuple[int, int]]
) -> None:
    """One for all partitions, or one for each (B1)."""
    made = await plan(topic, **wanted)
    ensure_complete(made)
    assert [(one["start_offset"], one["end_offset"]) for one in made["partitions"]] == ranges


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        ({"start": {"0": 3}}, 422, "invalid_request"),
        ({"start": {"0": 3, "1": 3, "2": 0, "7": 0}}, 422, "invalid_request"),
        ({"start": 9, "end": 8, "partitions": [0]}, 422, "invalid_request"),
        ({"min_splits": 3, "max_splits": 2}, 422, "invalid_request"),
        ({"target_bytes": 0}, 422, "invalid_request"),
        ({"partitions": []}, 422, "invalid_request"),
        ({"start": "soon"}, 422, "invalid_request"),
        ({"start": -1}, 422, "invalid_request"),
        ({"splits": 3}, 422, "invalid_request"),
        ({"start": "9" * 19}, 400, "malformed_request"),
        ({"partitions": [9]}, 404, "partition_not_found"),
        ({"end": 31, "partitions": [1]}, 416, "offset_beyond_log_end"),
        ({"start": 99, "end": 99, "partitions": [1]}, 416, "offset_beyond_log_end"),
        ({"min_splits": 51}, 413, "too_large"),
        ({"target_bytes": 1}, 413, "too_large"),
        ({"max_records": 1, "partitions": [0], "max_splits": 1}, 200, None),
    ],
)
async def test_what_cannot_be_planned_is_told(
    topic: Api, wanted: dict[str, Any], status: int, code: str | None
) -> None:
    """Wishes against each other, cuts outside the log, and plans without end (B4)."""
    assert (await plan(topic, status, **wanted)).get("code") == code
    assert (await topic.client.post("/v1/topics/nowhere/splits", json={})).status_code == 404


async def test_a_plan_has_a_limit_however_it_is_asked_for(tmp_path: Path) -> None:
    """413 names `max_splits`, which `/v1/limits` has, before more are built (B4)."""
    async with running(tmp_path, max_splits=5) as api:
        await api.create()
        for _ in range(7):
            await api.append(1)
        made = await plan(api, 413, max_records=1)
        assert (made["limit"], made["limit_bytes"]) == ("max_splits", 5)
        limits = (await api.client.get("/v1/limits")).json()["limits"]
        assert limits["max_splits"] == 5
        ensure_complete(await plan(api, max_records=2))


async def test_what_is_gone_is_told_and_earliest_is_where_it_starts(topic: Api) -> None:
    """A number below the log start is 410 with the marks; `earliest` follows it (B4)."""
    await topic.client.post(f"{LOG}/delete-records", json={"before_offset": 100})
    gone = await plan(topic, 410, start=50, partitions=[0])
    assert (gone["code"], gone["log_start_offset"]) == ("offset_below_log_start", 100)
    made = await plan(topic, partitions=[0])
    ensure_complete(made)
    assert made["partitions"][0]["start_offset"] == 100


async def test_a_log_start_that_moves_while_it_is_planned_is_followed(
    topic: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`earliest` is looked up again when retention has been faster (B4)."""
    log = topic.log()
    extent_bytes = log.reader.extent_bytes
    moved: list[int] = []

    def raced(*arguments: Any) -> int:
        if not moved:
            moved.append(log.delete_records(50))
        return extent_bytes(*arguments)

    monkeypatch.setattr(log.reader, "extent_bytes", raced)
    made = await plan(topic, partitions=[0])
    assert moved == [50]
    assert made["partitions"][0]["start_offset"] == 50


async def test_a_committed_plan_ends_where_its_reader_does(api: Api) -> None:
    """`latest` of read_committed is the last stable offset; nothing above it is planned (B5)."""
    await api.append(1, 2)
    batch = new_batch(3, is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    await api.append(3)
    made = await plan(api, isolation="read_committed")
    ensure_complete(made)
    assert made["partitions"][0]["end_offset"] == 2
    assert (await plan(api))["partitions"][0]["end_offset"] == 6
    by_time = await plan(api, isolation="read_committed", end=f"ts:{2**62}")
    assert by_time["partitions"][0]["end_offset"] == 2
    await plan(api, 416, isolation="read_committed", end=3)


async def test_a_plan_of_a_replaced_log_is_not_read(api: Api) -> None:
    """Splits carry the log_id: after a truncation their URLs are 409, not other records (B6)."""
    await api.append(1)
    await api.append(2, 3)
    (split,) = (await plan(api))["splits"]
    end = (await api.client.get(f"{LOG}/offsets")).headers["etag"]
    await api.client.post(f"{LOG}/truncate", json={"to_offset": 1}, headers={"if-match": end})
    await api.append(4, 5)
    query = {"offset": 0, "end_offset": split["end_offset"], "log_id": split["log_id"]}
    answer = await api.client.get(RECORDS, params=query)
    assert (answer.status_code, answer.json()["code"]) == (409, "log_replaced")
