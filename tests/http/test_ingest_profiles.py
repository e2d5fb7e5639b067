"""Ingest profiles over HTTP: conditions, secrets, and the state after a restart."""

import asyncio
import errno
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.operations.service import Service
from app.settings import Settings
from engine.errors import CorruptCheckpoint
from engine.fs.names import INGEST_FILE
from tests.support.builders import DATA, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.machine import CHANGES, Operation
from tests.support.service import Api, open_service, running
from tests.support.webhooks import SENDERS, WHSEC
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

PROFILE = "/v1/topics/events/ingest-profile"
SECRET = "a long random text of GitHub"
GITHUB = {"signature": {"scheme": "github", "secrets": [SECRET]}}
DEFAULTS = {"split": "none", "headers": [], "window_ms": 345_600_000, "window_deliveries": 100_000}
SHOWN = {"scheme": "github", "tolerance_ms": 300_000, "secrets_count": 1}


async def put(
    api: Api, document: object, status: int = 201, headers: dict[str, str] | None = None
) -> httpx.Response:
    answer = await api.client.put(PROFILE, json=document, headers=headers)
    assert answer.status_code == status, answer.text
    assert SECRET not in answer.text
    return answer


def secrets_of(api: Api, topic: str = "events") -> list[str] | None:
    stored = api.service.profiles.stored(topic)
    assert stored is not None
    signature = stored.document.signature
    return None if signature is None else signature.secrets


