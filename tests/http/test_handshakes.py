"""What senders ask before they send, as they document it, and the answers that they need."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest

from tests.support.service import Api
from tests.support.webhooks import SENDERS, Head
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
SECRET = "the secret of the app"
HMAC = {"scheme": "hmac", "header": "X-Twitter-Webhooks-Signature", "prefix": "sha256="}
OF_X = {"signature": {**HMAC, "encoding": "base64", "secrets": [SECRET]}, "handshake": "x"}
OF_META = {
    "signature": {"scheme": "github", "secrets": [SECRET, "verify me!"]},
    "handshake": "hub",
}
GRID: list[dict[str, Any]] = [
    {
        "id": "2d1781af-3a4c-4d7c-bd0c-e34b19da4e66",
        "topic": "/subscriptions/x",
        "subject": "",
        "data": {
            "validationCode": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6",
            "validationUrl": "https://rp-eastus2.eventgrid.example/validate",
        },
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "eventTime": "2018-01-25T22:12:19.4556811Z",
        "metadataVersion": "1",
        "dataVersion": "1",
    }
]
CHALLENGE = "hub.mode=subscribe&hub.challenge=1158201444"


async def set_up(api: Api, **profile: Any) -> None:
    answer = await api.client.put("/v1/topics/events/ingest-profile", json=profile)
    assert answer.is_success, answer.text


def end_of(api: Api) -> int:
    return api.log("events").watermarks.log_end_offset


@pytest.fixture(params=["hot", "FastAPI"])
async def way(request: pytest.FixtureRequest, api: Api) -> Any:
    """Each way in; what is asked must not slip through the short one."""
    if request.param == "hot":
        yield api.client
        return
    async with wired(api.service, is_hot=False) as client:
        yield client


@pytest.mark.parametrize(
    ("profile", "query", "headers", "answer"),
    [
        (OF_META, f"{CHALLENGE}&hub.verify_token=verify%20me!", {}, "1158201444"),
        ({"handshake": "hub"}, f"{CHALLENGE}&hub.topic=https://feed.example/", {}, "1158201444"),
        ({"handshake": "strava"}, CHALLENGE, {}, {"hub.challenge": "1158201444"}),
        ({"handshake": "dropbox"}, "challenge=abc123", {}, "abc123"),
        (
            {"handshake": "okta"},
            "",
            {"x-okta-verification-challenge": "My verification challenge"},
            {"verification": "My verification challenge"},
        ),
    ],
)
async def test_a_get_that_asks_is_answered(
    api: Api, profile: dict[str, Any], query: str, headers: dict[str, str], answer: object
) -> None:
    """With the challenge as text, or in the JSON that the sender expects."""
    await set_up(api, **profile)
    told = await api.client.get(f"{INGEST}?{query}", headers=headers)
    assert told.status_code == 200, told.text
    if isinstance(answer, str):
        assert told.headers["content-type"] == "text/plain; charset=utf-8"
        assert told.headers["x-content-type-options"] == "nosniff"
        assert told.text == answer
    else:
        assert told.json() == answer
    probed = await api.client.get(INGEST)
    assert probed.json() == {"topic": "events"}


async def test_a_wrong_verify_token_is_refused(api: Api) -> None:
    """Somebody else subscribes the URL."""
    await set_up(api, **OF_META)
    told = await api.client.get(f"{INGEST}?{CHALLENGE}&hub.verify_token=other")
    assert (told.status_code, told.json()["code"]) == (403, "forbidden")


async def test_the_challenge_of_x_is_answered_with_its_hmac(api: Api) -> None:
    """As X's page "Account Activity API: securing webhooks" computes it."""
    await set_up(api, **OF_X)
    told = await api.client.get(f"{INGEST}?crc_token=challenge&nonce=7")
    digest = hmac.digest(SECRET.encode(), b"challenge", "sha256")
    assert told.json() == {"response_token": f"sha256={base64.b64encode(digest).decode()}"}


