"""The applicable tests of Karapace's REST proxy: docs/karapace.md."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.api.rest_v2.media import BINARY_V2, JSON_V2
from tests.support.credentials import bearer, create_key
from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

PRODUCE = ("/topics/events", "/topics/events/partitions/0")
"""The two paths that take records."""

AVRO_V2 = "application/vnd.kafka.avro.v2+json"


async def send(
    api: Api, url: str, body: object, media_type: str = JSON_V2.decode()
) -> httpx.Response:
    return await api.client.post(url, json=body, headers={"content-type": media_type})


def refusal(answer: httpx.Response) -> tuple[int, int]:
    body = answer.json()
    assert body["message"]
    return answer.status_code, body["error_code"]


async def test_there_is_one_broker(api: Api) -> None:
    """`GET /brokers` has one member; the broker is the leader that partitions name."""
    answer = await api.client.get("/brokers")
    assert (answer.status_code, answer.json()) == (200, {"brokers": [0]})
    partition = (await api.client.get("/topics/events/partitions/0")).json()
    assert partition["leader"] == 0


@pytest.mark.parametrize(
    ("media_type", "value"),
    [
        ("application/vnd.kafka.v1+json", "Zm9v"),
        ("application/vnd.kafka.v2+json", "Zm9v"),
        ("application/vnd.kafka.binary.v1+json", "Zm9v"),
        ("application/vnd.kafka.binary+json", "Zm9v"),
        ("application/vnd.kafka.json+json", {"foo": "bar"}),
        ("application/vnd.kafka+json", "Zm9v"),
        ("application/json", "Zm9v"),
        ("application/octet-stream", "Zm9v"),
    ],
)
async def test_content_types_are_karapaces(api: Api, media_type: str, value: object) -> None:
    """Any version or none, JSON or binary embedded; what names no format is binary."""
    answer = await send(api, "/topics/events", {"records": [{"value": value}]}, media_type)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "media_type",
    [
        "application/",
        "application/*",
        "application/vnd.kafka",
        "application/vnd.kafka.json",
        "application/vnd.kafka+avro",
        "application/vnd.kafka+binary",
        "application/vnd.kafka+protobuf",
        "application/vnd.kafka.v3+json",
        "application/vnd.kafka.binary.v1+foo",
        "application/vnd.kafka.avro.v0+json",
        "application/vnd.kafka.json+avro",
        "application/text",
        "bar/baz",
    ],
)
async def test_other_content_types_are_415(api: Api, media_type: str) -> None:
    """With Karapace's text, and then the types that are accepted."""
    answer = await send(api, "/topics/events", {"records": [{"value": "Zm9v"}]}, media_type)
    assert refusal(answer) == (415, 415)
    assert answer.json()["message"].startswith("HTTP 415 Unsupported Media Type: ")


