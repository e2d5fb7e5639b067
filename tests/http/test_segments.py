"""Downloads of segment files: protocol rules D1 to D7."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.server.process import compose
from engine.fs.names import log_name
from tests.support.credentials import bearer, create_key
from tests.support.damage import one_bit_flipped
from tests.support.events import listening
from tests.support.server import serving
from tests.support.service import RECORDS, Api, open_service, running
from tests.support.time import START_MS, ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"
FIRST = f"{LOG}/segments/0/log"
KINDS = ("log", "index", "timeindex")


async def fill(api: Api, count: int = 3, *, roll: bool = True) -> None:
    """Records in a first segment, and one in the next."""
    for number in range(count):
        await api.append(*[f"{number:06d}" * 20] * 10)
    if roll:
        await api.client.post(f"{LOG}/roll")
        await api.append("next")


def stored(directory: Path, base_offset: int = 0, kind: str = "log") -> bytes:
    name = log_name(base_offset).removesuffix("log") + kind
    return (directory / "events-0" / name).read_bytes()


async def test_a_file_is_downloaded_as_it_lies_on_disk(tmp_path: Path) -> None:
    """Log and indexes of a sealed segment are byte for byte those of the directory (D1)."""
    async with running(tmp_path, download_chunk_bytes=1000) as api:
        await api.create(index_interval_bytes="200")
        await fill(api)
        for kind in KINDS:
            answer = await api.client.get(f"{LOG}/segments/0/{kind}")
            assert answer.status_code == 200
            assert answer.content == stored(tmp_path, kind=kind)
            assert answer.content
            headers = answer.headers
            assert headers["content-type"] == "application/octet-stream"
            assert headers["content-disposition"].endswith(f'{"0" * 20}.{kind}"')
            assert headers["accept-ranges"] == "bytes"
            assert headers["cache-control"] == "private, no-cache"
            assert (headers["log-next-offset"], headers["log-high-watermark"]) == ("30", "31")
            assert answer.links["next"]["url"] == f"{LOG}/segments/30/{kind}"


async def test_the_listing_leads_to_every_file(api: Api) -> None:
    """The links of the list alone are enough to copy a log (D2, M5)."""
    await fill(api)
    segments = (await api.client.get(f"{LOG}/segments")).json()["segments"]
    bases = [segment["base_offset"] for segment in segments]
    assert bases == sorted(bases)
    assert [one["is_active"] for one in segments] == [False] * (len(bases) - 1) + [True]
    sizes = []
    for segment in segments:
        assert segment["files"]["txnindex"] is None
        for kind in KINDS:
            answer = await api.client.get(segment["files"][kind])
            assert answer.status_code == 200
            if kind == "log":
                sizes.append(len(answer.content))
    assert sizes == [segment["size_bytes"] for segment in segments]


async def test_what_is_given_up_has_no_links(api: Api) -> None:
    """A segment below the log start is listed until it is removed, and is not shown (D3)."""
    await fill(api)
    await api.client.post(f"{LOG}/delete-records", json={"before_offset": 30})
    segments = (await api.client.get(f"{LOG}/segments")).json()["segments"]
    assert [one["files"] is None for one in segments] == [True, False]
    answer = await api.client.get(FIRST)
    assert (answer.status_code, answer.json()["code"]) == (404, "segment_not_found")


@pytest.mark.parametrize(
    ("path", "status"),
    [("1/log", 404), ("99/index", 404), ("0/txnindex", 404), ("x/log", 400), ("0/snapshot", 400)],
)
async def test_what_is_not_there_is_not_found(api: Api, path: str, status: int) -> None:
    """Only its base offset names a segment, and only its own files are served (D3)."""
    await fill(api)
    assert (await api.client.get(f"{LOG}/segments/{path}")).status_code == status


async def test_a_download_ends_at_the_high_watermark(tmp_path: Path) -> None:
    """Appended, unflushed records are not in a download; after the flush they are (D1)."""
    async with running(tmp_path, commit_interval_ms=600_000) as api:
        await api.create()
        await fill(api, roll=False)
        before = (await api.client.get(FIRST)).content
        await api.client.post(f"{RECORDS}?acks=1", json={"records": [{"value": 1}]})
        assert (await api.client.get(FIRST)).content == before
        await api.client.post(f"{LOG}/flush")
        after = (await api.client.get(FIRST)).content
        assert after.startswith(before)
        assert len(after) > len(before)


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=10-1999", 10, 1999),
        ("BYTES= 10-19", 10, 19),
        ("bytes=100-", 100, -1),
        ("bytes=100-99999999999", 100, -1),
        ("bytes=-7", -7, -1),
        ("bytes=-99999999999", 0, -1),
    ],
)
async def test_a_range_is_that_part(tmp_path: Path, wanted: str, first: int, last: int) -> None:
    """One range, with an end, without one, or from the end, is 206 with exactly its bytes (D4)."""
    async with running(tmp_path, download_chunk_bytes=700) as api:
        await api.create()
        await fill(api)
        whole = stored(tmp_path)
        answer = await api.client.get(FIRST, headers={"range": wanted})
        start, end = first % len(whole), last % len(whole)
        assert answer.status_code == 206
        assert answer.content == whole[start : end + 1]
        assert answer.headers["content-range"] == f"bytes {start}-{end}/{len(whole)}"


@pytest.mark.parametrize(
    "wanted", ["bytes=0-1,5-6", "bytes=5-4", "bytes=-", "lines=1-2", "bytes=a-b", "bytes"]
)
async def test_what_is_no_single_range_gets_all(api: Api, wanted: str) -> None:
    """Several ranges, other units and malformed ones are ignored (D4)."""
    await fill(api)
    answer = await api.client.get(FIRST, headers={"range": wanted})
    assert answer.status_code == 200
    assert answer.content == (await api.client.get(FIRST)).content


@pytest.mark.parametrize("wanted", ["bytes=99999999-", "bytes=-0", "bytes=99999999-999999999"])
async def test_a_range_after_the_end_is_416(api: Api, wanted: str) -> None:
    """It has the true size, so that a client can ask again (D4)."""
    await fill(api)
    size = len((await api.client.get(FIRST)).content)
    answer = await api.client.get(FIRST, headers={"range": wanted})
    assert (answer.status_code, answer.json()["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{size}"


async def test_an_empty_file_is_an_empty_answer(api: Api) -> None:
    """A segment without a committed record has a log of no bytes, and no part of it (D4)."""
    for headers in ({}, {"range": "bytes=-5"}):
        answer = await api.client.get(FIRST, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-length"] == "0"
    assert (await api.client.get(FIRST, headers={"range": "bytes=0-"})).status_code == 416


async def test_a_file_that_the_client_has_is_not_sent_again(api: Api) -> None:
    """304 for its tag, in a list, weak or `*`; If-Match lets only the present tag in (D5, C5)."""
    await fill(api)
    etag = (await api.client.get(FIRST)).headers["etag"]
    assert etag.startswith('"')
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        answer = await api.client.get(FIRST, headers={"if-none-match": known})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
        assert answer.headers["cache-control"] == "private, no-cache"
    assert (await api.client.get(FIRST, headers={"if-none-match": '"x"'})).status_code == 200
    for expected, status in ((etag, 200), ("*", 200), (f"W/{etag}", 200), ('"x"', 412)):
        answer = await api.client.get(FIRST, headers={"if-match": expected})
        assert answer.status_code == status
    assert answer.json()["etag"] == etag


async def test_a_download_is_resumed_only_on_the_same_file(api: Api) -> None:
    """If-Range with another tag, or a date, gets the whole file instead of a wrong rest (D5)."""
    await fill(api)
    whole = await api.client.get(FIRST)
    part = {"range": "bytes=100-"}
    for condition, status in (
        (whole.headers["etag"], 206),
        (f"W/{whole.headers['etag']}", 200),
        ('"other"', 200),
        ("Sat, 21 Nov 2026 04:00:00 GMT", 200),
    ):
        answer = await api.client.get(FIRST, headers=part | {"if-range": condition})
        assert answer.status_code == status
        assert answer.content == whole.content[100 if status == 206 else 0 :]


async def test_compaction_changes_the_tag(api: Api) -> None:
    """The same name with other bytes has another tag, and the old one gets no 304 (D5)."""
    await api.create("kept", cleanup_policy="compact")
    path = "/v1/topics/kept/partitions/0"
    for _ in range(3):
        await api.append(1, 2, path=f"{path}/records", key="k")
    await api.client.post(f"{path}/roll")
    before = await api.client.get(f"{path}/segments/0/log")
    await api.client.post(f"{path}/compact")
    tag = before.headers["etag"]
    after = await api.client.get(f"{path}/segments/0/log", headers={"if-none-match": tag})
    assert after.status_code == 200
    assert after.headers["etag"] != tag
    assert 0 < len(after.content) < len(before.content)
    index = f"{path}/segments/0/index"
    tag = (await api.client.get(index)).headers["etag"]
    assert (await api.client.get(index, headers={"if-none-match": tag})).status_code == 304


async def test_truncation_changes_the_tag(api: Api) -> None:
    """As many bytes as before, written after a truncation, are another file (D5)."""
    await fill(api, roll=False)
    before = await api.client.get(FIRST)
    end = (await api.client.get(f"{LOG}/offsets")).headers["etag"]
    await api.client.post(f"{LOG}/truncate", json={"to_offset": 20}, headers={"if-match": end})
    await api.append(*["x" * 120] * 10)
    after = await api.client.get(FIRST)
    assert len(after.content) == len(before.content)
    assert after.content != before.content
    assert after.headers["etag"] != before.headers["etag"]


async def test_a_head_is_a_download_without_its_body(api: Api) -> None:
    """All headers of the whole file, for any range, and no bytes (D6)."""
    await fill(api)
    got = await api.client.get(FIRST)
    asked = await api.client.head(FIRST, headers={"range": "bytes=0-1"})
    assert (asked.status_code, asked.content) == (200, b"")
    assert dict(asked.headers) == dict(got.headers)


async def test_damage_is_never_downloaded(tmp_path: Path) -> None:
    """Damage at the start of the range is 500 with its place; intact data is sent (D7)."""
    async with running(tmp_path) as api:
        await api.create()
        await fill(api)
    whole = stored(tmp_path)
    batch_bytes = len(whole) // 3
    (tmp_path / "events-0" / log_name(0)).write_bytes(one_bit_flipped(whole))
    async with running(tmp_path, download_chunk_bytes=1) as api:
        damaged = {"range": f"bytes={batch_bytes + 1}-"}
        answer = await api.client.get(FIRST, headers=damaged)
        assert (answer.status_code, answer.json()["code"]) == (500, "stored_data_corrupt")
        assert answer.json()["position"] == batch_bytes
        for part in (f"bytes=0-{batch_bytes - 1}", f"bytes={2 * batch_bytes}-"):
            answer = await api.client.get(FIRST, headers={"range": part})
            assert answer.status_code == 206
            assert answer.content in whole


async def test_damage_after_the_start_of_a_range_closes_the_connection(tmp_path: Path) -> None:
    """The client gets the intact part and learns that it is incomplete (D7)."""
    async with running(tmp_path) as api:
        await api.create()
        await fill(api)
    whole = stored(tmp_path)
    (tmp_path / "events-0" / log_name(0)).write_bytes(one_bit_flipped(whole))

    def download() -> bytes:
        got: list[bytes] = []
        with (
            serving(tmp_path, download_chunk_bytes=1) as served,
            httpx.stream("GET", served.url + FIRST) as answer,
        ):
            assert answer.headers["content-length"] == str(len(whole))
            with pytest.raises(httpx.RemoteProtocolError):
                got.extend(answer.iter_raw())
        return b"".join(got)

    assert await asyncio.to_thread(download) == whole[: len(whole) // 3]


async def test_a_download_holds_one_piece_at_a_time(tmp_path: Path) -> None:
    """For any file length only a chunk is held.

    And nothing once the client has disconnected (D7).
    """
    async with (
        open_service(tmp_path, download_chunk_bytes=2000) as service,
        wired(service) as client,
    ):
        api = Api(service, client)
        await api.create()
        await fill(api, 20)
        held: list[int] = []
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            held.append(service.admission.answer_bytes)
            if len(held) == 5:
                gone.set()
                for _ in range(3):  # turns of the loop, until the watcher has seen it
                    await checkpoint()

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": FIRST,
            "raw_path": FIRST.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await compose(service)(scope, receive, send)
        assert max(held) <= 2000
        assert len(held) == 5
        assert service.admission.answer_bytes == 0


async def test_a_download_ends_where_its_key_expires(tmp_path: Path) -> None:
    """Before each piece the key is checked: the client is cut off, and the rest never leaves."""
    clock = ManualClock()
    key = create_key(tmp_path, "short", "read:*", "append:*", "admin:*", expires_ms=START_MS + 60)
    async with (
        open_service(tmp_path, clock=clock, download_chunk_bytes=2000) as service,
        wired(service) as client,
    ):
        client.headers.update(bearer(key))
        api = Api(service, client)
        await api.create(retention_ms="-1")
        await fill(api, 20)
        size_bytes = len(stored(tmp_path))
        async with listening(compose(service), FIRST, stalls_after=1, **bearer(key)) as download:
            clock.advance(60)
            download.takes.set()
            async with asyncio.timeout(60):
                await download.gone.wait()
            assert download.is_cut_off
    assert 0 < len(download.body) < size_bytes
    assert service.admission.requests == service.admission.answer_bytes == 0
