"""Pages of other origins: which responses a browser lets them read."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.server.process import compose
from tests.support.server import serving
from tests.support.service import BATCHES, OFFSETS, RECORDS, client_of, open_in_memory, open_service
from tests.support.wire import Listener, request

pytestmark = pytest.mark.anyio

PAGE = "https://pages.example"
HERE = {"origin": PAGE}
ELSEWHERE = {"origin": "https://elsewhere.example"}
SLOW = "/v1/topics/events"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that allows one origin."""
    async with (
        open_service(tmp_path, cors_origins=(PAGE,)) as service,
        client_of(compose(service)) as client,
    ):
        await client.put(SLOW, json={})
        yield client


def preflight(origin: dict[str, str], method: str, *headers: str) -> dict[str, str]:
    asked = {"access-control-request-method": method}
    return origin | asked | {"access-control-request-headers": ", ".join(headers)}


async def test_no_page_may_call_unless_it_is_listed(tmp_path: Path) -> None:
    """Without the setting no response has CORS headers, and OPTIONS is 405 (Z8)."""
    async with open_service(tmp_path) as service, client_of(compose(service)) as client:
        await client.put(SLOW, json={})
        for path in (OFFSETS, SLOW):
            answer = await client.get(path, headers=HERE)
            assert not [name for name in answer.headers if name.startswith("access-control")]
            asked = await client.options(path, headers=preflight(HERE, "GET"))
            assert asked.status_code == 405


@pytest.mark.parametrize("path", [OFFSETS, SLOW, RECORDS, f"{OFFSETS}x", f"{RECORDS}?offset=9"])
async def test_a_listed_page_may_read_the_answer(client: httpx.AsyncClient, path: str) -> None:
    """In both ways in, and of errors too, with the headers of the log's offsets."""
    answer = await client.get(path, headers=HERE)
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in answer.headers  # no cookies: there are none
    shown = answer.headers["access-control-expose-headers"].lower().split(", ")
    told = {name for name in answer.headers if name.startswith(("log-", "retry", "link", "etag"))}
    assert told <= set(shown)
    assert "Origin" in answer.headers["vary"]
    other = await client.get(path, headers=ELSEWHERE)
    assert "access-control-allow-origin" not in other.headers
    nobody = await client.get(path)
    assert "access-control-allow-origin" not in nobody.headers
    assert "Origin" in nobody.headers["vary"]  # a cache must not give it to a page


async def test_a_browser_may_ask_before_it_calls(client: httpx.AsyncClient) -> None:
    """Every method is allowed for every allowed origin, and headers that libraries add."""
    asked = preflight(HERE, "PUT", "authorization", "Idempotency-Key", "baggage", "ce-id")
    for path in (RECORDS, SLOW):
        answer = await client.options(path, headers=asked)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-max-age"] == "600"


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (preflight(ELSEWHERE, "GET"), "origin"),
        (preflight(HERE, "TRACE"), "method"),
    ],
)
async def test_what_may_not_be_called_is_explained(
    client: httpx.AsyncClient, asked: dict[str, str], fault: str
) -> None:
    """The refusal is a problem document like every other."""
    answer = await client.options(RECORDS, headers=asked)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert answer.headers["content-type"] == "application/problem+json"
    assert fault in answer.json()["detail"]
    assert answer.json()["instance"] == RECORDS
    assert len(answer.headers.get_list("content-type")) == 1


async def test_every_page_may_be_let_in(tmp_path: Path) -> None:
    """A star allows all origins."""
    async with (
        open_service(tmp_path, cors_origins=("*",)) as service,
        client_of(compose(service)) as client,
    ):
        await client.put(SLOW, json={})
        answer = await client.get(OFFSETS, headers=ELSEWHERE)
        assert answer.headers["access-control-allow-origin"] == "*"


def test_a_page_may_append_over_a_connection_that_knows_the_path(tmp_path: Path) -> None:
    """Appends of a page do not slip below what adds the headers for its browser."""
    with (
        serving(tmp_path, cors_origins=(PAGE,)) as served,
        httpx.Client(base_url=served.url, headers=HERE) as client,
    ):
        client.put(SLOW, json={}).raise_for_status()
        for _ in range(3):
            answer = client.post(RECORDS, json={"records": [{"value": 1}]})
            assert answer.headers["access-control-allow-origin"] == PAGE


async def test_responses_without_an_origin_vary_by_origin_too() -> None:
    """Responses below ASGI without an origin vary by origin too, in one line (Z8)."""
    async with open_in_memory(cors_origins=(PAGE,)) as service:
        connection = Listener(service).connect()
        connection.send(request("PUT", SLOW, b"{}"))
        assert (await connection.answer()).status == 201
        for path in (RECORDS, BATCHES, OFFSETS):
            varies = []
            for origin in (HERE, ELSEWHERE, {}):
                connection.send(request("GET", path, headers=origin))
                is_below = not connection.has_tasks
                headers = (await connection.answer()).headers
                varies.append([value for name, value in headers if name == b"vary"])
            assert is_below
            assert varies == [[varies[0][0]]] * 3
            assert varies[0][0].split(b", ")[-1] == b"Origin"
