"""Topics that are pushed to a URL: in order, at least once, and never where they must not go."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kio.schema.errors import ErrorCode
from standardwebhooks import Webhook

from app.operations.subscriptions import push, subscriptions
from app.operations.subscriptions.push import LONGEST_PAUSE_MS
from engine.records.builder import build_batch
from engine.types import NO_TIMESTAMP
from schemas.subscriptions import SubscriptionList, SubscriptionTest
from tests.support.credentials import bearer, create_key
from tests.support.fake_kafka import eventually, fake_kafka
from tests.support.kafka_store import hurry
from tests.support.receiver import Receiver, status
from tests.support.replica_set import Replica
from tests.support.service import BATCHES, RAW, Api, open_service, running
from tests.support.subscriptions import (
    LOOPBACK,
    SECRETS,
    URL,
    committed,
    put,
    shown,
    until_committed,
    until_state,
    values,
)
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service that may send to this machine, and a topic of two partitions."""
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        await api.create(partitions=2)
        yield api


async def test_records_are_pushed_and_committed(api: Api, receiver: Receiver) -> None:
    """What was there, then what comes; the offset of the group says how far it is (Q1)."""
    await api.append(1, 2, 3)
    await put(api, receiver.url)
    first = (await receiver.until(1))[0]
    assert (values(first), first.id, first.path) == ([1, 2, 3], "events/0/0-2", "/hook")
    assert first.headers["content-type"] == "application/x-ndjson"
    assert first.headers["tidelog-subscription"] == "s"
    await until_committed(api, 3)
    await api.append(4)
    assert values((await receiver.until(2))[1]) == [4]
    await until_committed(api, 4)
    (one, two) = (await shown(api))["partitions"]
    assert (one["offset"], one["lag"], one["last_answer"]["status"]) == (4, 0, 200)
    assert (two["offset"], two["last_answer"]) == (0, None)


async def test_requests_are_signed_with_every_secret(api: Api, receiver: Receiver) -> None:
    """By the scheme's own library; ids of topics with a full stop have none (Q3)."""
    await api.create("a.b")
    await put(api, receiver.url, topics=["a.b"], signature={"secrets": SECRETS})
    await api.append({"n": 1}, path="/v1/topics/a.b/partitions/0/records")
    (request,) = await receiver.until(1)
    assert request.id == "a%2Eb/0/0-0"
    for secret in SECRETS:
        Webhook(secret).verify(request.body, dict(request.headers))


@pytest.mark.parametrize(
    "answer",
    [
        status("500 No"),
        status("400 No"),
        status("302 There", "location: http://127.0.0.1:1/"),
        b"HTTP/1.1 200\r\ncontent-length: x\r\n\r\n",
        b"garbage\r\n\r\n",
        lambda writer: writer.close(),
        lambda writer: None,
    ],
    ids=["500", "400", "redirect", "length", "garbage", "closed", "silent"],
)
async def test_a_request_that_fails_is_repeated_with_its_id(
    api: Api, receiver: Receiver, answer: Any
) -> None:
    """However it fails; what follows waits, and nothing is committed before (Q2)."""
    receiver.answers += [answer, answer]
    await put(api, receiver.url, timeout_ms=1_000)  # on a busy machine a shorter one ends too soon
    await api.append(1)
    await receiver.until(2)
    assert await committed(api) == 0
    await api.append(2)
    await receiver.until(4)
    assert receiver.ids[:3] == ["events/0/0-0"] * 3
    assert receiver.ids[3] in {"events/0/1-1", "events/0/0-0"}
    await until_committed(api, 2)
    attempts = [one.headers["tidelog-attempt"] for one in receiver.requests[:3]]
    assert attempts == ["1", "2", "3"]


