"""What a cache may keep, content codings, and HEAD: protocol rules R11, C1 to C4."""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.frame import Frame
from app.http.answers import Receive, Scope, Send
from engine.fs.port import FileSystem
from engine.records.codecs.zstd import zstd
from tests.support.builders import DATA
from tests.support.filesystem import ForgetfulDisk
from tests.support.server import serving
from tests.support.service import (
    BATCHES,
    OFFSETS,
    RECORDS,
    Api,
    client_of,
    open_service,
    running,
)
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

ZSTD = {"accept-encoding": "zstd"}
ARROW_TYPE = "application/vnd.apache.arrow.stream"
GZIP = {"accept-encoding": "gzip"}
PLAIN = {"accept-encoding": "identity"}


async def raw(api: Api, path: str, headers: dict[str, str]) -> tuple[httpx.Response, bytes]:
    """The answer, and its body as it came."""
    async with api.client.stream("GET", path, headers=headers) as answer:
        return answer, b"".join([piece async for piece in answer.aiter_raw()])


def decoded(coding: str | None, body: bytes) -> bytes:
    if coding is None:
        return body
    return gzip.decompress(body) if coding == "gzip" else zstd.decompress(body)


async def bounded(api: Api, count: int = 100, path: str = RECORDS) -> str:
    """Append a number of records; return the URL that reads exactly them."""
    await api.append(*[f"value {number % 7}" for number in range(count)])
    return f"{path}?offset=0&end_offset={count}&log_id={api.log().reader.log_id}"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("*", "zstd"),
        ("*;q=0.5, zstd;q=0", "gzip"),
        ("br", None),
        ("", None),
        ("gzip;q=0, zstd;q=0", None),
        ("identity;q=0", None),
        ("GZIP", "gzip"),
    ],
)
async def test_json_comes_in_the_coding_that_is_liked_best(
    api: Api, accepted: str, coding: str | None
) -> None:
    """Accept-Encoding decides with its weights, zstd first among equals; Vary lists it (C1)."""
    path = await bounded(api)
    answer, body = await raw(api, path, {"accept-encoding": accepted})
    assert answer.headers.get("content-encoding") == coding
    assert answer.headers["vary"] == "accept, accept-encoding"
    assert int(answer.headers["content-length"]) == len(body)
    assert len(json.loads(decoded(coding, body))["records"]) == 100


@pytest.mark.parametrize("count", [100, 2_000])
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_a_coded_answer_is_the_same_answer(api: Api, count: int, accept: str) -> None:
    """Small ones are coded here and now, large ones on a worker; decoded they are equal (C1)."""
    path = await bounded(api, count)
    bodies = set()
    for wanted in (PLAIN, GZIP, ZSTD):
        answer, body = await raw(api, path, wanted | {"accept": accept})
        bodies.add(decoded(answer.headers.get("content-encoding"), body))
    assert len(bodies) == 1


async def test_what_is_short_or_would_not_shrink_is_not_coded(tmp_path: Path) -> None:
    """Below `min_coded_bytes` nothing is negotiated; what would grow is sent plain (C1)."""
    async with running(tmp_path, min_coded_bytes=100) as api:
        await api.create()
        answer, _ = await raw(api, "/v1/topics/nowhere?x=" + "y" * 300, GZIP)
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "accept-encoding"
        answer, body = await raw(api, "/livez", GZIP)
        assert "content-encoding" not in answer.headers
        assert len(body) < 100
    async with running(tmp_path, min_coded_bytes=1) as api:
        answer, body = await raw(api, "/livez", GZIP)
        assert "content-encoding" not in answer.headers
        assert (answer.headers["vary"], json.loads(body)) == ("accept-encoding", {"status": "live"})


async def test_batches_columns_and_downloads_are_never_coded(api: Api) -> None:
    """Bytes that programs read go out as they are stored (C1)."""
    await bounded(api, 200)
    for path, accept in (
        (BATCHES, "*/*"),
        (RECORDS, "application/vnd.apache.arrow.stream"),
        ("/v1/topics/events/partitions/0/segments/0/log", "*/*"),
    ):
        answer, body = await raw(api, path, GZIP | {"accept": accept})
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
        assert len(body) > 1024


