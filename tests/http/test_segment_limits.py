"""How small segments may be, and how many a partition may have: rule T9.

A topic with segments of 100 bytes used up all file descriptors of the service, which then could not
start.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import new_batch
from tests.support.service import BATCHES, RAW, RECORDS, Api, running

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
PLENTY = 1 << 24
SMALL: list[dict[str, Any]] = [
    {"segment.bytes": "100"},
    {"segment.bytes": MIB - 1},
    {"segment.index.bytes": "12"},
    {"index.interval.bytes": 0, "segment.index.bytes": 12 * 10_000},
]


async def put(api: Api, name: str, config: dict[str, Any]) -> Any:
    return await api.client.put(f"/v1/topics/{name}", json={"partitions": 1, "config": config})


@pytest.mark.parametrize("config", SMALL)
async def test_a_topic_may_not_have_tiny_segments(tmp_path: Path, config: dict[str, Any]) -> None:
    """Neither by their bytes nor by indexes that are full earlier: 422 names the limit (T9)."""
    async with running(tmp_path, min_segment_bytes=MIB) as api:
        assert (await put(api, "large", {"segment.bytes": MIB})).status_code == 201
        refused = await put(api, "small", config)
        changed = await api.client.patch("/v1/topics/large", json={"config": config})
        limits = (await api.client.get("/v1/limits")).json()["limits"]
        kept = (await api.client.get("/v1/topics/large")).json()["config"]["segment.bytes"]
    for answer in (refused, changed):
        assert (answer.status_code, answer.json()["limit"]) == (422, "min_segment_bytes")
    assert (limits["min_segment_bytes"], kept["value"]) == (MIB, str(MIB))


async def test_a_topic_with_tiny_segments_can_still_be_changed(tmp_path: Path) -> None:
    """It was created with a lower limit: unchanged values are not checked again."""
    async with running(tmp_path, min_segment_bytes=14) as api:
        assert (await put(api, "small", {"segment.bytes": "100"})).status_code == 201
    async with running(tmp_path, min_segment_bytes=MIB) as api:
        config = {"retention.ms": PLENTY}
        changed = await api.client.patch("/v1/topics/small", json={"config": config})
        smaller = await api.client.patch(
            "/v1/topics/small", json={"config": {"segment.bytes": "99"}}
        )
    assert (changed.status_code, smaller.status_code) == (200, 422)


async def test_a_partition_takes_no_append_beyond_its_segments(tmp_path: Path) -> None:
    """503 names the limit.

    Other partitions continue, and so does this one when old segments are gone.
    """
    async with running(tmp_path, max_segments_per_partition=3) as api:
        await api.create(segment_bytes=100, retention_ms=-1)
        await api.create("other")
        for value in range(3):
            await api.append(value)
        refused = await api.client.post(RECORDS, json={"records": [{"value": 3}]})
        rolled = await api.client.post("/v1/topics/events/partitions/0/roll")
        await api.append(1, path="/v1/topics/other/partitions/0/records")
        for answer in (refused, rolled):
            told = answer.json()["limit"]
            assert (answer.status_code, told) == (503, "max_segments_per_partition")
        deletion = {"before_offset": 2}
        await api.client.post("/v1/topics/events/partitions/0/delete-records", json=deletion)
        await api.client.post("/v1/topics/events/partitions/0/retention")
        assert (await api.append(3))["base_offset"] == 3


async def test_all_partitions_together_have_limits(tmp_path: Path) -> None:
    """More partitions do not give more segments or producer ids: 503 names the limits."""
    limits = {"max_sealed_segments": 1, "max_producers": 2}
    async with running(tmp_path, **limits) as api:
        assert (await api.client.get("/v1/limits")).json()["limits"].items() >= limits.items()
        await api.create(partitions=2)
        refused = []
        for partition in range(2):
            path = RECORDS.replace("/0/", f"/{partition}/")
            await api.append(1, path=path)
            refused.append(await api.client.post(path.replace("records", "roll")))
        for producer in range(3):
            batch = new_batch(producer_id=producer, producer_epoch=0, base_sequence=0)
            path = BATCHES.replace("/0/", f"/{producer % 2}/")
            refused.append(await api.client.post(path, content=bytes(batch), headers=RAW))
    told = [(answer.status_code, answer.json().get("limit")) for answer in refused]
    assert told[:2] == [(200, None), (503, "max_sealed_segments")]
    assert told[2:] == [(201, None), (201, None), (503, "max_producers")]