async def test_a_profile_is_put_read_and_deleted(api: Api) -> None:
    """201 for the first, 200 for the next; then it is gone, and the defaults apply (J1)."""
    missing = await api.client.get(PROFILE)
    assert (missing.status_code, missing.json()["code"]) == (404, "ingest_profile_not_found")
    first = await put(api, {"split": "lines", "headers": ["X-Trace"]})
    assert first.json() == {**DEFAULTS, "split": "lines", "headers": ["X-Trace"]}
    second = await put(api, GITHUB, 200)
    assert second.json() == {**DEFAULTS, "signature": SHOWN}
    read = await api.client.get(PROFILE)
    assert (read.json(), read.headers["etag"]) == (second.json(), second.headers["etag"])
    assert read.headers["cache-control"] == "no-store"
    assert (await api.client.delete(PROFILE)).status_code == 204
    assert api.service.profiles.of("events").signature is None
    for method in ("GET", "DELETE"):
        assert (await api.client.request(method, PROFILE)).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_topic_that_is_not_there_has_no_profile(api: Api, method: str) -> None:
    """The topic is not created by it."""
    answer = await api.client.request(
        method, "/v1/topics/nowhere/ingest-profile", json={} if method == "PUT" else None
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_a_change_depends_on_the_profile_as_the_client_knows_it(api: Api) -> None:
    """If-Match, If-None-Match and 304, as for topics (J2)."""
    assert (await api.client.put(PROFILE, json={}, headers={"if-match": "*"})).status_code == 412
    etag = (await put(api, {}, headers={"if-none-match": "*"})).headers["etag"]
    refused = await put(api, GITHUB, 412, headers={"if-none-match": "*"})
    assert refused.json()["etag"] == etag
    assert (await api.client.get(PROFILE, headers={"if-none-match": etag})).status_code == 304
    new = (await put(api, GITHUB, 200, headers={"if-match": etag})).headers["etag"]
    assert new != etag
    await put(api, {}, 412, headers={"if-match": etag})
    gone = await api.client.delete(PROFILE, headers={"if-match": etag})
    assert (gone.status_code, gone.json()["etag"]) == (412, new)
    assert secrets_of(api) == [SECRET]


async def test_of_two_changes_at_once_with_one_etag_one_wins(api: Api) -> None:
    """The other is refused, and nothing of it is stored (J2)."""
    etag = (await put(api, {})).headers["etag"]
    documents = [{"window_ms": 1000 + number} for number in range(8)]
    answers = await asyncio.gather(
        *(api.client.put(PROFILE, json=one, headers={"if-match": etag}) for one in documents)
    )
    assert sorted(one.status_code for one in answers) == [200] + [412] * 7
    (won,) = (one for one in answers if one.status_code == 200)
    read = await api.client.get(PROFILE)
    assert (read.json(), read.headers["etag"]) == (won.json(), won.headers["etag"])


async def test_the_same_profile_again_changes_nothing(api: Api) -> None:
    """A command that is repeated keeps the ETag; so does one that spells the defaults out."""
    etag = (await put(api, GITHUB)).headers["etag"]
    for same in (GITHUB, {**DEFAULTS, **GITHUB}):
        assert (await put(api, same, 200)).headers["etag"] == etag


async def test_what_was_read_can_be_put_back_without_losing_the_secrets(api: Api) -> None:
    """Secrets that are not sent are kept; their number is checked if it is sent (J3)."""
    two = {"scheme": "github", "secrets": [SECRET, SECRET + " too"]}
    await put(api, {"signature": two})
    read = (await api.client.get(PROFILE)).json()
    assert read["signature"]["secrets_count"] == 2
    await put(api, {**read, "split": "array"}, 200)
    assert secrets_of(api) == two["secrets"]
    await put(api, {"signature": {"scheme": "github", "tolerance_ms": 1000}}, 200)
    assert secrets_of(api) == two["secrets"]
    read["signature"]["secrets_count"] = 1
    refused = await put(api, read, 422)
    assert refused.json()["errors"][0]["field"] == "signature.secrets_count"
    assert "would have 2 secrets, not 1" in refused.json()["detail"]


async def test_secrets_are_never_those_of_another_scheme_or_topic(api: Api) -> None:
    """A profile for another scheme needs its own, and so does a copy for another topic (J3)."""
    await put(api, GITHUB)
    refused = await put(api, {"signature": {"scheme": "slack"}}, 422)
    assert refused.json()["code"] == "invalid_request"
    assert "send secrets: the topic has none for the scheme slack" in refused.json()["detail"]
    assert secrets_of(api) == [SECRET]
    await api.create("other")
    read = (await api.client.get(PROFILE)).json()
    copied = await api.client.put("/v1/topics/other/ingest-profile", json=read)
    assert copied.status_code == 422
    await put(api, {}, 200)  # a profile without a signature has no secrets to keep
    await put(api, {"signature": {"scheme": "github"}}, 422)


async def test_a_wrong_document_is_refused_with_its_faults_and_without_its_secrets(
    api: Api,
) -> None:
    """The fields are named, and nothing changes."""
    wrong = {"signature": {"scheme": "github", "secrets": [SECRET, SECRET]}, "split": "words"}
    problem = (await put(api, wrong, 422)).json()
    assert {fault["field"] for fault in problem["errors"]} == {"signature", "split"}
    assert (await put(api, {"unknown": 1}, 422)).json()["errors"][0]["field"] == "unknown"
    assert (await api.client.get(PROFILE)).status_code == 404


async def test_a_topic_that_is_created_again_has_no_profile(api: Api) -> None:
    """The secrets are gone from the disk with their topic (J4)."""
    path = api.service.settings.data_directory / INGEST_FILE
    await put(api, GITHUB)
    assert SECRET in path.read_text()
    assert (await api.client.delete("/v1/topics/events")).status_code == 204
    assert SECRET not in path.read_text()
    await api.create()
    assert (await api.client.get(PROFILE)).status_code == 404


async def test_a_start_finds_the_profiles_and_only_their_owner_reads_the_file(
    tmp_path: Path,
) -> None:
    """Every scheme, with its secrets; the file has mode 0600 (J5)."""
    tokens = {}
    async with running(tmp_path) as api:
        for sender in SENDERS:
            await api.create(sender.name)
            signature = {**sender.signature, "secrets": [sender.secret]}
            path = f"/v1/topics/{sender.name}/ingest-profile"
            answer = await api.client.put(path, json={"signature": signature})
            assert answer.status_code == 201, answer.text
            tokens[sender.name] = answer.headers["etag"]
    assert (tmp_path / INGEST_FILE).stat().st_mode & 0o777 == 0o600
    async with running(tmp_path) as api:
        for sender in SENDERS:
            answer = await api.client.get(f"/v1/topics/{sender.name}/ingest-profile")
            assert answer.headers["etag"] == tokens[sender.name]
            found = api.service.profiles.of(sender.name).signature
            assert found is not None
            now_ms = api.service.clock.now_ms()
            found.verify(sender.head(b"body", now_ms), b"body", now_ms)


async def test_a_profile_of_an_earlier_topic_of_that_name_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A crash between the topic's deletion and the profile's leaves it.

    A warning is logged (J4).
    """
    async with running(tmp_path) as api:
        await api.create()
        await put(api, GITHUB)
        await api.client.post("/v1/topics/events/ingest-tokens")
        left = (tmp_path / INGEST_FILE).read_bytes()
        await api.client.delete("/v1/topics/events")
        await api.create()
    (tmp_path / INGEST_FILE).write_bytes(left)
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path) as api:
            assert (await api.client.get(PROFILE)).status_code == 404
            assert (await api.client.get("/v1/topics/events/ingest-tokens")).json() == {
                "tokens": []
            }
            warnings = [one.getMessage() for one in caplog.records]
            await api.client.delete("/v1/topics/events")
    assert any("profile:events belongs to another topic" in one for one in warnings)
    assert SECRET not in (tmp_path / INGEST_FILE).read_text()


def _profile(**changes: Any) -> dict[str, Any]:
    entry = {"topic_id": "x", "revision": "r", "profile": GITHUB, **changes}
    present = {name: value for name, value in entry.items() if value is not None}
    return {"version": 1, "documents": {"profile:events": present}}


def _token(**changes: Any) -> dict[str, Any]:
    entry = {"topic": "events", "topic_id": "x", "sha256": "00", "created_ms": 1, **changes}
    return {"version": 1, "documents": {"token:5f0c7a91d2e4": entry}}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        json.dumps({"version": 2, "documents": {}}),
        json.dumps({"version": 1}),
        json.dumps({"version": 1, "documents": {"profile:events": 1}}),
        json.dumps({"version": 1, "documents": {}, "checksum": "00000000"}),
        json.dumps(_profile(profile={"split": "words", **GITHUB})),
        json.dumps(_profile(profile={"signature": {"scheme": "github"}})),
        json.dumps(_profile(profile={"signature": {"scheme": "github", "secrets": [SECRET] * 2}})),
        json.dumps(_profile(profile=None)),
        json.dumps(_profile(profile="lines")),
        json.dumps(_profile(revision=None)),
        json.dumps(_token(sha256="no")),
        json.dumps(_token(created_ms="now")),
    ],
)
async def test_a_damaged_file_stops_the_start_and_says_what_to_do(
    tmp_path: Path, content: str
) -> None:
    """The error names the file and the remedy, without a secret (J5)."""
    async with running(tmp_path) as api:
        await api.create()
    (tmp_path / INGEST_FILE).write_text(content)
    service = Service(Settings(data_directory=tmp_path))
    try:
        with pytest.raises(CorruptCheckpoint, match=f"{INGEST_FILE} is corrupt: ") as damaged:
            await service.open()
    finally:
        await service.close()
    assert "restore it from a backup, or move it away" in str(damaged.value)
    assert SECRET not in str(damaged.value)
    (tmp_path / INGEST_FILE).unlink()
    async with running(tmp_path) as api:
        assert (await api.client.get(PROFILE)).status_code == 404


@pytest.mark.parametrize("step", ["open_directory", "open", "create", "append", "sync", "rename"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_write_that_fails_changes_nothing(step: str, error: int) -> None:
    """Neither the profile in use nor the stored one; the ETag stays (J5)."""
    disk = with_data(ForgetfulDisk())
    async with open_service(DATA, fs=disk) as service, wired(service) as client:
        api = Api(service, client)
        await api.create()
        etag = (await put(api, GITHUB)).headers["etag"]
        path_end = INGEST_FILE + ".tmp" if step != "open_directory" else str(DATA)
        disk.fail(step, error=error, path_end=path_end)
        answer = await client.put(PROFILE, json={"split": "lines"})
        if disk.forget_faults():
            pytest.fail(f"no {step}: {disk.changes[-6:]}")
        assert answer.status_code == (507 if error == errno.ENOSPC else 503), answer.text
        assert (await client.get(PROFILE)).headers["etag"] == etag
        assert service.profiles.of("events").split == "none"
    disk.restart(power_cut=False)
    async with open_service(DATA, fs=disk) as service, wired(service) as client:
        assert (await client.get(PROFILE)).headers["etag"] == etag


async def test_a_crash_at_any_step_of_a_change_leaves_the_profile_before_or_after_it() -> None:
    """The process is killed, or the power goes, before each change of the disk (J5)."""
    disk = with_data(ForgetfulDisk())
    found: list[ForgetfulDisk] = []

    def look(operation: Operation) -> None:
        if operation.name in CHANGES and operation.path in {
            file,
            file.with_suffix(".json.tmp"),
            DATA,
        }:
            found.append(disk.after_power_cut())

    file = DATA / INGEST_FILE
    async with open_service(DATA, fs=disk) as service, wired(service) as client:
        api = Api(service, client)
        await api.create()
        before = (await put(api, GITHUB)).headers["etag"]
        disk.meanwhile = look
        after = (
            await put(api, {"signature": {"scheme": "stripe", "secrets": [WHSEC]}}, 200)
        ).headers["etag"]
        disk.meanwhile = None
        found.append(disk.after_power_cut())
    assert len(found) >= 4
    tags = []
    for one in found:
        async with open_service(DATA, fs=one) as service, wired(service) as client:
            tags.append((await client.get(PROFILE)).headers["etag"])
    assert tags[-1] == after
    assert set(tags) == {before, after}
    assert tags == sorted(tags, key=[before, after].index)


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "COOKIE", "X-GitLab-Token"])
async def test_credentials_never_become_data(api: Api, header: str) -> None:
    """Neither as a header of a record nor as its key nor as its delivery id: readers see those."""
    source = {"header": header}
    for profile in ({"key": source}, {"delivery_id": source}, {"headers": [header]}):
        answer = await api.client.put(PROFILE, json=profile)
        assert answer.status_code == 422
        assert f"{header} has credentials and is never stored" in answer.text


async def test_a_stored_profile_that_names_credentials_keeps_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier releases took them: the topic opens, and what they sent is not stored from now on."""
    async with running(tmp_path) as api:
        await api.create()
        await api.client.put(PROFILE, json={"headers": ["x-kind"]})
        left = json.loads((tmp_path / INGEST_FILE).read_text())
        profile = left["documents"]["profile:events"]["profile"]
        profile |= {
            "key": {"header": "Authorization"},
            "delivery_id": {"header": "cookie"},
            "headers": ["X-Api-Key", "x-kind"],
        }
    del left["checksum"]
    (tmp_path / INGEST_FILE).write_text(json.dumps(left))
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path) as api:
            secret = {"authorization": "s1", "cookie": "s2", "x-api-key": "s3", "x-kind": "k"}
            posted = await api.client.post("/v1/topics/events/ingest", content=b"x", headers=secret)
            assert posted.status_code == 200
            page = (await api.client.get("/v1/topics/events/partitions/0/records")).json()
            [record] = page["records"]
            assert record["key"] is None
            assert [one["key"] for one in record["headers"]] == ["x-kind"]
    warnings = [one.getMessage() for one in caplog.records]
    assert sum("not any more" in one for one in warnings) == 2
