"""Responses that last longer than the credentials of their requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.credentials import bearer, create_key
from tests.support.server import Served, serving
from tests.support.service import RECORDS

TAIL = "/v1/topics/events/partitions/0/tail"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service that looks at its keys often, with the topic `events` of one record."""
    root = bearer(create_key(tmp_path, "root", "read:*", "append:*", "admin:*"))
    with serving(tmp_path, api_keys_check_interval_ms=5, tail_heartbeat_ms=20) as served:
        with httpx.Client(base_url=served.url, headers=root) as client:
            client.put("/v1/topics/events", json={}).raise_for_status()
            client.post(RECORDS, json={"records": [{"value": "x" * 9_000}]}).raise_for_status()
        yield served


def directory_of(served: Served) -> Path:
    return served.service.settings.data_directory


def key_of(served: Served, name: str, **more: Any) -> dict[str, str]:
    """Return the header of a new key, once the service has read it."""
    headers = bearer(create_key(directory_of(served), name, "read:*", **more))
    while httpx.get(f"{served.url}/v1/limits", headers=headers).status_code == 401:
        pass
    return headers


def end_of(lines: Iterator[str]) -> dict[str, Any]:
    """The last event of a tail."""
    for line in lines:
        if line == "event: end":
            told = next(one for one in lines if one.startswith("data:"))
            end: dict[str, Any] = json.loads(told.removeprefix("data:"))
            return end
    raise AssertionError("the tail ended without a word")


def test_a_tail_beyond_its_quota_ends(served: Served) -> None:
    """Bytes that a tail sends are counted, and the last event says why it ended."""
    headers = key_of(served, "slow", quota={"bytes_out": 4_000})
    url = f"{served.url}{TAIL}?offset=earliest"
    with httpx.stream("GET", url, headers=headers) as answer:
        assert end_of(answer.iter_lines())["reason"] == "quota_exceeded"