@pytest.mark.parametrize("body", ['{"a":1}', "free text", "a" * 300])
async def test_nobody_gets_a_body_signed(api: Api, body: str) -> None:
    """A challenge is no JSON, and what is no JSON is no body of this topic."""
    await set_up(api, **OF_X)
    told = await api.client.get(INGEST, params={"crc_token": body})
    assert "response_token" not in told.text
    for free in (b"challenge", b"12"):
        mac = base64.b64encode(hmac.digest(SECRET.encode(), free, "sha256"))
        headers = {"x-twitter-webhooks-signature": "sha256=" + mac.decode()}
        refused = await api.client.post(INGEST, content=free, headers=headers)
        assert refused.status_code == 401
    assert end_of(api) == 0
    event = b'{"for_user_id":"2244994945"}'
    mac = base64.b64encode(hmac.digest(SECRET.encode(), event, "sha256"))
    headers = {"x-twitter-webhooks-signature": "sha256=" + mac.decode()}
    assert (await api.client.post(INGEST, content=event, headers=headers)).status_code == 200


async def test_zoom_gets_no_body_signed(api: Api) -> None:
    """A token that could be what its next request signs is stored like any event."""
    sender = next(one for one in SENDERS if one.name == "zoom")
    await set_up(api, signature={**sender.signature, "secrets": [sender.secret]})
    payload = {"plainToken": 'v0:1788000000:{"event":"forged"}'}
    body = json.dumps({"event": "endpoint.url_validation", "payload": payload}).encode()
    head = head_of(sender.head(body, api.service.clock.now_ms()))
    told = await api.client.post(INGEST, content=body, headers=head)
    assert told.json()["count"] == 1
    assert "encryptedToken" not in told.text


@pytest.mark.parametrize(
    ("handshake", "query", "request_of", "answer"),
    [
        (
            "graph",
            "?validationToken=Validation%3a+Testing+client+reachability+%3Cb%3E",
            {"content": b"", "headers": {"content-type": "text/plain; charset=utf-8"}},
            "Validation: Testing client reachability <b>",
        ),
        ("graph", "?validationtoken=of-sharepoint", {"content": b""}, "of-sharepoint"),
        (
            "event-grid",
            "",
            {"json": GRID},
            {"validationResponse": GRID[0]["data"]["validationCode"]},
        ),
        ("monday", "", {"json": {"challenge": "3eZbrw1a"}}, {"challenge": "3eZbrw1a"}),
    ],
)
async def test_a_post_that_asks_is_answered(
    api: Api,
    way: httpx.AsyncClient,
    handshake: str,
    query: str,
    request_of: dict[str, Any],
    answer: object,
) -> None:
    """And nothing of it is stored; what follows is."""
    await set_up(api, handshake=handshake)
    told = await way.post(INGEST + query, **request_of)
    assert told.status_code == 200, told.text
    assert (told.text if isinstance(answer, str) else told.json()) == answer
    assert end_of(api) == 0
    for event in ([{**GRID[0], "eventType": "made"}], {"challenge": "x", "event": {}}, [1]):
        stored = await way.post(INGEST, json=event)
        assert stored.json()["count"] == 1, stored.text
    assert end_of(api) == 3


async def test_the_secret_of_asana_is_sent_back(api: Api, way: httpx.AsyncClient) -> None:
    """In the header that it came with; a header that is none is refused."""
    await set_up(api, handshake="asana")
    told = await way.post(INGEST, content=b"", headers={"x-hook-secret": "b537207f20cbfa02"})
    assert (told.status_code, told.headers["x-hook-secret"]) == (200, "b537207f20cbfa02")
    refused = await way.post(INGEST, content=b"", headers={"x-hook-secret": "two words"})
    assert refused.status_code == 400
    assert end_of(api) == 0
    event = await way.post(INGEST, json={"events": []}, headers={"x-hook-signature": "00"})
    assert event.json()["count"] == 1


async def test_firehose_gets_its_request_id_back(api: Api, way: httpx.AsyncClient) -> None:
    """And the time: without both it repeats the request; a repetition is stored once."""
    await set_up(api, handshake="firehose", delivery_id={"header": "X-Amz-Firehose-Request-Id"})
    request_id = "ed4acda5-034f-9f42-bba1-f29aea6d7d8f"
    body = {"requestId": request_id, "timestamp": 1578090901599, "records": [{"data": "aGk="}]}
    for _ in range(2):
        told = await way.post(INGEST, json=body, headers={"x-amz-firehose-request-id": request_id})
        now_ms = api.service.clock.now_ms()
        assert told.json()["requestId"] == request_id, told.text
        assert now_ms - 60_000 < told.json()["timestamp"] <= now_ms
        assert told.headers["content-type"] == "application/json"
    assert end_of(api) == 1


