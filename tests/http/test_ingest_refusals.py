"""Refused requests to ingest URLs: other sites' pages, and how refusals are counted."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.http.problems import KINDS
from app.operations.service import Service
from app.telemetry.refusals import REASONS, count_problem
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
        count_problem(service.telemetry, error, INGEST)
    for line in service.telemetry.exposition().decode().splitlines():
        if line.startswith("tidelog_ingest_refused_total{"):
            assert line.partition('reason="')[2].partition('"')[0] in REASONS
