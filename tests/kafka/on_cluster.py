"""A plugin of pytest: the tests of the HTTP API run against a Kafka cluster, and say how they end.

    KAFKA_BROKERS=HOST:PORT pytest -p tests.kafka.on_cluster --outcomes FILE tests/http

Every service that a test opens stores its logs in that cluster. Before each test its topics are
deleted. The file gets the outcome of each test:

    passed
    engine   the test looks into the engine or its files, which are the brokers' here
    etag     the test needs the ETag of an offset, which no request could be conditional on
    501      the test asked for what this backend does not support, and did not expect that
    failed   everything else
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from app.errors import NotSupportedByBackend
from tests.support import service

_NOT_SUPPORTED = 501
_LOOKS = 8
"""Brokers learn of a change one after the other, and each look asks one of them at random."""
_DOCUMENTS = "__tidelog_documents"
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    cluster = os.environ["KAFKA_BROKERS"]
    service.BACKEND.update(kafka=cluster, kafka_metadata_interval_ms=500)
    config.pluginmanager.register(_Outcomes(cluster, config.getoption("--outcomes")))


class _Outcomes:
    """Empties the cluster before each test, and writes how the test ends."""

    def __init__(self, cluster: str, target: Path) -> None:
        self._cluster = cluster
        self._target = target
        self._refused: list[str] = []
        send = httpx.AsyncClient.send

        async def watched(client: httpx.AsyncClient, request: httpx.Request, **more: Any) -> Any:
            answer = await send(client, request, **more)
            if answer.status_code == _NOT_SUPPORTED:
                self._refused.append(f"{request.method} {request.url.path}")
            return answer

        pytest.MonkeyPatch().setattr(httpx.AsyncClient, "send", watched)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        documents = "ingest" in item.path.name or "idempotency" in item.path.name
        asyncio.run(_delete_topics(self._cluster, documents=documents))
        self._refused.clear()
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "call" or call.excinfo is not None:
            outcome = self._outcome(call.excinfo.value if call.excinfo else None)
            told = {
                "test": item.nodeid,
                "outcome": outcome,
                "refused": self._refused,
                "error": str(report.longrepr or "")[-500:],
            }
            with self._target.open("a") as file:
                file.write(json.dumps(told) + "\n")
        return report

    def _outcome(self, error: BaseException | None) -> str:
        if error is None:
            return "passed"
        if isinstance(error, NotSupportedByBackend | FileNotFoundError):
            return "engine"
        if isinstance(error, KeyError) and error.args == ("etag",):
            return "etag"
        return "501" if self._refused else "failed"


async def _delete_topics(cluster: str, *, documents: bool) -> None:
    """Delete the topics of the test before, and the documents if a test stores some."""
    kept = _INTERNAL if documents else {*_INTERNAL, _DOCUMENTS}
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster)
    await admin.start()
    try:
        unseen = 0
        while unseen < _LOOKS:
            topics = [name for name in await admin.list_topics() if name not in kept]
            unseen = 0 if topics else unseen + 1
            if topics:
                await admin.delete_topics(topics)
    finally:
        await admin.close()
