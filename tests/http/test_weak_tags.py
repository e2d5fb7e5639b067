"""A proxy that compresses responses makes their ETags weak: they count as the strong ones."""

from pathlib import Path

import pytest

from tests.http.test_lanes import JSON, LANES, ONE
from tests.support.builders import new_batch
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, Api, log_of, open_service

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events"
LOG = f"{TOPIC}/partitions/0"
CURSOR = "/v1/groups/lake/offsets/events/0"


@pytest.mark.parametrize("lane", LANES)
async def test_an_append_takes_the_tag_that_a_proxy_made_weak(tmp_path: Path, lane: str) -> None:
    """On every lane and for both kinds of append, it holds at its end of the log alone (A9, C5)."""
    async with open_service(tmp_path) as service, LANES[lane](service) as client:
        await client.put(TOPIC, json={})
        for path, headers, body in ((RECORDS, JSON, ONE), (BATCHES, RAW, bytes(new_batch(1)))):
            weak = {"if-match": f"W/{(await client.get(OFFSETS)).headers['etag']}"}
            first = await client.post(path, content=body, headers=headers | weak)
            second = await client.post(path, content=body, headers=headers | weak)
            assert (first.status_code, second.status_code) == (201, 412)
            assert second.json()["etag"] == first.headers["etag"]
        assert log_of(service).watermarks.log_end_offset == 2


async def test_an_immutable_page_is_known_by_its_weak_tag(tmp_path: Path) -> None:
    """If-None-Match on every lane, for records and batches (C5, R11)."""
    async with open_service(tmp_path) as service:
        async with LANES["slow"](service) as client:
            await client.put(TOPIC, json={})
            page = (await client.post(RECORDS, content=ONE, headers=JSON)).headers["location"]
        for lane in LANES.values():
            async with lane(service) as client:
                for path in (page, page.replace("/records?", "/batches?")):
                    etag = (await client.get(path)).headers["etag"]
                    again = await client.get(path, headers={"if-none-match": f"W/{etag}"})
                    assert (again.status_code, again.headers["etag"]) == (304, etag)


async def test_every_change_takes_the_tag_that_a_proxy_made_weak(api: Api) -> None:
    """Topics, group offsets and the log end: If-Match lets in, If-None-Match refuses (C5)."""
    await api.append(1, 2)
    await api.client.put(CURSOR, json={"offset": 0})
    changes = (
        (TOPIC, "PATCH", TOPIC, {"config": {"retention.ms": "1000000"}}),
        (CURSOR, "PUT", CURSOR, {"offset": 1}),
        (CURSOR, "DELETE", CURSOR, None),
        (OFFSETS, "POST", f"{LOG}/truncate", {"to_offset": 0}),
        (TOPIC, "DELETE", TOPIC, None),
    )
    for shown_at, method, path, body in changes:
        weak = f"W/{(await api.client.get(shown_at)).headers['etag']}"
        if not path.endswith("/truncate"):
            for unwanted in ({"if-none-match": weak}, {"if-match": f'{weak[:-1]}0"'}):
                answer = await api.client.request(method, path, json=body, headers=unwanted)
                assert answer.status_code == 412, (method, path, unwanted)
        answer = await api.client.request(method, path, json=body, headers={"if-match": weak})
        assert answer.status_code in {200, 204}, (method, path, answer.text)


@pytest.mark.parametrize("path", [TOPIC, CURSOR])
async def test_what_the_client_has_is_known_by_its_weak_tag(api: Api, path: str) -> None:
    """A GET through the proxy is 304, with the strong tag (C5)."""
    await api.client.put(CURSOR, json={"offset": 0})
    etag = (await api.client.get(path)).headers["etag"]
    answer = await api.client.get(path, headers={"if-none-match": f"W/{etag}"})
    assert (answer.status_code, answer.headers["etag"]) == (304, etag)


@pytest.mark.parametrize("form", ["w/{tag}", "W/ {tag}", "W/", "W/W/{tag}"])
async def test_only_the_prefix_of_rfc_9110_is_dropped(api: Api, form: str) -> None:
    """Other spellings are not ETags: 400, and nothing is written."""
    tag = (await api.client.get(OFFSETS)).headers["etag"]
    headers = JSON | {"if-match": form.format(tag=tag)}
    answer = await api.client.post(RECORDS, content=ONE, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert api.log().watermarks.log_end_offset == 0
