"""Bad input: each gets its documented answer, nothing is written, the next request works."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from engine.records.header import CRC_POSITION, MAGIC_POSITION
from tests.support.builders import new_batch
from tests.support.service import BATCHES, NDJSON, RAW, RECORDS, Api, running

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}


@asynccontextmanager
async def harmless(api: Api) -> AsyncIterator[None]:
    """Whatever happens inside, nothing is written, no memory stays held, the next request works."""
    before = api.log().watermarks.log_end_offset
    yield
    assert api.log().watermarks.log_end_offset == before
    assert (await api.append("after"))["base_offset"] == before
    held = api.service.admission
    assert (held.requests, held.body_bytes, held.answer_bytes) == (0, 0, 0)


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Every problem has the same members, and its type is of problems."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["status"] == status
    assert {"type", "title", "detail", "instance", "retryable", "side_effects"} <= problem.keys()
    return problem


def str_of(value: object) -> str:
    return value[-40:].decode("latin-1") if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_request"),
        (b"{", 400, "malformed_request"),
        (b'{"records":[{"value":tru}]}', 400, "malformed_request"),
        (b'{"records":[{"value":"\xff"}]}', 400, "malformed_request"),
        (b'{"records":[{"value":"\\ud800"}]}', 400, "malformed_request"),
        (b'{"records":[{"key":"\\ud800","value":1}]}', 400, "malformed_request"),
        (
            b'{"records":[{"value":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
            400,
            "malformed_request",
        ),
        (b"[]", 422, "invalid_record"),
        (b'{"records":[]}', 422, "invalid_record"),
        (b'{"records":[{}]}', 422, "invalid_record"),
        (b'{"records":[{"key":"only"}]}', 422, "invalid_record"),
        (b'{"records":[{"vaule":1}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"timestamp":-5}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"timestamp":9223372036854775808}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"timestamp":1.5}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"value_encoding":"hex"}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"value_encoding":"utf8"}]}', 422, "invalid_record"),
        (b'{"records":[{"value":"?","value_encoding":"base64"}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"headers":[{"key":"h"}]}]}', 422, "invalid_record"),
        (b'{"records":[{"value":1,"timestamp":9000000000000000}]}', 422, "invalid_timestamp"),
    ],
    ids=str_of,
)
async def test_a_wrong_body_is_refused(api: Api, body: bytes, status: int, code: str) -> None:
    """Not JSON is 400; JSON with wrong content is 422 and lists the fault of each record.

    As (A3) says.
    """
    async with harmless(api):
        answer = await api.client.post(RECORDS, content=body, headers=JSON)
        check(answer, status, code)


KAFKA_JSON = {"content-type": "application/vnd.kafka.json.v2+json"}


HALVES = {  # what stands before them, and half a surrogate pair
    b"": b"\\ud800",
    b"\\ud83c\\udf0a": b"\\uDFFF",  # a whole pair
    b"\\\\ud800 \\n": b"\\uDb00",  # what only looks like half of one
    b"\\u0041": b"\\ud800\\u0041",
}
BODIES_WITH_TEXT = [
    ("POST", RECORDS, JSON, b'{"records":[{"value":"%s"}]}'),
    ("POST", RECORDS, JSON, b'{"records":[{"key":"%s","value":0}]}'),
    ("POST", RECORDS, NDJSON, b'{"value":0}\n{"value":"%s"}\n'),
    ("POST", "/v1/topics/events/records", JSON, b'{"records":[{"value":"%s"}]}'),
    ("POST", "/topics/events", KAFKA_JSON, b'{"records":[{"value":"%s"}]}'),
    ("PUT", "/v1/topics/new", JSON, b'{"config":{"%s":1}}'),
]


async def test_half_a_surrogate_pair_is_named(api: Api) -> None:
    """In every body, the error names the escape and its position, not a parser's message.

    As (A5) says.
    """
    async with harmless(api):
        for method, path, headers, body in BODIES_WITH_TEXT:
            for before, half in HALVES.items():
                content = body % (before + half)
                answer = await api.client.request(method, path, content=content, headers=headers)
                problem = answer.json()
                told = problem.get("detail") or problem["message"]
                assert answer.status_code == 400
                assert f"{half[:6].decode()} is half of a surrogate pair" in told
                assert f"(byte {content.index(before + half) + len(before)})" in told


async def test_errors_of_records_are_listed(api: Api) -> None:
    """Each wrong record has its index, field, code and a sentence; right ones are not written."""
    records = [
        {"value": 1},
        {"value": 2, "key": 1, "key_encoding": "utf8"},
        {"value": "%", "value_encoding": "base64"},
        {"value": 3, "headers": [{"key": "h", "value": 1, "encoding": "base64"}]},
    ]
    async with harmless(api):
        problem = check(
            await api.client.post(RECORDS, json={"records": records}), 422, "invalid_record"
        )
    assert [(error["index"], error["field"], error["code"]) for error in problem["errors"]] == [
        (1, "key", "not_a_string"),
        (2, "value", "not_base64"),
        (3, "headers[0]", "not_a_string"),
    ]
    assert problem["kafka_error_code"] == 87


async def test_no_more_than_a_hundred_errors_are_listed(api: Api) -> None:
    """For thousands of wrong records, fields or parameters, the first hundred are listed (E4)."""
    async with harmless(api):
        answer = await api.client.post(RECORDS, json={"records": [{"key": 1}] * 5_000})
        assert len(check(answer, 422, "invalid_record")["errors"]) == 100
        config: dict[str, list[int]] = {str(number): [] for number in range(1_000)}
        answer = await api.client.put("/v1/topics/other", json={"config": config})
        assert len(check(answer, 422, "invalid_request")["errors"]) == 100
        answer = await api.client.get(RECORDS, params=dict.fromkeys(config, "1"))
        assert len(check(answer, 400, "malformed_request")["errors"]) == 100


async def test_a_wrong_line_is_named(api: Api) -> None:
    """In NDJSON the index is the line's number among the records."""
    body = b'{"value":1}\n{"value":2,"timestamp":"now"}\n'
    async with harmless(api):
        problem = check(
            await api.client.post(RECORDS, content=body, headers=NDJSON), 422, "invalid_record"
        )
    assert (problem["errors"][0]["index"], problem["errors"][0]["field"]) == (1, "timestamp")


