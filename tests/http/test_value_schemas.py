"""Value schemas over HTTP: put, read, deleted, and where they end."""

import base64
from pathlib import Path

import httpx
import pytest

from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

SCHEMA = "/v1/topics/events/value-schema"
AVRO = {"format": "avro", "definition": '{"type":"record","name":"Order","fields":[]}'}
PROTOBUF = {
    "format": "protobuf",
    "definition": base64.b64encode(b"descriptors").decode(),
    "message_type": "shop.v1.Order",
    "framing": "confluent",
}


async def has_schema(api: Api) -> bool:
    listed = (await api.client.get("/v1/topics")).json()["topics"]
    shown: bool = listed[0]["has_value_schema"]
    return shown


async def test_a_schema_is_put_replaced_read_and_deleted(api: Api) -> None:
    """201 for the first, 200 for the next; the list of topics says if there is one (T10)."""
    missing = await api.client.get(SCHEMA)
    assert (missing.status_code, missing.json()["code"]) == (404, "value_schema_not_found")
    assert not await has_schema(api)
    first = await api.client.put(SCHEMA, json=AVRO)
    shown = {**AVRO, "message_type": None, "framing": "none"}
    assert (first.status_code, first.json()) == (201, shown)
    second = await api.client.put(SCHEMA, json=PROTOBUF)
    assert (second.status_code, second.json()) == (200, PROTOBUF)
    assert (await api.client.get(SCHEMA)).json() == PROTOBUF
    assert await has_schema(api)
    assert (await api.client.delete(SCHEMA)).status_code == 204
    for method in ("GET", "DELETE"):
        assert (await api.client.request(method, SCHEMA)).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"format": "json"},
        {"definition": "{"},
        {"definition": ""},
        {"definition": "[" * 100_000},
        {"message_type": "Order"},
        {"framing": "glue"},
        {"format": "protobuf"},
        {**PROTOBUF, "message_type": "a..b"},
        {**PROTOBUF, "definition": "no base64"},
        {**PROTOBUF, "definition": "\N{GREEK SMALL LETTER ALPHA}==="},
        {"subject": "orders-value"},
    ],
)
async def test_what_is_no_schema_is_refused_and_the_old_one_stays(
    api: Api, change: dict[str, str]
) -> None:
    """With the member that is wrong."""
    await api.client.put(SCHEMA, json=PROTOBUF)
    refused = await api.client.put(SCHEMA, json={**AVRO, **change})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert (await api.client.get(SCHEMA)).json() == PROTOBUF


async def test_a_schema_outlives_the_service_and_ends_with_its_topic(tmp_path: Path) -> None:
    """A topic that is created again under the name starts without."""
    async with running(tmp_path) as api:
        await api.client.put("/v1/topics/events", json={})
        assert (await api.client.put(SCHEMA, json=AVRO)).status_code == 201
    async with running(tmp_path) as api:
        assert (await api.client.get(SCHEMA)).json()["definition"] == AVRO["definition"]
        await api.client.delete("/v1/topics/events")
        await api.client.put("/v1/topics/events", json={})
        assert (await api.client.get(SCHEMA)).status_code == 404
    async with running(tmp_path) as api:
        assert (await api.client.get(SCHEMA)).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_topic_that_is_not_there_has_no_schema(api: Api, method: str) -> None:
    """The topic is not created by it."""
    answer: httpx.Response = await api.client.request(
        method, "/v1/topics/nowhere/value-schema", json=AVRO if method == "PUT" else None
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_fields_that_the_console_hides_are_told_to_it(tmp_path: Path) -> None:
    """As they were set; the API has no other use for them."""
    masks = 'orders*:value.card["a b"] *:header.authorization'
    async with running(tmp_path, console_masked_fields=masks) as api:
        shown = (await api.client.get("/v1/caller")).json()["masked_fields"]
    assert shown == masks.rsplit(" ", 1)


async def test_a_document_that_is_there_is_not_replaced_by_adding_one(api: Api) -> None:
    """Whoever adds gets what is stored; the kinds of documents are apart."""
    documents = api.service.store.documents
    assert await documents.add("kind:a", {"n": 1}) == {"n": 1}
    assert await documents.add("kind:a", {"n": 2}) == {"n": 1}
    await documents.add("kindred:b", {"n": 3})
    assert documents.named("kind:") == {"a": {"n": 1}}
