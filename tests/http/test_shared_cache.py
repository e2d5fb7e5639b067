"""A real shared cache in front of the service: protocol rule C4, with `deploy/nginx-cache.conf`."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.nginx import NAME, client_of, nginx
from tests.support.server import serving
from tests.support.service import BATCHES, OFFSETS, RECORDS

pytestmark = [pytest.mark.long, pytest.mark.needs("nginx")]

LOG = "/v1/topics/events/partitions/0"


@contextmanager
def cached(origin: str) -> Iterator[httpx.Client]:
    """A client of nginx in front of `origin`."""
    with nginx(origin) as socket, client_of(socket) as client:
        yield client


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[httpx.Client]:
    """A topic of one partition with a cache in front."""
    with (
        serving(tmp_path, cache_visibility="public", allowed_hosts=[NAME]) as served,
        cached(served.url) as client,
    ):
        client.put("/v1/topics/events", json={}).raise_for_status()
        yield client


def append(client: httpx.Client, *values: object, path: str = RECORDS, **more: object) -> str:
    """Append records; return the URL that reads exactly them."""
    records = [{"value": value, **more} for value in values]
    answer = client.post(path, json={"records": records}).raise_for_status()
    return answer.headers["location"]


def get(client: httpx.Client, path: str, **headers: str) -> tuple[str, httpx.Response]:
    """What became of the request in the cache, and the answer."""
    answer = client.get(path, headers={"accept-encoding": "identity"} | headers)
    return answer.headers.get("x-cache", "not asked"), answer


def values(answer: httpx.Response) -> list[Any]:
    return [record["value"] for record in answer.raise_for_status().json()["records"]]


def test_what_is_immutable_is_answered_by_the_cache(cache: httpx.Client) -> None:
    """A second reader gets the same bytes and tag without a request to the service (C4)."""
    append(cache, 1)
    page = append(cache, *range(500))
    append(cache, 2)
    for path in (page, page.replace("/records?", "/batches?")):
        first, second = get(cache, path), get(cache, path)
        assert (first[0], second[0]) == ("MISS", "HIT")
        assert first[1].status_code == second[1].status_code == 200
        assert first[1].content == second[1].content
        assert first[1].headers["etag"] == second[1].headers["etag"]
        known = get(cache, path, **{"if-none-match": first[1].headers["etag"]})
        assert (known[0], known[1].status_code) == ("HIT", 304)
        head = cache.head(path, headers={"accept-encoding": "identity"})
        assert head.headers["etag"] == first[1].headers["etag"]


def test_a_part_of_kept_batches_is_answered_by_the_cache(cache: httpx.Client) -> None:
    """Batches are the same bytes for ever, so that a cache may cut them as it likes."""
    path = append(cache, *range(500)).replace("/records?", "/batches?")
    whole = get(cache, path)[1].content
    status, part = get(cache, path, range="bytes=10-19")
    assert (status, part.status_code, part.content) == ("HIT", 206, whole[10:20])


def test_private_pages_are_not_kept(tmp_path: Path) -> None:
    """Unless the operator sets `public`, the service responds to every reader."""
    with serving(tmp_path, allowed_hosts=[NAME]) as served, cached(served.url) as client:
        client.put("/v1/topics/events", json={}).raise_for_status()
        page = append(client, 1)
        assert [get(client, page)[0] for _ in range(3)] == ["MISS"] * 3


@pytest.mark.parametrize(
    "query", ["", "?offset=0", "?offset=earliest&max_records=9", "?offset=0&log_id={id}"]
)
def test_the_tail_is_never_stale(cache: httpx.Client, query: str) -> None:
    """A read that ended because data ran out shows the next record as soon as it is written."""
    log_id = cache.get("/v1/topics/events/offsets").json()["partitions"][0]["log_id"]
    path = RECORDS + query.replace("{id}", log_id)
    for count in range(4):
        status, answer = get(cache, path)
        assert (status, values(answer)) == ("MISS", list(range(count)))
        assert get(cache, OFFSETS)[1].json()["high_watermark"] == count
        append(cache, count)


def test_readers_who_wait_do_not_wait_for_each_other(cache: httpx.Client) -> None:
    """Long polls of one URL are all answered by the next commit."""
    path = f"{RECORDS}?offset=0&max_wait_ms=30000"
    with ThreadPoolExecutor(5) as readers:
        waiting = [readers.submit(get, cache, path) for _ in range(4)]
        append(cache, "now")
        assert [values(reader.result(20)[1]) for reader in waiting] == [["now"]] * 4


def test_a_log_that_was_made_again_is_not_hidden(cache: httpx.Client) -> None:
    """The old log's pages stay under its own log_id; all other URLs show the new log."""
    old_page = append(cache, "old", "old")
    assert values(get(cache, old_page)[1]) == ["old", "old"]
    next_page = get(cache, f"{old_page}&max_records=1")[1].links["next"]["url"]
    cache.delete("/v1/topics/events").raise_for_status()
    assert get(cache, RECORDS)[1].status_code == 404
    cache.put("/v1/topics/events", json={}).raise_for_status()
    new_page = append(cache, "new", "new")
    assert values(get(cache, new_page)[1]) == ["new", "new"]
    assert values(get(cache, RECORDS)[1]) == ["new", "new"]
    status, answer = get(cache, old_page)
    assert (status, values(answer)) == ("HIT", ["old", "old"])
    for path in (next_page, old_page.replace("end_offset=2", "end_offset=1")):
        for _ in range(2):
            answer = get(cache, path)[1]
            assert (answer.status_code, answer.json()["code"]) == (409, "log_replaced")


