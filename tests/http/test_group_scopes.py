"""What keys may see and do of groups: their offsets in topics that the key may read."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import open_service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio


@pytest.fixture
async def keyed(tmp_path: Path, anyio_backend: str) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """Clients by the names of their keys, of a service with the topics `events` and `other`."""
    scopes = {"root": ("admin:*", "read:*"), "one": ("read:events",), "two": ("read:events",)}
    keys = {name: create_key(tmp_path, name, *some) for name, some in scopes.items()}
    async with open_service(tmp_path) as service:
        clients = {name: wired(service) for name in keys}
        for name, client in clients.items():
            client.headers.update(bearer(keys[name]))
        for topic in ("events", "other"):
            answer = await clients["root"].put(f"/v1/topics/{topic}", json={})
            assert answer.status_code == 201
        yield clients
        for client in clients.values():
            await client.aclose()


async def test_a_group_that_may_not_be_seen_is_answered_as_one_that_is_not_there(
    keyed: dict[str, httpx.AsyncClient],
) -> None:
    """Names of groups cannot be guessed from the responses (G5)."""
    url = "/v1/groups/secret/offsets/other/0"
    assert (await keyed["root"].put(url, json={"offset": 0})).status_code == 201
    for way in ("offsets", "offsets?page_size=1", "lag"):
        problems = []
        for name in ("secret", "absent"):
            answer = await keyed["one"].get(f"/v1/groups/{name}/{way}")
            assert (answer.status_code, answer.json()["code"]) == (404, "group_not_found")
            problem = answer.json() | {"trace_id": ""}
            for member in ("detail", "group", "instance"):
                problem[member] = problem[member].replace(name, "NAME")
            problems.append(problem)
        assert problems[0] == problems[1]
    assert (await keyed["root"].get("/v1/groups/secret/offsets")).status_code == 200


async def test_a_group_has_no_owner(keyed: dict[str, httpx.AsyncClient]) -> None:
    """Any key that may read a topic may change the offset that another key has stored in it."""
    url = "/v1/groups/lake/offsets/events/0"
    assert (await keyed["one"].put(url, json={"offset": 0})).status_code == 201
    moved = await keyed["two"].put(url, json={"offset": 0, "metadata": "mine"})
    assert (moved.status_code, moved.json()["metadata"]) == (200, "mine")
    other = "/v1/groups/lake/offsets/other/0"
    assert (await keyed["two"].put(other, json={"offset": 0})).status_code == 403
