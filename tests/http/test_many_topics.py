"""Thousands of topics: made, listed and measured, and one of them used."""

from pathlib import Path

import pytest

from tests.support.service import open_service
from tests.support.wired_client import wired

TOPICS = 2_000
SERIES = 100

pytestmark = [pytest.mark.anyio, pytest.mark.long]


async def test_thousands_of_topics_are_listed_in_pages_and_measured_in_sums(tmp_path: Path) -> None:
    """Every name comes once and in order; /metrics does not grow with them; the last one works."""
    names = [f"topic-{number:04d}" for number in range(TOPICS)]
    async with (
        open_service(tmp_path, max_metric_partitions=SERIES) as service,
        wired(service) as client,
    ):
        for name in names:
            assert (await client.put(f"/v1/topics/{name}", json={})).status_code == 201
        listed: list[str] = []
        token: str | None = ""
        while token is not None:
            asked = {"page_size": "1000"} | ({"page_token": token} if token else {})
            page = (await client.get("/v1/topics", params=asked)).json()
            listed += [topic["topic"] for topic in page["topics"]]
            token = page["next_page_token"]
        assert listed == names
        metrics = (await client.get("/metrics")).text
        assert metrics.count("\ntidelog_log_end_offset{") == SERIES
        assert f"\ntidelog_partitions_without_series {TOPICS - SERIES:.1f}" in metrics
        records = f"/v1/topics/{names[-1]}/partitions/0/records"
        appended = await client.post(records, json={"records": [{"value": "last"}]})
        assert appended.status_code == 201
        assert (await client.get(records)).json()["records"][0]["value"] == "last"
        wanted = [{"topic": name, "partition": 0} for name in names[-1_000:]]
        fetched = await client.post("/v1/fetch", json={"partitions": wanted})
        assert [one["topic"] for one in fetched.json()["partitions"]] == names[-1_000:]
