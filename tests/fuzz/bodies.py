"""Hostile bodies for the service itself, in this process and on a disk in memory, all lanes of it.

Whatever a body holds, the answer is a success or a problem that says what is wrong; nothing stays
held, and the log is as whole as before.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from app.operations.service import Service
from tests.fuzz.targets import target
from tests.support.service import open_in_memory
from tests.support.wire import Listener, Reply, request, turn

REQUESTS_OF_A_SERVICE: Final = 2_000
"""A disk in memory grows with what is appended: after so many it is given away for a new one."""


class Way(NamedTuple):
    """A request to which the bytes are the body."""

    method: str
    path: str
    content_type: str
    encoding: str = ""


JSON: Final = "application/json"
PARTITION: Final = "/v1/topics/events/partitions/0"
INGEST: Final = "/v1/topics/events/ingest"
REST: Final = "application/vnd.kafka.{}.v2+json"
WAYS: Final = (
    Way("POST", f"{PARTITION}/records", JSON),
    Way("POST", f"{PARTITION}/records", "application/x-ndjson"),
    Way("POST", f"{PARTITION}/records", JSON, "gzip"),
    Way("POST", f"{PARTITION}/records", JSON, "zstd"),
    Way("POST", f"{PARTITION}/records?stream=true", "application/x-ndjson"),
    Way("POST", f"{PARTITION}/batches", "application/vnd.kafka.recordbatch.v2"),
    Way("POST", "/v1/topics/events/records", JSON),
    Way("POST", "/v1/topics/events/records", "application/x-ndjson"),
    Way("POST", "/topics/events", REST.format("json")),
    Way("POST", "/topics/events/partitions/0", REST.format("binary")),
    Way("POST", "/v1/fetch", JSON),
    Way("POST", "/v1/topics/events/splits", JSON),
    Way("PUT", "/v1/topics/events", JSON),
    Way("PATCH", "/v1/topics/events", "application/merge-patch+json"),
    Way("POST", f"{PARTITION}/delete-records", JSON),
    Way("POST", f"{PARTITION}/truncate", JSON),
    Way("POST", f"{PARTITION}/move", JSON),
    Way("POST", f"{PARTITION}/transactions", JSON),
    Way("PUT", "/v1/groups/g/offsets/events/0", JSON),
    Way("POST", INGEST, JSON),
    Way("POST", f"{INGEST}?split=array", JSON),
    Way("POST", f"{INGEST}?split=array", JSON, "gzip"),
    Way("POST", f"{INGEST}?split=lines", JSON),
    Way("POST", f"{INGEST}?split=lines", "text/plain"),
    Way("POST", INGEST, "application/x-ndjson"),
    Way("POST", INGEST, "application/x-ndjson", "zstd"),
    Way("POST", INGEST, "application/cloudevents+json"),
    Way("POST", INGEST, "application/cloudevents-batch+json"),
    Way("POST", INGEST, "application/x-www-form-urlencoded"),
)


class _Place:
    """The one service of this process, made when it is first asked."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._service: Service | None = None
        self._asked = 0

    def ask(self, way: Way, body: bytes) -> None:
        self._runner.run(self._ask(way, body))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _ask(self, way: Way, body: bytes) -> None:
        if self._service is None or self._asked == REQUESTS_OF_A_SERVICE:
            await self._begin()
        assert self._service is not None
        self._asked += 1
        headers = {"content-type": way.content_type}
        if way.encoding:
            headers["content-encoding"] = way.encoding
        answer = await self._answer(request(way.method, way.path, body, headers))
        if answer.status >= 400:
            problem = json.loads(answer.body)
            assert answer.status != 500, problem
            assert problem.get("code") or problem.get("error_code"), problem
        ensure_nothing_held(self._service)

    async def _answer(self, sent: bytes) -> Reply:
        """Ask on a connection of its own; return when the service is done with it."""
        connection = self._listener.connect()
        connection.send(sent)
        answer = await connection.answer()
        while connection.has_tasks:
            await turn()
        connection.hang_up()
        return answer

    async def _begin(self) -> None:
        await self._stack.aclose()
        self._service = await self._stack.enter_async_context(open_in_memory(max_wait_ms=1))
        self._listener, self._asked = Listener(self._service), 0
        made = await self._answer(request("PUT", "/v1/topics/events", b"{}"))
        assert made.status == 201


def ensure_nothing_held(service: Service) -> None:
    held = service.admission
    assert (held.requests, held.body_bytes, held.answer_bytes) == (0, 0, 0), held


_place = _Place()
close = _place.close


@target
def bodies(data: bytes) -> None:
    """The first byte chooses the request, the rest is its body."""
    if data:
        _place.ask(WAYS[data[0] % len(WAYS)], data[1:])
