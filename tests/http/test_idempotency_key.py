"""Idempotency-Key on appends: protocol rules I1 to I6."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.operations.deliveries.claim import delivery_of
from app.operations.deliveries.idempotency_key import INLINE_BYTES
from tests.support.builders import new_batch
from tests.support.credentials import bearer, create_key
from tests.support.service import (
    BATCHES,
    NDJSON,
    RAW,
    RECORDS,
    Api,
    local,
    open_service,
    running,
)
from tests.support.time import OF_ANY_YEAR
from tests.support.wired_client import wired

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


def written(answer: httpx.Response) -> list[tuple[object, ...]]:
    """What a receipt says was written: of one partition, or of several."""
    body = answer.json()
    names = ("partition", "base_offset", "last_offset", "count", "timestamp")
    return [tuple(part[name] for name in names) for part in body.get("partitions", [body])]


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
        (RECORDS, {}, b'{"value":1,"timestamp":1795219400000}\n{"value":2}'),
        (TOPIC, {}, ONE),
        (f"{TOPIC}?acks=1", {}, b'{"value":1}\n{"key":"a","value":2}'),
    ],
)
async def test_a_repetition_gets_the_first_offsets(
    tmp_path: Path, path: str, headers: dict[str, str], body: bytes
) -> None:
    """200 with the offsets of the first time, marked; nothing is written again (I1).

    After a restart too.
    """
    async with running(tmp_path) as api:
        await api.create(**OF_ANY_YEAR)
        first = await post(api, path, body, headers=NDJSON | headers)
        assert first.status_code in {201, 202}
        assert "idempotency-replayed" not in first.headers
        await api.append("between")
        end = end_of(api)
        for _ in range(2):
            await assert_repeated(api, first, path, body, headers)
        assert end_of(api) == end
    async with running(tmp_path) as api:
        await assert_repeated(api, first, path, body, headers)
        assert end_of(api) == end


async def assert_repeated(
    api: Api, first: httpx.Response, path: str, body: bytes, headers: Mapping[str, str]
) -> None:
    again = await post(api, path, body, headers={**NDJSON, **headers})
    assert (again.status_code, again.headers.get("idempotency-replayed")) == (200, "true")
    assert written(again) == written(first)
    parts = again.json().get("partitions", [again.json()])
    assert all(part["duplicate"] for part in parts)


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
        ("/v1/topics/events/partitions/1/records", {}, ONE),
    ],
)
async def test_another_request_under_the_key_is_refused(
    tmp_path: Path, path: str, headers: dict[str, str], body: bytes
) -> None:
    """Path, parameters, conditions, type and body all count: 422, and nothing is written (I2)."""
    async with running(tmp_path) as api:
        await api.create(partitions=2)
        await post(api)
        await assert_refused(api, path, headers, body)
    async with running(tmp_path) as api:
        await assert_refused(api, path, headers, body)


async def assert_refused(api: Api, path: str, headers: Mapping[str, str], body: bytes) -> None:
    refused = await post(api, path, body, headers={**NDJSON, **headers})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "idempotency_key_reused")
    assert (problem["retryable"], problem["side_effects"]) == (False, "none")
    assert (end_of(api), api.log(partition=1).watermarks.log_end_offset) == (1, 0)


@pytest.mark.parametrize("path", [RECORDS, TOPIC])
async def test_a_topic_that_is_created_again_has_no_keys(api: Api, path: str) -> None:
    """A key belongs to a topic, not to a name (I2)."""
    assert (await post(api, path)).status_code == 201
    await api.client.delete("/v1/topics/events")
    await api.create()
    again = await post(api, path)
    assert (again.status_code, end_of(api)) == (201, 1)
    assert (await post(api, path)).status_code == 200


async def test_a_key_belongs_to_one_topic(api: Api) -> None:
    """The same key in another topic is another key (I2)."""
    await api.create("other")
    await post(api)
    answer = await post(api, "/v1/topics/other/partitions/0/records")
    assert (answer.status_code, answer.json()["base_offset"]) == (201, 0)


async def test_raw_batches_take_no_key(api: Api) -> None:
    """Nothing can be added to them: 400, and their own sequence is named (I6)."""
    refused = await post(api, BATCHES, bytes(new_batch(1)), headers=RAW)
    problem = refused.json()
    assert (refused.status_code, problem["header"]) == (400, "idempotency-key")
    assert "producer id" in problem["detail"]
    assert end_of(api) == 0


async def test_a_producer_takes_no_key(api: Api) -> None:
    """A sequence and a key are two answers to one question: 400 (I6)."""
    producer = {"producer-id": "1", "producer-epoch": "0", "producer-sequence": "0"}
    refused = await post(api, headers=NDJSON | producer)
    assert (refused.status_code, refused.json()["header"]) == (400, "idempotency-key")
    assert end_of(api) == 0


@pytest.mark.parametrize("name", ["tidelog-delivery-id", "tidelog-delivery"])
async def test_a_record_cannot_bring_the_headers_of_a_delivery(api: Api, name: str) -> None:
    """They would make a later delivery look like a repetition: 422 (I6)."""
    record = {"value": 1, "headers": [{"key": "a", "value": "b"}, {"key": name, "value": "c"}]}
    refused = await api.client.post(RECORDS, json={"records": [record]})
    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {
            "index": 0,
            "field": "headers[1]",
            "code": "reserved_header",
            "detail": refused.json()["errors"][0]["detail"],
        }
    ]
    assert end_of(api) == 0


async def test_readers_see_the_key(api: Api) -> None:
    """The first record of the request has it as a header, after its own (I5)."""
    body = b'{"value":1,"headers":[{"key":"a","value":"b"}]}\n{"value":2}'
    await post(api, body=body, key="order-4711")
    records = (await api.client.get(RECORDS)).json()["records"]
    (own, named, state), others = (record["headers"] for record in records)
    assert (own["key"], named["key"], named["value"]) == ("a", "tidelog-delivery-id", "order-4711")
    assert (state["key"], len(state["value"])) == ("tidelog-delivery", 68)
    assert others == []


async def test_a_key_is_its_callers_own(tmp_path: Path) -> None:
    """A client never gets the response to another client's request with the same key."""
    tokens = [bearer(create_key(tmp_path, name, "append:*", "admin:*")) for name in ("a", "b")]
    async with running(tmp_path) as api:
        for token, status in zip(tokens * 2, (201, 201, 200, 200), strict=True):
            api.client.headers.update(token)
            await api.client.put("/v1/topics/events", json={})
            assert (await post(api)).status_code == status
        assert end_of(api) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "schl\u00fcssel"])