async def test_an_endless_response_is_not_read(api: Api, receiver: Receiver) -> None:
    """The status is what counts; the connection is closed behind the beginning."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n"
    receiver.answers.append(head + bytes(200_000))
    await put(api, receiver.url)
    await api.append(1)
    await until_committed(api, 1)


async def test_partitions_are_pushed_side_by_side_and_each_in_order(
    api: Api, receiver: Receiver
) -> None:
    """One that fails does not hold up another."""
    await put(api, receiver.url, batch={"max_records": 1})
    receiver.answers += [status("500 No")] * 3
    paths = [f"/v1/topics/events/partitions/{number}/records" for number in (0, 1)]
    for n in range(5):
        await asyncio.gather(*(api.append(n, path=path) for path in paths))
    await until_committed(api, 5, 0)
    await until_committed(api, 5, 1)
    for number in (0, 1):
        firsts = [
            int(one.split("/")[2].split("-")[0]) for one in receiver.ids if f"/{number}/" in one
        ]
        assert firsts == sorted(firsts)
        assert set(firsts) == set(range(5))


async def test_gone_pauses_until_it_is_set_again(tmp_path: Path, receiver: Receiver) -> None:
    """Across a restart; what was not delivered is sent then."""
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        await api.create()
        receiver.answers.append(status("410 Gone"))
        await put(api, receiver.url)
        await api.append(1)
        found = await until_state(api, "paused")
        assert (found["paused"], found["problem"]) == (True, "status 410")
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        assert (await shown(api))["state"] == "paused"
        assert len(receiver.requests) == 1
        assert (await put(api, receiver.url, 200))["state"] == "running"
        await receiver.until(2)
        assert receiver.ids == ["events/0/0-0"] * 2
        await until_committed(api, 1)


async def test_records_that_fail_too_often_go_to_the_dead_letter_topic(
    api: Api, receiver: Receiver
) -> None:
    """Byte for byte, with the reason; what follows goes on."""
    await api.create("dead")
    receiver.answers += [status("422 No")] * 2
    retry = {"initial_ms": 10, "attempts": 2}
    await put(api, receiver.url, retry=retry, dead_letter_topic="dead")
    await api.append({"n": 1.50}, key="k", headers=[{"key": "h", "value": "v"}])
    await until_committed(api, 1)
    await api.append(2)
    await receiver.until(3)
    page = (await api.client.get("/v1/topics/dead/partitions/0/records")).json()
    (dead,) = page["records"]
    assert (dead["key"], dead["value"]) == ("k", {"n": 1.5})
    headers = {one["key"]: one["value"] for one in dead["headers"]}
    assert headers == {
        "h": "v",
        "dead-letter-offset": "0",
        "dead-letter-topic": "events",
        "dead-letter-partition": "0",
        "dead-letter-subscription": "s",
        "dead-letter-reason": "status 422",
    }


async def test_without_another_place_the_subscription_stops_and_says_so(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Across a restart, until it is set again; nothing is passed over (Q4)."""
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        await api.create()
        receiver.answers += [status("500 No")] * 2
        await put(api, receiver.url, retry={"initial_ms": 10, "attempts": 2})
        await api.append(1)
        found = await until_state(api, "stopped")
        assert found["problem"] == "events-0, offset 0: status 500, 2 times"
        assert await committed(api) == 0
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        assert (await shown(api))["state"] == "stopped"
        await put(api, receiver.url, 200)
        await until_committed(api, 1)
    assert receiver.ids == ["events/0/0-0"] * 3


async def test_a_service_that_ends_repeats_what_was_not_committed(
    tmp_path: Path, receiver: Receiver
) -> None:
    """With the same id, so that the receiver knows it."""
    receiver.answers.append(lambda writer: None)  # it never answers
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        await api.create()
        await put(api, receiver.url)
        await api.append(1, 2)
        await receiver.until(1)
    async with running(tmp_path, subscription_hosts=LOOPBACK) as api:
        await until_committed(api, 2)
    assert receiver.ids == ["events/0/0-1"] * 2
    assert receiver.requests[0].body == receiver.requests[1].body


async def test_a_change_takes_effect_without_repeating_what_is_done(
    api: Api, receiver: Receiver
) -> None:
    """The group goes on; secrets that are not sent stay."""
    await put(api, receiver.url, signature={"secrets": SECRETS[:1]})
    await api.append(1)
    await until_committed(api, 1)
    changed = await put(api, receiver.url, 200, format="json", signature={})
    assert changed["signature"] == {"scheme": "standard-webhooks", "secrets_count": 1}
    await api.append(2)
    request = (await receiver.until(2))[1]
    Webhook(SECRETS[0]).verify(request.body, dict(request.headers))
    assert [one["value"] for one in json.loads(request.body)["records"]] == [2]
    await put(api, receiver.url, 200, paused=True)
    await api.append(3)
    assert (await shown(api))["state"] == "paused"
    await put(api, receiver.url, 200)
    await until_committed(api, 3)
    assert receiver.most_under_way == 1
    assert (await api.client.delete(URL)).status_code == 204
    assert (await api.client.get(URL)).status_code == 404
    assert await committed(api) == 3