async def test_each_coding_has_its_own_tag(api: Api) -> None:
    """A strong tag names bytes; any tag whose coding the client still takes is 304 (C2)."""
    path = await bounded(api)
    tags = {}
    for name, wanted in (("plain", PLAIN), ("gzip", GZIP), ("zstd", ZSTD)):
        answer, _ = await raw(api, path, wanted)
        tags[name] = answer.headers["etag"]
    assert len(set(tags.values())) == 3
    for accepted, known, status in (
        ("gzip", "gzip", 304),
        ("gzip", "plain", 304),
        ("gzip", "zstd", 200),
        ("gzip, zstd", "gzip", 304),
        ("identity;q=0, gzip", "plain", 200),
        ("identity", "gzip", 200),
    ):
        headers = {"accept-encoding": accepted, "if-none-match": f'"x", W/{tags[known]}'}
        answer, body = await raw(api, path, headers)
        assert answer.status_code == status, (accepted, known)
        if status == 304:
            assert (answer.headers["etag"], body) == (tags[known], b"")
            assert answer.headers["vary"] == "accept, accept-encoding"
            assert "immutable" in answer.headers["cache-control"]


async def test_a_tag_that_is_a_condition_stays_as_it_is(tmp_path: Path) -> None:
    """If-Match accepts the ETag of offsets as sent, whatever the client decodes (C2)."""
    async with running(tmp_path, min_coded_bytes=1) as api:
        await api.create()
        answer, _ = await raw(api, OFFSETS, GZIP)
        assert "content-encoding" not in answer.headers
        etag = {"if-match": answer.headers["etag"]}
        body = {"records": [{"value": 1}]}
        assert (await api.client.post(RECORDS, json=body, headers=etag)).status_code == 201


async def test_a_part_of_immutable_batches_can_be_asked_for(api: Api) -> None:
    """Range and If-Range work where the bytes are immutable, and nowhere else (R11)."""
    path = await bounded(api, path=BATCHES)
    whole = await api.client.get(path)
    assert whole.headers["accept-ranges"] == "bytes"
    part = {"range": "bytes=50-"}
    for condition in ({}, {"if-range": whole.headers["etag"]}):
        answer = await api.client.get(path, headers=part | condition)
        assert (answer.status_code, answer.content) == (206, whole.content[50:])
        assert answer.headers["etag"] == whole.headers["etag"]
    assert (await api.client.get(path, headers=part | {"if-range": '"x"'})).status_code == 200
    assert (await api.client.get(path, headers={"range": "bytes=999999-"})).status_code == 416
    for movable in (BATCHES, RECORDS):
        answer = await api.client.get(movable, headers=part)
        assert answer.status_code == 200
        assert "accept-ranges" not in answer.headers


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", ARROW_TYPE])
async def test_a_part_of_immutable_records_can_be_asked_for(api: Api, accept: str) -> None:
    """Programs that probe with HEAD and read ranges find what they expect, uncoded (R11)."""
    path = await bounded(api, 50)
    head = {"accept": accept, "accept-encoding": "gzip"}
    whole = await api.client.get(path, headers={"accept": accept, "accept-encoding": "identity"})
    probed = await api.client.head(path, headers=head | {"accept-encoding": "identity"})
    assert probed.headers["content-length"] == str(len(whole.content))
    assert probed.headers["accept-ranges"] == "bytes"
    part = await api.client.get(path, headers=head | {"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
    assert "content-encoding" not in part.headers
    assert part.headers["etag"] == whole.headers["etag"]


@pytest.mark.parametrize("visibility", ["private", "public"])
async def test_cache_visibility_is_a_setting(tmp_path: Path, visibility: Any) -> None:
    """`cache_visibility` is in every response that may be cached, and in no other (R11)."""
    async with running(tmp_path, cache_visibility=visibility) as api:
        await api.create()
        for kind in (RECORDS, BATCHES):
            path = await bounded(api, path=kind)
            answer = await api.client.get(path)
            forever = f"{visibility}, max-age=31536000, immutable"
            assert answer.headers["cache-control"] == forever
            again = await api.client.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.headers["cache-control"]) == (304, forever)
        download = await api.client.get("/v1/topics/events/partitions/0/segments/0/log")
        assert download.headers["cache-control"] == f"{visibility}, no-cache"
        assert (await api.client.get(RECORDS)).headers["cache-control"] == "no-store"


class CountingDisk(ForgetfulDisk):
    """Counts the reads that reach it."""

    reads = 0

    def enter(self, name: str, path: Path) -> None:
        self.reads += name == "read"
        super().enter(name, path)


async def test_a_304_costs_no_read_of_the_data() -> None:
    """The response depends only on the URL and the tag (R11)."""
    disk = CountingDisk()
    fs: FileSystem = disk
    async with open_service(DATA, fs=fs) as service, wired(service, is_hot=False) as client:
        api = Api(service, client)
        await api.create(segment_index_bytes="16384")
        for kind in (RECORDS, BATCHES):
            path = await bounded(api, path=kind)
            before = disk.reads
            answer = await client.get(path)
            assert disk.reads > before
            before = disk.reads
            again = await client.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, disk.reads) == (304, before)


