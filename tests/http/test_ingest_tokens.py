"""Ingest tokens: created, listed, revoked; nowhere but in one answer."""

import re
from pathlib import Path

import httpx
import pytest

from app.operations.ingest import senders
from engine.fs.names import INGEST_FILE
from tests.support.builders import DATA, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import Api, open_service, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

TOKENS = "/v1/topics/events/ingest-tokens"


async def created(api: Api, topic: str = "events") -> dict[str, str]:
    answer = await api.client.post(f"/v1/topics/{topic}/ingest-tokens")
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, str] = answer.json()
    return found


async def listed(api: Api, topic: str = "events") -> list[str]:
    answer = await api.client.get(f"/v1/topics/{topic}/ingest-tokens")
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["tokens"]]


async def test_a_token_is_answered_once_and_stored_as_a_hash(tmp_path: Path) -> None:
    """The list has its id and time, the file neither the token nor its secret (J6)."""
    async with running(tmp_path) as api:
        await api.create()
        token = await created(api)
        assert re.fullmatch(r"tli_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", token["token"])
        assert token["url"] == f"/v1/topics/events/ingest/{token['token']}"
        shown = await api.client.get(TOKENS)
        assert token["token"] not in shown.text
        assert [*shown.json()["tokens"][0]] == ["id", "created_timestamp"]
        assert await listed(api) == [token["id"]]
    assert token["token"][-43:] not in (tmp_path / INGEST_FILE).read_text()
    async with running(tmp_path) as api:
        assert await listed(api) == [token["id"]]
        assert api.service.ingest_tokens.identify("events", token["token"]).name == (
            f"ingest:events/{token['id']}"
        )


async def test_a_token_is_revoked_at_once(api: Api) -> None:
    """Running requests with it end, and the other tokens stay valid (J6)."""
    first, second = await created(api), await created(api)
    caller = api.service.ingest_tokens.identify("events", first["token"])
    revoked = await api.client.delete(f"{TOKENS}/{first['id']}")
    assert revoked.status_code == 204
    assert caller.is_revoked
    assert await listed(api) == [second["id"]]
    again = await api.client.delete(f"{TOKENS}/{first['id']}")
    assert (again.status_code, again.json()["code"]) == (404, "ingest_token_not_found")


async def test_a_token_is_of_one_topic(api: Api) -> None:
    """Another topic neither lists nor revokes it; it is deleted with its own topic (J4)."""
    await api.create("other")
    token = await created(api)
    assert await listed(api, "other") == []
    elsewhere = await api.client.delete(f"/v1/topics/other/ingest-tokens/{token['id']}")
    assert elsewhere.status_code == 404
    await api.client.delete("/v1/topics/events")
    await api.create()
    assert await listed(api) == []
    for method, path in (("GET", TOKENS), ("POST", TOKENS), ("DELETE", f"{TOKENS}/0")):
        missing = await api.client.request(method, path.replace("events", "nowhere"))
        assert missing.json()["code"] == "topic_not_found"


async def test_the_number_of_tokens_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused until another is deleted (J6)."""
    monkeypatch.setattr(senders, "MAX_TOKENS", 2)
    first, _ = await created(api), await created(api)
    refused: httpx.Response = await api.client.post(TOKENS)
    assert (refused.status_code, refused.json()["code"]) == (422, "policy_violation")
    await api.client.delete(f"{TOKENS}/{first['id']}")
    await created(api)


async def test_a_token_whose_change_fails_stays_as_it_was() -> None:
    """A token that is not on disk is not created, and one that is stays valid (J5)."""
    disk = with_data(ForgetfulDisk())
    async with open_service(DATA, fs=disk) as service, wired(service) as client:
        api = Api(service, client)
        await api.create()
        token = await created(api)
        for method, path in (("POST", TOKENS), ("DELETE", f"{TOKENS}/{token['id']}")):
            disk.fail("append", error=28, path_end=INGEST_FILE + ".tmp")
            assert (await client.request(method, path)).status_code == 507
        assert await listed(api) == [token["id"]]
        service.ingest_tokens.identify("events", token["token"])