@pytest.mark.parametrize(
    ("start", "expected"), [("latest", [9]), ("earliest", [0, 1, 2, 9]), (2, [2, 9])]
)
async def test_a_subscription_begins_where_it_is_told(
    api: Api, receiver: Receiver, start: object, expected: list[int]
) -> None:
    """Decided when it is set, not when it first runs (Q5)."""
    await api.append(0, 1, 2)
    await put(api, receiver.url, start=start, paused=True)
    await api.append(9)
    await put(api, receiver.url, 200)
    await until_committed(api, 4)
    assert [one for request in receiver.requests for one in values(request)] == expected


async def test_a_filter_sends_what_is_wanted_and_commits_the_rest(
    api: Api, receiver: Receiver
) -> None:
    """Records that are not wanted are no lag."""
    await put(api, receiver.url, filter="value/n >= 5")
    for n in range(8):
        await api.append({"n": n})
    await until_committed(api, 8)
    assert [one["n"] for request in receiver.requests for one in values(request)] == [5, 6, 7]
    await api.append({"n": 0})
    await until_committed(api, 9)


FORMATS: dict[str, tuple[str, object]] = {
    "json": (
        "application/json",
        {"topic": "events", "partition": 0, "records": [{"value": {"n": 1}, "key": "k"}]},
    ),
    "cloudevents": (
        "application/cloudevents-batch+json",
        [
            {
                "specversion": "1.0",
                "id": "events/0/0",
                "source": "/v1/topics/events/partitions/0",
                "type": "tidelog.record",
                "subject": "k",
                "datacontenttype": "application/json",
                "data": {"n": 1},
                "time": "2026-11-28T00:00:00.123Z",
            }
        ],
    ),
    "body": ("application/vnd.x+json", {"n": 1}),
}


@pytest.mark.parametrize("name", FORMATS)
async def test_records_are_sent_in_the_format_that_is_asked_for(
    api: Api, receiver: Receiver, name: str
) -> None:
    """A JSON object, CloudEvents, or the value as it is."""
    await put(api, receiver.url, format=name, headers={"authorization": "Bearer x"})
    headers = [
        {"key": "trace", "value": "a"},
        {"key": "content-type", "value": "application/vnd.x+json"},
        {"key": "content-type", "value": "no media type"},
    ]
    await api.append({"n": 1}, key="k", headers=headers, timestamp=1795824000123)
    (request,) = await receiver.until(1)
    content_type, expected = FORMATS[name]
    assert request.headers["content-type"] == content_type
    assert request.headers["authorization"] == "Bearer x"
    found = json.loads(request.body)
    if name == "json":
        found["records"] = [{m: one[m] for m in ("value", "key")} for one in found["records"]]
    assert found == expected
    if name == "body":
        assert base64.b64decode(request.headers["tidelog-key"]) == b"k"


async def test_an_event_of_a_record_without_a_time_has_none(api: Api, receiver: Receiver) -> None:
    """Kafka's -1 says that there is no time; it is no moment of 1969."""
    await put(api, receiver.url, format="cloudevents")
    batch = build_batch([(NO_TIMESTAMP, None, b"1", ())])
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201, answer.text
    (request,) = await receiver.until(1)
    (event,) = json.loads(request.body)
    assert (event["id"], event["data"], "time" in event) == ("events/0/0", 1, False)


async def test_a_tombstone_and_bytes_are_sent_as_they_are(api: Api, receiver: Receiver) -> None:
    """One record a request; a deletion says that it is one."""
    await put(api, receiver.url, format="body")
    await api.append("AP8=", value_encoding="base64")
    await api.append(None, key="k")
    bytes_, tombstone = await receiver.until(2)
    assert (bytes_.body, bytes_.headers["content-type"]) == (
        b"\x00\xff",
        "application/octet-stream",
    )
    assert (tombstone.body, tombstone.headers["tidelog-tombstone"]) == (b"", "true")


async def test_a_batch_waits_for_more_if_it_is_asked_to(api: Api, receiver: Receiver) -> None:
    """Within the time, and no longer than until it is full."""
    await put(api, receiver.url, batch={"max_records": 3, "max_wait_ms": 50})
    await api.append(1)
    await api.append(2)
    await until_committed(api, 2)
    assert [values(one) for one in receiver.requests] == [[1, 2]]
    await api.append(3, 4, 5, 6)
    await until_committed(api, 6)
    assert [values(one) for one in receiver.requests[1:]] == [[3, 4, 5], [6]]


