"""Pages of all partitions of a topic: protocol rule F6."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.codecs.paging import encode_token
from engine.errors import StoredDataCorrupt
from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

PARTITIONS = 3
TOPIC = "/v1/topics/events"
PAGES = f"{TOPIC}/records"


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service with a topic `events` of three partitions."""
    async with running(tmp_path, max_fetch_partitions=PARTITIONS + 1) as api:
        await api.create(partitions=PARTITIONS, retention_ms="-1")
        yield api


async def put(api: Api, partition: int, *values: object) -> None:
    await api.append(*values, path=f"{TOPIC}/partitions/{partition}/records")


async def page(api: Api, **parameters: object) -> dict[str, Any]:
    answer = await api.client.get(PAGES, params={k: str(v) for k, v in parameters.items()})
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    body: dict[str, Any] = answer.json()
    return body


def values(body: dict[str, Any]) -> dict[int, list[object]]:
    return {
        one["partition"]: [record["value"] for record in one["records"]]
        for one in body["partitions"]
    }


async def test_page_by_page_every_record_comes_once_and_in_order(api: Api) -> None:
    """However small the pages are; then the token waits for more, of added partitions too (F6)."""
    for number in range(20):
        await put(api, number % PARTITIONS, number)
    seen: dict[int, list[object]] = {number: [] for number in range(PARTITIONS + 1)}
    body = await page(api, max_records=3)
    while True:
        for partition, found in values(body).items():
            seen[partition] += found
        if body["is_at_end"]:
            break
        body = await page(api, max_records=3, page_token=body["next_page_token"])
    assert seen == {0: [*range(0, 20, 3)], 1: [*range(1, 20, 3)], 2: [*range(2, 20, 3)], 3: []}
    token = body["next_page_token"]
    assert values(await page(api, page_token=token)) == {}
    await api.client.patch(TOPIC, json={"partitions": PARTITIONS + 1})
    await put(api, 1, "more")
    await put(api, 3, "new")
    assert values(await page(api, page_token=token)) == {1: ["more"], 3: ["new"]}


async def test_a_page_within_the_byte_budget_says_that_there_is_more(api: Api) -> None:
    """One whole batch is returned whatever its size, so that a reader advances (F2)."""
    for number in range(PARTITIONS):
        await put(api, number, "x" * 100)
    pages = 0
    token: dict[str, object] = {}
    while True:
        body = await page(api, max_bytes=1, **token)
        assert len(body["partitions"]) == 1
        pages, token = pages + 1, {"page_token": body["next_page_token"]}
        if body["is_at_end"]:
            break
    assert pages == PARTITIONS


async def test_a_first_page_starts_where_it_is_asked_to(api: Api) -> None:
    """At the end, or at a time, in each partition; offsets can be strings (F6)."""
    await api.append("old", path=f"{TOPIC}/partitions/0/records", timestamp=1788000000000)
    body = await page(api, offset="latest")
    await api.append("new", path=f"{TOPIC}/partitions/0/records", timestamp=1788000005000)
    assert values(await page(api, page_token=body["next_page_token"])) == {0: ["new"]}
    assert values(await page(api, offset="ts:1788000001000")) == {0: ["new"]}
    answer = await api.client.get(PAGES, params={"offsets": "string"})
    assert answer.headers["content-type"] == "application/json;offsets=string"
    assert answer.json()["partitions"][0]["next_offset"] == "2"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_tokens_that_do_not_fit_the_topic_are_refused(api: Api) -> None:
    """Malformed ones, those of other partitions, and those of a topic made again (F6)."""
    token = (await page(api))["next_page_token"]
    topic_id = api.service.topic("events").topic_id
    for text in ("", topic_id, f"{topic_id};", f"{topic_id};0.0:x", f"{topic_id};0.0:0,7.0:0"):
        answer = await api.client.get(PAGES, params={"page_token": encode_token(text)})
        assert refusal(answer) == (400, "malformed_request"), text
    truncated = encode_token(f"{topic_id};0.1:0")
    answer = await api.client.get(PAGES, params={"page_token": truncated})
    assert refusal(answer) == (409, "log_replaced")
    await api.client.delete(TOPIC)
    await api.create(partitions=PARTITIONS, retention_ms="-1")
    answer = await api.client.get(PAGES, params={"page_token": token})
    assert refusal(answer) == (409, "log_replaced")


async def test_a_partition_that_cannot_be_read_fails_the_page(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its problem: removed records, unless the reader skips them, and damage (F6)."""
    await put(api, 1, "removed")
    await put(api, 1, "kept")
    token = encode_token(f"{api.service.topic('events').topic_id};0.0:0,1.0:0,2.0:0")
    where = f"{TOPIC}/partitions/1/delete-records"
    await api.client.post(where, json={"before_offset": 1})
    answer = await api.client.get(PAGES, params={"page_token": token})
    assert refusal(answer) == (410, "offset_below_log_start")
    body = await page(api, page_token=token, on_out_of_range="earliest")
    assert values(body) == {1: ["kept"]}

    def damaged(*_: object) -> None:
        raise StoredDataCorrupt("damaged", file="f", position=0, offset=1)

    monkeypatch.setattr("app.operations.read.fetch_many.render_records", damaged)
    assert refusal(await api.client.get(PAGES)) == (500, "stored_data_corrupt")


async def test_a_topic_with_too_many_partitions_is_refused(api: Api) -> None:
    """The limit is that of fetchMany and is named (F5)."""
    await api.create("wide", partitions=PARTITIONS + 2)
    answer = await api.client.get("/v1/topics/wide/records")
    assert (*refusal(answer), answer.json()["limit"]) == (413, "too_large", "max_fetch_partitions")
