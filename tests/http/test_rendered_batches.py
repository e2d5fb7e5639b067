"""Readers share the JSON of batches: what they get does not depend on who has read before."""

from pathlib import Path

import pytest

from tests.support.service import RECORDS, Api, running

pytestmark = pytest.mark.anyio

LINES = {"accept": "application/x-ndjson"}
GAUGE = "tidelog_rendered_batches_bytes "
PARTITION = "/v1/topics/events/partitions/0"


async def values(api: Api, path: str = RECORDS) -> list[object]:
    page = (await api.client.get(f"{path}?offset=0")).json()
    return [record["value"] for record in page["records"]]


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
async def test_readers_after_the_second_get_the_same_bytes(tmp_path: Path, kept_bytes: int) -> None:
    """From any place, as JSON and as NDJSON, and of the partitions of a fetch."""
    async with running(tmp_path, max_rendered_batches_bytes=kept_bytes) as api:
        await api.create()
        for number in range(5):
            await api.append(*[{"n": number, "i": index} for index in range(4)])
        for query in ("offset=0", "offset=6", "offset=2&max_records=9", "offset=4&encoding=utf8"):
            for headers in ({}, LINES):
                reads = [api.client.get(f"{RECORDS}?{query}", headers=headers) for _ in range(4)]
                assert len({(await read).content for read in reads}) == 1
        wanted = {"partitions": [{"topic": "events", "partition": 0, "offset": 0}]}
        fetches = [api.client.post("/v1/fetch", json=wanted) for _ in range(4)]
        assert len({(await fetch).content for fetch in fetches}) == 1
        metrics = (await api.client.get("/metrics")).text
        (kept,) = [line for line in metrics.splitlines() if line.startswith(GAUGE)]
        assert (float(kept.split()[1]) > 0) is (kept_bytes > 0)


async def test_what_replaced_truncated_records_is_read(api: Api) -> None:
    """The same offsets, times and sizes: the log has another id, and batches another epoch."""
    await api.append("one", "two")
    for _ in range(3):
        assert await values(api) == ["one", "two"]
    etag = (await api.client.get(f"{PARTITION}/offsets")).headers["etag"]
    cut = await api.client.post(
        f"{PARTITION}/truncate", json={"to_offset": 0}, headers={"if-match": etag}
    )
    assert cut.status_code == 200
    await api.append("six", "ten")
    for _ in range(3):
        assert await values(api) == ["six", "ten"]


async def test_a_topic_of_the_same_name_has_texts_of_its_own(api: Api) -> None:
    """A deleted topic's records are never shown again."""
    await api.append("one")
    for _ in range(3):
        assert await values(api) == ["one"]
    assert (await api.client.delete("/v1/topics/events")).status_code in (200, 204)
    await api.create()
    await api.append("six")
    for _ in range(3):
        assert await values(api) == ["six"]