@pytest.mark.parametrize("url", ["/brokers", "/topics/events/partitions/0/records?offset=0"])
@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/*",
        "*/*",
        "*/json",
        "application/json;q=0.5, */json",
        "text/html,*/json;q=0.1",
        "application/vnd.kafka+json",
        "application/vnd.kafka.v1+json",
        "application/vnd.kafka.v2+json",
        "application/vnd.kafka.json+json",
        "application/vnd.kafka.binary+json",
        "application/vnd.kafka.json.v1+json",
        "*/vnd.kafka.json.v2+json",
    ],
)
async def test_accept_takes_what_karapace_takes(api: Api, accept: str, url: str) -> None:
    """`*/json` too, which is not of RFC 9110."""
    await send(api, "/topics/events", {"records": [{"value": 1}]})
    answer = await api.client.get(url, headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    if "offset" in url and ".json" in accept:
        assert answer.json()[0]["value"] == 1


@pytest.mark.parametrize(
    "accept",
    [
        "application/octet-stream",
        "application/",
        "application/vnd.kafka",
        "application/vnd.kafka.json",
        "application/vnd.kafka+foo",
        "application/vnd.kafka+avro",
        "application/text",
        "foo/*",
        "bar/json",
        "x*/json",
        "*/baz",
    ],
)
async def test_other_accepts_are_406(api: Api, accept: str) -> None:
    """A type that is not answered is refused with Karapace's text."""
    answer = await api.client.get("/brokers", headers={"accept": accept})
    assert refusal(answer) == (406, 406)
    assert answer.json()["message"].startswith("HTTP 406 Not Acceptable: ")


@pytest.mark.parametrize("url", PRODUCE)
async def test_json_and_binary_are_taken_at_both_paths(api: Api, url: str) -> None:
    """Each record has an offset and a partition, as numbers."""
    for value, media_type in (({"foo": "bar"}, JSON_V2), ("Zm9vCg==", BINARY_V2)):
        body = {"records": [{"value": value}, {"key": value, "value": value}]}
        answer = await send(api, url, body, media_type.decode())
        assert answer.status_code == 200
        offsets = answer.json()["offsets"]
        assert [one["partition"] for one in offsets] == [0, 0]
        assert all(isinstance(one["offset"], int) for one in offsets)
        assert "value_schema_id" in answer.json()


async def test_records_without_keys_go_to_several_partitions(api: Api) -> None:
    """One request after another."""
    await api.create("wide", partitions=100)
    seen = set()
    for n in range(3):
        answer = await send(api, "/topics/wide", {"records": [{"value": n}]})
        seen |= {one["partition"] for one in answer.json()["offsets"]}
    assert len(seen) == 3


@pytest.mark.parametrize("url", PRODUCE)
@pytest.mark.parametrize(
    ("media_type", "body", "status", "text"),
    [
        (JSON_V2, {"records": []}, 422, "Invalid request format"),
        (JSON_V2, {"records": None}, 422, "Invalid request format"),
        (JSON_V2, {"foo": "bar"}, 422, "Invalid request format"),
        (JSON_V2, {"records": [{"valur": {"foo": "bar"}}]}, 422, "Invalid request format"),
        (JSON_V2, ["records"], 400, "Malformed request"),
        (JSON_V2, "records", 400, "Malformed request"),
        (BINARY_V2, {"records": "should be an array"}, 400, "'records' must be an array"),
        (BINARY_V2, {"records": ["a"]}, 400, "Produce record must be an object"),
        (JSON_V2, {"records": [{"value": 1}, 1]}, 400, "Produce record must be an object"),
        (BINARY_V2, {"records": [{"value": "not base64"}]}, 400, "is not a base64 string"),
        (BINARY_V2, {"records": [{"key": "a"}]}, 400, "records[0].key is not a base64 string"),
        (BINARY_V2, {"records": [{"value": {"a": 1}}]}, 400, "is not a base64 string"),
        (JSON_V2, {"records": [{"value": 1, "headers": [1]}]}, 422, "Invalid request format"),
    ],
)
async def test_a_malformed_body_has_karapaces_status_and_text(
    api: Api, url: str, media_type: bytes, body: object, status: int, text: str
) -> None:
    """Another JSON type than the one expected is 400, another content 422; nothing is written."""
    answer = await send(api, url, body, media_type.decode())
    assert refusal(answer) == (status, status)
    assert text in answer.json()["message"]
    assert api.log().watermarks.log_end_offset == 0


async def test_only_the_first_faults_are_told(api: Api) -> None:
    """A message names three of the records that are not base64."""
    body = {"records": [{"value": "?"}] * 5}
    message = (await send(api, "/topics/events", body, BINARY_V2.decode())).json()["message"]
    assert message.count("is not a base64 string") == 3


@pytest.mark.parametrize("query", ["", "?async=true"])
async def test_a_record_too_large_for_the_topic_is_told_in_its_entry(api: Api, query: str) -> None:
    """422 with Kafka's description in each entry, and the limit in the message."""
    await api.create("small", max_message_bytes=1_000)
    body = {"records": [{"value": "x"}, {"value": "x" * 1_000}]}
    answer = await send(api, f"/topics/small{query}", body)
    assert refusal(answer) == (422, 422)
    assert "max.message.bytes" in answer.json()["message"]
    entries = answer.json()["offsets"]
    assert len(entries) == 2
    for entry in entries:
        assert (entry["partition"], entry["offset"], entry["error_code"]) == (None, None, 50002)
        assert entry["error"] == (
            "The server has a configurable maximum message size to avoid unbounded memory "
            "allocation. This error is thrown if the client attempt to produce a message larger "
            "than this maximum."
        )
    assert api.log("small").watermarks.log_end_offset == 0


async def test_a_body_beyond_the_limit_is_413(tmp_path: Path) -> None:
    """With Karapace's text, and then the limit."""
    async with running(tmp_path, max_request_bytes=1_000) as api:
        await api.create()
        answer = await send(
            api, "/topics/events", {"records": [{"value": "a" * 2_000}]}, "application/json"
        )
        assert refusal(answer) == (413, 413)
        message = answer.json()["message"]
        assert message.startswith("HTTP Request Entity Too Large: ")
        assert "max_request_bytes" in message


async def test_a_missing_topic_is_told_before_a_format(api: Api) -> None:
    """A produce of Avro to a topic that is not there is 404; to one that is there, 415."""
    for kind in ("key", "value"):
        body = {f"{kind}_schema": '"string"', "records": [{kind: "a"}]}
        for url in ("/topics/none", "/topics/none/partitions/0"):
            assert refusal(await send(api, url, body, AVRO_V2)) == (404, 40401)
        for url in PRODUCE:
            assert refusal(await send(api, url, body, AVRO_V2)) == (415, 415)


async def test_a_missing_topic_is_40403_where_it_is_described(api: Api) -> None:
    """And 40401 everywhere else, with the same text."""
    described = await api.client.get("/topics/fooo")
    assert refusal(described) == (404, 40403)
    internal = await api.client.get("/topics/__consumer_offsets")
    assert refusal(internal) == (404, 40403)
    for path in ("partitions", "partitions/0", "partitions/0/offsets", "partitions/foo/offsets"):
        answer = await api.client.get(f"/topics/fooo/{path}")
        assert refusal(answer) == (404, 40401)
        assert "Topic fooo not found" in answer.json()["message"]
    assert "Topic fooo not found" in described.json()["message"]


@pytest.mark.parametrize("rest", ["", "/offsets", "/records?offset=0"])
async def test_a_partition_is_a_number(api: Api, rest: str) -> None:
    """A number that is not there is 40402, a word is 404; both have Karapace's text."""
    for partition, code in (
        ("10", 40402),
        ("-1", 40402),
        ("9" * 30, 40402),
        ("foo", 404),
        ("-", 404),
        ("1.0", 404),
    ):
        answer = await api.client.get(f"/topics/events/partitions/{partition}{rest}")
        assert refusal(answer) == (404, code)
        assert f"Partition {partition} not found" in answer.json()["message"]


async def test_a_partition_is_described_as_in_its_list(api: Api) -> None:
    """And its offsets are those of the produced records."""
    (partition,) = (await api.client.get("/topics/events/partitions")).json()
    assert (await api.client.get("/topics/events/partitions/0")).json() == partition
    assert (await api.client.get("/topics/events")).json()["partitions"] == [partition]
    (replica,) = partition["replicas"]
    assert replica["leader"] is replica["in_sync"] is True
    await api.append(*range(5))
    wanted = {"accept": "*/*", "content-type": "application/vnd.kafka.v2+json"}
    answer = await api.client.get("/topics/events/partitions/0/offsets", headers=wanted)
    assert answer.json() == {"beginning_offset": 0, "end_offset": 5}


async def test_a_record_for_a_missing_partition_is_404(api: Api) -> None:
    """Before anything is written, also for the records that have a place."""
    records = [{"key": "k", "value": 1, "partition": 0}, {"key": "k", "value": 1}]
    answer = await send(api, "/topics/events", {"records": records})
    assert [one["partition"] for one in answer.json()["offsets"]] == [0, 0]
    records[1]["partition"] = 100
    answer = await send(api, "/topics/events", {"records": records})
    assert refusal(answer) == (404, 40402)
    assert api.log().watermarks.log_end_offset == 2


async def test_a_read_takes_at_least_one_batch(api: Api) -> None:
    """However small max_bytes is, and about that much otherwise, in the order of offsets."""
    for n in range(10):
        await send(api, "/topics/events", {"records": [{"value": f"{n}".rjust(1_000)}]})
    url = "/topics/events/partitions/0/records?offset=0&max_bytes="
    assert [one["offset"] for one in (await api.client.get(url + "10")).json()] == [0]
    some = [one["offset"] for one in (await api.client.get(url + "4000")).json()]
    assert some == list(range(len(some)))
    assert 2 <= len(some) <= 4
    everything = (await api.client.get(url + "1000000")).json()
    assert [one["offset"] for one in everything] == list(range(10))


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[Api, str]]:
    """A service that requires keys, and a key that reads."""
    key = create_key(tmp_path, "ada", "read:*")
    async with running(tmp_path) as api:
        yield api, key