async def test_duplicate_names_count_once(api: Api) -> None:
    """The last of repeated names counts, as in most parsers; values are not changed.

    As (A5) says.
    """
    body = b'{"records":[{"value":1,"value":{"a":1,"a":2}}]}'
    await api.client.post(RECORDS, content=body, headers=JSON)
    assert b'"value":{"a":1,"a":2}' in (await api.client.get(RECORDS)).content


def wrong_crc(batch: bytearray) -> bytearray:
    batch[CRC_POSITION] ^= 1
    return batch


def truncated(batch: bytearray) -> bytearray:
    return batch[:-1]


def wrong_magic(batch: bytearray) -> bytearray:
    batch[MAGIC_POSITION] = 9
    return batch


def trailing(batch: bytearray) -> bytearray:
    return batch + b"x"


def empty(batch: bytearray) -> bytearray:
    return batch[:0]


@pytest.mark.parametrize(
    ("spoil", "status", "code", "retryable"),
    [
        (wrong_crc, 422, "corrupt_batch", True),
        (truncated, 422, "corrupt_batch", True),
        (trailing, 422, "corrupt_batch", True),
        (wrong_magic, 415, "unsupported_media_type", False),
        (empty, 422, "invalid_record", False),
    ],
)
async def test_a_damaged_batch_is_refused(
    api: Api,
    spoil: Callable[[bytearray], bytearray],
    status: int,
    code: str,
    retryable: bool,  # noqa: FBT001  # a column of the table
) -> None:
    """A wrong checksum, a cut, an unknown magic: refused whole."""
    async with harmless(api):
        body = bytes(spoil(new_batch(3)))
        problem = check(await api.client.post(BATCHES, content=body, headers=RAW), status, code)
    assert problem["retryable"] is retryable
    assert problem["side_effects"] == "none"


async def test_a_producer_cannot_be_put_on_raw_batches(api: Api) -> None:
    """Batches contain their producer; headers for it are refused."""
    headers = RAW | {"producer-id": "1", "producer-epoch": "0", "producer-sequence": "0"}
    async with harmless(api):
        answer = await api.client.post(BATCHES, content=bytes(new_batch()), headers=headers)
        check(answer, 400, "malformed_request")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/topics/nowhere", "topic_not_found"),
        ("GET", "/v1/topics/nowhere/partitions/0/records", "topic_not_found"),
        ("GET", "/v1/topics/events/partitions/1/records", "partition_not_found"),
        ("POST", "/v1/topics/nowhere/partitions/0/batches", "topic_not_found"),
        ("GET", "/v1/topics/..%2F..%2Fetc", "topic_not_found"),
        ("GET", "/v1/topics/a%2Fb/partitions/0/records", "topic_not_found"),
        ("GET", "/v1/topics/events%00/offsets", "topic_not_found"),
        ("GET", "/v1/topic", "route_not_found"),
        ("GET", "/v1/topics/", "route_not_found"),
        ("GET", "/v1/topics/events/partitions/0/records/", "route_not_found"),
    ],
)
async def test_what_is_not_there_is_not_found(api: Api, method: str, path: str, code: str) -> None:
    """Unknown topics, partitions and paths, names with a path in them too, are 404."""
    async with harmless(api):
        check(await api.client.request(method, path), 404, code)