@pytest.mark.parametrize(
    ("split", "values"),
    [
        ("none", None),
        ("array", [b'{"a":1}{"a":2}', b"\x00\xff", b"", b'{"a": 3}\n{"a":4}']),
        ("lines", [b'{"a":1}{"a":2}', b"\x00\xff", b'{"a": 3}', b'{"a":4}']),
    ],
)
async def test_what_was_given_to_firehose_can_be_records(
    api: Api, way: httpx.AsyncClient, split: str, values: list[bytes] | None
) -> None:
    """As it was given, or divided; the type of the body says nothing about it (J10)."""
    await set_up(api, handshake="firehose", split=split)
    given = [b'{"a":1}{"a":2}', b"\x00\xff", b"", b'{"a": 3}\n{"a":4}']
    records = [{"data": base64.b64encode(one).decode(), "more": "{"} for one in given]
    body = json.dumps({"requestId": "ed4a", "timestamp": 1, "records": records})
    head = {"content-type": "application/json", "x-amz-firehose-request-id": "ed4a"}
    told = await way.post(INGEST, content=body, headers=head)
    assert told.json()["requestId"] == "ed4a", told.text
    page = await api.client.get("/v1/topics/events/partitions/0/records?encoding=base64")
    found = page.json()["records"]
    assert [base64.b64decode(one["value"]) for one in found] == (values or [body.encode()])
    assert [one["headers"] for one in found] == [[]] * len(found) or split == "none"


async def test_values_that_were_given_to_firehose_are_told_apart(
    api: Api, way: httpx.AsyncClient
) -> None:
    """Several in one record, as producers pack them; what is none costs the request."""
    await set_up(api, handshake="firehose", split="values", key={"pointer": "/a"})

    async def send(*given: bytes) -> httpx.Response:
        records = [{"data": base64.b64encode(one).decode()} for one in given]
        return await way.post(INGEST, json={"requestId": "ed4a", "records": records})

    assert (await send(b'{"a":1}{"a":2}', b"", b'\n{"a": 3}\n')).status_code == 200
    page = await api.client.get("/v1/topics/events/partitions/0/records")
    assert [one["key"] for one in page.json()["records"]] == ["1", "2", "3"]
    assert (await send(b'{"a":1}', b'{"a":')).status_code == 400
    assert end_of(api) == 3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[]", 422),
        ("{}", 422),
        ('{"records":[]}', 422),
        ('{"records":{}}', 422),
        ('{"records":[{"data":"aGk="},{"data":7}]}', 400),
        ('{"records":[{"data":"a"}]}', 400),
        ('{"records":[{"data":"aGk="},{}]}', 400),
        ('{"records":[', 400),
        ('{"records":[' + '{"data":""},' * 200_000 + '{"data":""}]}', 413),
    ],
)
async def test_what_firehose_does_not_send_is_refused(
    api: Api, way: httpx.AsyncClient, body: str, status: int
) -> None:
    """With the reason, and nothing is stored."""
    await set_up(api, handshake="firehose", split="array")
    told = await way.post(INGEST, content=body, headers={"content-type": "application/json"})
    assert told.status_code == status, told.text
    assert end_of(api) == 0


def head_of(head: Head) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in head.items()}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (
            "zoom",
            {
                "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"},
                "event_ts": 1654503849680,
                "event": "endpoint.url_validation",
            },
        ),
        ("discord", {"type": 1, "id": "1", "token": "t"}),
    ],
)
async def test_a_signed_question_is_answered_by_its_scheme(
    api: Api, way: httpx.AsyncClient, name: str, document: dict[str, Any]
) -> None:
    """Zoom's validation and Discord's ping; without a signature both are 401."""
    sender = next(one for one in SENDERS if one.name == name)
    await set_up(api, signature={**sender.signature, "secrets": [sender.secret]})
    body = json.dumps(document).encode()
    told = await way.post(
        INGEST, content=body, headers=head_of(sender.head(body, api.service.clock.now_ms()))
    )
    if name == "zoom":
        token = document["payload"]["plainToken"]
        digest = hmac.new(sender.secret.encode(), token.encode(), hashlib.sha256).hexdigest()
        assert told.json() == {"plainToken": token, "encryptedToken": digest}
    else:
        assert told.json() == {"type": 1}
    assert (await way.post(INGEST, content=body)).status_code == 401
    assert end_of(api) == 0


