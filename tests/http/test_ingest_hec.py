"""Splunk's HTTP Event Collector: events of senders whose path and answers are fixed (J11)."""

from __future__ import annotations

import base64
import gzip
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

COLLECTOR = "/services/collector"
SUCCESS = {"text": "Success", "code": 0}
DOCKER = (
    b'{"event":{"line":"landed","source":"stdout","tag":"0f6c"},"time":"1790000000.123456",'
    b'"host":"ewr-1"}{"event":{"line":"","source":"stderr","tag":"0f6c"},"host":"ewr-1"}'
)
"""What the driver of Docker sends: no type, no separator."""


async def token_of(api: Api, topic: str = "events") -> str:
    answer = await api.client.post(f"/v1/topics/{topic}/ingest-tokens")
    token: str = answer.json()["token"]
    return token


async def send(api: Api, path: str, body: bytes, **headers: str) -> httpx.Response:
    return await api.client.post(COLLECTOR + path, content=body, headers=headers)


async def stored(api: Api) -> list[tuple[bytes, dict[str, str]]]:
    """Values and headers."""
    path = "/v1/topics/events/partitions/0/records?encoding=base64"
    records: list[dict[str, Any]] = (await api.client.get(path)).json()["records"]
    return [
        (
            base64.b64decode(one["value"]),
            {item["key"]: base64.b64decode(item["value"]).decode() for item in one["headers"]},
        )
        for one in records
    ]


@pytest.mark.parametrize("path", ["", "/", "/event", "/event/1.0", "/event?channel=0f6c-11"])
async def test_each_event_is_a_record_as_it_was_sent(api: Api, path: str) -> None:
    """Whatever the path, and however the events are separated (J11)."""
    splunk = f"Splunk {await token_of(api)}"
    answer = await send(api, path, DOCKER, authorization=splunk)
    assert (answer.status_code, answer.json()) == (200, SUCCESS)
    pressed = gzip.compress(b'\n {"event" : 1}\n\n{"event":"\xc3\xa9"}\n')
    answer = await send(api, path, pressed, **{"authorization": splunk, "content-encoding": "gzip"})
    assert answer.json() == SUCCESS
    split = DOCKER.index(b"}{") + 1
    values = [DOCKER[:split], DOCKER[split:], b'{"event" : 1}', '{"event":"é"}'.encode()]
    assert await stored(api) == [(one, {"content-type": "application/json"}) for one in values]


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-ndjson", None])
async def test_each_raw_line_is_a_record(api: Api, kind: str | None) -> None:
    """Whatever the type says; what the URL says of the lines is in their headers."""
    headers = {} if kind is None else {"content-type": kind}
    token = base64.b64encode(f"x:{await token_of(api)}".encode()).decode()
    path = "/raw/1.0?sourcetype=access%20log&host=ewr-1&channel=0f6c&source=" + "s" * 257
    answer = await send(api, path, b"one\r\n{two\n", authorization=f"Basic {token}", **headers)
    assert (answer.status_code, answer.json()) == (200, SUCCESS)
    said = {"sourcetype": "access log", "host": "ewr-1"}
    assert await stored(api) == [(one, headers | said) for one in (b"one", b"{two")]


async def test_a_health_check_asks_for_the_token(api: Api) -> None:
    """Also Docker's, which asks with OPTIONS when a container starts."""
    headers = {"authorization": f"Splunk {await token_of(api)}"}
    for path in ("/health", "/health/1.0"):
        answer = await api.client.get(COLLECTOR + path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (200, 17)
        assert (await api.client.get(COLLECTOR + path)).status_code == 401
    for path in ("", "/event/1.0", "/raw"):
        answer = await api.client.options(COLLECTOR + path, headers=headers)
        assert (answer.status_code, answer.json()) == (200, SUCCESS)
        wrong = {"authorization": "Splunk 12345678-1234-1234-1234-1234567890ab"}
        assert (await api.client.options(COLLECTOR + path, headers=wrong)).status_code == 403


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/event", b"", 400, 6),
        ("/raw", b"", 400, 6),
        ("/event", b'{"event":1}{"event":', 400, 6),
        ("/event", b'{"event":"' + b"x" * 1_100_000 + b'"}', 413, 27),
        ("/nothing", b"{}", 400, 6),
        ("/ack", b"{}", 400, 6),
        ("/event/2.0", b"{}", 404, 404),
    ],
)
async def test_what_is_refused_is_told_as_splunk_does(
    api: Api, path: str, body: bytes, status: int, code: int
) -> None:
    """With a sentence and Splunk's number, and nothing is stored."""
    answer = await send(api, path, body, authorization=f"Splunk {await token_of(api)}")
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["text"]) > 10
    assert await stored(api) == []


@pytest.mark.parametrize(
    ("credentials", "status", "code"),
    [
        (None, 401, 2),
        ("Bearer {token}", 403, 4),
        ("Splunk", 403, 4),
        ("Splunk {token}x", 403, 4),
        ("Splunk {key}", 403, 4),
        ("Splunk tli_000000000000_" + "x" * 43, 403, 4),
        ("Splunk {id}" + "x" * 43, 403, 4),
        ("Basic {token}", 400, 6),
    ],
)
async def test_only_an_ingest_token_lets_a_sender_in(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    credentials: str | None,
    status: int,
    code: int,
) -> None:
    """No part of one, and no API key; none is in a log or an answer."""
    key = create_key(tmp_path, "ops", "admin:*", "append:*", "read:*")
    async with running(tmp_path) as api:
        api.client.headers.update(bearer(key))
        await api.create()
        token = await token_of(api)
        del api.client.headers["authorization"]
        caplog.set_level(logging.DEBUG)
        headers = {}
        if credentials is not None:
            parts = {"token": token, "key": key, "id": token[:17]}
            headers["authorization"] = credentials.format(**parts)
        answer = await send(api, "/event", b'{"event":1}', **headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        for secret in (token, key):
            assert secret not in answer.text
            assert secret not in caplog.text
        api.client.headers.update(bearer(key))
        assert await stored(api) == []


async def test_a_token_sends_to_its_own_topic(api: Api) -> None:
    """Until it is revoked, or its topic is deleted."""
    await api.create("others")
    mine, other = await token_of(api), await token_of(api, "others")
    await send(api, "/event", b'{"event":1}', authorization=f"Splunk {mine}")
    await send(api, "/event", b'{"event":2}', authorization=f"Splunk {other}")
    assert [value for value, _ in await stored(api)] == [b'{"event":1}']
    await api.client.delete("/v1/topics/events/ingest-tokens/" + mine.split("_")[1])
    answer = await send(api, "/event", b'{"event":3}', authorization=f"Splunk {mine}")
    assert answer.status_code == 403
    await api.client.delete("/v1/topics/others")
    answer = await send(api, "/event", b'{"event":3}', authorization=f"Splunk {other}")
    assert answer.status_code == 403


async def test_a_repeated_request_is_stored_once(api: Api) -> None:
    """If its sender says so with an Idempotency-Key; the same key for `raw` is another request."""
    headers = {"authorization": f"Splunk {await token_of(api)}", "idempotency-key": "landing-1141"}
    for _ in range(2):
        assert (await send(api, "/event", b'{"event":1}', **headers)).status_code == 200
    assert len(await stored(api)) == 1
    assert (await send(api, "/raw", b'{"event":1}', **headers)).status_code == 400
