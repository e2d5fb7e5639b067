"""The content of the audit log, and no secret in any log."""

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import RECORDS, open_service, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

MEMBERS = ("principal", "operation", "path", "status", "outcome")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """Return the entries of the audit log."""
    lines = [vars(record) for record in caplog.records if record.name == "tidelog.audit"]
    return [tuple(line[member] for member in MEMBERS) for line in lines]


async def test_administrative_actions_are_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Caller, action, object and outcome; refused attempts too, and nothing else."""
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
        async with wired(api.service) as nobody:
            await nobody.delete("/v1/topics/events")
        await api.client.delete("/v1/topics/events")
        await api.client.post("/v1/topics/events")  # not an operation, so it is not audited
    topic = "/v1/topics/events"
    assert told(caplog) == [
        ("key:ops", "flushLog", f"{topic}/partitions/0/flush", 200, "done"),
        ("key:reader", "deleteTopic", topic, 403, "refused"),
        (None, "deleteTopic", topic, 401, "refused"),
        ("key:ops", "deleteTopic", topic, 204, "done"),
    ]


async def test_refused_callers_are_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Failed logins and missing scopes, in both ways in, with the caller if known."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    key = create_key(tmp_path, "ops", "admin:*", "append:*", "read:*")
    stale = bearer(create_key(tmp_path, "stale", "read:*", expires_ms=1))
    other = bearer(create_key(tmp_path, "other", "read:other"))
    async with open_service(tmp_path) as service, wired(service) as client:
        await client.put("/v1/topics/events", json={}, headers=bearer(key))
        await client.get(RECORDS, headers=bearer(key))
        caplog.clear()
        for headers in ({}, bearer(f"{key[:-1]}x"), stale, other):
            for path in (RECORDS, f"{RECORDS}?explain=1", "/topics/events"):
                await client.get(path, headers=headers)
        await client.get(RECORDS, headers=bearer(key))
    read = ("readRecords", RECORDS)
    ways = (read, read, ("kafkaRestGetTopic", "/topics/events"))
    assert told(caplog) == [
        (who, operation, path, status, "refused")
        for who, status in ((None, 401), (None, 401), (None, 401), ("key:other", 403))
        for operation, path in ways
    ]


async def test_pages_of_other_sites_and_foreign_hosts_are_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt of a page is logged with method and path."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    async with open_service(tmp_path) as service, wired(service) as client:
        await client.delete("/v1/topics/events", headers={"origin": "http://evil.example"})
        await client.get("/v1/topics", headers={"host": "evil.example"})
    assert told(caplog) == [
        (None, "other", "/v1/topics/events", 403, "refused"),
        (None, "other", "/v1/topics", 421, "refused"),
    ]
    assert [vars(one)["method"] for one in caplog.records] == ["DELETE", "GET"]


async def test_changes_of_group_offsets_are_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Changing and deleting a group's offset is audited; reading is not."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    path = "/v1/groups/lake/offsets/events/0"
    async with running(tmp_path) as api:
        await api.create()
        caplog.clear()
        await api.client.put(path, json={"offset": 0})
        await api.client.get(path)
        await api.client.delete(path)
    assert told(caplog) == [
        ("anonymous", "putGroupOffset", path, 201, "done"),
        ("anonymous", "deleteGroupOffset", path, 204, "done"),
    ]


async def test_without_credentials_actions_are_audited_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An open service logs what was done, and from where."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    async with running(tmp_path) as api:
        await api.create()
    assert told(caplog) == [("anonymous", "putTopic", "/v1/topics/events", 201, "done")]
    assert vars(caplog.records[-1])["client"] == "127.0.0.1"


async def test_a_forwarded_address_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Any client could send that header."""
    caplog.set_level(logging.INFO, "tidelog.audit")
    forged = {"x-forwarded-for": "10.9.8.7", "forwarded": "for=10.9.8.7", "x-real-ip": "10.9.8.7"}
    async with running(tmp_path) as api:
        await api.client.put("/v1/topics/events", json={}, headers=forged)
    assert vars(caplog.records[-1])["client"] == "127.0.0.1"


async def test_no_secret_is_in_any_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With all loggers on and any outcome, no log has a key in it."""
    caplog.set_level(logging.DEBUG)
    key = create_key(tmp_path, "root", "read:*", "append:*", "admin:*", "metrics")
    wrong = f"{key[:-1]}x"
    secrets = [key.split("_", 2)[2][:-1]]
    async with running(tmp_path, access_log=True) as api:
        for token in (key, wrong, f"{key}, {key}", f"{key} {key}"):
            encoded = b64encode(f"ada:{token}".encode()).decode()
            secrets.append(encoded[-40:-4])
            for headers in (
                bearer(token),
                {"authorization": f"Basic {token}"},
                {"authorization": f"Basic {encoded}"},
                {"x-api-key": token},
            ):
                for method, path in (
                    ("PUT", "/v1/topics/events"),
                    ("GET", RECORDS),
                    ("POST", RECORDS),
                    ("GET", f"{RECORDS}?offset=x"),
                    ("GET", f"/v1/topics?access_token={token}"),
                    ("GET", "/nowhere"),
                ):
                    await api.client.request(method, path, headers=headers, content=b"{")
    ours = [one for one in caplog.records if not one.name.startswith(("httpx", "httpcore"))]
    assert len(ours) > 20
    assert not [one for one in ours if any(secret in str(vars(one)) for secret in secrets)]
