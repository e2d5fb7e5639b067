"""OPTIONS on an ingest URL: the permission that senders of CloudEvents ask for."""

from pathlib import Path

import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
ASKED = {"webhook-request-origin": "eventemitter.example.com", "webhook-request-rate": "120"}


async def test_a_sender_of_cloudevents_gets_its_permission(tmp_path: Path) -> None:
    """Its origin, and the rate of the quota per minute; also where the topic is not (J10)."""
    key = create_key(tmp_path, "ops", "admin:*")
    async with (
        running(tmp_path, quota_requests_per_second=100) as api,
        wired(api.service) as nobody,
    ):
        api.client.headers.update(bearer(key))
        await api.create()
        url = (await api.client.post("/v1/topics/events/ingest-tokens")).json()["url"]
        for path in (INGEST, url, "/v1/topics/nowhere/ingest"):
            answer = await nobody.options(path, headers=ASKED)
            assert (answer.status_code, answer.content) == (200, b"")
            assert answer.headers["webhook-allowed-origin"] == "eventemitter.example.com"
            assert answer.headers["webhook-allowed-rate"] == "6000"
            assert "POST" in answer.headers["allow"]
            plain = await nobody.options(path)
            assert plain.status_code == 200
            assert "webhook-allowed-origin" not in plain.headers
        for origin in ("", "two words", "é", "x" * 256):
            header = (b"webhook-request-origin", origin.encode())
            bad = await nobody.options(INGEST, headers=[header])
            assert (bad.status_code, bad.json()["code"]) == (400, "malformed_request")
    async with running(tmp_path / "open") as api:
        answer = await api.client.options(INGEST, headers=ASKED)
        assert answer.headers["webhook-allowed-rate"] == "*"