async def test_what_cannot_be_a_key_is_malformed(api: Api, key: str) -> None:
    """A key has 1 to 255 visible ASCII characters."""
    for path in (RECORDS, TOPIC):
        answer = await post(api, path, key=key)
        assert (answer.status_code, answer.json()["header"]) == (400, "idempotency-key")
    assert end_of(api) == 0


async def test_after_an_error_that_wrote_nothing_the_key_is_free(api: Api) -> None:
    """A refused request can be corrected and sent again under its key."""
    for body in (b"{", b'{"value":1,"x":2}'):
        assert (await post(api, body=body)).status_code in {400, 422}
    late = await post(api, "/v1/topics/later/partitions/0/records")
    assert late.status_code == 404
    assert (await post(api)).status_code == 201
    assert end_of(api) == 1


async def open_files(api: Api) -> None:
    """Read the keys from the log and append to it, so that the next append needs no flush."""
    delivery = delivery_of(api.service.partition("events", 0), b"", b"", bytes(8))
    with await api.service.deliveries.claimed(delivery):
        api.log().append(new_batch(1))


async def test_a_repetition_waits_for_the_first(tmp_path: Path) -> None:
    """A request during the first one gets its response; with another body it is 422."""
    async with running(tmp_path, commit_interval_ms=600_000) as api:
        await api.create()
        await open_files(api)
        wake = api.local.runtime.committer.wake
        api.local.commits.attach(asyncio.get_running_loop(), lambda: None)  # no flush happens
        requests = [asyncio.create_task(post(api)) for _ in range(3)]
        while not api.local.commits.waiting:
            await checkpoint()
        other = await post(api, body=b'{"value":2}')
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
        wake()
        answers = [await asyncio.wait_for(request, 30) for request in requests]
        assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
        assert len({answer.json()["base_offset"] for answer in answers}) == 1
        assert sorted("idempotency-replayed" in answer.headers for answer in answers) == [
            False, True, True,
        ]  # fmt: skip
        assert end_of(api) == 2


async def test_a_repetition_goes_on_where_the_first_failed(api: Api) -> None:
    """If the first is refused while another waits, that one runs instead; none is stuck."""
    malformed = b"{" * 200_000  # large enough to be looked at by a worker
    requests = [asyncio.create_task(post(api, body=malformed)) for _ in range(3)]
    answers = [await asyncio.wait_for(request, 30) for request in requests]
    assert [answer.status_code for answer in answers] == [400] * 3
    assert (await post(api)).status_code == 201


@pytest.mark.parametrize("path", [RECORDS, TOPIC])
async def test_an_append_the_disk_has_not_confirmed_is_not_written_twice(
    tmp_path: Path, path: str
) -> None:
    """After 504 the retry waits for the same append, and gets its response when it is on disk.

    As (I3) says.
    """
    async with (
        open_service(tmp_path, commit_timeout_ms=1, commit_interval_ms=600_000) as service,
        wired(service) as client,
    ):
        api = Api(service, client)
        await api.create(**OF_ANY_YEAR)
        await open_files(api)
        wake = local(service).runtime.committer.wake
        local(service).commits.attach(asyncio.get_running_loop(), lambda: None)  # no flush happens
        for _ in range(2):
            unknown = await post(api, path)
            assert (unknown.status_code, unknown.json()["side_effects"]) == (504, "unknown")
        assert end_of(api) == 2
        api.log().durability.commit()
        local(service).commits.attach(asyncio.get_running_loop(), wake)
        answer = await post(api, path)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (200, "true")
        assert end_of(api) == 2


async def test_limits_are_listed(api: Api) -> None:
    """Clients can look up how many keys are remembered."""
    limits = (await api.client.get("/v1/limits")).json()["limits"]
    names = {"max_deliveries", "max_delivery_rebuild_bytes", "delivery_rebuild_timeout_ms"}
    assert names <= set(limits)