@pytest.mark.parametrize(
    ("signature", "header"),
    [
        ({"scheme": "gitlab"}, "x-gitlab-token"),
        ({"scheme": "token-header", "header": "X-Goog-Channel-Token"}, "x-goog-channel-token"),
    ],
)
async def test_a_secret_in_a_header_is_enough(
    api: Api, way: httpx.AsyncClient, signature: dict[str, Any], header: str
) -> None:
    """One of several; it is stored nowhere, and a wrong one is 401."""
    await set_up(api, signature={**signature, "secrets": ["an old one", SECRET]})
    for secret, status in ((SECRET, 200), ("an old one", 200), ("a wrong one", 401), ("", 401)):
        told = await way.post(INGEST, content=b"{}", headers={header: secret})
        assert told.status_code == status, told.text
        assert SECRET not in told.text
    missing = await way.post(INGEST, content=b"{}")
    assert missing.status_code == 401
    assert header in missing.json()["detail"].lower()
    page = await api.client.get("/v1/topics/events/partitions/0/records")
    assert SECRET not in page.text
    assert end_of(api) == 2


async def test_gitlabs_repetition_is_stored_once(api: Api, way: httpx.AsyncClient) -> None:
    """By its `Idempotency-Key`, which stays the same when it tries again."""
    await set_up(api, signature={"scheme": "gitlab", "secrets": [SECRET]})
    headers = {"x-gitlab-token": SECRET, "idempotency-key": "6f2", "x-gitlab-event": "Push Hook"}
    for _ in range(2):
        assert (await way.post(INGEST, content=b"{}", headers=headers)).status_code == 200
    assert end_of(api) == 1


async def test_an_id_may_be_made_of_several_headers(api: Api, way: httpx.AsyncClient) -> None:
    """All must be there; together they are one id, however they are cut."""
    names = ["X-Shop", "X-Order", "X-Attempt-Of"]
    await set_up(api, delivery_id={"headers": names})

    async def send(*values: str) -> None:
        headers = dict(zip(names, values, strict=False))
        answer = await way.post(INGEST, content=b"x", headers=headers)
        assert answer.status_code == 200, answer.text

    for _ in range(2):
        await send("a", "bc", "d")
    await send("ab", "c", "d")
    assert end_of(api) == 2
    for _ in range(2):
        await send("a", "bc")
    assert end_of(api) == 4


SENDGRID_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+"
    "2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"signature": {"scheme": "sendgrid", "secrets": ["MFkwEwYHKoZI"]}}, "not a public key"),
        (
            {"signature": {"scheme": "sendgrid", "secrets": [SENDGRID_KEY[:40] + "A" * 82 + "=="]}},
            "public key",
        ),
        ({"signature": {"scheme": "discord", "secrets": ["0" * 63]}}, "not a public key"),
        ({"signature": {"scheme": "token-header", "secrets": [SECRET]}}, "needs header"),
        ({"signature": {"scheme": "gitlab", "header": "x", "secrets": [SECRET]}}, "brings its own"),
        ({"handshake": "x"}, "handshake x needs a signature"),
        ({"handshake": "nobody"}, "'hub', 'strava'"),
        ({"delivery_id": {"headers": ["one"]}}, "at least 2"),
        ({"delivery_id": {"headers": ["a", "Cookie"]}}, "never stored"),
        ({"key": {"headers": ["a", "b"]}}, "headers is for delivery_id"),
        (
            {
                "signature": {"scheme": "token-header", "header": "X-Own", "secrets": [SECRET]},
                "headers": ["x-own"],
            },
            "never stored",
        ),
    ],
)
async def test_a_profile_that_cannot_work_is_refused(
    api: Api, profile: dict[str, Any], words: str
) -> None:
    """With what is wrong, and without the secret."""
    answer = await api.client.put("/v1/topics/events/ingest-profile", json=profile)
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    assert SECRET not in answer.text
