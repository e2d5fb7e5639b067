"""`filter=` and `last=`: only what a reader wants crosses the wire, and nothing is read twice."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import RECORDS, Api, running

pytestmark = pytest.mark.anyio

OF_7 = 'header.tenant = "7"'
TAIL = "/v1/topics/events/partitions/0/tail"


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """Ten batches of ten records; every tenth is tenant 7's."""
    async with running(tmp_path, inline_read_bytes=1 << 20) as api:
        await api.create()
        for first in range(0, 100, 10):
            await append(api, *range(first, first + 10))
        yield api


async def append(api: Api, *numbers: int, path: str = RECORDS) -> None:
    records = [
        {
            "key": f"k{n}",
            "value": {"n": n, "pad": "x" * 100},
            "headers": [{"key": "tenant", "value": str(n % 10)}],
        }
        for n in numbers
    ]
    answer = await api.client.post(path, json={"records": records})
    assert answer.status_code == 201, answer.text


async def read(api: Api, **parameters: str | int) -> dict[str, Any]:
    answer = await api.client.get(RECORDS, params=parameters)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def numbers(page: dict[str, Any]) -> list[int]:
    return [record["value"]["n"] for record in page["records"]]


async def test_a_page_has_what_the_filter_wants_and_says_where_to_go_on(api: Api) -> None:
    """Behind everything that was looked at, be it wanted or not (R18)."""
    page = await read(api, filter=OF_7)
    assert numbers(page) == list(range(7, 100, 10))
    assert page["next_offset"] == 100
    page = await read(api, filter="value/n >= 95 and not value/n = 97")
    assert numbers(page) == [95, 96, 98, 99]


async def test_max_records_counts_wanted_records(api: Api) -> None:
    """The page ends before the first one too many, so that none is left out."""
    page = await read(api, filter=OF_7, max_records=3)
    assert (numbers(page), page["next_offset"]) == ([7, 17, 27], 37)


async def test_max_bytes_bounds_what_is_looked_at(api: Api) -> None:
    """A page may be empty and have a next one; all pages together have everything."""
    found: list[int] = []
    sizes: list[int] = []
    url = f"{RECORDS}?offset=0&max_bytes=1&filter=header.tenant%20%3D%20%227%22"
    url += "%20and%20value%2Fn%20%3E%2050"
    offset = 0
    while offset < 100:
        answer = await api.client.get(url)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        sizes.append(len(page["records"]))
        found += numbers(page)
        assert page["next_offset"] > offset
        offset = page["next_offset"]
        url = answer.links["next"]["url"]
    assert found == [57, 67, 77, 87, 97]
    assert 0 in sizes


@pytest.mark.parametrize(
    "bound", [{"end_offset": 55}, {"offset": 45}, {"offset": 41, "end_offset": 48}]
)
async def test_a_filter_keeps_the_ends_of_a_read(api: Api, bound: dict[str, int]) -> None:
    """Also inside batches of which no record is wanted."""
    start, end = bound.get("offset", 0), bound.get("end_offset", 100)
    for expression, wanted in ((OF_7, range(7, 100, 10)), ('key = "none"', ())):
        page = await read(api, filter=expression, **bound)
        assert numbers(page) == [n for n in wanted if start <= n < end]
        assert page["next_offset"] == end


@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
async def test_compressed_records_are_filtered_too(api: Api, codec: str) -> None:
    """Whether the bytes can be looked at before they are decoded or not."""
    await api.create("packed", compression_type=codec)
    path = "/v1/topics/packed/partitions/0/records"
    for first in range(0, 3_000, 300):
        await append(api, *range(first, first + 300), path=path)
    answer = await api.client.get(path, params={"filter": 'key = "k777" or key = "k2999"'})
    assert [one["key"] for one in answer.json()["records"]] == ["k777", "k2999"]


