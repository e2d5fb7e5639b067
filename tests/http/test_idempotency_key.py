"""Idempotency-Key on appends: protocol rules I1 to I5."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.operations.append.idempotency import INLINE_BYTES
from tests.support.builders import new_batch
from tests.support.credentials import bearer, create_key
from tests.support.service import (
    BATCHES,
    NDJSON,
    RAW,
    RECORDS,
    Api,
    client_of,
    fast,
    local,
    open_service,
    running,
)
from tests.support.time import ManualClock

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events/records"
ONE = b'{"value":1}'


async def post(
    api: Api,
    path: str = RECORDS,
    body: bytes = ONE,
    *,
    key: str = "8e03978e-40d5-43dd-bc93-6894a57f9324",
    headers: Mapping[str, str] = NDJSON,
) -> httpx.Response:
    sent = httpx.Headers({"idempotency-key": key, **headers}, encoding="latin-1")
    return await api.client.post(path, content=body, headers=sent)


def told(answer: httpx.Response) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Everything of an answer but the mark of a repetition."""
    headers = [pair for pair in answer.headers.raw if pair[0] != b"idempotency-replayed"]
    return answer.status_code, headers, answer.content


def end_of(api: Api) -> int:
    return api.log().watermarks.log_end_offset


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        (RECORDS, {}, ONE),
        (f"{RECORDS}?acks=1", {}, ONE),
        (f"{RECORDS}?acks=0", {}, ONE),
        (RECORDS, {}, b'{"value":"%b"}' % (b"x" * INLINE_BYTES)),
        (RECORDS, {"content-type": "application/json"}, b'{"records":[{"value":1}]}'),
        (BATCHES, RAW, bytes(new_batch(1))),
        (TOPIC, {}, ONE),
    ],
)
async def test_a_repetition_gets_the_first_answer(
    api: Api, path: str, headers: dict[str, str], body: bytes
) -> None:
    """Status, headers and body are those of the first time, marked; nothing is written again.

    As (I1) says.
    """
    first = await post(api, path, body, headers=NDJSON | headers)
    assert first.status_code in {201, 202}
    assert "idempotency-replayed" not in first.headers
    await api.append("between")
    for _ in range(2):
        again = await post(api, path, body, headers=NDJSON | headers)
        assert again.headers["idempotency-replayed"] == "true"
        assert told(again) == told(first)
    assert end_of(api) == 2


async def test_each_key_is_a_request_of_its_own(api: Api) -> None:
    """The same body under another key, or under none, is another append."""
    await post(api)
    await post(api, key='"another"')
    await api.client.post(RECORDS, content=ONE, headers=NDJSON)
    assert end_of(api) == 3


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        (RECORDS, {}, b'{"value":2}'),
        (RECORDS, {"content-type": "application/json"}, ONE),
        (RECORDS, {"expected-offset": "1"}, ONE),
        (f"{RECORDS}?acks=1", {}, ONE),
        (TOPIC, {}, ONE),
        ("/v1/topics/other/partitions/0/records", {}, ONE),
    ],
)
async def test_another_request_under_the_key_is_refused(
    api: Api, path: str, headers: dict[str, str], body: bytes
) -> None:
    """Path, parameters, conditions, type and body all count: 422, and nothing is written (I2)."""
    await api.create("other")
    await post(api)
    refused = await post(api, path, body, headers=NDJSON | headers)
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "idempotency_key_reused")
    assert (problem["retryable"], problem["side_effects"]) == (False, "none")
    assert (end_of(api), api.log("other").watermarks.log_end_offset) == (1, 0)


@pytest.mark.parametrize("path", [RECORDS, TOPIC])
async def test_a_topic_that_was_made_again_is_another(api: Api, path: str) -> None:
    """Nobody is told that a record is in a log that it is not in: 422 (I2)."""
    assert (await post(api, path)).status_code == 201
    await api.client.delete("/v1/topics/events")
    await api.create()
    refused = await post(api, path)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert (await post(api, path, key="another")).status_code == 201


async def test_a_key_is_its_callers_own(tmp_path: Path) -> None:
    """Nobody gets the answer that somebody else was given under the same key."""
    tokens = [bearer(create_key(tmp_path, name, "append:*", "admin:*")) for name in ("a", "b")]
    async with running(tmp_path) as api:
        for token in tokens * 2:
            api.client.headers.update(token)
            await api.client.put("/v1/topics/events", json={})
            assert (await post(api)).status_code == 201
        assert end_of(api) == 2


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "two words", "schl\u00fcssel"])
async def test_what_cannot_be_a_key_is_malformed(api: Api, key: str) -> None:
    """A key has 1 to 255 visible ASCII characters."""
    for path in (RECORDS, TOPIC):
        answer = await post(api, path, key=key)
        assert (answer.status_code, answer.json()["header"]) == (400, "idempotency-key")
    assert end_of(api) == 0


async def test_after_an_error_that_wrote_nothing_the_key_is_free(api: Api) -> None:
    """A request that was refused can be mended and sent again under its key."""
    for body in (b"{", b'{"value":1,"x":2}'):
        assert (await post(api, body=body)).status_code in {400, 422}
    late = await post(api, "/v1/topics/later/partitions/0/records")
    assert late.status_code == 404
    assert (await post(api)).status_code == 201
    assert end_of(api) == 1


