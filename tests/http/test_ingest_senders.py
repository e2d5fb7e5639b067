"""Who may send to an ingest URL: signatures, keys, tokens, and what senders ask before."""

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.operations.service import Service
from app.settings import Settings
from tests.support.credentials import bearer, create_key
from tests.support.service import RECORDS, Api, open_service
from tests.support.streams import send_endless
from tests.support.time import START_MS, ManualClock
from tests.support.webhooks import SENDERS, Head, Sender
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
PROFILE = "/v1/topics/events/ingest-profile"
BODY = b'{"id": "evt_1", "text": "hello"}'
METHODS = ("POST", "GET", "OPTIONS", "PUT", "PATCH")
GITHUB, STRIPE, SLACK = SENDERS[:3]

by_sender = pytest.mark.parametrize("sender", SENDERS, ids=lambda one: one.name)


@asynccontextmanager
async def guarded(
    directory: Path, sender: Sender | None = GITHUB, **settings: Any
) -> AsyncIterator[Api]:
    """A service that needs credentials; its client has those of an admin until it drops them."""
    key = create_key(directory, "ops", "admin:*", "append:*", "read:*")
    clock = ManualClock()
    async with (
        open_service(directory, clock=clock, **settings) as service,
        wired(service) as client,
    ):
        api = Api(service, client)
        client.headers.update(bearer(key))
        await api.create(retention_ms="-1")
        if sender is not None:
            await put(api, {**sender.signature, "secrets": [sender.secret]})
        yield api


async def put(api: Api, signature: dict[str, Any], **profile: Any) -> None:
    answer = await api.client.put(PROFILE, json={"signature": signature, **profile})
    assert answer.is_success, answer.text


WAYS: dict[str, Callable[[Service], httpx.AsyncClient]] = {
    "connection": wired,
    "FastAPI": partial(wired, is_hot=False),
}
IN_USE = {"way": "connection"}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have senders come each way in."""
    monkeypatch.setitem(IN_USE, "way", request.param)


by_way = pytest.mark.usefixtures("way")


def nobody(api: Api) -> httpx.AsyncClient:
    """A client without credentials."""
    return WAYS[IN_USE["way"]](api.service)


def text_of(head: Head) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in head.items()}


async def send(
    api: Api,
    head: Head,
    body: bytes = BODY,
    *,
    path: str = INGEST,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async with nobody(api) as client:
        types = {"content-type": "application/json"}
        return await client.post(
            path, content=body, headers=types | text_of(head) | (headers or {})
        )


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text
    if status == 401:
        assert answer.headers["www-authenticate"].startswith('Bearer realm="tidelog"')
    return problem


def log_end(api: Api) -> int:
    return api.log().watermarks.log_end_offset


@by_way
@by_sender
async def test_a_signed_request_needs_no_key(tmp_path: Path, sender: Sender) -> None:
    """The record is on disk, with the headers that the scheme brings (J7)."""
    async with guarded(tmp_path, sender) as api:
        answer = await send(api, sender.head(BODY, START_MS))
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"topic": "events", "partition": 0, "offset": 0, "count": 1}
        stored = (await api.client.get(RECORDS)).json()["records"][0]
        assert stored["value"] == json.loads(BODY)


@by_way
@by_sender
async def test_a_wrong_signature_changes_nothing(tmp_path: Path, sender: Sender) -> None:
    """401 with a code of its own, Kafka's number, the header, and no trace in the log (J7)."""
    async with guarded(tmp_path, sender) as api:
        head = sender.head(BODY, START_MS)
        problem = check(await send(api, head, BODY + b" "), 401, "invalid_signature")
        assert (problem["retryable"], problem["side_effects"]) == (False, "none")
        assert problem["kafka_error_code"] == 58
        assert problem["header"].lower().encode() in head
        for name in head:
            missing = {other: value for other, value in head.items() if other != name}
            check(await send(api, missing), 401, "invalid_signature")
        assert log_end(api) == 0