@pytest.mark.parametrize(
    "name", ["..%2Fetc", "a%2Fb", "%2e%2e", "a%20b", "a" * 250, "caf%C3%A9", "a%00"]
)
async def test_a_name_that_no_topic_can_have_makes_none(
    api: Api, tmp_path: Path, name: str
) -> None:
    """No name leaves the data directory: 422, and not a file more (T3)."""
    before = names_below(tmp_path)
    async with harmless(api):
        check(await api.client.put(f"/v1/topics/{name}", json={}), 422, "invalid_topic_name")
        assert names_below(tmp_path) == before


@pytest.mark.parametrize("name", ["a%2Fb", "a%20b", "%00", "caf%C3%A9", "100%25"])
async def test_the_instance_of_a_problem_is_a_uri(api: Api, name: str) -> None:
    """`instance` is the path as it was sent, encoded bytes and all, without the query."""
    async with harmless(api):
        path = f"/v1/topics/{name}/partitions/0/records"
        problem = check(await api.client.get(f"{path}?offset=0"), 404, "topic_not_found")
        assert problem["instance"] == path


@pytest.mark.parametrize(
    "path",
    [
        f"{RECORDS}?offset=-1",
        f"{RECORDS}?offset=99999999999999999999",
        f"{RECORDS}?offset=9223372036854775808",
        f"{RECORDS}?offset=ts:9999999999999999999",
        f"{RECORDS}?offset=soon",
        f"{RECORDS}?offset=0&%6Fffset=0",
        f"{RECORDS}?max_byte=1",
        f"{RECORDS}?max_bytes=x",
        f"{RECORDS}?isolation=dirty",
        f"{RECORDS}?encoding=hex",
        f"{BATCHES}?encoding=utf8",
        "/v1/topics/events/partitions/x/records",
        "/v1/topics/events/partitions/-1/records",
        "/v1/topics?page_size=0",
    ],
)
async def test_a_parameter_that_cannot_be_read_is_malformed(api: Api, path: str) -> None:
    """Unknown and repeated parameters and values out of their form are 400 and named (E3)."""
    async with harmless(api):
        problem = check(await api.client.get(path), 400, "malformed_request")
    assert problem["detail"]


async def test_a_media_type_that_is_not_taken_is_415(api: Api) -> None:
    """415 lists what is accepted, as JSON and as a header."""
    async with harmless(api):
        for path, accepted in (
            (RECORDS, ["application/json", "application/x-ndjson"]),
            (BATCHES, ["application/vnd.kafka.recordbatch.v2", "application/octet-stream"]),
        ):
            answer = await api.client.post(path, content=b"x", headers={"content-type": "text/csv"})
            problem = check(answer, 415, "unsupported_media_type")
            assert problem["accepted"] == accepted
            assert answer.headers["accept-post"] == ", ".join(accepted)


async def test_a_method_that_is_not_there_is_405(api: Api) -> None:
    """405 names every method that is allowed, on hot paths and the framework's own too (E7)."""
    offsets = "/v1/topics/events/partitions/0/offsets"
    async with harmless(api):
        for method, path, allowed in (
            ("DELETE", "/v1/topics", "GET, HEAD"),
            ("DELETE", "/livez", "GET, HEAD"),
            ("DELETE", "/openapi.json", "GET, HEAD"),
            ("POST", "/v1/topics/events", "DELETE, GET, HEAD, PATCH, PUT"),
            ("DELETE", RECORDS, "GET, HEAD, POST"),
            ("POST", offsets, "GET, HEAD"),
        ):
            answer = await api.client.request(method, path)
            check(answer, 405, "method_not_allowed")
            assert answer.headers["allow"] == allowed


def names_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*"))


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_body_over_the_limit_is_refused_as_soon_as_it_is_known(tmp_path: Path) -> None:
    """413 names the limit, its value and how much came, with or without a declared length (E5)."""
    async with running(tmp_path, max_request_bytes=1_000, max_control_bytes=100) as api:
        await api.create()
        async with harmless(api):
            for content in (b"x" * 2_000, chunks(b"x" * 600, b"x" * 600)):
                answer = await api.client.post(RECORDS, content=content, headers=JSON)
                problem = check(answer, 413, "too_large")
                assert (problem["limit"], problem["limit_bytes"]) == ("max_request_bytes", 1_000)
                assert problem["actual_bytes"] in {1_200, 2_000}
            topic = await api.client.put("/v1/topics/x", content=b" " * 200, headers=JSON)
            assert check(topic, 413, "too_large")["limit"] == "max_control_bytes"