async def test_every_way_of_reading_takes_a_filter(api: Api) -> None:
    """NDJSON, a stream, several partitions, and a topic."""
    wanted = list(range(7, 100, 10))
    for parameters in ({"format": "ndjson"}, {"format": "ndjson", "stream": "true"}):
        answer = await api.client.get(RECORDS, params={"filter": OF_7, **parameters})
        assert [json.loads(line)["value"]["n"] for line in answer.text.splitlines()] == wanted
    answer = await api.client.get(RECORDS, params={"filter": OF_7, "stream": "true"})
    assert numbers(answer.json()) == wanted
    body = {"partitions": [{"topic": "events", "partition": 0}], "filter": OF_7}
    (part,) = (await api.client.post("/v1/fetch", json=body)).json()["partitions"]
    assert (numbers(part), part["next_offset"]) == (wanted, 100)
    answer = await api.client.get("/v1/topics/events/records", params={"filter": OF_7})
    (part,) = answer.json()["partitions"]
    assert (numbers(part), answer.json()["is_at_end"]) == (wanted, True)


async def test_a_tail_sends_wanted_records_and_moves_past_the_others(api: Api) -> None:
    """An event `offsets` tells a client that resumes that it need not look again."""
    parameters = {"filter": "value/n = 98 or value/n = 100", "offset": "90"}
    seen: list[tuple[str, object]] = []
    async with api.client.stream("GET", TAIL, params=parameters) as tail:
        event = ""
        async for line in tail.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                seen.append((event, numbers(data) if event == "records" else data["next_offset"]))
                if seen[-1] == ("records", [98]):
                    await append(api, 200)
                    await append(api, 100)
                if seen[-1] == ("records", [100]):
                    break
    assert [one for one in seen if one[0] == "records"] == [("records", [98]), ("records", [100])]
    assert ("offsets", 101) in seen


async def test_equal_readers_with_other_filters_get_their_own_records(api: Api) -> None:
    """What is shared among readers of one moment is shared by the filter, too."""
    first = await read(api, filter=OF_7, offset=90)
    second = await read(api, filter='header.tenant = "8"', offset=90)
    plain = await read(api, offset=90)
    assert (numbers(first), numbers(second), len(numbers(plain))) == ([97], [98], 10)
    log_id = (await api.client.get(RECORDS)).headers["log-id"]
    fixed: dict[str, str] = {"offset": "0", "end_offset": "100", "log_id": log_id}
    tags = set()
    for expression in (OF_7, 'header.tenant = "8"'):
        answer = await api.client.get(RECORDS, params={**fixed, "filter": expression})
        tags.add(answer.headers["etag"])
        again = {"if-none-match": answer.headers["etag"]}
        known = await api.client.get(RECORDS, params={**fixed, "filter": expression}, headers=again)
        assert known.status_code == 304
    assert len(tags) == 2


@pytest.mark.parametrize(
    "url",
    [
        f"{RECORDS}?filter=key",
        f"{TAIL}?filter=key",
        "/v1/topics/events/records?filter=key",
        "/v1/topics/events/tail?filter=key",
        f"{RECORDS}?filter=key&stream=true",
    ],
)
async def test_a_filter_that_cannot_be_read_is_refused_everywhere(api: Api, url: str) -> None:
    """Before anything is read."""
    answer = await api.client.get(url)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert answer.json()["parameter"] == "filter"


async def test_batches_are_not_filtered(api: Api) -> None:
    """They are sent whole."""
    answer = await api.client.get("/v1/topics/events/partitions/0/batches?filter=key%3D1")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    body = {"partitions": [{"topic": "events", "partition": 0}], "filter": "key = 1"}
    answer = await api.client.post("/v1/fetch", json=body, headers={"accept": "multipart/mixed"})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


async def test_the_last_records_are_found_from_the_end(api: Api) -> None:
    """At most so many; the link goes on behind them (R19)."""
    answer = await api.client.get(RECORDS, params={"last": 3})
    assert numbers(answer.json()) == [97, 98, 99]
    assert "last=" not in answer.links["next"]["url"]
    assert (await api.client.get(answer.links["next"]["url"])).json()["records"] == []
    assert len(numbers(await read(api, last=1000, max_records=1000))) == 100
    answer = await api.client.get(RECORDS, params={"last": 3, "offset": 0})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    for wrong in ("0", "-1", "x", "100001"):
        assert (await api.client.get(RECORDS, params={"last": wrong})).status_code == 400
