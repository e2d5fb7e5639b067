"""The document's links lead on: each is followed from a real answer to the next request."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.api.application import document_text
from tests.support.builders import DATA, SMALL_INDEXES, new_batch
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import RAW, Api, open_service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

SECOND = Path("/second")
DOCUMENT: dict[str, Any] = json.loads(document_text())
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}
SOURCES = [
    (name, status)
    for name, (_, _, operation) in OPERATIONS.items()
    for status, response in operation["responses"].items()
    if "links" in response
]
BODIES = {
    # The names in the document's example do not exist here.
    "movePartition": {"directory": str(DATA)},
    "deleteRecords": {"before_offset": -1},
    "truncateLog": {"to_offset": 0},
    "planSplits": {},
    "putGroupOffset": {"offset": 0},
}
PRODUCER = {"producer-id": "7", "producer-epoch": "0", "producer-sequence": "0"}


@pytest.fixture
async def api(anyio_backend: str) -> AsyncIterator[Api]:
    """A service with two data directories in memory, whose tails soon end."""
    disk = ForgetfulDisk()
    for directory in (DATA, SECOND):
        disk.make_directory(directory, parents=True)
    disk.sync_directory(Path("/"))
    settings: dict[str, Any] = {
        "default_topic_config": dict(SMALL_INDEXES),
        "more_data_directories": (SECOND,),
        "max_tail_ms": 10,
        "offsets_topic_partitions": 1,
    }
    async with (
        open_service(DATA, fs=disk, **settings) as service,
        wired(service) as client,
    ):
        yield Api(service, client)


def url_of(path: str, values: Mapping[str, object]) -> str:
    return path.format(**{name: quote(str(value), safe="") for name, value in values.items()})


async def ask(api: Api, name: str, values: Mapping[str, object], **more: Any) -> httpx.Response:
    method, path, _ = OPERATIONS[name]
    return await api.client.request(method, url_of(path, values), **more)


async def answer_of(
    api: Api, name: str, status: str, values: Mapping[str, object], config: dict[str, str]
) -> httpx.Response:
    """Make the operation respond with this status, for a new topic."""
    topic = await ask(api, "putTopic", values, json={"config": config})
    if name == "putTopic":
        return topic if status == "201" else await ask(api, name, values, json={"config": config})
    record = {"records": [{"key": "k", "value": 1}]}
    if name == "appendBatches":
        batch = bytes(new_batch(2, producer_id=7, producer_epoch=0, base_sequence=0))
        more: dict[str, Any] = {"content": batch, "headers": RAW}
    elif name == "appendRecords":
        more = {"json": record, "headers": PRODUCER}
    else:
        await ask(api, "appendRecords", values, json=record)
        more = {}
        if name == "putGroupOffset":
            more = {"json": {"offset": 0}}
        elif name == "movePartition":
            here = api.log(str(values["topic"])).directory.parent
            elsewhere = SECOND if here == DATA else DATA
            return await ask(
                api, name, values, json={"directory": str(here if status == "200" else elsewhere)}
            )
    answer = await ask(api, name, values, **more)
    return await ask(api, name, values, **more) if answer.status_code != int(status) else answer


def evaluated(expression: Any, values: Mapping[str, object], answer: httpx.Response) -> Any:
    """The value of a runtime expression (OpenAPI 3.1), or a constant."""
    kind, _, rest = str(expression).partition(".")
    if kind == "$request":
        return values[rest.removeprefix("path.")]
    if kind == "$response":
        if rest.startswith("header."):
            return answer.headers[rest.removeprefix("header.")]
        found: Any = answer.json()
        for step in rest.removeprefix("body#/").split("/"):
            found = found[int(step) if isinstance(found, list) else step]
        return found
    return expression


async def followed(
    api: Api, link: Mapping[str, Any], values: Mapping[str, object], answer: httpx.Response
) -> httpx.Response:
    """Return the response to a link's request; parameters without a value are the example's."""
    name = link["operationId"]
    taken: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for parameter, expression in link["parameters"].items():
        place, _, parameter_name = parameter.partition(".")
        taken[place][parameter_name] = evaluated(expression, values, answer)
    body, headers = b"", dict(taken["header"])
    wanted = OPERATIONS[name][2].get("requestBody")
    if wanted is not None:
        media_type, described = next(iter(wanted["content"].items()))
        headers["content-type"] = media_type
        if media_type == RAW["content-type"]:
            body = bytes(new_batch(1))
        else:
            body = json.dumps(BODIES.get(name, described.get("example"))).encode()
    return await ask(api, name, taken["path"], params=taken["query"], headers=headers, content=body)


async def test_every_link_of_an_answer_leads_to_a_success(api: Api) -> None:
    """The values that the document takes from a response for the next request are in it."""
    for name, status in SOURCES:
        links = OPERATIONS[name][2]["responses"][status]["links"]
        for target, link in links.items():
            topic = f"{name}.{status}.{target}"
            values = {"topic": topic, "partition": 0, "group": f"group of {topic}"}
            config = {"cleanup.policy": "compact"} if target == "compactLog" else {}
            answer = await answer_of(api, name, status, values, config)
            assert answer.status_code == int(status), (topic, answer.text)
            next_answer = await followed(api, link, values, answer)
            assert next_answer.is_success, (topic, next_answer.text)
