"""Every parameter of every operation, by the document: odd numbers and path tricks do no harm."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from app.api.application import document_text
from tests.support.service import OFFSETS, RECORDS, Api

pytestmark = pytest.mark.anyio

VALUES = {
    "topic": "events",
    "partition": "0",
    "group": "readers",
    "worker": "w",
    "name": "s",
    "base_offset": "0",
    "kind": "log",
    "producer_id": "0",
    "sequence": "0",
    "signal": "logs",
    "id": "0",
    "token": "tli_0",
}

NO_NUMBERS = {
    "an underscore": "1_0",
    "a sign": "%2B1",
    "a space before": "%201",
    "a space behind": "1%20",
    "a line feed behind": "1%0A",
    "digits of another script": "%EF%BC%91",
    "what only looks like a digit": "%C2%B2",
    "a fraction": "1.0",
    "an exponent": "1e0",
    "hexadecimal": "0x1",
    "a word": "nan",
    "beyond every integer": "9" * 5_000,
}

TRICKS = {
    "parents": "..%2F..%2Fetc%2Fpasswd",
    "parents for another system": "..%5C..%5Cetc",
    "parents encoded twice": "%252e%252e%252fetc",
    "an absolute path": "%2Fetc%2Fpasswd",
    "a directory of this one": "%2E%2Fevents-0",
    "the name of a partition's directory": "events-0%00",
    "NUL": "%00",
    "an end of line": "a%0D%0Aset-cookie:%20x",
    "no UTF-8": "%FF%FE",
    "an overlong slash": "..%C0%AF..",
    "a lone surrogate": "%ED%A0%80",
    "a name without end": "a" * 5_000,
    "right to left": "%E2%80%AE",
    "a tilde": "~root",
    "a half escape": "%2",
}


IN_SHORT = {"an underscore", "what only looks like a digit", "beyond every integer"}
IN_SHORT |= {"parents", "NUL", "no UTF-8"}


def each(texts: dict[str, str]) -> list[Any]:
    """A test for each text; but for the most telling ones they take their time."""
    return [
        pytest.param(text, id=name, marks=() if name in IN_SHORT else pytest.mark.long)
        for name, text in texts.items()
    ]


class Place(NamedTuple):
    """A parameter, and the operation that takes it."""

    operation: dict[str, Any]
    method: str
    path: str
    parameter: dict[str, Any]

    @property
    def name(self) -> str:
        name: str = self.parameter["name"]
        return name

    @property
    def is_number(self) -> bool:
        schema: dict[str, Any] = self.parameter["schema"]
        return any(one.get("type") == "integer" for one in (schema, *schema.get("anyOf", ())))

    def url(self, text: str) -> str:
        """The operation's URL with this text, as it is, for the parameter."""
        values = dict(VALUES)
        query = ""
        if self.parameter["in"] == "path":
            values[self.name] = text
        else:
            query = f"?{self.name}={text}"
        return self.path.format(**values) + query


