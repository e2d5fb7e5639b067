"""Appends over HTTP: protocol rules A1 to A12."""

import base64
import gzip
import hashlib
import json

import pytest

from engine.records.builder import build_batch
from engine.records.header import Codec
from tests.support.builders import new_batch
from tests.support.service import BATCHES, NDJSON, OFFSETS, RAW, RECORDS, Api

pytestmark = pytest.mark.anyio


async def stored(api: Api, path: str = RECORDS) -> list[dict[str, object]]:
    """Every record of a log as JSON."""
    answer = await api.client.get(path)
    records: list[dict[str, object]] = answer.json()["records"]
    return records


async def test_an_append_is_answered_with_its_receipt(api: Api) -> None:
    """201 has the offsets, the URL of the records and the tag of the new end."""
    answer = await api.client.post(RECORDS, json={"records": [{"value": 1}, {"value": 2}]})
    assert answer.status_code == 201
    receipt = answer.json()
    assert (receipt["base_offset"], receipt["last_offset"], receipt["count"]) == (0, 1, 2)
    assert (receipt["high_watermark"], receipt["log_end_offset"]) == (2, 2)
    assert (receipt["duplicate"], receipt["acks"]) == (False, "all")
    assert answer.headers["log-next-offset"] == "2"
    written = await api.client.get(answer.headers["location"])
    assert [record["value"] for record in written.json()["records"]] == [1, 2]
    offsets = await api.client.get(OFFSETS)
    assert offsets.headers["etag"] == answer.headers["etag"]


async def test_values_are_stored_exactly_as_sent(api: Api) -> None:
    """The bytes of a JSON value are returned as they were sent, with spaces and number format.

    As (A2) says.
    """
    value = b'{"b" : 1.50, "a":[ 1e3 ], "big": 123456789012345678901234567890, "b":2}'
    body = b'{"records":[{"value":' + value + b"}]}"
    headers = {"content-type": "application/json"}
    assert (await api.client.post(RECORDS, content=body, headers=headers)).status_code == 201
    assert value in (await api.client.get(RECORDS)).content


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"key": "k", "value": "v"}, {"key": "k", "key_encoding": "utf8", "value": "v"}),
        ({"key": 'q"\\é', "value": 1}, {"key": 'q"\\é', "key_encoding": "utf8"}),
        ({"key": {"id": 1}, "value": 1}, {"key": '{"id":1}', "key_encoding": "utf8"}),
        ({"key": None, "value": None}, {"key": None, "value": None, "value_encoding": "json"}),
        ({"key": "k", "key_encoding": "json", "value": 1}, {"key": '"k"'}),
        (
            {"value": "plain", "value_encoding": "utf8"},
            {"value": "plain", "value_encoding": "utf8"},
        ),
        (
            {"value": "/wD+", "value_encoding": "base64"},
            {"value": "/wD+", "value_encoding": "base64"},
        ),
        (
            {"value": "null", "value_encoding": "utf8"},
            {"value": "null", "value_encoding": "utf8"},
        ),
        (
            {"value": 1, "headers": [{"key": "h", "value": "x"}, {"key": "n", "value": None}]},
            {
                "headers": [
                    {"key": "h", "value": "x", "encoding": "utf8"},
                    {"key": "n", "value": None, "encoding": "utf8"},
                ]
            },
        ),
        (
            {"value": 1, "headers": [{"key": "b", "value": "/w==", "encoding": "base64"}]},
            {"headers": [{"key": "b", "value": "/w==", "encoding": "base64"}]},
        ),
        (
            {"value": 1, "timestamp": 1356998400000},
            {"timestamp": 1356998400000, "timestamp_type": "create"},
        ),
    ],
)
async def test_each_field_has_its_encoding(
    api: Api, record: dict[str, object], shown: dict[str, object]
) -> None:
    """Keys are text, values JSON, unless the record says otherwise.

    Reads name the encoding (A4).
    """
    answer = await api.client.post(RECORDS, json={"records": [record]})
    assert answer.status_code == 201, answer.text
    (read,) = await stored(api)
    assert {name: read[name] for name in shown} == shown


async def test_ndjson_is_one_batch(api: Api) -> None:
    """All lines of a body become one batch; blank lines are nothing (A1)."""
    body = b'{"key":"a","value":1}\n\n{"value":{"x":2}}\n'
    answer = await api.client.post(RECORDS, content=body, headers=NDJSON)
    assert (answer.status_code, answer.json()["count"]) == (201, 2)
    assert [record["value"] for record in await stored(api)] == [1, {"x": 2}]