def test_a_log_that_was_truncated_is_not_hidden(cache: httpx.Client) -> None:
    """Other records under the offsets that were cut are read under another log_id."""
    kept, cut = append(cache, "kept"), append(cache, "cut")
    for page in (kept, cut):
        get(cache, page)
    end = cache.get(OFFSETS).headers["etag"]
    body = {"to_offset": 1}
    cache.post(f"{LOG}/truncate", json=body, headers={"if-match": end}).raise_for_status()
    instead = append(cache, "instead")
    assert instead != cut
    assert values(get(cache, instead)[1]) == ["instead"]
    assert values(get(cache, f"{RECORDS}?offset=0")[1]) == ["kept", "instead"]
    uncached = cut.replace("/records?", "/batches?")
    assert get(cache, uncached)[1].json()["code"] == "log_replaced"


def test_each_reader_gets_what_it_accepts(cache: httpx.Client) -> None:
    """Types and codings of one URL are kept side by side and never given to the wrong reader."""
    page = append(cache, *["some value"] * 200)
    wishes = [
        {"accept": accept, "accept-encoding": coding}
        for accept in ("application/json", "application/x-ndjson")
        for coding in ("identity", "gzip", "zstd")
    ]
    for expected in ("MISS", "HIT"):
        tags = set()
        for wish in wishes:
            with cache.stream("GET", page, headers=wish) as answer:
                body = b"".join(answer.iter_raw())
            assert answer.headers["x-cache"] == expected
            assert answer.headers["content-type"] == wish["accept"]
            coding = answer.headers.get("content-encoding", "identity")
            assert coding == wish["accept-encoding"]
            if coding == "identity" and wish["accept"].endswith("/json"):
                assert len(json.loads(body)["records"]) == 200
            tags.add(answer.headers["etag"])
        assert len(tags) == len(wishes)


def test_files_of_segments_are_asked_for_again(cache: httpx.Client) -> None:
    """A file that compaction replaced under its name is not served from the cache."""
    cache.put("/v1/topics/kept", json={"config": {"cleanup.policy": "compact"}})
    log = "/v1/topics/kept/partitions/0"
    for _ in range(5):
        append(cache, "x" * 100, path=f"{log}/records", key="k")
    cache.post(f"{log}/roll").raise_for_status()
    path = f"{log}/segments/0/log"
    status, before = get(cache, path)
    assert status == "not asked"
    tag = before.headers["etag"]
    assert get(cache, path, **{"if-none-match": tag})[1].status_code == 304
    assert get(cache, path, **{"if-range": tag, "range": "bytes=5-9"})[1].status_code == 206
    cache.post(f"{log}/compact").raise_for_status()
    for headers in ({}, {"if-none-match": tag}, {"if-range": tag, "range": "bytes=5-9"}):
        after = get(cache, path, **headers)[1]
        assert after.status_code == 200
        assert len(after.content) < len(before.content)
        assert after.headers["etag"] != tag


def test_errors_are_not_kept(cache: httpx.Client) -> None:
    """A page that is not there yet is there once it is written."""
    log_id = cache.get("/v1/topics/events/offsets").json()["partitions"][0]["log_id"]
    path = f"{BATCHES}?offset=1&end_offset=2&log_id={log_id}"
    assert get(cache, path)[1].json()["code"] == "offset_beyond_log_end"
    append(cache, 1, 2)
    answer = get(cache, path)[1]
    assert answer.status_code == 200
    assert answer.content