async def test_credentials_are_basic_or_bearer(guarded: tuple[Api, str]) -> None:
    """The rest is 401 with Karapace's text: no header, another scheme, a token that is none."""
    api, key = guarded
    for auth in (httpx.BasicAuth("ada", key), httpx.BasicAuth("", key)):
        assert (await api.client.get("/brokers", auth=auth)).status_code == 200
    assert (await api.client.get("/brokers", headers=bearer(key))).status_code == 200
    refused: tuple[dict[str, str], ...] = (
        {},
        {"authorization": "Digest foo=bar"},
        bearer("NotAToken"),
        bearer(f"{key}XX"),
    )
    for headers in refused:
        answer = await api.client.get("/brokers", headers=headers)
        assert refusal(answer) == (401, 40101)
        assert answer.json()["message"].startswith("Unauthorized: ")
        assert "www-authenticate" in answer.headers
    wrong = await api.client.get("/topics", auth=httpx.BasicAuth("username", "password"))
    assert refusal(wrong) == (401, 40101)
    forbidden = await api.client.post(
        "/topics/events", json={"records": [{"value": 1}]}, headers=bearer(key)
    )
    assert refusal(forbidden) == (403, 40301)
    assert forbidden.json()["message"].startswith("Forbidden: ")


def test_the_page_names_these_tests() -> None:
    """Each test here holds a row of docs/karapace.md, and each test that a row names is there."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "karapace.md").read_text(encoding="utf-8")
    here = {name for name in globals() if name.startswith("test_")} - {
        "test_the_page_names_these_tests"
    }
    named: set[str] = set()
    for file, name in re.findall(r"`(test_\w+\.py)::(test_\w+)`", page):
        text = (root / "tests" / "http" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), (file, name)
        if file == Path(__file__).name:
            named.add(name)
    assert named == here