@pytest.mark.parametrize(("acks", "status"), [("0", 202), ("1", 201), ("all", 201)])
async def test_acks_decide_when_an_append_is_answered(api: Api, acks: str, status: int) -> None:
    """0 is 202; only `all` promises that the record is below the high watermark (A7)."""
    answer = await api.client.post(f"{RECORDS}?acks={acks}", json={"records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["acks"]) == (status, acks)
    if acks == "all":
        assert answer.json()["high_watermark"] == 1
    api.log().durability.commit()
    assert len(await stored(api)) == 1


async def test_a_large_body_is_appended_by_a_worker(api: Api) -> None:
    """Beyond inline_append_bytes nothing changes for the client, as JSON, NDJSON or batches."""
    line = b'{"value":"' + b"x" * 1000 + b'"}\n'
    answer = await api.client.post(RECORDS, content=line * 400, headers=NDJSON)
    assert answer.json()["count"] == 400
    batch = build_batch([(1, None, b"y" * 1000, ())] * 400)
    raw = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert raw.json()["base_offset"] == 400


@pytest.mark.parametrize("codec", list(Codec))
async def test_batches_are_stored_byte_for_byte(api: Api, codec: Codec) -> None:
    """A batch of any codec comes back as it went in, but for its offset and leader epoch (A12)."""
    batch = new_batch(3, codec=codec)
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201, answer.text
    read = await api.client.get(BATCHES)
    assert read.content[16:] == batch[16:]


async def test_several_batches_are_appended_at_once(api: Api) -> None:
    """Concatenated batches get consecutive offsets and one receipt."""
    body = bytes(new_batch(2) + new_batch(3))
    receipt = (await api.client.post(BATCHES, content=body, headers=RAW)).json()
    assert (receipt["base_offset"], receipt["last_offset"], receipt["count"]) == (0, 4, 5)


async def test_a_repeated_sequence_is_answered_as_the_first_time(api: Api) -> None:
    """The same producer, epoch and sequence again is 200 with the original offsets (A8)."""
    identity = (await api.client.post("/v1/producers")).json()
    headers = {
        "producer-id": str(identity["producer_id"]),
        "producer-epoch": str(identity["producer_epoch"]),
        "producer-sequence": "0",
    }
    body = {"records": [{"value": 1}, {"value": 2}]}
    first = await api.client.post(RECORDS, json=body, headers=headers)
    again = await api.client.post(RECORDS, json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (again.json()["duplicate"], again.json()["base_offset"]) == (True, 0)
    assert len(await stored(api)) == 2
    gap = await api.client.post(RECORDS, json=body, headers=headers | {"producer-sequence": "9"})
    problem = gap.json()
    assert (gap.status_code, problem["code"], problem["kafka_error_code"]) == (
        409,
        "sequence_gap",
        45,
    )
    assert (problem["expected"], problem["received"]) == (2, 9)
    newer = {"producer-epoch": "1", "producer-sequence": "0"}
    assert (await api.client.post(RECORDS, json=body, headers=headers | newer)).status_code == 201
    fenced = await api.client.post(RECORDS, json=body, headers=headers | {"producer-sequence": "2"})
    assert (fenced.status_code, fenced.json()["code"]) == (403, "producer_fenced")


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "1"},
        {"producer-id": "x", "producer-epoch": "0", "producer-sequence": "0"},
        {"producer-id": "1", "producer-epoch": "40000", "producer-sequence": "0"},
        {"expected-offset": "-1"},
        {"if-match": "*"},
        {"if-match": "0-0-00000000"},
        {"if-match": '"0-0-00000000", "0-1-00000000"'},
        {"content-digest": "sha-256"},
        {"content-digest": "sha-256=:!:"},
        {"content-digest": "md5=:AAAA:"},
        {"content-digest": "sha-256=:A:"},
    ],
)
async def test_headers_that_cannot_be_read_are_malformed(api: Api, headers: dict[str, str]) -> None:
    """A condition or producer that is incomplete or out of range is 400 and nothing is written."""
    answer = await api.client.post(RECORDS, json={"records": [{"value": 1}]}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert "header" in answer.json()
    assert api.log().watermarks.log_end_offset == 0


async def test_a_condition_holds_only_at_its_end_of_the_log(api: Api) -> None:
    """Expected-Offset and If-Match append once; then they are 412 with the present tag (A9)."""
    tag = (await api.client.get(OFFSETS)).headers["etag"]
    body = {"records": [{"value": 1}]}
    first = await api.client.post(RECORDS, json=body, headers={"if-match": tag})
    assert first.status_code == 201
    stale = await api.client.post(RECORDS, json=body, headers={"if-match": tag})
    assert (stale.status_code, stale.json()["code"]) == (412, "precondition_failed")
    assert (stale.json()["etag"], stale.json()["log_end_offset"]) == (first.headers["etag"], 1)
    at_end = await api.client.post(RECORDS, json=body, headers={"expected-offset": "1"})
    beyond = await api.client.post(RECORDS, json=body, headers={"expected-offset": "1"})
    assert (at_end.status_code, beyond.status_code) == (201, 412)


@pytest.mark.parametrize("form", ['"0-0-0"', '"elsewhere"', '""', 'W/"elsewhere"'])
async def test_an_etag_of_something_else_matches_no_end(api: Api, form: str) -> None:
    """A tag we never give out is a condition that fails, 412 with the present one, not a fault."""
    tag = (await api.client.get(OFFSETS)).headers["etag"]
    headers = {"if-match": form.format(tag=tag)}
    answer = await api.client.post(RECORDS, json={"records": [{"value": 1}]}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")
    assert (answer.json()["etag"], answer.json()["log_end_offset"]) == (tag, 0)
    assert api.log().watermarks.log_end_offset == 0


@pytest.mark.parametrize("algorithm", ["sha-256", "sha-512"])
async def test_a_digest_is_compared_before_anything_is_written(api: Api, algorithm: str) -> None:
    """The body must have the Content-Digest it was sent with, unknown algorithms aside (A10)."""
    body = json.dumps({"records": [{"value": 1}]}).encode()
    made = hashlib.new(algorithm.replace("-", ""), body).digest()
    digest = f"md5=:AAAA:, {algorithm}=:{base64.b64encode(made).decode()}:"
    headers = {"content-type": "application/json", "content-digest": digest}
    assert (await api.client.post(RECORDS, content=body, headers=headers)).status_code == 201
    other = await api.client.post(RECORDS, content=body + b" ", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "corrupt_batch")
    assert api.log().watermarks.log_end_offset == 1


async def test_a_large_digest_is_compared_by_a_worker(api: Api) -> None:
    """The digest of a large body is computed off the event loop, to the same end."""
    body = b'{"value":"' + b"x" * 200_000 + b'"}'
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    headers = NDJSON | {"content-digest": f"sha-256=:{digest}:"}
    assert (await api.client.post(RECORDS, content=body, headers=headers)).status_code == 201


@pytest.mark.parametrize("coding", ["gzip", "X-GZip"])
async def test_a_compressed_body_is_decoded(api: Api, coding: str) -> None:
    """Content-Encoding gzip is taken, damage in it is 400, another encoding 415 with a list."""
    body = b'{"value":1}\n' * 3
    headers = NDJSON | {"content-encoding": coding}
    sent = await api.client.post(RECORDS, content=gzip.compress(body), headers=headers)
    assert (sent.status_code, sent.json()["count"]) == (201, 3)
    damaged = await api.client.post(RECORDS, content=b"not gzip", headers=headers)
    assert (damaged.status_code, damaged.json()["code"]) == (400, "malformed_request")
    other = await api.client.post(
        RECORDS, content=body, headers=NDJSON | {"content-encoding": "br"}
    )
    assert (other.status_code, other.json()["accepted_encodings"]) == (
        415,
        ["gzip", "identity", "zstd"],
    )


async def test_the_topic_decides_the_codec_of_json_records(api: Api) -> None:
    """The server builds its batches with the topic's compression.type."""
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        await api.create(codec, compression_type=codec)
        path = f"/v1/topics/{codec}/partitions/0/"
        await api.append("x" * 100, path=path + "records")
        raw = (await api.client.get(path + "batches")).content
        assert Codec(raw[22] & 7).label == codec


async def test_a_log_append_time_topic_stamps_its_own_time(api: Api) -> None:
    """With LogAppendTime a record's own time is ignored, and reads name the type (A6)."""
    await api.create("stamped", message_timestamp_type="LogAppendTime")
    path = "/v1/topics/stamped/partitions/0/records"
    receipt = await api.append(1, path=path, timestamp=1)
    (record,) = await stored(api, path)
    assert record["timestamp_type"] == "append"
    assert record["timestamp"] == receipt["timestamp"] > 1


@pytest.mark.parametrize("media_type", ["application/ndjson", "application/jsonl; charset=utf-8"])
async def test_lines_have_other_names(api: Api, media_type: str) -> None:
    """Both ways; the answer has the usual name (A17)."""
    sent = await api.client.post(
        RECORDS, content=b'{"value":1}\n', headers={"content-type": media_type}
    )
    assert sent.status_code == 201
    name = media_type.partition(";")[0]
    for accept in (name, f"{name};q=0.9, application/json;q=0.1"):
        answer = await api.client.get(RECORDS, headers={"accept": accept})
        assert answer.headers["content-type"] == "application/x-ndjson"


async def test_an_expired_record_is_refused_with_advice(api: Api) -> None:
    """On a default topic: 422 with retention.ms, and nothing is written (A16)."""
    await api.create("fresh")
    body = {"records": [{"value": 1, "timestamp": 1_788_000_000}]}
    answer = await api.client.post("/v1/topics/fresh/partitions/0/records", json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "expired_timestamp")
    assert (problem["retention_ms"], problem["kafka_error_code"]) == (604_800_000, 32)
    assert "retention.ms" in problem["detail"]
    assert api.log("fresh").watermarks.log_end_offset == 0


async def test_a_compacted_topic_needs_keys(api: Api) -> None:
    """A record without a key is refused with its index, and nothing of the request is written."""
    await api.create("compacted", cleanup_policy="compact")
    path = "/v1/topics/compacted/partitions/0/records"
    records = [{"key": "a", "value": 1}, {"value": 2}]
    answer = await api.client.post(path, json={"records": records})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_record")
    assert [error["index"] for error in answer.json()["errors"]] == [1]
    assert await stored(api, path) == []
