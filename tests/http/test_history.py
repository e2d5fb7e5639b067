"""The history of the last 15 minutes (H10), and the figures that lists show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.operations import history as operation
from app.store.local import topics
from app.telemetry import history
from tests.support.credentials import bearer, create_key
from tests.support.service import Api, running
from tests.support.time import START_MS

pytestmark = pytest.mark.anyio


def looked(api: Api, *, times: int = 1) -> None:
    """So many intervals pass; the clock of the service goes on by itself."""
    for _ in range(times):
        api.service.history.look()


async def shown(api: Api, key: str = "") -> Any:
    answer = await api.client.get("/v1/history", headers=bearer(key) if key else {})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_point_counts_what_happened_since_the_one_before(api: Api) -> None:
    """Requests, appends, records and bytes of the interval, and how long appends took (H10)."""
    looked(api)
    await api.append(1, 2, 3)
    looked(api)
    await api.append(4)
    await api.client.get("/v1/topics/events/partitions/0/records")
    looked(api, times=2)
    _, first, second, idle = (await shown(api))["points"]
    assert (first["append_requests"], first["records_in"], first["requests"]) == (1, 3, 1)
    assert (second["append_requests"], second["records_in"], second["requests"]) == (1, 1, 2)
    assert second["bytes_in"] < first["bytes_in"]
    assert second["bytes_out"] >= first["bytes_in"] + second["bytes_in"]
    assert 0 < first["append_p50_ms"] <= first["append_p99_ms"]
    assert first["commit_p99_ms"] > 0
    assert (idle["requests"], idle["append_p99_ms"], idle["commit_p99_ms"]) == (0, None, None)
    assert first["timestamp"] <= second["timestamp"]
    assert min(point["duration_ms"] for point in (first, second)) >= 1


async def test_the_history_is_bounded(api: Api) -> None:
    """Fifteen minutes of points, whatever the service has done before."""
    looked(api, times=500)
    assert len((await shown(api))["points"]) == history.SPAN_MS // history.INTERVAL_MS


async def test_topics_are_counted_by_the_minute(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The busiest first, with a number for each minute; those beyond the bound are left out."""
    monkeypatch.setattr(history, "MINUTE_MS", 0)  # each look ends one
    monkeypatch.setattr(history, "MAX_TOPICS_OF_MINUTE", 2)
    for name, count in (("small", 1), ("large", 30), ("middle", 2)):
        await api.create(name)
        await api.append(*range(count), path=f"/v1/topics/{name}/partitions/0/records")
    looked(api)
    await api.append(1, path="/v1/topics/middle/partitions/0/records")
    looked(api)
    found = await shown(api)
    assert len(found["minutes"]) == 2
    counted = [(one["topic"], one["records_in"]) for one in found["topics"][:2]]
    assert counted == [("large", [30, 0]), ("middle", [2, 1])]
    assert {one["topic"] for one in found["topics"][2:]} == {"small", "events"}  # the largest
    assert all(len(one["bytes_in"]) == 2 for one in found["topics"])
    await api.client.delete("/v1/topics/large")
    assert (await shown(api))["topics"][0]["topic"] == "middle"


async def test_totals_are_of_all_topics(api: Api) -> None:
    """Without internal ones, however many pages the list of topics has."""
    for number in range(3):  # and `events`, which has one partition
        await api.create(f"t{number}", 2)
    await api.append("x" * 1000, path="/v1/topics/t1/partitions/0/records")
    await api.client.put("/v1/groups/g/offsets/t1/0", json={"offset": 0})
    totals = (await shown(api))["totals"]
    assert (totals["topics"], totals["partitions"], totals["is_complete"]) == (4, 7, True)
    assert 1000 < totals["size_bytes"] < 2000
    assert (totals["unflushed_bytes"], totals["late_transaction_partitions"]) == (0, 0)


async def test_the_last_refusals_of_all_topics_are_named(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest first, with the reason; the topic's own list says more."""
    monkeypatch.setattr(operation, "MAX_REFUSALS_SHOWN", 2)
    await api.create("other")
    for topic in ("events", "other", "events"):
        await api.client.post(f"/v1/topics/{topic}/ingest", content=b"")
    refusals = (await shown(api))["refusals"]
    assert len(refusals) == 2
    assert {one["reason"] for one in refusals} == {"invalid_record"}
    assert refusals[0]["timestamp"] >= refusals[1]["timestamp"]


async def test_it_needs_the_scope_metrics(tmp_path: Path) -> None:
    """Topics that the caller may not see are not named."""
    reader = create_key(tmp_path, "reader", "read:*", "admin:*", "append:*")
    screen = create_key(tmp_path, "screen", "metrics")
    async with running(tmp_path) as api:
        refused = await api.client.get("/v1/history", headers=bearer(reader))
        assert refused.status_code == 403
        await api.client.put("/v1/topics/events", json={}, headers=bearer(reader))
        assert (await shown(api, screen))["topics"] == []


async def test_lists_say_how_large_and_how_recent_a_topic_is(api: Api) -> None:
    """The sum of its partitions, and the time of its newest record."""
    await api.create("full", 2, retention_ms="-1")
    for number, timestamp in enumerate((START_MS + 5, START_MS)):
        body = {"records": [{"value": "x", "timestamp": timestamp}]}
        path = f"/v1/topics/full/partitions/{number}"
        (await api.client.post(f"{path}/records", json=body)).raise_for_status()
        if number == 0:
            (await api.client.post(f"{path}/roll")).raise_for_status()
    listed = (await api.client.get("/v1/topics")).json()["topics"]
    empty, full = ((one["size_bytes"], one["newest_timestamp"]) for one in listed)
    assert empty == (0, None)
    assert full[0] > 100
    assert full[1] == START_MS + 5


async def test_figures_of_many_partitions_come_from_a_worker(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the same; the loop has other things to do meanwhile."""
    await api.append("x" * 100)
    before = (await api.client.get("/v1/topics")).json()
    monkeypatch.setattr(topics, "INLINE_PARTITIONS", 0)
    assert (await api.client.get("/v1/topics")).json() == before


async def test_metrics_are_compressed_for_those_who_ask(api: Api) -> None:
    """A scrape of thousands of series is a tenth of its size on the way."""
    answer = await api.client.get("/metrics", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.startswith("# HELP")
    plain = await api.client.get("/metrics", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        ([], 0.5, None),
        ([(0.001, 0.0), (float("inf"), 0.0)], 0.5, None),
        ([(0.001, 10.0), (0.002, 10.0), (float("inf"), 10.0)], 0.5, 0.5),
        ([(0.001, 0.0), (0.002, 10.0), (float("inf"), 10.0)], 0.5, 1.5),
        ([(0.001, 1.0), (float("inf"), 10.0)], 0.99, 1.0),
    ],
)
def test_quantiles_are_those_of_prometheus(
    buckets: history.Buckets, share: float, expected: float | None
) -> None:
    """Interpolated within their bucket; beyond the last bound it is that bound."""
    assert history.quantile_ms(buckets, share) == expected