async def test_equal_tags_mean_equal_bytes(api: Api) -> None:
    """An immutable page has no present offsets, so it and its tag stay as the log grows."""
    path = await bounded(api)
    page, lines = {"accept": "application/json"}, {"accept": "application/x-ndjson"}
    before = [await api.client.get(path, headers=head) for head in (page, lines)]
    await api.append("later")
    after = [await api.client.get(path, headers=head) for head in (page, lines)]
    assert all("immutable" in answer.headers["cache-control"] for answer in after)
    for old, new in zip(before, after, strict=True):
        assert (old.headers["etag"], old.content) == (new.headers["etag"], new.content)
        assert old.headers["log-end-offset"] != new.headers["log-end-offset"]
        known = page | {"if-none-match": before[0].headers["etag"]}
        assert (await api.client.get(path, headers=known)).status_code == 304
    assert before[0].json().keys() == {"topic", "partition", "records", "next_offset"}
    assert "high_watermark" in (await api.client.get(RECORDS)).json()


READS = (
    "/livez",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/v1/limits",
    "/v1/topics",
    "/v1/topics/events",
    "/v1/topics/events/partitions",
    "/v1/topics/events/partitions/0",
    RECORDS,
    BATCHES,
    OFFSETS,
    "/v1/topics/nowhere",
    f"{RECORDS}?offset=99",
    "/v1/topics/events/partitions/0/segments",
    "/v1/topics/events/partitions/0/producers",
)


async def test_a_head_has_the_headers_of_a_get(api: Api) -> None:
    """Status and headers of any GET, its length and tag too, without its body (C3)."""
    await bounded(api)
    for path in READS:
        got = await api.client.get(path)
        asked = await api.client.head(path)
        assert (asked.status_code, asked.content) == (got.status_code, b""), path
        if path != "/metrics":  # which counts the requests
            assert dict(asked.headers) == dict(got.headers), path


async def test_a_head_is_allowed_where_a_get_is(api: Api) -> None:
    """Where there is only POST it is refused as any other method (C3)."""
    refused = await api.client.head("/v1/topics/events/partitions/0/roll")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    refused = await api.client.delete(RECORDS)
    assert refused.headers["allow"] == "GET, HEAD, POST"


async def test_a_head_of_what_would_not_end_ends(api: Api) -> None:
    """The producer of the body is cancelled once the head is sent (C3)."""

    async def endless(_scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    async with client_of(Frame(endless, api.service)) as client:
        answer = await client.head("/endless")
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_connection_goes_on_after_a_head(tmp_path: Path) -> None:
    """Not a byte of a body follows on the wire, so that the next answer is the next (C3)."""
    with serving(tmp_path) as served, httpx.Client(base_url=served.url) as client:
        client.put("/v1/topics/events", json={})
        path = client.post(RECORDS, json={"records": [{"value": "x" * 5000}]}).headers["location"]
        for _ in range(2):
            asked, got = client.head(path), client.get(path)
            assert (asked.content, asked.headers["etag"]) == (b"", got.headers["etag"])
            assert got.json()["records"][0]["value"] == "x" * 5000