@by_way
async def test_a_large_body_is_verified_too(tmp_path: Path) -> None:
    """On a worker; one changed byte is enough."""
    body = json.dumps("x" * 500_000).encode()
    async with guarded(tmp_path, STRIPE) as api:
        head = STRIPE.head(body, START_MS)
        assert (await send(api, head, body)).status_code == 200
        changed = body[:-2] + b'y"'
        check(await send(api, head, changed), 401, "invalid_signature")
        assert log_end(api) == 1


@by_way
async def test_the_signature_is_of_the_body_as_sent(tmp_path: Path) -> None:
    """A compressed body is signed compressed, and stored as it was before (J7)."""
    body = gzip.compress(BODY)
    async with guarded(tmp_path) as api:
        coding = {"content-encoding": "gzip"}
        answer = await send(api, GITHUB.head(body, START_MS), body, headers=coding)
        assert answer.status_code == 200, answer.text
        plain = GITHUB.head(BODY, START_MS)
        check(await send(api, plain, body, headers=coding), 401, "invalid_signature")
        assert (await api.client.get(RECORDS)).json()["records"][0]["value"] == json.loads(BODY)


async def test_what_is_refused_by_its_head_is_refused_before_its_body_comes(
    tmp_path: Path,
) -> None:
    """A missing header or an old time is refused before the service receives the body (J7)."""

    async def body() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with guarded(tmp_path, STRIPE) as api:
        for now_ms in (START_MS - 301_000, START_MS + 301_000):
            head = {
                one.decode(): value.decode() for one, value in STRIPE.head(BODY, now_ms).items()
            }
            problem = check(
                await send_endless(api, body(), path=INGEST, **head), 401, "invalid_signature"
            )
            side = "behind" if now_ms < START_MS else "ahead of"
            assert f"is 301 s {side} this service's clock" in problem["detail"]
        check(await send_endless(api, body(), path=INGEST), 401, "invalid_signature")


@by_way
async def test_a_key_or_a_token_is_enough_for_a_request_without_a_signature(
    tmp_path: Path,
) -> None:
    """With the header of the signature a request is judged by it, whatever else it brings (J8)."""
    async with guarded(tmp_path) as api:
        writer = bearer(create_key(tmp_path, "writer", "append:events"))
        reader = bearer(create_key(tmp_path, "reader", "read:events"))
        await api.service.security.refresh_keys()
        url = (await api.client.post("/v1/topics/events/ingest-tokens")).json()["url"]
        assert (await send(api, {}, headers=writer)).status_code == 200
        assert (await send(api, {}, path=url)).status_code == 200
        check(await send(api, {}, headers=reader), 403, "forbidden")
        check(await send(api, {}, headers=bearer("tlk_no_key")), 401, "unauthenticated")
        wrong = {b"x-hub-signature-256": b"sha256=" + b"0" * 64}
        check(await send(api, wrong, headers=writer), 401, "invalid_signature")
        check(await send(api, wrong, path=url), 401, "invalid_signature")
        right = GITHUB.head(BODY, START_MS)
        assert (await send(api, right, headers=reader)).status_code == 200
        assert (await send(api, right, path=url)).status_code == 200
        assert log_end(api) == 4


@by_way
async def test_an_open_service_still_verifies(tmp_path: Path) -> None:
    """Where no credentials are configured, what looks like some is none (J8)."""
    async with (
        open_service(tmp_path, clock=ManualClock()) as service,
        wired(service) as client,
    ):
        api = Api(service, client)
        await api.create(retention_ms="-1")
        await put(api, {"scheme": "github", "secrets": [GITHUB.secret]})
        for given in ({}, bearer("tlk_any_thing"), {"x-api-key": "any"}):
            check(await send(api, {}, headers=given), 401, "invalid_signature")
        assert (await send(api, GITHUB.head(BODY, START_MS))).status_code == 200
        url = (await client.post("/v1/topics/events/ingest-tokens")).json()["url"]
        assert (await send(api, {}, path=url)).status_code == 200
        await api.create("other")
        assert (await send(api, {}, path="/v1/topics/other/ingest")).status_code == 200


