"""Ingest: bodies of every kind become records with the bytes that were sent."""

import base64
import gzip
import json
from secrets import token_hex
from typing import Any

import cramjam
import pytest

from app.operations.service import Service
from tests.support.service import Api
from tests.support.wire import Listener, request
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
TEXT = {"content-type": "text/plain"}


async def stored(api: Api, topic: str = "events") -> list[tuple[Any, str, list[Any]]]:
    """Key, value as text and headers of each record, without those of its delivery."""
    found = []
    for partition in range(api.service.topic(topic).partitions):
        path = f"/v1/topics/{topic}/partitions/{partition}/records?encoding=utf8"
        answer = await api.client.get(path)
        found += [
            (
                record["key"],
                record["value"],
                [
                    (header["key"], header["value"])
                    for header in record["headers"]
                    if not header["key"].startswith("tidelog-")
                ],
            )
            for record in answer.json()["records"]
        ]
    return found


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, b'{"a" : 1,  "b": [1.0, 2e3]}\n'),
        (JSON, b"[1, 2]"),
        (JSON, b"17"),
        ({"content-type": "application/json; charset=utf-8"}, '{"é":1}'.encode()),
        ({"content-type": "application/vnd.api+json"}, b'{"data":[]}'),
        (FORM, b"a=1&b=2"),
        ({"content-type": "text/plain"}, b"one\ntwo\n"),
        ({"content-type": "text/csv"}, b"a,b\n1,2\n"),
        ({"content-type": "application/xml"}, b"<a/>"),
        ({}, b'{"a":1}'),
    ],
)
async def test_a_body_is_one_record_with_its_bytes(
    api: Api, headers: dict[str, str], body: bytes
) -> None:
    """The media type is a header of the record, if there is one (N1, N3, N4)."""
    answer = await api.client.post(INGEST, content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (
        200,
        {"topic": "events", "partition": 0, "offset": 0, "count": 1},
    )
    assert await stored(api) == [(None, body.decode(), list(headers.items()))]
    assert api.log().watermarks.high_watermark == 1


@pytest.mark.parametrize(
    ("query", "media_type", "body", "values"),
    [
        (
            "?split=array",
            "application/json",
            b'[{"a" : 1},\n 2 , "x,\\n"]',
            ['{"a" : 1}', "2", '"x,\\n"'],
        ),
        ("", "application/x-ndjson", b'{"a" : 1}\r\n\n 2 \n', ['{"a" : 1}', "2"]),
        ("", "application/ndjson", b"1\n2", ["1", "2"]),
        ("?split=none", "application/jsonl", b"\xef\xbb\xbf1\n", ["1"]),
        ("?split=lines", "application/json", b"1\n2\n", ["1", "2"]),
        ("?split=lines", "text/plain", b"a\r\n\n b \rc\n", ["a", "", " b \rc"]),
        ("?split=lines", "text/csv", b"a,b\n1,2", ["a,b", "1,2"]),
    ],
)
async def test_a_body_is_split_into_records_with_their_bytes(
    api: Api, query: str, media_type: str, body: bytes, values: list[str]
) -> None:
    """Elements of an array, lines of NDJSON, lines of a text; all of them are one batch (N2)."""
    headers = {"content-type": media_type}
    answer = await api.client.post(INGEST + query, content=body, headers=headers)
    assert answer.json() == {"topic": "events", "partition": 0, "offset": 0, "count": len(values)}
    told = [("content-type", media_type)]
    assert await stored(api) == [(None, value, told) for value in values]


@pytest.mark.parametrize(
    ("query", "headers", "body", "status", "detail"),
    [
        ("", JSON, b"", 422, "the body is empty"),
        ("", {}, b"", 422, "the body is empty"),
        ("", JSON, b"{", 400, "not JSON"),
        ("", JSON, b'"\xff"', 400, "not JSON in UTF-8"),
        ("", JSON, b'{"a":1}\n{"a":2}\n', 400, "2 lines of JSON"),
        ("", JSON, b'{"a":1}\n{"a":"\\udc00"}', 400, "add ?split=lines to the sender's URL"),
        ("", JSON, b"1\n2", 400, "set split to lines in the topic's ingest profile"),
        ("", JSON, b'{"a":1}{"a":2}', 400, "more than one JSON value"),
        ("", JSON, b"[" * 100_000, 400, "nested too deeply"),
        ("?split=array", JSON, b'{"a":1}', 422, "split=array takes a JSON array"),
        ("?split=array", JSON, b"[]", 422, "contains no record"),
        ("?split=array", JSON, b"[1", 400, "not JSON"),
        ("?split=lines", JSON, b"1\n{\n3", 400, "line 2"),
        ("", {"content-type": "application/x-ndjson"}, b"1 2\n", 400, "line 1"),
        ("", {"content-type": "application/x-ndjson"}, b"\n\n", 422, "contains no record"),
        ("", {"content-encoding": "gzip"}, b"no", 400, "gzip"),
        ("", {"content-encoding": "br"}, b"no", 415, "br"),
        ("", {"content-digest": "sha-256=:AAAA:"}, b"no", 422, "digest"),
        ("", {"if-match": '"a"'}, b"no", 400, "if-match"),
        ("", {"producer-id": "7"}, b"no", 400, "producer-id"),
        ("?split=words", {}, b"no", 400, "split"),
    ],
)
async def test_what_is_refused_writes_nothing(
    api: Api, query: str, headers: dict[str, str], body: bytes, status: int, detail: str
) -> None:
    """Each refusal is a problem document with the reason."""
    answer = await api.client.post(INGEST + query, content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert detail in answer.json()["detail"]
    assert await stored(api) == []


HALVES = [
    b'"\\ud800"',
    b'{"a":"\\uDfFf \\\\ud800"}',
    b'{"\\ud83d":"\\ud83d\\ude00"}',
    b'["\\udc00\\ud800", 1]',
]
"""What `JSON.stringify` of half an emoji is, and what else is not the text of a string."""


@pytest.mark.parametrize("half", HALVES)
async def test_half_of_a_surrogate_pair_is_stored_as_sent(api: Api, half: bytes) -> None:
    """Alone, as a line and as an element; the other lines and elements with it."""
    for query, media_type, body, values in (
        ("", "application/json", half, [half]),
        ("", "application/x-ndjson", b"1\n %b \n2" % half, [b"1", half, b"2"]),
        ("?split=array", "application/json", b'["a", %b\n,2]' % half, [b'"a"', half, b"2"]),
    ):
        await api.client.delete("/v1/topics/events")
        await api.create()
        headers = {"content-type": media_type}
        answer = await api.client.post(INGEST + query, content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert [value for _, value, _ in await stored(api)] == [one.decode() for one in values]


async def test_half_of_a_surrogate_pair_hides_no_key_and_no_event(api: Api) -> None:
    """What the profile names is found beside it, and an event is still one."""
    await api.client.put("/v1/topics/events/ingest-profile", json={"key": {"pointer": "/k"}})
    await api.client.post(INGEST, content=b'{"x":"\\ud800","k":"a"}', headers=JSON)
    event = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"\\ud800"}'
    kind = {"content-type": "application/cloudevents+json"}
    answer = await api.client.post(INGEST, content=event, headers=kind)
    assert answer.status_code == 200, answer.text
    (key, *_), (_, value, headers) = await stored(api)
    assert (key, value) == ("a", event.decode())
    assert ("ce_id", "1") in headers


async def test_a_compressed_body_is_stored_decoded(api: Api) -> None:
    """As appends of records take it."""
    body = gzip.compress(b"a\nb\n")
    headers = {"content-encoding": "gzip", "content-type": "text/plain"}
    answer = await api.client.post(f"{INGEST}?split=lines", content=body, headers=headers)
    assert answer.json()["count"] == 2
    assert [value for _, value, _ in await stored(api)] == ["a", "b"]


async def test_values_without_anything_between_them_are_records(api: Api) -> None:
    """As the HTTP event collectors of Splunk take them, of any media type."""
    body = b'{"event":"a","time":1}{"event":"b"}\n\n{"event":{"c":[1]}}'
    for headers in (JSON, {"content-type": "text/plain"}, {}):
        answer = await api.client.post(f"{INGEST}?split=values", content=body, headers=headers)
        assert answer.json()["count"] == 3, answer.text
    events = [value for _, value, _ in await stored(api)]
    assert events == ['{"event":"a","time":1}', '{"event":"b"}', '{"event":{"c":[1]}}'] * 3


async def test_a_body_of_prometheus_is_stored_decoded(api: Api) -> None:
    """Remote write compresses with one raw block of Snappy, and knows no other coding."""
    body = b"\n\x1e\n\x13\n\x08__name__\x12\x07up_test" * 1000
    headers = {"content-encoding": "snappy", "content-type": "application/x-protobuf"}
    packed = bytes(cramjam.snappy.compress_raw(body))
    answer = await api.client.post(INGEST, content=packed, headers=headers)
    assert answer.status_code == 200, answer.text
    page = await api.client.get("/v1/topics/events/partitions/0/records?encoding=base64")
    assert base64.b64decode(page.json()["records"][0]["value"]) == body
    for damaged in (packed[:-1], b"\xff" * 20, b"", packed + b"x"):
        refused = await api.client.post(INGEST, content=damaged, headers=headers)
        assert refused.status_code in {400, 422}, refused.text
    large = bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))
    refused = await api.client.post(INGEST, content=large, headers=headers)
    assert (refused.status_code, refused.json()["limit"]) == (413, "max_request_bytes")


