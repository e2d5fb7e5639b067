"""Refused requests to ingest URLs: other sites' pages, and how refusals are counted."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.http.problems import KINDS
from app.operations.service import Service
from app.telemetry import refusals
from app.telemetry.refusals import REASONS
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
OTLP = f"{INGEST}/otlp/v1/logs"
PLAIN = {"content-type": "text/plain"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
ELSEWHERE = {"origin": "https://elsewhere.example"}
SITE = {"sec-fetch-site": "cross-site"}


@pytest.mark.parametrize("path", [INGEST, f"{INGEST}?split=lines", OTLP])
@pytest.mark.parametrize("sent_type", [PLAIN, FORM, {}, {"content-type": "application/json"}])
@pytest.mark.parametrize(
    "page", [ELSEWHERE, SITE, ELSEWHERE | SITE, {"origin": "null"}, {"sec-fetch-site": "same-site"}]
)
async def test_a_page_of_another_site_ingests_nothing(
    service: Service, path: str, sent_type: dict[str, str], page: dict[str, str]
) -> None:
    """Nor with the requests that a browser sends without asking first, on an open service (Z9)."""
    await service.topics.create("events", 1, {})
    async with wired(service) as client:
        answer = await client.post(path, content=b"x", headers=sent_type | page)
        assert answer.status_code == 403, answer.text
        own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
        assert service.partition("events", 0).watermarks.log_end_offset == 0
        answer = await client.post(INGEST, content=b"x", headers=sent_type | own)
        assert answer.status_code in {200, 400}, answer.text


async def test_a_foreign_name_of_the_service_ingests_nothing(service: Service) -> None:
    """As DNS rebinding would have it."""
    await service.topics.create("events", 1, {})
    async with wired(service) as client:
        for path in (INGEST, OTLP):
            answer = await client.post(path, content=b"x", headers={"host": "elsewhere.example"})
            assert answer.status_code == 421
    assert service.partition("events", 0).watermarks.log_end_offset == 0
    assert service.telemetry.exposition().count(
        b'tidelog_ingest_refused_total{reason="misdirected"} 2'
    )


async def test_a_get_from_another_site_changes_nothing(service: Service) -> None:
    """It is a health check, also for a page of another site."""
    await service.topics.create("events", 1, {})
    async with wired(service) as client:
        answer = await client.get(INGEST, headers=ELSEWHERE | SITE)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
    assert service.partition("events", 0).watermarks.log_end_offset == 0


@pytest.mark.parametrize("way", [wired, partial(wired, is_hot=False)])
async def test_refusals_are_counted_by_reason(service: Service, way: Any) -> None:
    """On each way in, and only those of ingest."""
    await service.topics.create("events", 1, {})
    async with way(service) as client:
        await client.post(INGEST, content=b"")
        await client.post(INGEST, content=b"{", headers={"content-type": "application/json"})
        await client.post(INGEST, content=b"x", headers={"content-encoding": "br"})
        await client.post(OTLP, content=b"x", headers=PLAIN)
        await client.post("/v1/topics/other/ingest", content=b"x")
        await client.post("/v1/topics/events/records", content=b"{")
    shown = service.telemetry.exposition().decode()
    counted = {
        line.partition('reason="')[2].partition('"')[0]: float(line.rpartition(" ")[2])
        for line in shown.splitlines()
        if line.startswith("tidelog_ingest_refused_total{")
    }
    assert counted == {
        "invalid_record": 1.0,
        "malformed": 1.0,
        "media_type": 2.0,
        "topic_not_found": 1.0,
    }


def test_the_reasons_are_a_closed_set(service: Service) -> None:
    """Whatever the error, its reason is one of the page's."""
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    (row,) = [line for line in page.read_text().splitlines() if "ingest_refused" in line]
    assert all(f"`{reason}`" in row for reason in REASONS)
    for kind in KINDS:
        error = Exception.__new__(kind)
        service.refusals.count(error, INGEST)
    for line in service.telemetry.exposition().decode().splitlines():
        if line.startswith("tidelog_ingest_refused_total{"):
            assert line.partition('reason="')[2].partition('"')[0] in REASONS


async def test_a_topic_tells_what_was_refused_and_why(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest first, as the sender was told; the last ones only, of topics that exist (J9)."""
    monkeypatch.setattr(refusals, "MAX_DETAIL", 10)
    await service.topics.create("events", 1, {})
    listed = "/v1/topics/events/ingest-refusals"
    async with wired(service) as client:
        assert (await client.get(listed)).json() == {"topic": "events", "refusals": []}
        await client.post(INGEST, content=b"")
        await client.post(INGEST, content=b"x", headers={"content-encoding": "br"})
        await client.post("/v1/topics/absent/ingest", content=b"x")
        first, second = (await client.get(listed)).json()["refusals"]
        assert (first["reason"], first["status"]) == ("media_type", 415)
        assert (second["reason"], second["code"]) == ("invalid_record", "invalid_record")
        assert len(first["detail"]) == 10
        assert first["timestamp"] >= second["timestamp"] > 0
        for _ in range(refusals.MAX_REFUSALS_OF_TOPIC):
            await client.post(INGEST, content=b"")
        kept = (await client.get(listed)).json()["refusals"]
        assert [one["code"] for one in kept] == ["invalid_record"] * refusals.MAX_REFUSALS_OF_TOPIC
        await client.delete("/v1/topics/events")
        await service.topics.create("events", 1, {})
        assert (await client.get(listed)).json()["refusals"] == []
        assert (await client.get("/v1/topics/absent/ingest-refusals")).status_code == 404


async def test_refusals_of_many_topics_are_bounded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that refused last are kept: memory does not grow with the number of topics."""
    monkeypatch.setattr(refusals, "MAX_TOPICS", 2)
    async with wired(service) as client:
        for name in ("a", "b", "c"):
            await service.topics.create(name, 1, {})
        for name in ("a", "b", "a", "c"):
            await client.post(f"/v1/topics/{name}/ingest", content=b"")
        kept = [
            len((await client.get(f"/v1/topics/{name}/ingest-refusals")).json()["refusals"])
            for name in ("a", "b", "c")
        ]
    assert kept == [2, 0, 1]