def places() -> Iterator[Place]:
    """Every parameter that is in a path or a query."""
    for path, operations in json.loads(document_text())["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] in {"path", "query"}:
                    yield Place(operation, method, path, parameter)


PLACES = tuple(places())


async def ask(api: Api, place: Place, text: str) -> httpx.Response:
    """Send the request, with a body that it would take if the parameter were right."""
    content = place.operation.get("requestBody", {}).get("content", {})
    no_body: tuple[str | None, dict[str, Any]] = (None, {})
    media_type, body = next(iter(content.items()), no_body)
    headers = {} if media_type is None else {"content-type": media_type}
    sent = body.get("example")
    return await api.client.request(
        place.method.upper(),
        place.url(text),
        headers=headers,
        content=None if sent is None else json.dumps(sent),
    )


def state_of(api: Api) -> tuple[set[str], int]:
    """What could have been changed: which topics there are, and where the log ends."""
    names = {str(path.name) for path in api.service.settings.data_directory.iterdir()}
    return names, api.log().watermarks.log_end_offset


@pytest.mark.parametrize("text", each(NO_NUMBERS))
async def test_a_number_has_one_spelling_everywhere(api: Api, text: str) -> None:
    """Numbers that Python would parse and other languages would not are refused everywhere (E3)."""
    numbers = [place for place in PLACES if place.is_number]
    assert len(numbers) > 40
    before = state_of(api)
    for place in numbers:
        answer = await ask(api, place, text)
        is_for_proxies = "kafka-rest-v2" in place.operation["tags"]
        where = (place.operation["operationId"], place.name, answer.text)
        if place.parameter["in"] == "path" and is_for_proxies:
            assert answer.status_code == 404, where  # not a number, so not a partition
            is_digits = re.fullmatch("-?[0-9]+", text) is not None
            assert answer.json()["error_code"] == (40402 if is_digits else 404), where
        else:
            assert answer.status_code == 400, where
            member = "error_code" if is_for_proxies else "code"
            assert answer.json()[member] in {400, "malformed_request"}, where
    assert state_of(api) == before
    assert (await api.append("after"))["count"] == 1


async def test_no_operation_passes_over_a_parameter_it_does_not_know(api: Api) -> None:
    """`?dry_rum` must not delete anything: 400, and nothing is done (E3)."""
    for path, operations in json.loads(document_text())["paths"].items():
        if not path.startswith("/v1/") or "/ingest/" in path or path.endswith("/ingest"):
            continue  # senders append what they like to the URL that they were given
        for method, operation in operations.items():
            place = Place(operation, method, path, {"name": "bogus", "in": "query"})
            answer = await ask(api, place, "1")
            where = (operation["operationId"], answer.text)
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), where
            assert "bogus" in answer.text, where
    assert (await api.append("after"))["base_offset"] == 0
    assert (await api.client.get("/livez?bogus=1")).status_code == 200


@pytest.mark.parametrize("text", ["yes", "on", "t", "TRUE", "True", "0", "2", "%20true"])
async def test_a_boolean_has_two_spellings_everywhere(api: Api, text: str) -> None:
    """Only `true` and `false` are accepted (E3)."""
    flags = [
        place
        for place in PLACES
        if place.parameter["schema"].get("type") == "boolean"
        and "kafka-rest-v2" not in place.operation["tags"]
    ]
    assert {place.name for place in flags} == {"dry_run", "explain", "stream"}
    for place in flags:
        answer = await ask(api, place, text)
        where = (place.operation["operationId"], place.name, answer.text)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), where
        assert "`true` or `false`" in answer.json()["detail"], where
        for known in ("true", "false"):
            assert (await ask(api, place, known)).status_code in {200, 201, 415}, where


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/topics/events/partitions/0/delete-records", {"before_offset": True}),
        ("/v1/topics/events/partitions/0/truncate", {"to_offset": True}),
        ("/v1/topics/events/splits", {"start": False}),
        ("/v1/fetch", {"partitions": [{"topic": "events", "partition": False}]}),
    ],
)
async def test_a_boolean_is_not_an_offset(api: Api, path: str, body: dict[str, Any]) -> None:
    """A boolean is not accepted as an offset: 422, and nothing is deleted."""
    await api.append("first", "second")
    before = api.log().watermarks
    tag = (await api.client.get(OFFSETS)).headers["etag"]
    condition = {"if-match": tag} if path.endswith("truncate") else {}
    answer = await api.client.post(path, json=body, headers=condition)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert api.log().watermarks == before


@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_a_number_may_be_written_at_length(api: Api, prefix: str) -> None:
    """Thousands of leading zeros are read, or not, but cost no answer."""
    path = f"{prefix}/topics/events/partitions/{'0' * 5_000}1/records?offset=0"
    assert (await api.client.get(path)).status_code == 404


@pytest.mark.parametrize("text", each(TRICKS))
async def test_no_text_leads_anywhere_else(api: Api, text: str) -> None:
    """Names that would be paths, or no names at all, are refused or mean themselves, everywhere."""
    before = state_of(api)
    for place in PLACES:
        if place.is_number:
            continue
        answer = await ask(api, place, text)
        where = (place.operation["operationId"], place.name, answer.status_code, answer.text)
        assert answer.status_code < 500, where
        if place.name in {"topic", "kind"}:
            refused = {400, 404, 422} | ({401} if "{token}" in place.path else set())
            assert answer.status_code in refused, where
        assert "set-cookie" not in answer.headers, where
        assert b"root:" not in answer.content, where
    groups = {name for name in state_of(api)[0] if name.startswith("__consumer_offsets-")}
    names, end = state_of(api)
    assert (names - groups, end) == before
    assert (await api.client.get(RECORDS)).status_code == 200
    assert (await api.append("after"))["count"] == 1