async def test_a_topic_is_never_created(api: Api) -> None:
    """A sender with a wrong URL gets the request that creates the topic."""
    answer = await api.client.post("/v1/topics/other/ingest", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")
    assert (await api.client.get("/v1/topics/other/ingest")).status_code == 404


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_checks_are_answered(api: Api, method: str) -> None:
    """Senders probe the URL before they send (N8)."""
    answer = await api.client.request(method, INGEST)
    assert answer.status_code == 200
    assert answer.content == (b'{"topic":"events"}' if method == "GET" else b"")


async def test_requests_without_a_key_take_partitions_in_turn(api: Api) -> None:
    """As appends without a key do (N5, N6)."""
    await api.create("wide", partitions=3)
    taken = [
        (await api.client.post("/v1/topics/wide/ingest", content=b"x")).json()["partition"]
        for _ in range(6)
    ]
    assert sorted(taken) == [0, 0, 1, 1, 2, 2]


EVENT = {"specversion": "1.0", "id": "7", "source": "/a", "type": "b", "partitionkey": "k"}
BINARY = {f"ce-{name}": value for name, value in EVENT.items()}
OF_EVENT = [(f"ce_{name}", value) for name, value in EVENT.items()]


@pytest.mark.parametrize(
    ("headers", "body", "records"),
    [
        (BINARY | JSON, b'{"a" : 1}', [("k", '{"a" : 1}', [*JSON.items(), *OF_EVENT])]),
        (BINARY, b"", [("k", None, OF_EVENT)]),
        (
            {"content-type": "application/cloudevents+json; charset=UTF-8"},
            json.dumps(EVENT | {"data": {"a": 1}}).encode(),
            [
                (
                    "k",
                    json.dumps(EVENT | {"data": {"a": 1}}),
                    [("content-type", "application/cloudevents+json; charset=UTF-8"), *OF_EVENT],
                )
            ],
        ),
        (
            {"content-type": "application/cloudevents-batch+json"},
            json.dumps([EVENT, EVENT]).encode(),
            [
                (
                    "k",
                    json.dumps(EVENT),
                    [("content-type", "application/cloudevents+json"), *OF_EVENT],
                )
            ]
            * 2,
        ),
    ],
)
async def test_cloudevents_become_records_of_the_kafka_binding(
    api: Api, headers: dict[str, str], body: bytes, records: list[Any]
) -> None:
    """Binary, structured and batched: attributes are headers, the key is `partitionkey` (N7)."""
    answer = await api.client.post(INGEST, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert await stored(api) == records


@pytest.mark.parametrize(
    ("repeated", "status"),
    [(("ce-id", "8"), 400), (("content-type", "text/html"), 400), (("x-a", "2"), 200)],
)
async def test_repeated_headers_are_one_and_repeated_attributes_none(
    service: Service, repeated: tuple[str, str], status: int
) -> None:
    """A list may have several lines; a repeated attribute of a CloudEvent is refused (E10, N4)."""
    await service.topics.create("events", 1, {})
    headers = [*BINARY.items(), ("content-type", "text/plain"), ("x-a", "1"), repeated]
    async with wired(service) as client:
        answer = await client.post(INGEST, content=b"x", headers=headers)
    assert answer.status_code == status, answer.text
    assert status == 200 or repeated[0] in answer.json()["detail"]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, b'{"action":"opened"}'),
        (JSON, b"[1,2]"),
        (JSON, b'{"records":[{"action":"opened"}]}'),
        ({"content-type": "application/x-ndjson"}, b'{"action":"opened"}\n'),
        ({"content-type": "text/plain"}, b"x"),
        ({"content-type": "application/cloudevents+json"}, json.dumps(EVENT).encode()),
        (FORM, b"a=1"),
    ],
)
@pytest.mark.parametrize("path", ["/partitions/0/records", "/records"])
async def test_an_append_of_something_else_names_the_url_that_takes_it(
    api: Api, path: str, headers: dict[str, str], body: bytes
) -> None:
    """The first try of most people is a plain body; the problem says where to send it."""
    answer = await api.client.post(f"/v1/topics/events{path}", content=body, headers=headers)
    assert answer.status_code in {415, 422}
    assert "; POST /v1/topics/events/ingest takes" in answer.json()["detail"]
    mistaken = await api.client.post(
        f"/v1/topics/events{path}", json={"records": [{"value": 1, "timestamp": "never"}]}
    )
    assert mistaken.status_code == 422
    assert "ingest" not in mistaken.json()["detail"]


