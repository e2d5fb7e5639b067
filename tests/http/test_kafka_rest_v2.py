"""The Kafka REST proxies' API, and the proxy that each response follows: rules K1 to K3."""

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.api.rest_v2.media import BINARY_V2, JSON_V2, V2
from app.operations.service import Service
from app.settings import Settings
from engine.records.builder import build_batch
from tests.support.service import BATCHES, RAW, RECORDS, Api, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

AS_JSON = {"content-type": JSON_V2.decode()}
AS_BINARY = {"content-type": BINARY_V2.decode()}
LOG = "/topics/events/partitions/0"


async def produce(
    api: Api,
    *records: dict[str, Any],
    url: str = "/topics/events",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> httpx.Response:
    body = json.dumps({"records": records, **more})
    return await api.client.post(url, content=body, headers=headers or AS_JSON)


def refusal(answer: httpx.Response) -> tuple[int, int]:
    """The status and code of an error in the proxies' format."""
    assert answer.headers["content-type"] == V2.decode()
    body = answer.json()
    assert body.keys() == {"error_code", "message"}
    return answer.status_code, body["error_code"]


async def stored(api: Api, partition: int = 0) -> list[tuple[str | None, str | None]]:
    """Keys and values of a partition, as text."""
    url = RECORDS.replace("/0/", f"/{partition}/")
    page = (await api.client.get(f"{url}?encoding=utf8")).json()
    return [(one["key"], one["value"]) for one in page["records"]]


async def test_topics_are_a_bare_array_of_names(api: Api) -> None:
    """In their order, without internal ones, in the media type of version 2."""
    await api.create("another")
    await api.client.put("/v1/groups/g/offsets/events/0", json={"offset": 0})
    answer = await api.client.get("/topics")
    assert (answer.status_code, answer.json()) == (200, ["another", "events"])
    assert answer.headers["content-type"] == V2.decode()


async def test_a_topic_is_told_with_its_configuration_and_partitions(api: Api) -> None:
    """Name, configs as strings, and partitions of a cluster of one broker."""
    await api.create("wide", partitions=2, retention_ms=5)
    topic = (await api.client.get("/topics/wide")).json()
    assert topic.keys() == {"name", "configs", "partitions"}
    assert (topic["name"], topic["configs"]["retention.ms"]) == ("wide", "5")
    assert topic["configs"]["cleanup.policy"] == "delete"
    replica = {"broker": 0, "leader": True, "in_sync": True}
    partitions = [{"partition": n, "leader": 0, "replicas": [replica]} for n in range(2)]
    assert topic["partitions"] == partitions
    assert (await api.client.get("/topics/wide/partitions")).json() == partitions
    assert (await api.client.get("/topics/wide/partitions/1")).json() == partitions[1]


async def test_offsets_are_both_ends_for_readers(api: Api) -> None:
    """The log start, and the high watermark as Kafka's latest offset."""
    await api.append(1, 2, 3)
    await api.client.post(
        "/v1/topics/events/partitions/0/delete-records", json={"before_offset": 1}
    )
    assert (await api.client.get(f"{LOG}/offsets")).json() == {
        "beginning_offset": 1,
        "end_offset": 3,
    }


async def test_what_is_not_there_has_confluents_codes(api: Api) -> None:
    """40401 for a topic, 40402 for a partition; test_karapace.py has Karapace's others (K2)."""
    for url in ("/topics/none/partitions", "/topics/none/partitions/0/offsets"):
        assert refusal(await api.client.get(url)) == (404, 40401)
    for partition in ("1", "9" * 30, "-1"):
        for rest in ("", "/offsets", "/records?offset=0"):
            url = f"/topics/events/partitions/{partition}{rest}"
            assert refusal(await api.client.get(url)) == (404, 40402)
    assert refusal(await produce(api, {"value": 1}, url="/topics/none")) == (404, 40401)
    elsewhere = await produce(api, {"value": 1}, url="/topics/events/partitions/7")
    assert refusal(elsewhere) == (404, 40402)
    assert refusal(await api.client.get("/topics/events/else")) == (404, 404)
    assert refusal(await api.client.get("/brokers/0")) == (404, 404)
    wrong = await api.client.put("/topics/events")
    assert refusal(wrong) == (405, 405)
    assert {"GET", "POST"} <= set(wrong.headers["allow"].split(", "))


async def test_a_produce_is_answered_by_an_offset_a_record(api: Api) -> None:
    """In the order of the request, on disk, with nulls where Confluent has them."""
    await api.create("wide", partitions=3)
    records = [{"value": n, "partition": n % 2} for n in range(4)]
    answer = await produce(api, *records, url="/topics/wide")
    assert (answer.status_code, answer.headers["content-type"]) == (200, V2.decode())
    assert answer.json() == {
        "offsets": [
            {"partition": n % 2, "offset": n // 2, "error_code": None, "error": None}
            for n in range(4)
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    assert api.log("wide", 1).watermarks.high_watermark == 2


async def test_json_is_stored_as_json(api: Api) -> None:
    """Values as sent; a key keeps its quotes and loses its whitespace, as in Kafka's proxies."""
    body = (
        b'{"records": [{"key": {"id" : 7}, "value": {"n":  1.50}}, {"key": "a b", "value": "v"}]}'
    )
    answer = await api.client.post("/topics/events", content=body, headers=AS_JSON)
    assert answer.status_code == 200, answer.text
    assert await stored(api) == [('{"id":7}', '{"n":  1.50}'), ('"a b"', '"v"')]


async def test_binary_is_stored_as_its_bytes(api: Api) -> None:
    """Keys and values are base64; null and a missing value are null."""
    first: dict[str, Any] = {"key": "a2V5", "value": "AP8="}
    nothing: dict[str, Any] = {"key": None, "value": None}
    answer = await produce(api, first, nothing, {"key": "YQ=="}, headers=AS_BINARY)
    assert [one["offset"] for one in answer.json()["offsets"]] == [0, 1, 2]
    page = (await api.client.get(f"{RECORDS}?encoding=base64")).json()["records"]
    assert [(one["key"], one["value"]) for one in page] == [
        ("a2V5", "AP8="),
        (None, None),
        ("YQ==", None),
    ]


async def test_a_key_finds_the_partition_that_kafkas_proxies_would_choose(api: Api) -> None:
    """murmur2 of the stored bytes, quotes included; without a key one partition a request."""
    await api.create("wide", partitions=8)
    keyed = await produce(
        api, *({"key": key, "value": 1} for key in ("ada", "bob")), url="/topics/wide"
    )
    native = await api.client.post(
        "/v1/topics/wide/records",
        json={"records": [{"key": f'"{key}"', "value": 1} for key in ("ada", "bob")]},
    )
    chosen = [one["partition"] for one in keyed.json()["offsets"]]
    assert chosen == [one["partition"] for one in native.json()["records"]]
    keyless = await produce(api, {"value": 1}, {"value": 2}, url="/topics/wide")
    assert len({one["partition"] for one in keyless.json()["offsets"]}) == 1


async def test_headers_and_timestamps_are_strimzis(api: Api) -> None:
    """A header's value is base64 in either format; a timestamp is stored with the record."""
    record = {
        "value": 1,
        "timestamp": 1788000000123,
        "headers": [{"key": "trace", "value": base64.b64encode(b"4bf9").decode()}, {"key": "n"}],
    }
    await api.create("old", message_timestamp_after_max_ms=2**62, retention_ms=-1)
    answer = await produce(api, record, url="/topics/old")
    assert answer.status_code == 200, answer.text
    url = RECORDS.replace("events", "old")
    (shown,) = (await api.client.get(url)).json()["records"]
    assert shown["timestamp"] == 1788000000123
    assert [(one["key"], one["value"]) for one in shown["headers"]] == [
        ("trace", "4bf9"),
        ("n", None),
    ]


async def test_async_is_strimzis_way_not_to_wait(api: Api) -> None:
    """204 without a body; the record follows."""
    answer = await produce(api, {"value": 1}, url="/topics/events?async=true")
    assert (answer.status_code, answer.content) == (204, b"")
    assert api.log().watermarks.log_end_offset == 1


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/vnd.kafka.json.v2+json; charset=utf-8", 200),
        ("application/vnd.kafka.json.v1+json", 200),
        ("application/vnd.kafka.avro.v2+json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
    ],
)
async def test_the_content_type_says_what_is_embedded(
    api: Api, content_type: str, status: int
) -> None:
    """JSON of both versions is accepted; formats with a schema, and all others, are not."""
    answer = await produce(api, {"value": {"a": 1}}, headers={"content-type": content_type})
    assert answer.status_code == status
    if status == 415:
        assert refusal(answer) == (415, 415)
        assert JSON_V2.decode() in answer.headers["accept-post"]


@pytest.mark.parametrize(
    "content_type",
    [
        "application/vnd.kafka.v2+json",
        "application/vnd.kafka+json",
        "application/vnd.kafka.binary.v1+json",
        "application/json",
        "application/octet-stream",
    ],
)
async def test_what_names_no_format_is_binary(api: Api, content_type: str) -> None:
    """As Karapace has it, and Confluent's first version."""
    answer = await produce(api, {"value": "aGk="}, headers={"content-type": content_type})
    assert answer.status_code == 200, answer.text
    assert await stored(api) == [(None, "hi")]


async def test_a_client_gets_a_type_that_it_takes(api: Api) -> None:
    """The one it likes best; none is 406, before anything is written."""
    accept = "application/vnd.kafka.v1+json, application/vnd.kafka+json; q=0.9"
    answer = await api.client.get("/topics", headers={"accept": accept})
    assert answer.headers["content-type"] == "application/vnd.kafka.v1+json"
    answer = await api.client.get("/topics", headers={"accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"
    for refused in (
        await api.client.get("/topics", headers={"accept": "text/html"}),
        await produce(api, {"value": 1}, headers={**AS_JSON, "accept": "text/html"}),
    ):
        assert refusal(refused) == (406, 406)
    assert api.log().watermarks.log_end_offset == 0


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"", (400, 400)),
        (b"{", (400, 400)),
        (b'{"records": [{"value": "\xff"}]}', (400, 400)),
        (b'{"records": [{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", (400, 400)),
        (b"[]", (400, 400)),
        (b"{}", (422, 422)),
        (b'{"records": []}', (422, 422)),
        (b'{"records": [1]}', (400, 400)),
        (b'{"records": [{"value": 1, "page": 2}]}', (422, 422)),
        (b'{"records": [{"value": 1, "partition": "0"}]}', (422, 422)),
        (b'{"records": [{"value": 1, "timestamp": 1}]}', (422, 422)),
        (b'{"value_schema": "\\"int\\"", "records": [{"value": 1}]}', (422, 422)),
        (b'{"records": [{"value": 1}, {"value": 1, "partition": 5}]}', (404, 40402)),
    ],
)
async def test_a_body_that_is_no_produce_is_refused(
    api: Api, body: bytes, refused: tuple[int, int]
) -> None:
    """Unparsable bodies are 400, wrong ones 422, and nothing of them is written."""
    await api.client.patch(
        "/v1/topics/events", json={"config": {"message.timestamp.before.max.ms": 1000}}
    )
    answer = await api.client.post("/topics/events", content=body, headers=AS_JSON)
    assert refusal(answer) == refused
    assert api.log().watermarks.log_end_offset == 0


async def test_records_that_are_not_acceptable_are_named(api: Api) -> None:
    """The error names the first one; a compacted topic needs keys, base64 is strict."""
    await api.create("kept", cleanup_policy="compact")
    keyless = await produce(api, {"key": "a", "value": 1}, {"value": 1}, url="/topics/kept")
    assert refusal(keyless) == (422, 422)
    assert "records[1].key" in keyless.json()["message"]
    plain = await produce(api, {"value": "no base64"}, headers=AS_BINARY)
    assert refusal(plain) == (400, 400)
    assert "records[0].value" in plain.json()["message"]


@pytest.mark.parametrize("name", ["if-match", "expected-offset", "producer-id"])
async def test_a_condition_that_would_not_be_checked_is_refused(api: Api, name: str) -> None:
    """The records may go to several partitions; nothing is written."""
    answer = await produce(api, {"value": 1}, headers={**AS_JSON, name: "0"})
    assert answer.status_code == 400
    assert name in answer.text
    assert await stored(api) == []


async def test_a_record_of_a_partition_names_no_other(api: Api) -> None:
    """The path decides; a partition in the record as well is refused, as Strimzi does."""
    answer = await produce(api, {"value": 1, "partition": 0}, url=LOG)
    assert refusal(answer) == (422, 422)
    answer = await produce(api, {"value": 1}, url=LOG)
    assert answer.json()["offsets"][0]["partition"] == 0


async def test_limits_are_those_of_the_native_interface(tmp_path: Path) -> None:
    """Bytes and records of a body, and of a batch: 413, and nothing is written (K3)."""
    settings = {"max_request_bytes": 200, "max_records_per_request": 3, "inline_append_bytes": 10}
    async with running(tmp_path, **settings) as api:
        await api.create()
        assert refusal(await produce(api, {"value": "x" * 300})) == (413, 413)
        assert refusal(await produce(api, *({"value": n} for n in range(4)))) == (413, 413)
        assert (await produce(api, *({"value": n} for n in range(3)))).status_code == 200
        assert api.log().watermarks.log_end_offset == 3


async def test_a_service_that_is_not_ready_says_so_in_their_words(tmp_path: Path) -> None:
    """503 with Retry-After, as everywhere, in the proxies' error format."""
    service = Service(Settings(data_directory=tmp_path))
    async with wired(service) as client:
        answer = await client.get("/topics")
        assert (refusal(answer), answer.headers["retry-after"]) == ((503, 503), "1")
    await service.close()


async def test_a_partition_that_fails_costs_its_own_records(tmp_path: Path) -> None:
    """The others are answered with their offsets; only if all fail is the request an error."""
    more = (tmp_path / "b",)
    async with running(tmp_path / "a", more_data_directories=more) as api:
        await api.create(partitions=2)
        api.local.manager.directories[1].fail(OSError(5, "Input/output error"))
        both = await produce(api, {"value": 1, "partition": 0}, {"value": 1, "partition": 1})
        assert both.status_code == 200
        written, failed = both.json()["offsets"]
        assert written == {"partition": 0, "offset": 0, "error_code": None, "error": None}
        assert (failed["partition"], failed["offset"], failed["error_code"]) == (None, None, 50002)
        assert "offline" in failed["error"]
        alone = await produce(api, {"value": 1, "partition": 1})
        assert refusal(alone) == (503, 503)


async def test_records_are_read_as_redpanda_shows_them(api: Api) -> None:
    """A bare array from the offset on, not from the start of its batch; binary by default."""
    await produce(api, {"key": "k", "value": {"n": 1}}, {"value": [2]}, {"value": None})
    answer = await api.client.get(f"{LOG}/records?offset=1&timeout=0&max_bytes=1000")
    beside = {"timestamp": answer.json()[0]["timestamp"], "headers": []}
    assert answer.headers["content-type"] == BINARY_V2.decode()
    assert answer.json() == [
        {"topic": "events", "key": None, "value": "WzJd", "partition": 0, "offset": 1, **beside},
        {"topic": "events", "key": None, "value": None, "partition": 0, "offset": 2, **beside},
    ]
    wanted = {"accept": JSON_V2.decode()}
    answer = await api.client.get(f"{LOG}/records?offset=0", headers=wanted)
    assert answer.headers["content-type"] == JSON_V2.decode()
    assert answer.headers["log-next-offset"] == "3"
    assert [(one["key"], one["value"]) for one in answer.json()] == [
        ("k", {"n": 1}),
        (None, [2]),
        (None, None),
    ]


async def test_what_is_not_json_is_shown_as_text(api: Api) -> None:
    """A string that says what it is, for each key and value by itself; an empty one is null.

    The command line's and the clients' keys are plain text, and one of them must not cost a page.
    """
    kinds = [b"", b"\xff", b'"\xff"', b"UA", "Zürich \u2028".encode(), b"1 2", b"[" * 2000, b"7"]
    batch = build_batch([(n, kind, kind, ()) for n, kind in enumerate(kinds)])
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    answer = await api.client.get(f"{LOG}/records?offset=0", headers={"accept": JSON_V2.decode()})
    keys = [(one["key"], one.get("key_encoding")) for one in answer.json()]
    assert keys == [
        (None, None),
        ("/w==", "base64"),
        ("Iv8i", "base64"),
        ("UA", "utf8"),
        ("Zürich \u2028", "utf8"),
        ("1 2", "utf8"),
        ("[" * 2000, "utf8"),
        (7, None),
    ]
    assert [(one["value"], one.get("value_encoding")) for one in answer.json()] == keys
    answer = await api.client.get(f"{LOG}/records?offset=0")
    assert [base64.b64decode(one["value"]) for one in answer.json()] == kinds


async def test_headers_and_timestamps_are_read_as_strimzi_shows_them(api: Api) -> None:
    """In both embedded formats; a header without a value is null."""
    headers = [("trace", b"\xff"), ("größe", b"1"), ("empty", b""), ("none", None)]
    await api.client.post(
        BATCHES, content=bytes(build_batch([(1234, b"k", b"1", headers)])), headers=RAW
    )
    for accepted in (JSON_V2, BINARY_V2):
        wanted = {"accept": accepted.decode()}
        [one] = (await api.client.get(f"{LOG}/records?offset=0", headers=wanted)).json()
        assert one["timestamp"] == 1234
        assert one["headers"] == [
            {"key": "trace", "value": "/w=="},
            {"key": "größe", "value": "MQ=="},
            {"key": "empty", "value": ""},
            {"key": "none", "value": None},
        ]


async def test_a_read_outside_the_log_is_redpandas_bad_request(api: Api) -> None:
    """40002 below the start and beyond the end; a parameter that cannot be read is 400."""
    await api.append(1, 2)
    await api.client.post(
        "/v1/topics/events/partitions/0/delete-records", json={"before_offset": 1}
    )
    for offset in (0, 3):
        assert refusal(await api.client.get(f"{LOG}/records?offset={offset}")) == (400, 40002)
    for query in ("", "?offset=-1", "?offset=x", f"?offset={2**63}", "?offset=1&timeout=-1"):
        assert refusal(await api.client.get(f"{LOG}/records{query}")) == (400, 400)
    assert (await api.client.get(f"{LOG}/records?offset=2&timeout=0")).json() == []


async def test_a_read_goes_on_behind_markers(api: Api) -> None:
    """A client that only knows offsets of records would stay before a marker for ever."""
    batch = build_batch(
        [(1, None, b"1", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    ending = {"producer_id": 7, "producer_epoch": 0, "action": "commit"}
    await api.client.post("/v1/topics/events/partitions/0/transactions", json=ending)
    await api.append(2)
    answer = await api.client.get(f"{LOG}/records?offset=1&max_bytes=1")
    assert [one["offset"] for one in answer.json()] == [2]


async def test_a_read_waits_for_the_first_record(api: Api) -> None:
    """Woken by the commit, long before its time is over."""

    async def read() -> httpx.Response:
        return await api.client.get(f"{LOG}/records?offset=0&timeout=30000")

    reading = asyncio.create_task(read())
    while api.service.tail.waiting == 0:
        await checkpoint()
    await produce(api, {"value": 1})
    assert [one["offset"] for one in (await reading).json()] == [0]


async def test_an_answer_ends_with_the_limits(tmp_path: Path) -> None:
    """Of records and of bytes; the header has the next offset."""
    async with running(tmp_path, default_fetch_records=2, inline_read_bytes=0) as api:
        await api.create()
        await produce(api, *({"value": n} for n in range(3)))
        answer = await api.client.get(f"{LOG}/records?offset=0")
        assert [one["offset"] for one in answer.json()] == [0, 1]
        assert answer.headers["log-next-offset"] == "2"


async def test_what_the_proxies_keep_in_memory_is_not_there(api: Api) -> None:
    """Every consumer operation is 501, with the alternative (K1)."""
    for method, url in (
        ("POST", "/consumers/lake"),
        ("POST", "/consumers/lake/instances/one/subscription"),
        ("GET", "/consumers/lake/instances/one/records"),
        ("DELETE", "/consumers/lake/instances/one"),
    ):
        answer = await api.client.request(method, url, headers={"content-type": V2.decode()})
        assert refusal(answer) == (501, 501)
        assert answer.headers["cache-control"] == "no-store"
        message = answer.json()["message"]
        assert "/topics/{topic}/partitions/{partition}/records?offset=" in message
        assert "/v1/groups/lake/offsets/{topic}/{partition}" in message


async def test_unexpected_errors_are_told_as_the_proxies_do(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 without a word of what went wrong, which is in the log."""
    monkeypatch.setattr(type(api.service), "partitions", lambda *_: 1 / 0)
    assert refusal(await api.client.get("/topics/events")) == (500, 500)
    assert any("division by zero" in one.getMessage() for one in caplog.records)


def test_the_page_names_these_tests() -> None:
    """Each line of docs/coming-from-kafka-rest.md is held by a test here, and each test a line."""
    page = Path(__file__).parents[2] / "docs" / "coming-from-kafka-rest.md"
    named = re.findall(r"`(test_\w+)` \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    here = [name for name in globals() if name.startswith("test_")]
    assert sorted([*named, "test_the_page_names_these_tests"]) == sorted(here)