async def test_a_repetition_waits_for_the_first(tmp_path: Path) -> None:
    """Whoever comes while the first is at work gets its answer; one with another body is 422."""
    async with running(tmp_path, commit_interval_ms=600_000) as api:
        await api.create()
        api.log().append(new_batch(1))  # the first append is made, and flushed, by a worker
        wake = api.local.runtime.committer.wake
        api.local.commits.attach(asyncio.get_running_loop(), lambda: None)  # nobody flushes
        requests = [asyncio.create_task(post(api)) for _ in range(3)]
        while not api.local.commits.waiting:
            await checkpoint()
        other = await post(api, body=b'{"value":2}')
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
        wake()
        answers = [await asyncio.wait_for(request, 30) for request in requests]
        assert [answer.status_code for answer in answers] == [201] * 3
        assert len({answer.content for answer in answers}) == 1
        assert sorted("idempotency-replayed" in answer.headers for answer in answers) == [
            False, True, True,
        ]  # fmt: skip
        assert end_of(api) == 2


async def test_a_repetition_goes_on_where_the_first_failed(api: Api) -> None:
    """If the first is refused while another waits, that one is the first now: nobody is stuck."""
    malformed = b"{" * 200_000  # large enough to be looked at by a worker
    requests = [asyncio.create_task(post(api, body=malformed)) for _ in range(3)]
    answers = [await asyncio.wait_for(request, 30) for request in requests]
    assert [answer.status_code for answer in answers] == [400] * 3
    assert (await post(api)).status_code == 201


@pytest.mark.parametrize("path", [RECORDS, TOPIC])
async def test_an_append_the_disk_has_not_confirmed_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """After 504 the repetition waits for the same append, and is answered when it is on disk.

    As (I3) says.
    """
    monkeypatch.setattr("app.store.local.commits.SWEEP_SECONDS", 0.001)
    async with (
        open_service(tmp_path, commit_timeout_ms=1, commit_interval_ms=600_000) as service,
        client_of(fast(service)) as client,
    ):
        api = Api(service, client)
        await api.create()
        api.log().append(new_batch(1))  # the first append is made, and flushed, by a worker
        wake = local(service).runtime.committer.wake
        local(service).commits.attach(asyncio.get_running_loop(), lambda: None)  # nobody flushes
        for _ in range(2):
            unknown = await post(api, path)
            assert (unknown.status_code, unknown.json()["side_effects"]) == (504, "unknown")
        assert end_of(api) == 2
        api.log().durability.commit()
        local(service).commits.attach(asyncio.get_running_loop(), wake)
        answer = await post(api, path)
        assert answer.status_code == 201
        assert "idempotency-replayed" not in answer.headers
        assert (await post(api, path)).headers["idempotency-replayed"] == "true"
        assert end_of(api) == 2


@pytest.fixture
async def bounded(tmp_path: Path, anyio_backend: str) -> AsyncIterator[tuple[Api, ManualClock]]:
    """A service that keeps few answers, for a second of a clock that stands still."""
    clock = ManualClock()
    limits: dict[str, Any] = {
        "max_idempotency_keys": 3,
        "max_idempotency_bytes": 10_000,
        "max_idempotency_age_ms": 1_000,
    }
    async with (
        open_service(tmp_path, clock=clock, **limits) as service,
        client_of(fast(service)) as client,
    ):
        api = Api(service, client)
        await api.create()
        yield api, clock


async def replayed(api: Api, key: str) -> bool:
    answer = await post(api, key=key)
    assert answer.status_code == 201
    return "idempotency-replayed" in answer.headers


async def test_the_window_is_bounded_by_count(bounded: tuple[Api, ManualClock]) -> None:
    """Beyond max_idempotency_keys the oldest is forgotten, and is a new request (I4)."""
    api, _ = bounded
    for key in "abcd":
        assert not await replayed(api, key)
    assert [await replayed(api, key) for key in "dcb"] == [True] * 3
    assert not await replayed(api, "a")
    assert api.service.idempotency.kept_count == 3


async def test_the_window_is_bounded_by_age(bounded: tuple[Api, ManualClock]) -> None:
    """What ended longer ago than max_idempotency_age_ms is forgotten, and its memory is free."""
    api, clock = bounded
    await replayed(api, "a")
    clock.advance(999)
    assert await replayed(api, "a")
    clock.advance(1)
    assert not await replayed(api, "a")
    clock.advance(1_000)
    assert not await replayed(api, "b")
    assert api.service.idempotency.kept_count == 1


async def test_the_window_is_bounded_by_bytes(bounded: tuple[Api, ManualClock]) -> None:
    """A large answer takes the place of several small ones; one beyond all of it is not kept."""
    api, _ = bounded
    window = api.service.idempotency
    assert not await replayed(api, "a")
    assert 0 < window.kept_bytes < 5_000
    body = b"\n".join([ONE] * 500)
    large = await post(api, TOPIC, body, key="large")
    assert len(large.content) > 10_000
    assert (window.kept_count, window.kept_bytes) == (0, 0)


async def test_limits_are_told(api: Api) -> None:
    """Clients can look up how long and how many answers are kept."""
    limits = (await api.client.get("/v1/limits")).json()["limits"]
    assert {"max_idempotency_keys", "max_idempotency_bytes", "max_idempotency_age_ms"} <= set(
        limits
    )


async def test_a_restart_forgets_all_keys(tmp_path: Path) -> None:
    """The same key is a new request then: whoever must not append twice uses a producer (I5)."""
    async with running(tmp_path) as api:
        await api.create()
        first = await post(api)
    async with running(tmp_path) as api:
        again = await post(api)
        assert (first.status_code, again.status_code) == (201, 201)
        assert "idempotency-replayed" not in again.headers
        assert [answer.json()["base_offset"] for answer in (first, again)] == [0, 1]