async def test_an_export_of_otlp_to_a_signed_topic_needs_a_signature_or_a_key(
    tmp_path: Path,
) -> None:
    """Its URL does not bypass the signature (J8)."""
    path, export = f"{INGEST}/otlp/v1/logs", b'{"resourceLogs": [{}]}'
    async with guarded(tmp_path) as api:
        assert (await send(api, {}, export, path=path)).status_code == 401
        right = GITHUB.head(export, START_MS)
        assert (await send(api, right, export + b" ", path=path)).status_code == 401
        assert log_end(api) == 0
        assert (await send(api, right, export, path=path)).status_code == 200
        writer = bearer(create_key(tmp_path, "writer", "append:events"))
        await api.service.security.refresh_keys()
        assert (await send(api, {}, export, path=path, headers=writer)).status_code == 200


@by_sender
async def test_a_header_that_is_sent_twice_is_refused(tmp_path: Path, sender: Sender) -> None:
    """A wrong one beside the right one, in either order."""
    async with guarded(tmp_path, sender) as api:
        head = sender.head(BODY, START_MS)
        for name, value in head.items():
            if name == b"webhook-signature":
                continue  # a list, of which one is enough
            other = value[:-1] + (b"0" if value[-1:] != b"0" else b"1")
            for pair in ((value, other), (other, value)):
                lines = [*(head.items() - {(name, value)}), (name, pair[0]), (name, pair[1])]
                async with wired(api.service) as client:
                    answer = await client.post(INGEST, content=BODY, headers=lines)
                assert answer.status_code in {400, 401}, (name, answer.text)
        assert log_end(api) == 0


@by_way
async def test_a_rotated_secret_counts_at_once(tmp_path: Path) -> None:
    """Both while both are listed, then the new one alone; no restart, no cache (J7)."""
    new = "another long random text"
    async with guarded(tmp_path) as api:
        old_head = GITHUB.head(BODY, START_MS)
        new_head = GITHUB.sign(new, BODY, START_MS)
        check(await send(api, new_head), 401, "invalid_signature")
        await put(api, {"scheme": "github", "secrets": [GITHUB.secret, new]})
        for head in (old_head, new_head):
            assert (await send(api, head)).status_code == 200
        await put(api, {"scheme": "github", "secrets": [new]})
        assert (await send(api, new_head)).status_code == 200
        check(await send(api, old_head), 401, "invalid_signature")


async def test_a_profile_that_goes_while_the_body_comes_lets_nothing_in(tmp_path: Path) -> None:
    """The request began as one of a signed topic, and there is nothing to verify it with."""
    async with guarded(tmp_path) as api, nobody(api) as client:

        async def body() -> AsyncIterator[bytes]:
            assert (await api.client.delete(PROFILE)).status_code == 204
            yield BODY

        head = text_of(GITHUB.head(BODY, START_MS))
        answer = await client.post(INGEST, content=body(), headers=head)
        problem = check(answer, 401, "unauthenticated")
        assert "was changed while the body arrived" in problem["detail"]
        assert log_end(api) == 0