async def test_a_compressed_body_has_the_same_limit(tmp_path: Path) -> None:
    """A small body that would become large is refused before it does (A11)."""
    async with running(tmp_path, max_request_bytes=10_000) as api:
        await api.create()
        bomb = gzip.compress(b" " * 5_000_000)
        async with harmless(api):
            answer = await api.client.post(
                RECORDS, content=bomb, headers=JSON | {"content-encoding": "gzip"}
            )
            assert check(answer, 413, "too_large")["limit"] == "max_request_bytes"


async def test_a_batch_over_the_limit_is_refused(api: Api) -> None:
    """max.message.bytes bounds the batch of an append in every format."""
    await api.create("small", max_message_bytes=500)
    log = "/v1/topics/small/partitions/0"
    json_body = {"records": [{"value": "x" * 1_000}]}
    batch = bytes(new_batch(1, value=b"x" * 1_000))
    async with harmless(api):
        for answer in (
            await api.client.post(f"{log}/records", json=json_body),
            await api.client.post(f"{log}/batches", content=batch, headers=RAW),
        ):
            problem = check(answer, 413, "too_large")
            assert (problem["limit"], problem["limit_bytes"]) == ("max.message.bytes", 500)
            assert problem["actual_bytes"] > 1_000
            assert problem["kafka_error_code"] == 10


async def test_too_many_records_are_refused_before_they_are_taken_apart(tmp_path: Path) -> None:
    """max_records_per_request counts records, not braces inside values."""
    async with running(tmp_path, max_records_per_request=10) as api:
        await api.create()
        async with harmless(api):
            many = await api.client.post(RECORDS, json={"records": [{"value": 1}] * 11})
            assert check(many, 413, "too_large")["limit"] == "max_records_per_request"
            lines = await api.client.post(RECORDS, content=b'{"value":1}\n' * 11, headers=NDJSON)
            check(lines, 413, "too_large")
        nested = await api.client.post(RECORDS, json={"records": [{"value": [{}] * 20}]})
        assert nested.status_code == 201


async def test_a_full_queue_is_overloaded(tmp_path: Path) -> None:
    """Beyond each bound: 503 with the limit's name and Retry-After; nothing is written."""
    async with running(
        tmp_path, max_in_flight_bytes=100, max_in_flight_requests=1, max_waiting_readers=1
    ) as api:
        await api.create()
        async with harmless(api):
            large = await api.client.post(RECORDS, content=b" " * 200, headers=JSON)
            problem = check(large, 503, "overloaded")
            assert (problem["limit"], large.headers["retry-after"]) == ("max_in_flight_bytes", "1")
        ticket = api.service.admission.admit("another")
        busy = await api.client.get(RECORDS)
        assert check(busy, 503, "overloaded")["limit"] == "max_in_flight_requests"
        ticket.close()
        poll = f"{RECORDS}?offset=latest&max_wait_ms=60000"
        first = asyncio.create_task(api.client.get(poll))
        while not api.service.tail.waiting:
            await checkpoint()
        second = await api.client.get(poll)
        assert check(second, 503, "overloaded")["limit"] == "max_waiting_readers"
        await api.append("wakes")
        assert (await asyncio.wait_for(first, 30)).status_code == 200


async def test_answers_in_memory_are_bounded(tmp_path: Path) -> None:
    """While large answers are being sent, another is 503; one alone always goes out."""
    async with running(tmp_path, max_in_flight_answer_bytes=1_000) as api:
        await api.create()
        await api.append("x" * 2_000)
        assert (await api.client.get(BATCHES)).status_code == 200
        ticket = api.service.admission.admit("another")
        ticket.hold_answer(500)
        refused = await api.client.get(BATCHES)
        assert check(refused, 503, "overloaded")["limit"] == "max_in_flight_answer_bytes"
        ticket.close()


async def test_an_unexpected_error_is_internal(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the service is 500 in both ways in, reveals nothing, and is logged."""
    log = api.log()
    monkeypatch.setattr(type(log.reader), "read", lambda *_, **__: 1 / 0)
    for query in ("", "?explain=false"):
        problem = check(await api.client.get(BATCHES + query), 500, "internal_error")
        assert "division" not in problem["detail"]