async def test_a_test_sends_one_request_and_commits_nothing(api: Api, receiver: Receiver) -> None:
    """The response is shown, or why there is none."""
    await put(api, receiver.url, paused=True, signature={"secrets": SECRETS})
    body = b"HTTP/1.1 202 OK\r\ncontent-length: 4\r\n\r\nfine"
    receiver.answers += [body, status("500 No")]
    found = SubscriptionTest.model_validate_json((await api.client.post(f"{URL}/test")).content)
    assert (found.status, found.problem, found.response) == (202, None, "fine")
    (request,) = receiver.requests
    assert request.headers["tidelog-test"] == "true"
    Webhook(SECRETS[0]).verify(request.body, dict(request.headers))
    failed = (await api.client.post(f"{URL}/test")).json()
    assert (failed["status"], failed["problem"]) == (500, "status 500")
    assert await committed(api) == 0


async def test_secrets_and_header_values_are_never_shown(api: Api, receiver: Receiver) -> None:
    """Not by any operation, and not in the settings."""
    headers = {"authorization": "Bearer hidden"}
    await put(api, receiver.url, headers=headers, signature={"secrets": SECRETS})
    for path in (URL, "/v1/subscriptions", "/v1/settings", "/metrics"):
        text = (await api.client.get(path)).text
        assert "hidden" not in text
        assert SECRETS[0] not in text
    assert (await shown(api))["header_names"] == ["authorization"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"topics": []}, "topics"),
    ({"topics": ["events", "events"]}, "same topic twice"),
    ({"url": "ftp://example.org/"}, "url is https://HOST"),
    ({"url": "https:///x"}, "url is https://HOST"),
    ({"url": "https://example.org:0/"}, "url is https://HOST"),
    ({"url": "https://example.org:99999/"}, "url is https://HOST"),
    ({"url": "https://u:p@example.org/"}, "use headers for credentials"),
    ({"url": "https://example.org/#x"}, "use headers for credentials"),
    ({"url": "https://example.org/a b"}, "percent-encoded"),
    ({"url": "https://example.org\\@127.0.0.1/"}, "use headers for credentials"),
    ({"url": "https://example.org\\x/"}, "percent-encoded"),
    ({"url": "https://example.org/\r\nx: y"}, "percent-encoded"),
    ({"headers": {"host": "x"}}, "host is set by the service"),
    ({"headers": {"Webhook-Id": "x"}}, "Webhook-Id is set by the service"),
    ({"headers": {"a": "x\r\ny: z"}}, "headers"),
    ({"headers": {"a b": "x"}}, "headers"),
    ({"format": "xml"}, "format"),
    ({"batch": {"max_records": 0}}, "max_records"),
    ({"retry": {"initial_ms": 100, "max_ms": 50}}, "initial_ms is larger"),
    ({"dead_letter_topic": "dead"}, "needs retry.attempts"),
    ({"dead_letter_topic": "events", "retry": {"attempts": 1}}, "one of the topics"),
    ({"filter": "n > 1"}, "is not understood"),
    ({"signature": {"secrets": ["whsec_short"]}}, "secrets[0]"),
    ({"signature": {"secrets": ["whpk_" + base64.b64encode(bytes(32)).decode()]}}, "public key"),
    ({"signature": {}}, "send secrets"),
    ({"urls": []}, "urls"),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
