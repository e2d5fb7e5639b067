"""Responses that last longer than the credentials of their requests."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.credentials import bearer, create_key, revoke
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


def test_a_tail_ends_with_its_key(served: Served) -> None:
    """A tail whose key is revoked ends with an error at the next heartbeat. As (Z7) says."""
    headers = key_of(served, "leaked")
    with httpx.stream("GET", f"{served.url}{TAIL}", headers=headers) as answer:
        lines = answer.iter_lines()
        assert any(line.startswith("event: ") for line in lines)
        revoke(directory_of(served), "leaked")
        assert end_of(lines)["reason"] == "unauthenticated"


def test_a_tail_beyond_its_quota_ends(served: Served) -> None:
    """Bytes that a tail sends are counted, and the last event says why it ended."""
    headers = key_of(served, "slow", quota={"bytes_out": 4_000})
    url = f"{served.url}{TAIL}?offset=earliest"
    with httpx.stream("GET", url, headers=headers) as answer:
        assert end_of(answer.iter_lines())["reason"] == "quota_exceeded"


def test_a_long_poll_ends_with_its_key(served: Served) -> None:
    """Records committed after a key was revoked are not sent to a poll with that key."""
    headers = key_of(served, "leaked")
    answers: list[httpx.Response] = []

    def poll() -> None:
        url = f"{served.url}{RECORDS}?offset=latest&max_wait_ms=60000"
        answers.append(httpx.get(url, headers=headers, timeout=60))

    waiting = threading.Thread(target=poll)
    waiting.start()
    while served.service.tail.waiting == 0:
        pass
    revoke(directory_of(served), "leaked")
    while httpx.get(f"{served.url}/v1/limits", headers=headers).status_code != 401:
        pass
    writer = bearer(create_key(directory_of(served), "writer", "append:*"))
    body = {"records": [{"value": "secret"}]}
    while httpx.post(served.url + RECORDS, json=body, headers=writer).status_code != 201:
        pass
    waiting.join(30)
    (answer,) = answers
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
