"""A condition is never passed over: topics have an ETag, and what cannot be judged is 400."""

import asyncio

import pytest

from app.operations.service import Service
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, Api, log_of
from tests.support.wire import Listener, request

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
LOG = f"{TOPIC}/partitions/0"
CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
PATCH = {"config": {"retention.ms": "1000000"}}

CHANGES = {
    "putTopic": ("PUT", TOPIC, {}, {"if-match", "if-none-match"}),
    "updateTopic": ("PATCH", TOPIC, PATCH, {"if-match", "if-none-match"}),
    "deleteTopic": ("DELETE", TOPIC, None, {"if-match", "if-none-match"}),
    "appendRecords": ("POST", RECORDS, {"records": [{"value": 1}]}, {"if-match"}),
    "appendTopicRecords": ("POST", f"{TOPIC}/records", {"records": [{"value": 1}]}, set()),
    "rollSegment": ("POST", f"{LOG}/roll", None, set()),
    "flushLog": ("POST", f"{LOG}/flush", None, set()),
    "runRetention": ("POST", f"{LOG}/retention", None, set()),
    "deleteRecords": ("POST", f"{LOG}/delete-records", {"before_offset": 1}, set()),
    "truncateLog": ("POST", f"{LOG}/truncate", {"to_offset": 1}, {"if-match"}),
    "compactLog": ("POST", f"{LOG}/compact", None, set()),
    "movePartition": ("POST", f"{LOG}/move", {"directory": "/"}, set()),
    "allocateProducer": ("POST", "/v1/producers", None, set()),
    "endTransaction": (
        "POST",
        f"{LOG}/transactions",
        {"producer_id": 1, "producer_epoch": 0, "action": "abort"},
        set(),
    ),
    "kafkaRestProduceToTopic": ("POST", "/topics/events", {"records": [{"value": 1}]}, set()),
}


@pytest.mark.parametrize("operation", CHANGES)
async def test_a_condition_that_is_not_defined_is_refused(api: Api, operation: str) -> None:
    """Nothing is changed: the client wanted that only if the condition holds (T8)."""
    await api.append(1, 2)
    before = (await api.client.get(OFFSETS)).json(), (await api.client.get(TOPIC)).json()
    method, path, body, defined = CHANGES[operation]
    for name in sorted({*CONDITIONS, "expected-offset"} - defined):
        if operation == "appendRecords" and name == "expected-offset":
            continue
        value = "0" if name == "expected-offset" else '"x"'
        answer = await api.client.request(method, path, json=body, headers={name: value})
        assert answer.status_code == 400, (name, answer.text)
        if not path.startswith("/topics"):
            problem = answer.json()
            assert (problem["code"], problem["header"]) == ("malformed_request", name)
            assert problem["side_effects"] == "none"
    after = (await api.client.get(OFFSETS)).json(), (await api.client.get(TOPIC)).json()
    assert before == after


@pytest.mark.parametrize("path", [RECORDS, BATCHES])
async def test_the_hot_lane_passes_over_no_condition(service: Service, path: str) -> None:
    """The same below ASGI, whether or not the head has been seen before."""
    connection = Listener(service).connect()
    connection.send(request("PUT", TOPIC, b"{}"))
    assert (await connection.answer()).status == 201
    body, kind = b'{"records":[{"value":1}]}', {"content-type": "application/json"}
    if path == BATCHES:
        kind = RAW
    for _ in range(3):
        reply = await connection.ask(request("POST", path, body, kind | {"if-none-match": '"x"'}))
        assert reply.status == 400
    assert log_of(service).watermarks.log_end_offset == 0


async def test_a_topic_changes_only_if_it_is_what_the_client_saw(api: Api) -> None:
    """PATCH, DELETE and PUT take the ETag of any answer about the topic."""
    first = (await api.client.get(TOPIC)).headers["etag"]
    patched = await api.client.patch(TOPIC, json=PATCH, headers={"if-match": first})
    second = patched.headers["etag"]
    assert (patched.status_code, second != first) == (200, True)
    assert (await api.client.get(TOPIC)).headers["etag"] == second
    for method, body in (("PATCH", PATCH), ("DELETE", None), ("PUT", PATCH)):
        stale = await api.client.request(method, TOPIC, json=body, headers={"if-match": first})
        problem = stale.json()
        assert (stale.status_code, problem["code"]) == (412, "precondition_failed")
        assert (problem["etag"], problem["topic"]) == (second, "events")
        known = {"if-none-match": f'"x", {second}'}
        assert (
            await api.client.request(method, TOPIC, json=body, headers=known)
        ).status_code == 412
    same = await api.client.put(TOPIC, json=PATCH, headers={"if-match": second})
    assert (same.status_code, same.headers["etag"]) == (200, second)
    more = await api.client.patch(TOPIC, json={"partitions": 2}, headers={"if-match": "*"})
    assert more.headers["etag"] != second
    gone = await api.client.delete(TOPIC, headers={"if-match": more.headers["etag"]})
    assert gone.status_code == 204
    again = await api.client.put(TOPIC, json=PATCH, headers={"if-match": "*"})
    assert again.status_code == 412


async def test_of_two_changes_to_what_both_saw_one_is_made(api: Api) -> None:
    """The look and the change are one step."""
    etag = (await api.client.get(TOPIC)).headers["etag"]
    bodies = [{"config": {"retention.ms": str(1_000_000 + number)}} for number in range(5)]
    answers = await asyncio.gather(
        *(api.client.patch(TOPIC, json=body, headers={"if-match": etag}) for body in bodies)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412, 412]


async def test_a_topic_that_the_client_has_is_not_sent_again(api: Api) -> None:
    """If-None-Match on getTopic: 304, and never a cached one."""
    etag = (await api.client.get(TOPIC)).headers["etag"]
    answer = await api.client.get(TOPIC, headers={"if-none-match": etag})
    assert (answer.status_code, answer.headers["etag"], answer.content) == (304, etag, b"")
    assert answer.headers["cache-control"] == "no-store"