async def test_what_cannot_be_sent_is_refused(
    api: Api, receiver: Receiver, change: dict[str, Any], said: str
) -> None:
    """With what is wrong; nothing is stored."""
    body = {"topics": ["events"], "url": receiver.url, **change}
    answer = await api.client.put(URL, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
    assert said in answer.text
    assert (await api.client.get(URL)).status_code == 404


async def test_topics_have_to_be_there(api: Api, receiver: Receiver) -> None:
    """Also the one for dead letters."""
    for change in (
        {"topics": ["absent"]},
        {"dead_letter_topic": "absent", "retry": {"attempts": 1}},
    ):
        body = {"topics": ["events"], "url": receiver.url, **change}
        answer = await api.client.put(URL, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_a_key_sees_only_subscriptions_of_topics_that_it_administers(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Others do not exist for it; it may push only what it may read (Q7)."""
    scopes = {
        "root": ("admin:*", "read:*"),
        "other": ("admin:other", "read:*"),
        "blind": ("admin:events",),
        "reader": ("read:events",),
    }
    keys = {name: create_key(tmp_path, name, *some) for name, some in scopes.items()}
    async with open_service(tmp_path, subscription_hosts=LOOPBACK) as service:
        clients = {name: wired(service) for name in keys}
        for name, client in clients.items():
            client.headers.update(bearer(keys[name]))
        for topic in ("events", "other"):
            await clients["root"].put(f"/v1/topics/{topic}", json={})
        body = {"topics": ["events"], "url": receiver.url}
        assert (await clients["root"].put(URL, json=body)).status_code == 201

        def refused(answer: httpx.Response) -> tuple[int, str]:
            return answer.status_code, answer.json()["code"]

        assert refused(await clients["other"].get(URL)) == (404, "subscription_not_found")
        assert refused(await clients["other"].delete(URL)) == (404, "subscription_not_found")
        assert refused(await clients["other"].post(f"{URL}/test")) == (
            404,
            "subscription_not_found",
        )
        assert refused(await clients["other"].put(URL, json=body)) == (403, "forbidden")
        for name in ("blind", "reader"):
            answer = await clients[name].put("/v1/subscriptions/new", json=body)
            assert refused(answer) == (403, "forbidden")
        listed = await clients["other"].get("/v1/subscriptions")
        assert SubscriptionList.model_validate_json(listed.content).subscriptions == []
        assert len((await clients["root"].get("/v1/subscriptions")).json()["subscriptions"]) == 1


async def test_subscriptions_are_listed_in_pages_and_limited(
    tmp_path: Path, receiver: Receiver
) -> None:
    """By name; one too many is refused."""
    async with running(tmp_path, subscription_hosts=LOOPBACK, max_subscriptions=3) as api:
        await api.create()
        body = {"topics": ["events"], "url": receiver.url, "paused": True}
        for name in ("c", "a", "b"):
            answer = await api.client.put(f"/v1/subscriptions/{name}", json=body)
            assert answer.status_code == 201
        answer = await api.client.put("/v1/subscriptions/d", json=body)
        assert (answer.status_code, answer.json()["limit"]) == (422, "max_subscriptions")
        page = (await api.client.get("/v1/subscriptions?page_size=2")).json()
        assert [one["name"] for one in page["subscriptions"]] == ["a", "b"]
        token = page["next_page_token"]
        page = (await api.client.get(f"/v1/subscriptions?page_size=2&page_token={token}")).json()
        assert [one["name"] for one in page["subscriptions"]] == ["c"]


async def test_a_deleted_topic_does_not_end_the_others(api: Api, receiver: Receiver) -> None:
    """And one that is made again is pushed from its start."""
    await api.create("other")
    await put(api, receiver.url, topics=["events", "other"])
    await api.client.delete("/v1/topics/other")
    await api.append(1)
    await receiver.until(1)
    assert (await shown(api))["state"] == "running"


@pytest.mark.parametrize(
    ("text", "asked_ms"),
    [
        ("0", 0),
        ("7", 7_000),
        ("99999999999", LONGEST_PAUSE_MS),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90_000),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0),
        ("-1", 0),
        ("soon", 0),
        ("", 0),
        ("\u0661", 0),
    ],
)
def test_a_receiver_may_ask_for_time(text: str, asked_ms: int) -> None:
    """In seconds or as a date, an hour at most."""
    assert push._milliseconds(text, 10_000) == asked_ms  # noqa: SLF001  # a parser of foreign text


async def test_a_busy_receiver_is_left_alone_as_long_as_it_asks(
    api: Api, receiver: Receiver
) -> None:
    """With 429 and 503; other statuses back off by themselves."""
    receiver.answers += [status("503 Busy", "retry-after: 600")]
    await put(api, receiver.url)
    await api.append(1)
    one = api.service.subscriptions.all()["s"]
    await eventually(lambda: any(push.next_attempt_ms for push in one.pushes.values()))
    waiting = next(push for push in one.pushes.values() if push.next_attempt_ms)
    assert waiting.next_attempt_ms is not None
    assert waiting.next_attempt_ms >= api.service.clock.now_ms() + 590_000
    assert (await shown(api))["partitions"][0]["failures"] == 1


async def test_replicas_on_a_cluster_share_the_partitions(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is pushed by one of them; what a replica leaves the other takes over (Q8)."""
    hurry(monkeypatch)
    monkeypatch.setattr(subscriptions, "RENEW_S", 0.02)
    settings = {"subscription_hosts": LOOPBACK}
    async with (
        fake_kafka(nodes=2) as fake,
        running(tmp_path / "1", kafka=fake.addresses, **settings) as one,
    ):
        await one.create(partitions=4)
        await put(one, receiver.url)
        async with running(tmp_path / "2", kafka=fake.addresses, **settings) as two:
            both = [each.service.subscriptions for each in (one, two)]
            await eventually(
                lambda: [len(each.all()["s"].pushes) for each in both if each.all()] == [2, 2]
            )
            places = [set(each.all()["s"].pushes) for each in both]
            assert not places[0] & places[1]
            fake.errors["Produce"] += [ErrorCode.invalid_required_acks] * 3  # of claims
            await eventually(lambda: not fake.errors["Produce"])
            for number in range(4):
                await one.append(number, path=f"/v1/topics/events/partitions/{number}/records")
            await receiver.until(4)
            pushes = [push for each in both for push in each.all()["s"].pushes.values()]
            await eventually(lambda: [push.committed for push in pushes] == [1] * 4)
        await eventually(lambda: len(both[0].all()["s"].pushes) == 4)
        for number in range(4):
            await one.append(number, path=f"/v1/topics/events/partitions/{number}/records")
        await receiver.until(8)
    assert sorted(receiver.ids) == sorted(
        f"events/{partition}/{offset}-{offset}" for partition in range(4) for offset in (0, 1)
    )


async def test_a_killed_service_loses_no_record_and_keeps_the_order(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Twice, with requests under way: each record arrives, and none before an earlier one."""
    options = ("--data-dir", str(tmp_path / "data"))
    environment = {"TIDELOG_SUBSCRIPTION_HOSTS": "127.0.0.1"}
    replica = Replica(tmp_path / "log", *options, environment=environment)
    path = "/v1/topics/events/partitions/0/records"
    async with httpx.AsyncClient(base_url=replica.url, timeout=30) as client:
        await asyncio.to_thread(replica.start)
        try:
            await client.put("/v1/topics/events", json={})
            retry = {"initial_ms": 10, "max_ms": 20}
            body = {
                "topics": ["events"],
                "url": receiver.url,
                "start": "earliest",
                "batch": {"max_records": 3},
                "retry": retry,
            }
            assert (await client.put(URL, json=body)).status_code == 201
            for round_ in range(2):
                records = [{"value": n} for n in range(10 * round_, 10 * round_ + 10)]
                answer = await client.post(path, json={"records": records})
                assert answer.status_code == 201
                await receiver.until(len(receiver.requests) + 2)
                replica.kill()
                await asyncio.to_thread(replica.start)
            while (await client.get(URL)).json()["partitions"] == []:
                pass
            while (await client.get(URL)).json()["partitions"][0]["lag"]:
                pass
        finally:
            await asyncio.to_thread(replica.stop)
    reached = 0
    for request in receiver.requests:
        for value in values(request):
            assert value <= reached, "a record came before an earlier one"
            reached = max(reached, value + 1)
    assert reached == 20


async def test_it_is_paused_and_started_again_as_it_is(api: Api, receiver: Receiver) -> None:
    """Secrets and headers stay; what came meanwhile is pushed then, and nothing twice (Q4)."""
    signature = {"secrets": SECRETS}
    await put(api, receiver.url, signature=signature, headers={"x-tenant": "7"})
    await api.append(1)
    await receiver.until(1)
    await until_committed(api, 1)
    paused = await api.client.patch(URL, json={"paused": True})
    assert (paused.status_code, paused.json()["state"]) == (200, "paused")
    assert paused.json()["signature"]["secrets_count"] == len(SECRETS)
    await api.append(2)
    started = await api.client.patch(URL, json={"paused": False})
    assert started.json()["state"] == "running"
    request = (await receiver.until(2))[1]
    assert (values(request), request.headers["x-tenant"]) == ([2], "7")
    Webhook(SECRETS[0]).verify(request.body, dict(request.headers))
    refused = await api.client.patch(URL, json={"paused": "soon"})
    assert refused.status_code == 422
    absent = await api.client.patch(URL.replace("/s", "/absent"), json={"paused": True})
    assert absent.status_code == 404
