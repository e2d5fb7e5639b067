"""Texts, names, numbers and times at every boundary, into and out of each format."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from app.api.rest_v2.media import JSON_V2
from tests.support.boundaries import LONE_SURROGATES, NAMES, NO_NAMES, NUMBERS, TEXTS, TIMES_MS
from tests.support.events import tailing
from tests.support.service import RECORDS, Api, running

pytestmark = pytest.mark.anyio

EVERYTHING = f"{RECORDS}?max_bytes=10000000"
AS_JSON = {"content-type": "application/json"}
WHERE_TEXT_MAY_BE = [
    '{"records":[{"value":"%s"}]}',
    '{"records":[{"key":"%s","value":1}]}',
    '{"records":[{"value":1,"headers":[{"key":"%s","value":"1"}]}]}',
    '{"records":[{"value":1,"headers":[{"key":"h","value":"%s"}]}]}',
    '{"records":[{"value":{"%s":1}}]}',
]


@pytest.fixture(params=[False, True], ids=["as UTF-8", "as escapes"])
async def filled(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A record for each text: its key, its value, a field's name, a header's name and value."""
    async with running(tmp_path) as api:
        await api.create()
        for text in TEXTS.values():
            headers = [{"key": text, "value": text}]
            record = {"key": text, "value": {text: text}, "headers": headers}
            body = json.dumps({"records": [record]}, ensure_ascii=request.param)
            answer = await api.client.post(RECORDS, content=body.encode(), headers=AS_JSON)
            assert answer.status_code == 201, answer.text
        yield api


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_texts_come_back_as_json(filled: Api, accept: str) -> None:
    """To the character: nothing is normalised, escaped twice or left out."""
    answer = await filled.client.get(EVERYTHING, headers={"accept": accept})
    if accept.endswith("/json"):
        records = answer.json()["records"]
    else:
        lines = map(json.loads, answer.iter_lines())  # ends lines at U+2028, too
        records = [one for one in lines if "key" in one]
    for text, record in zip(TEXTS.values(), records, strict=True):
        assert (record["key"], record["value"]) == (text, {text: text})
        assert [(one["key"], one["value"]) for one in record["headers"]] == [(text, text)]


async def test_texts_come_back_as_arrow(filled: Api) -> None:
    """The same bytes, in its binary columns."""
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    answer = await filled.client.get(EVERYTHING, headers=accept)
    rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    for text, row in zip(TEXTS.values(), rows, strict=True):
        assert (row["key"], json.loads(row["value"])) == (text.encode(), {text: text})
        assert row["headers"] == [{"key": text, "value": text.encode()}]


async def test_texts_come_back_from_the_proxies_interface(filled: Api) -> None:
    """A key that is not JSON becomes a string; an empty key is null, as in other proxies."""
    url = "/topics/events/partitions/0/records?offset=0&max_bytes=10000000"
    answer = await filled.client.get(url, headers={"accept": JSON_V2.decode()})
    for text, record in zip(
        TEXTS.values(), json.loads(answer.content, parse_float=str), strict=True
    ):
        assert (record["key"], record["value"]) == (text or None, {text: text})


async def test_texts_are_told_by_a_tail(filled: Api) -> None:
    """One line of data for each event, whatever a lenient client takes for an end of line."""
    told: list[str] = []
    async with tailing(filled, "offset=0") as tail:
        while len(told) < len(TEXTS):
            event = await tail.next()
            told += [one["key"] for one in event.data.get("records", [])]
    assert told == list(TEXTS.values())
    lines = tail.body.decode().splitlines()
    assert all(
        line.startswith(("data: ", "id: ", "event: ", "retry: ", ":")) for line in lines if line
    )


async def test_numbers_keep_each_digit(api: Api) -> None:
    """JSON numbers are stored as text, not as what a program's float makes of them."""
    for number in NUMBERS:
        body = f'{{"records":[{{"value":{number}}}]}}'
        answer = await api.client.post(RECORDS, content=body, headers=AS_JSON)
        assert answer.status_code == 201, answer.text
    page = (await api.client.get(EVERYTHING)).text
    assert [one.split(",")[0] for one in page.split('"value":')[1:]] == list(NUMBERS)


@pytest.mark.parametrize("body", WHERE_TEXT_MAY_BE)
@pytest.mark.parametrize("text", LONE_SURROGATES)
async def test_half_a_surrogate_pair_is_refused_by_name(api: Api, body: str, text: str) -> None:
    """No Unicode text holds it, so no record with it could be read as JSON."""
    answer = await api.client.post(RECORDS, content=body % text, headers=AS_JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert "half of a surrogate pair" in answer.json()["detail"]


@pytest.mark.parametrize("time_ms", TIMES_MS.values(), ids=TIMES_MS)
async def test_times_are_kept_or_refused(api: Api, time_ms: int) -> None:
    """From 1970 on, and as far ahead as the topic allows; a reader may ask for any of them."""
    await api.create("far", message_timestamp_after_max_ms=2**63 - 1, retention_ms=-1)
    records = RECORDS.replace("events", "far")
    body = {"records": [{"value": 1, "timestamp": time_ms}]}
    answer = await api.client.post(records, json=body)
    assert answer.status_code == (201 if time_ms >= 0 else 422), answer.text
    assert (await api.client.post(RECORDS, json=body)).status_code in {201, 422}
    if time_ms >= 0:
        (found,) = (await api.client.get(f"{records}?offset=ts:{time_ms}")).json()["records"]
        assert found["timestamp"] == time_ms


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_names_of_topics_and_groups_are_taken_as_they_are(api: Api, name: str) -> None:
    """In the URL, in listings and in answers."""
    answer = await api.client.put(f"/v1/topics/{name}", json={})
    assert (answer.status_code, answer.json()["topic"]) == (201, name)
    receipt = await api.append(1, path=RECORDS.replace("events", name))
    assert receipt["topic"] == name
    listed = (await api.client.get("/v1/topics")).json()["topics"]
    assert name in [one["topic"] for one in listed]
    group = f"/v1/groups/{name}/offsets"
    assert (await api.client.put(f"{group}/{name}/0", json={"offset": 1})).status_code == 201
    assert (await api.client.get(group)).json()["offsets"][0]["topic"] == name


@pytest.mark.parametrize("name", NO_NAMES.values(), ids=NO_NAMES)
async def test_other_names_are_refused(api: Api, name: str) -> None:
    """With a problem document, and nothing is made."""
    before = (await api.client.get("/v1/topics")).json()
    answer = await api.client.put(f"/v1/topics/{quote(name, safe='')}", json={})
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await api.client.get("/v1/topics")).json() == before
