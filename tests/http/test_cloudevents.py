"""The specification of CloudEvents 1.0.2, as a table: what is an event, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.service import Api

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/events/ingest"
EVENT = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
MINIMAL: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "made"}

VALID: dict[str, dict[str, Any]] = {
    "minimal": {},
    "unset optional attributes": dict.fromkeys(
        ["datacontenttype", "dataschema", "subject", "time", "anything"]
    ),
    "all attributes": {
        "datacontenttype": "application/vnd.x+json; charset=utf-8",
        "dataschema": "https://schemas.example/made/1#a%20b",
        "subject": "order 17",
        "time": "2026-11-26T22:00:00Z",
    },
    "time with nanoseconds": {"time": "2026-11-26T22:00:00.123456789Z"},
    "time with an offset": {"time": "2026-11-26t22:00:00-11:30"},
    "a leap second": {"time": "2016-12-31T23:59:60Z"},
    "source is a fragment": {"source": "#here"},
    "source is a URN": {"source": "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"},
    "source in another script": {"source": "/größe/日本"},
    "types of extensions": {"n": -2147483648, "yes": True, "text": "a", "bytes": "TWE="},
    "an empty extension": {"note": ""},
    "text data": {"data": "text", "datacontenttype": "text/plain"},
    "null data": {"data": None},
    "binary data": {"data_base64": "eyB9"},
    "Debezium's capitals": {"iodebeziumtxId": "742"},
    "version 0.3": {"specversion": "0.3", "schemaurl": "https://schemas.example/1"},
}

INVALID: dict[str, tuple[str, dict[str, Any]]] = {
    "no version": ("specversion", {"specversion": None}),
    "empty version": ("specversion", {"specversion": ""}),
    "unknown version": ("specversion", {"specversion": "0.9"}),
    "a number as version": ("specversion", {"specversion": 1.0}),
    "no id": ("id", {"id": None}),
    "empty id": ("id", {"id": ""}),
    "a number as id": ("id", {"id": 25}),
    "an object as id": ("id", {"id": {"a": "b"}}),
    "no type": ("type", {"type": None}),
    "empty type": ("type", {"type": ""}),
    "no source": ("source", {"source": None}),
    "empty source": ("source", {"source": ""}),
    "source with a space": ("source", {"source": "/my shop"}),
    "source with a broken escape": ("source", {"source": "/100%"}),
    "time is a word": ("time", {"time": "lunchtime"}),
    "time without seconds": ("time", {"time": "2018-04-05T18:31Z"}),
    "time without an offset": ("time", {"time": "2018-04-05T18:31:00"}),
    "offset is a letter": ("time", {"time": "2018-04-05T18:31:00X"}),
    "offset out of range": ("time", {"time": "2018-04-05T18:31:00+25:00"}),
    "offset without digits": ("time", {"time": "2018-04-05T18:31:00+xx:00"}),
    "offset of hours only": ("time", {"time": "2018-04-05T18:31:00+05"}),
    "a day that is none": ("time", {"time": "2023-02-29T18:31:00Z"}),
    "time is a number": ("time", {"time": 1523000000}),
    "empty time": ("time", {"time": ""}),
    "no media type": ("datacontenttype", {"datacontenttype": "xyz"}),
    "empty media type": ("datacontenttype", {"datacontenttype": ""}),
    "empty schema": ("dataschema", {"dataschema": ""}),
    "relative schema": ("dataschema", {"dataschema": "/made/1"}),
    "empty subject": ("subject", {"subject": ""}),
    "a number as key": ("partitionkey", {"partitionkey": 7}),
    "capitals": ("MyExtension", {"MyExtension": "bad"}),
    "capitals of our own names": ("ID", {"ID": "2"}),
    "a full stop": ("my.extension", {"my.extension": "bad"}),
    "an underscore": ("my_extension", {"my_extension": "bad"}),
    "no name": ("", {"": "bad"}),
    "a fraction": ("ratio", {"ratio": 1.5}),
    "more than 32 bits": ("n", {"n": 2147483648}),
    "an object as extension": ("o", {"o": {}}),
    "a list as extension": ("o", {"o": [1]}),
    "a line break": ("note", {"note": "a\nb"}),
    "data twice": ("data_base64", {"data": "text", "data_base64": "eyB9"}),
    "data that is no base64": ("data_base64", {"data_base64": "eyB9="}),
    "data that is no text": ("data_base64", {"data_base64": 5}),
}


def event(changed: dict[str, Any]) -> dict[str, Any]:
    """Return the minimal event with these members; a required one that is None is missing."""
    merged = {**MINIMAL, **changed}
    return {k: v for k, v in merged.items() if v is not None or k not in MINIMAL}


@pytest.mark.parametrize("changed", VALID.values(), ids=VALID)
async def test_what_the_specification_allows_is_stored(api: Api, changed: dict[str, Any]) -> None:
    """As it was sent, alone and in a batch."""
    sent = event(changed)
    answer = await api.client.post(INGEST, json=sent, headers=EVENT)
    assert (answer.status_code, answer.json().get("count")) == (200, 1), answer.text
    answer = await api.client.post(INGEST, json=[MINIMAL, sent], headers=BATCH)
    assert (answer.status_code, answer.json().get("count")) == (200, 2), answer.text


@pytest.mark.parametrize(("name", "changed"), INVALID.values(), ids=INVALID)
async def test_what_the_specification_forbids_is_refused_by_its_name(
    api: Api, name: str, changed: dict[str, Any]
) -> None:
    """Alone and in a batch, of which nothing is stored."""
    sent = event(changed)
    for body, kind, index in ((sent, EVENT, 0), ([MINIMAL, sent], BATCH, 1)):
        answer = await api.client.post(INGEST, content=json.dumps(body), headers=kind)
        assert answer.status_code == 422, answer.text
        assert [(e["index"], e["field"]) for e in answer.json()["errors"]] == [(index, name)]
    assert api.log("events").watermarks.log_end_offset == 0


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("ce-specversion", "2.0"),
        ("ce-id", ""),
        ("ce-source", "/my%20shop"),
        ("ce-time", "lunchtime"),
        ("ce-dataschema", "/made/1"),
        ("ce-subject", ""),
        ("ce-my-extension", "bad"),
    ],
)
async def test_a_header_that_breaks_the_specification_is_refused(
    api: Api, header: str, value: str
) -> None:
    """In binary mode, where the attributes are headers."""
    headers = {f"ce-{name}": text for name, text in MINIMAL.items()} | {header: value}
    answer = await api.client.post(INGEST, content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["header"]) == (400, header), answer.text


@pytest.mark.parametrize("partitions", [1, 2])
async def test_an_empty_batch_is_a_batch(api: Api, partitions: int) -> None:
    """Nothing is written, and nothing is wrong."""
    await api.create("wide", partitions=partitions)
    answer = await api.client.post("/v1/topics/wide/ingest", content=b" [ ]", headers=BATCH)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["offset"], answer.json()["count"]) == (0, 0)
    other = await api.client.post("/v1/topics/wide/ingest?split=array", json=[])
    assert other.status_code == 422


@pytest.mark.parametrize("body", [["none", MINIMAL], {}, "text"])
async def test_a_batch_of_something_else_is_refused(api: Api, body: object) -> None:
    """It is a list of objects."""
    answer = await api.client.post(INGEST, json=body, headers=BATCH)
    assert answer.status_code in {400, 422}, answer.text
