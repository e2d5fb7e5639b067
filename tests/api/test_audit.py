"""What is told of whom: the audit log, and no secret in any log."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import RECORDS, client_of, fast, running

pytestmark = pytest.mark.anyio

MEMBERS = ("principal", "operation", "path", "status", "outcome")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """What the audit log was told."""
    lines = [vars(record) for record in caplog.records if record.name == "tidelog.audit"]
    return [tuple(line[member] for member in MEMBERS) for line in lines]


async def test_administrative_actions_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who did what, on what, and what became of it; refused attempts too, and nothing else."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    key = create_key(tmp_path, "ops", "admin:*", "append:*", "read:*")
    async with running(tmp_path) as api:
        api.client.headers.update(bearer(key))
        await api.create()
        await api.append(1)
        await api.client.get("/v1/topics/events")
        await api.client.put("/v1/topics/bad name", json={})
        reader = bearer(create_key(tmp_path, "reader", "read:*"))
        await api.service.security.refresh_keys()
        caplog.clear()
        await api.client.post("/v1/topics/events/partitions/0/flush")
        await api.client.delete("/v1/topics/events", headers=reader)
        async with client_of(fast(api.service)) as nobody:
            await nobody.delete("/v1/topics/events")
        await api.client.delete("/v1/topics/events")
        await api.client.post("/v1/topics/events")  # no operation, so none is told of
    topic = "/v1/topics/events"
    assert told(caplog) == [
        ("key:ops", "flushLog", f"{topic}/partitions/0/flush", 200, "done"),
        ("key:reader", "deleteTopic", topic, 403, "refused"),
        (None, "deleteTopic", topic, 401, "refused"),
        ("key:ops", "deleteTopic", topic, 204, "done"),
    ]


async def test_without_credentials_the_action_is_told_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An open service knows what was done, and from where."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    async with running(tmp_path) as api:
        await api.create()
    assert told(caplog) == [("anonymous", "putTopic", "/v1/topics/events", 201, "done")]
    assert vars(caplog.records[-1])["client"] == "127.0.0.1"


async def test_no_secret_is_in_any_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With everything logged, whatever becomes of the requests, no log has a key in it."""
    caplog.set_level(logging.DEBUG)
    key = create_key(tmp_path, "root", "read:*", "append:*", "admin:*", "metrics")
    wrong = f"{key[:-1]}x"
    async with running(tmp_path, access_log=True) as api:
        for token in (key, wrong, f"{key}, {key}", f"{key} {key}"):
            for headers in (bearer(token), {"authorization": f"Basic {token}"}):
                for method, path in (
                    ("PUT", "/v1/topics/events"),
                    ("GET", RECORDS),
                    ("POST", RECORDS),
                    ("GET", f"{RECORDS}?offset=x"),
                    ("GET", f"/v1/topics?access_token={token}"),
                    ("GET", "/nowhere"),
                ):
                    await api.client.request(method, path, headers=headers, content=b"{")
    secret = key.split("_", 2)[2][:-1]
    ours = [one for one in caplog.records if not one.name.startswith(("httpx", "httpcore"))]
    assert len(ours) > 20
    assert not [one for one in ours if secret in str(vars(one))]