@pytest.mark.parametrize("compression", ["producer", "lz4"])
async def test_more_than_one_batch_of_lines_is_written_whole(api: Api, compression: str) -> None:
    """A sender knows no `max.message.bytes`: batches are cut to it, and are one append (N6)."""
    await api.create("small", max_message_bytes="4096", compression_type=compression)
    lines = [f"line {number}" for number in range(1_000)]
    path, headers = "/v1/topics/small/ingest?split=lines", {"content-type": "text/plain"}
    for first in (0, 1_000):
        answer = await api.client.post(path, content="\n".join(lines), headers=headers)
        assert answer.json() == {"topic": "small", "partition": 0, "offset": first, "count": 1_000}
    found = [value for _, value, _ in await stored(api, "small")]
    assert found == lines * 2
    large = await api.client.post(path, content="a\n" + token_hex(10_000), headers=headers)
    assert (large.status_code, large.json()["limit"]) == (413, "max.message.bytes")
    assert api.log("small").watermarks.log_end_offset == 2_000


@pytest.mark.parametrize(
    "query", ["user_id=ada&user_key=ada", "x=1&x=2", "utm%5Fsource=a", "flag", "%FF=%00"]
)
@pytest.mark.parametrize("path", [INGEST, INGEST + "/otlp/v1/logs"])
async def test_what_a_sender_appends_to_the_url_is_ignored(api: Api, path: str, query: str) -> None:
    """Jira and others add parameters to the URL they were given, and disable it after a 400."""
    body = b'{"resourceLogs":[{}]}'
    answer = await api.client.post(f"{path}?{query}", content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    probed = await api.client.get(f"{INGEST}?{query}")
    assert probed.status_code == 200
    asked = await api.client.options(f"{INGEST}?{query}", headers={"webhook-request-origin": "a"})
    assert asked.status_code == 200


async def test_what_a_sender_says_twice_of_ours_is_refused(api: Api) -> None:
    """Of two values of `split` one would be passed over; elsewhere any unknown parameter is 400."""
    answer = await api.client.post(f"{INGEST}?split=none&split=lines", content=b"x")
    assert (answer.status_code, answer.json()["parameter"]) == (400, "split")
    answer = await api.client.get("/v1/topics/events?user_id=ada")
    assert answer.status_code == 400
    assert "user_id" in answer.json()["detail"]


async def test_bodies_of_several_batches_do_not_share_one(api: Api) -> None:
    """Two come in one turn of the loop: each has its receipt, and batches that fit the topic."""
    config = {"config": {"max.message.bytes": "4000"}}
    assert (await api.client.patch("/v1/topics/events", json=config)).status_code == 200
    await api.append(0)  # opens the files: otherwise a worker takes what comes first
    body = b"\n".join([b"%050d" % number for number in range(100)])
    listener = Listener(api.service)
    both = [listener.connect() for _ in range(2)]
    for connection in both:
        connection.send(request("POST", f"{INGEST}?split=lines", body, TEXT))
    replies = [await connection.answer() for connection in both]
    assert [reply.status for reply in replies] == [200, 200], [reply.body for reply in replies]
    receipts = [json.loads(reply.body) for reply in replies]
    assert [(one["offset"], one["count"]) for one in receipts] == [(1, 100), (101, 100)]
    assert [value for _, value, _ in await stored(api)][1:] == body.decode().split("\n") * 2