async def test_a_token_sends_to_its_topic_and_does_nothing_else(tmp_path: Path) -> None:
    """Append only, one topic, one URL; as a key it is not accepted (J6, J8)."""
    async with guarded(tmp_path, None) as api:
        await api.create("other")
        made = (await api.client.post("/v1/topics/events/ingest-tokens")).json()
        token, url = made["token"], made["url"]
        assert (await send(api, {}, path=url)).status_code == 200
        assert (await send(api, {}, b"[1,2]", path=url + "?split=array")).json()["count"] == 2
        for path in (
            f"/v1/topics/other/ingest/{token}",
            url[:-1],
            url + "x",
            url.replace(made["id"], "000000000000"),
            f"{INGEST}/redacted",
            f"{INGEST}/otlp",
            f"{INGEST}/%20",
        ):
            problem = check(await send(api, {}, path=path), 401, "unauthenticated")
            assert token[20:] not in json.dumps(problem)
        problem = check(await send(api, {}, path=f"{INGEST}/..%2F{token}"), 404, "route_not_found")
        assert token[20:] not in json.dumps(problem)
        check(await send(api, {}), 401, "unauthenticated")
        check(await send(api, {}, headers=bearer(token)), 401, "unauthenticated")
        async with nobody(api) as client:
            for path in (RECORDS, "/v1/topics/events", PROFILE):
                check(await client.get(path, headers=bearer(token)), 401, "unauthenticated")
        assert log_end(api) == 3
        gone = f"/v1/topics/events/ingest-tokens/{made['id']}"
        assert (await api.client.delete(gone)).status_code == 204
        check(await send(api, {}, path=url), 401, "unauthenticated")


async def test_a_body_whose_token_is_revoked_while_it_comes_is_refused(tmp_path: Path) -> None:
    """As with a key: the body is not appended (J6)."""
    async with guarded(tmp_path, None) as api, nobody(api) as client:
        made = (await api.client.post("/v1/topics/events/ingest-tokens")).json()

        async def body() -> AsyncIterator[bytes]:
            gone = f"/v1/topics/events/ingest-tokens/{made['id']}"
            assert (await api.client.delete(gone)).status_code == 204
            yield BODY

        check(await client.post(made["url"], content=body()), 401, "unauthenticated")
        assert log_end(api) == 0


@by_way
async def test_no_token_is_in_any_log_or_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Right or wrong, whole or in part, in places where it does not belong: it is redacted (J9)."""
    caplog.set_level(logging.DEBUG)
    async with guarded(tmp_path, None, access_log=True) as api:
        made = (await api.client.post("/v1/topics/events/ingest-tokens")).json()
        url, secret = made["url"], made["token"].split("_", 2)[2]
        caplog.clear()
        answers = [await send(api, {}, path=url)]
        encoded = url.replace("tli_", "tli%5F")
        async with nobody(api) as client:
            for path in (
                url,
                url[:-1],
                encoded,
                url + "/",
                url + "/otlp/v1/logs",
                url + "?split=x",
            ):
                answers += [await client.request(one, path, content=BODY) for one in METHODS]
            for path in ("/v1/topics/TOKEN/ingest", "/TOKEN", "/v1/topics/events/records/TOKEN"):
                answers.append(await client.get(path.replace("TOKEN", made["token"])))
        assert answers[0].status_code == 200
        assert {one.status_code for one in answers} >= {200, 400, 401, 404, 405}
        metrics = (await api.client.get("/metrics")).text
    own = [one for one in caplog.records if not one.name.startswith("httpx")]
    told = "\n".join(str(vars(one)) for one in own)
    assert "ingestWithToken" in told
    assert f"ingest:events/{made['id']}" in told
    shown = "\n".join([told, metrics, *(f"{one.headers} {one.text}" for one in answers)])
    assert secret[:-1] not in shown


@by_way
async def test_senders_are_named_in_logs_by_what_identified_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`ingest:<topic>`; before the signature is verified the caller has no name (J9)."""
    caplog.set_level(logging.INFO)
    async with guarded(tmp_path, access_log=True) as api:
        caplog.clear()
        await send(api, GITHUB.head(BODY, START_MS))
        await send(api, GITHUB.head(BODY + b" ", START_MS))
        await send(api, {})
    lines = [vars(one) for one in caplog.records]
    access = [one["principal"] for one in lines if one["name"] == "tidelog.access"]
    audited = [(one["principal"], one["status"]) for one in lines if one["name"] == "tidelog.audit"]
    assert access == ["ingest:events", "unverified", None]
    assert audited == [("unverified", 401), (None, 401)]


