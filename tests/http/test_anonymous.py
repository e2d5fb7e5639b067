"""What a caller without credentials can make each route cost, where credentials are required."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.operations.service import Service
from tests.support.counting import counted, is_ours
from tests.support.credentials import bearer, create_key
from tests.support.service import open_service
from tests.support.wire import Listener
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

DOCUMENT: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "openapi" / "openapi.json").read_text()
)
METHODS: Final = frozenset({"get", "put", "post", "patch", "delete", "options", "head"})
OPERATIONS: Final = [
    (method.upper(), path, operation["operationId"])
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in METHODS
]
NAMES: Final = {"topic": "events", "partition": "0", "group": "g", "token": "tli_000000000000_x"}
OPEN: Final = frozenset(
    {"getLiveness", "getReadiness", "getService", "allowIngest", "allowIngestWithToken"}
)
"""What probes and senders ask before they have credentials; all else is 401."""

MAX_CALLS: Final = 150
"""Of our own functions. The dearest takes 105 today, about as many as an append."""

MAX_ANSWER_BYTES: Final = 2_000

CONSTANT: Final = ["/openapi.json", "/docs", "/console/", "/console/topics/x", "/", "/nowhere"]
"""Paths beside the operations: pages that were made once, and what is not there."""


def url_of(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "0"), path)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with keys, and a topic that has records."""
    key = create_key(tmp_path, "root", "admin:*", "append:*", "read:*")
    async with open_service(tmp_path) as service, wired(service) as client:
        client.headers.update(bearer(key))
        await client.put("/v1/topics/events", json={})
        for _ in range(20):
            await client.post("/v1/topics/events/ingest", content=b"x" * 10_000)
        yield service


@pytest.mark.parametrize(("method", "path", "name"), OPERATIONS, ids=str)
async def test_a_route_costs_an_anonymous_caller_more_than_the_service(
    service: Service, method: str, path: str, name: str
) -> None:
    """It is refused by its head, in few steps and few bytes, whatever body is announced."""
    listener = Listener(service)
    costs = []
    for _ in range(3):  # the first one may make what is kept for all
        connection = listener.connect()
        head = f"{method} {url_of(path)} HTTP/1.1\r\nhost: localhost\r\n"
        if method in {"PUT", "POST", "PATCH"}:
            head += "content-type: application/json\r\ncontent-length: 1000000\r\n"
        with counted(is_ours) as calls:
            connection.send(f"{head}\r\n".encode())
            reply = await connection.answer()
        costs.append(calls.count)
        connection.hang_up()
        assert reply.status == (200 if name in OPEN else 401)
        assert reply.body_bytes <= MAX_ANSWER_BYTES
    assert min(costs) <= MAX_CALLS


@pytest.mark.parametrize("path", CONSTANT)
async def test_a_page_is_made_once(service: Service, path: str) -> None:
    """Whoever asks for it."""
    listener = Listener(service)
    costs = []
    for _ in range(3):
        connection = listener.connect()
        with counted(is_ours) as calls:
            connection.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            reply = await connection.answer()
        costs.append(calls.count)
        connection.hang_up()
        assert reply.status in {200, 303, 307, 404}
    assert min(costs) <= MAX_CALLS


def test_every_operation_is_in_the_table() -> None:
    """What is open is named; a new operation is refused unless somebody adds it here."""
    names = {name for _, _, name in OPERATIONS}
    assert names >= OPEN
    assert len(names) > 60
