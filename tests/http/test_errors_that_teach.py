"""An error says what to send instead, for people with curl and no documentation."""

from __future__ import annotations

import pytest

from tests.support.service import RECORDS, Api

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}


async def test_a_plain_object_is_answered_with_the_body_of_an_append(api: Api) -> None:
    """Most clients first send the event itself as the body."""
    answer = await api.client.post(RECORDS, json={"user": 1, "page": "/"})
    assert answer.status_code == 422
    assert 'send {"records": [{"value": …}]}' in answer.json()["detail"]


async def test_an_unknown_topic_is_answered_with_the_request_that_creates_it(api: Api) -> None:
    """The request works as it is shown."""
    unknown = RECORDS.replace("/events/", "/new/")
    answer = await api.client.post(unknown, json={"records": [{"value": 1}]})
    assert answer.status_code == 404
    assert "create it: " in answer.json()["detail"], answer.text
    advice = answer.json()["detail"].partition("create it: ")[2]
    assert advice == "PUT /v1/topics/new, Content-Type: application/json, body {}"
    created = await api.client.put("/v1/topics/new", headers=JSON, content=b"{}")
    assert created.status_code == 201
    again = await api.client.post(unknown, json={"records": [{"value": 1}]})
    assert again.is_success


@pytest.mark.parametrize(
    ("path", "wrong", "told"),
    [
        (RECORDS, "ofset=1", "did you mean offset?"),
        (RECORDS, "max_record=1", "did you mean max_records?"),
        ("/v1/topics/events/offsets", "timestmp=1", "did you mean timestamp?"),
        ("/v1/topics/events", "dry_run=true", "this operation takes no parameters"),
        ("/v1/topics", "zzz=1", "unknown parameter; the parameters are "),
    ],
    ids=lambda value: value.rpartition("/")[2][:20],
)
async def test_an_unknown_parameter_is_answered_with_the_closest_one(
    api: Api, path: str, wrong: str, told: str
) -> None:
    """Or with all of them, or with the news that there is none."""
    answer = await api.client.get(f"{path}?{wrong}")
    assert answer.status_code == 400
    problem = answer.json()
    name = wrong.partition("=")[0]
    assert f"query.{name}: " in problem["detail"]
    assert told in problem["errors"][0]["detail"]


@pytest.mark.parametrize("path", ["/v1/nothing", RECORDS + "?offset=-7", "/v1/topics/none"])
async def test_a_problem_ends_with_a_newline(api: Api, path: str) -> None:
    """The prompt of a shell is then on its own line."""
    answer = await api.client.get(path)
    assert answer.status_code >= 400
    assert answer.content.endswith(b"}\n")


@pytest.mark.parametrize("name", ["a b", "größe", "a%2Fb", "a" * 250, "a:b"])
async def test_an_impossible_name_is_not_advised_to_be_created(api: Api, name: str) -> None:
    """Its creation would be refused as well."""
    answer = await api.client.get(f"/v1/topics/{name}")
    assert answer.status_code == 404
    assert "create it" not in answer.json()["detail"]
    assert "no topic can have the name" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b" \n", "the body is empty: send JSON"),
        (
            b'{"value":1}\n{"value":2}\n',
            "application/x-ndjson, which curl sends with --data-binary",
        ),
        (b'{"value":1}{"value":2}', "application/x-ndjson, which curl sends with --data-binary"),
        (b'[{"value":1}] [2]', "the body is more than one JSON value"),
        (b'{"records":[{"value":1}', "it ends before its JSON does, after 23 bytes"),
        (b"\x1f\x8b\x08\x00", "send Content-Encoding: gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "send Content-Encoding: zstd"),
        ('{"records":[]}'.encode("utf-16"), "it is UTF-16"),
        (
            b"value=1",
            "the body is not JSON in UTF-8: JSON is malformed: invalid character (byte 0)",
        ),
    ],
)
async def test_a_body_that_is_no_json_is_told_why(api: Api, body: bytes, told: str) -> None:
    """In words of who sent it, not of the parser."""
    answer = await api.client.post(RECORDS, content=body, headers=JSON)
    assert answer.status_code == 400
    assert told in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "told"),
    [(b"", "the body is empty"), (b'{"partitions":', "it ends before its JSON does")],
)
async def test_the_body_of_an_administrative_operation_is_told_the_same(
    api: Api, body: bytes, told: str
) -> None:
    """They are parsed by another library."""
    answer = await api.client.put("/v1/topics/new", content=body, headers=JSON)
    assert answer.status_code == 400
    assert told in answer.json()["detail"]


async def test_a_truncation_inside_a_batch_names_both_ends(api: Api) -> None:
    """And a record that no answer can show names the limit: no name in braces is printed."""
    await api.append(0, 1, 2)
    log = "/v1/topics/events/partitions/0"
    etag = (await api.client.get(f"{log}/offsets")).headers["etag"]
    cut = await api.client.post(
        f"{log}/truncate", json={"to_offset": 1}, headers={"if-match": etag}
    )
    assert cut.status_code == 422
    assert cut.json()["detail"].endswith("truncate to 0 or 3")