@by_way
async def test_the_quota_of_a_sender_is_used_by_what_it_signed(tmp_path: Path) -> None:
    """Forged requests do not use it up; each token has its own (J9)."""
    async with guarded(tmp_path, quota_requests_per_second=2) as api:
        api.service.clock.advance(1000)  # type: ignore[attr-defined]  # a clock of the test
        for _ in range(5):
            check(await send(api, GITHUB.head(BODY + b" ", START_MS)), 401, "invalid_signature")
        for _ in range(2):
            assert (await send(api, GITHUB.head(BODY, START_MS))).status_code == 200
        refused = await send(api, GITHUB.head(BODY, START_MS))
        check(refused, 429, "quota_exceeded")
        assert int(refused.headers["retry-after"]) >= 1
        url = (await api.client.post("/v1/topics/events/ingest-tokens")).json()["url"]
        for _ in range(2):
            assert (await send(api, {}, path=url)).status_code == 200
        check(await send(api, {}, path=url), 429, "quota_exceeded")


@by_way
async def test_the_bytes_of_a_signed_body_are_counted(tmp_path: Path) -> None:
    """Once it is verified; the next one waits for the debt (J9)."""
    body = json.dumps("x" * 5_000).encode()
    async with guarded(tmp_path, quota_bytes_in_per_second=1_000) as api:
        assert (await send(api, GITHUB.head(body, START_MS), body)).status_code == 200
        check(await send(api, GITHUB.head(BODY, START_MS)), 429, "quota_exceeded")


async def test_a_health_check_of_a_signed_topic_needs_no_signature(tmp_path: Path) -> None:
    """GET and HEAD are 200; on a topic without a signature they need what sending needs (J8)."""
    async with guarded(tmp_path) as api, nobody(api) as client:
        url = (await api.client.post("/v1/topics/events/ingest-tokens")).json()["url"]
        for method in ("GET", "HEAD"):
            assert (await client.request(method, INGEST)).status_code == 200
            assert (await client.request(method, url)).status_code == 200
            assert (await client.request(method, url[:-1])).status_code == 401
            assert (await client.get(INGEST, headers=bearer("tlk_no_key"))).status_code == 401
        await api.client.delete(PROFILE)
        assert (await client.get(INGEST)).status_code == 401


async def test_while_the_service_starts_a_sender_is_asked_to_come_again(tmp_path: Path) -> None:
    """503, not 401: many senders give up after a 401 (J8)."""
    service = Service(Settings(data_directory=tmp_path))
    async with wired(service) as client:
        for path in (INGEST, f"{INGEST}/tli_000000000000_{'x' * 43}"):
            check(await client.post(path, content=BODY), 503, "recovering")
    service.workers.close()


@by_way
async def test_slacks_challenge_is_answered_and_not_stored(tmp_path: Path) -> None:
    """Only on a topic of the scheme slack, and only if it is signed (J10)."""
    body = json.dumps({"token": "x", "challenge": "3eZbrw1a", "type": "url_verification"}).encode()
    async with guarded(tmp_path, SLACK) as api:
        answer = await send(api, SLACK.head(body, START_MS), body)
        assert (answer.status_code, answer.json()) == (200, {"challenge": "3eZbrw1a"})
        check(await send(api, SLACK.head(BODY, START_MS), body), 401, "invalid_signature")
        assert log_end(api) == 0
        for other in (
            b'{"type": "event_callback", "text": "url_verification"}',
            b'{"type": "url_verification"}',
            b'{"type": "x", "challenge": "url_verification"}',
            json.dumps({"type": "url_verification", "challenge": "x" * 5_000}).encode(),
            b'"url_verification"',
        ):
            answer = await send(api, SLACK.head(other, START_MS), other)
            assert answer.json().get("count") == 1, answer.text
        await put(api, {"scheme": "github", "secrets": [GITHUB.secret]})
        answer = await send(api, GITHUB.head(body, START_MS), body)
        assert answer.json().get("count") == 1, answer.text
