"""Topics over HTTP: protocol rules T1 to T7."""

import resource
from pathlib import Path

import pytest

from app.operations.topics import LISTED_TOGETHER
from tests.support.service import Api, running

pytestmark = pytest.mark.anyio


async def test_a_new_topic_is_created_and_the_same_again_is_verified(api: Api) -> None:
    """PUT answers 201 for a new topic and 200 for the same one, with the same id."""
    body = {"partitions": 3, "config": {"retention.ms": "-1", "segment.bytes": 1048576}}
    first = await api.client.put("/v1/topics/flights", json=body)
    again = await api.client.put("/v1/topics/flights", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.headers["location"] == "/v1/topics/flights"
    assert first.json()["config"]["segment.bytes"] == {"value": "1048576", "source": "topic"}
    assert first.json()["config"]["segment.ms"]["source"] == "default"


@pytest.mark.parametrize("other", [{"partitions": 2}, {"config": {"retention.ms": 1}}])
async def test_a_topic_that_differs_is_a_conflict(api: Api, other: dict[str, object]) -> None:
    """PUT with other partitions or another configuration is 409 with the existing values."""
    answer = await api.client.put("/v1/topics/events", json=other)
    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["code"], problem["kafka_error_code"]) == ("topic_conflict", 36)
    assert problem["partitions"] == 1


async def test_create_only_refuses_a_topic_that_exists(api: Api) -> None:
    """With If-None-Match: * a topic that exists is 412, the same or another, a new one 201 (T1)."""
    headers = {"if-none-match": "*"}
    for wanted in ({}, {"partitions": 9}):
        exists = await api.client.put("/v1/topics/events", json=wanted, headers=headers)
        assert (exists.status_code, exists.json()["code"]) == (412, "precondition_failed")
    new = await api.client.put("/v1/topics/fresh", json={}, headers=headers)
    assert new.status_code == 201


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"partitions": 0}, 422, "invalid_request"),
        ({"partitions": 20_000}, 422, "invalid_request"),
        ({"partitions": "many"}, 422, "invalid_request"),
        ({"wrong": 1}, 422, "invalid_request"),
        ({"config": {"no.such.key": 1}}, 422, "invalid_config"),
        ({"config": {"segment.bytes": "tiny"}}, 422, "invalid_config"),
    ],
)
async def test_a_wrong_topic_is_refused(
    api: Api, body: dict[str, object], status: int, code: str
) -> None:
    """An impossible topic is 422, and no topic is created."""
    answer = await api.client.put("/v1/topics/wrong", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await api.client.get("/v1/topics/wrong")).status_code == 404


async def test_a_body_that_is_not_json_is_malformed(api: Api) -> None:
    """A body that cannot be parsed is 400, one nested without end too."""
    headers = {"content-type": "application/json"}
    for body in (b"{", b"[" * 100_000):
        answer = await api.client.put("/v1/topics/x", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


async def test_a_topic_is_described(api: Api) -> None:
    """GET returns id, partitions and the effective configuration (T2)."""
    topic = (await api.client.get("/v1/topics/events")).json()
    assert (topic["topic"], topic["partitions"], topic["adopted"]) == ("events", 1, False)
    assert len(topic["topic_id"]) == 22


async def test_configuration_is_merged_and_partitions_grow(api: Api) -> None:
    """PATCH sets and removes keys at once and adds partitions, and never takes one away (T4)."""
    patch = {"partitions": 2, "config": {"retention.ms": "5"}}
    answer = await api.client.patch("/v1/topics/events", json=patch)
    assert answer.json()["config"]["retention.ms"] == {"value": "5", "source": "topic"}
    assert api.log("events", 1).config.retention_ms == 5
    removed = await api.client.patch(
        "/v1/topics/events",
        json={"config": {"retention.ms": None}},
        headers={"content-type": "application/merge-patch+json"},
    )
    assert removed.json()["config"]["retention.ms"]["source"] == "default"
    fewer = await api.client.patch("/v1/topics/events", json={"partitions": 1})
    assert (fewer.status_code, fewer.json()["code"]) == (422, "invalid_request")


async def test_a_deleted_topic_is_gone_and_can_be_made_again(api: Api) -> None:
    """After DELETE nothing of a topic is served; its successor is another log (T5)."""
    await api.append(1)
    before = (await api.client.get("/v1/topics/events")).json()["topic_id"]
    assert (await api.client.delete("/v1/topics/events")).status_code == 204
    gone = await api.client.get("/v1/topics/events/partitions/0/records")
    assert (gone.status_code, gone.json()["code"]) == (404, "topic_not_found")
    assert (await api.client.delete("/v1/topics/events")).status_code == 404
    await api.create()
    assert (await api.client.get("/v1/topics/events")).json()["topic_id"] != before
    assert (await api.append(2))["base_offset"] == 0


async def test_topics_are_listed_page_by_page(api: Api) -> None:
    """Pages continue where the last one ended, by name, without internal topics. As (T6) says."""
    for name in ("a1", "a2", "a3"):
        await api.create(name)
    listed = await api.client.get("/v1/topics", params={"prefix": "a", "page_size": 2})
    page = listed.json()
    assert [topic["topic"] for topic in page["topics"]] == ["a1", "a2"]
    token = page["next_page_token"]
    rest = await api.client.get("/v1/topics", params={"prefix": "a", "page_token": token})
    assert [topic["topic"] for topic in rest.json()["topics"]] == ["a3"]
    assert rest.json()["next_page_token"] is None


async def test_a_made_up_page_token_is_malformed(api: Api) -> None:
    """A token that no list answer gave is 400."""
    answer = await api.client.get("/v1/topics", params={"page_token": "%%%"})
    assert (answer.status_code, answer.json()["parameter"]) == (400, "page_token")


async def test_partitions_are_described(api: Api) -> None:
    """Each partition has its offsets, bytes, segments, epoch and producers."""
    await api.append(1, 2)
    partition = (await api.client.get("/v1/topics/events/partitions/0")).json()
    listed = (await api.client.get("/v1/topics/events/partitions")).json()
    assert listed == {"topic": "events", "partitions": [partition], "offline_partitions": []}
    assert (partition["log_end_offset"], partition["segments"]) == (2, 1)
    assert partition["size_bytes"] > 0
    missing = await api.client.get("/v1/topics/events/partitions/7")
    assert (missing.status_code, missing.json()["code"]) == (404, "partition_not_found")


async def test_no_more_partitions_are_made_than_files_may_be_opened(api: Api) -> None:
    """Too many open files would end all writing: 422 names the limit, and nothing is made (T7)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_000), hard))
    try:
        many = await api.client.put("/v1/topics/many", json={"partitions": 500})
        grown = await api.client.patch("/v1/topics/events", json={"partitions": 500})
        few = await api.client.put("/v1/topics/few", json={"partitions": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for refused in (many, grown):
        assert (refused.status_code, refused.json()["limit"]) == (422, "open_files")
    assert few.status_code == 201
    assert (await api.client.get("/v1/topics/many")).status_code == 404
    assert (await api.client.get("/v1/topics/events")).json()["partitions"] == 1


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_partitions_that_rest_are_reckoned_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a start each has one file open and may come to need five: creation is limited by that.

    A start that finds more than may be opened logs a warning, and serves them.
    """
    async with running(tmp_path) as api:
        await api.client.put("/v1/topics/many", json={"partitions": 300})
    assert "ulimit -n" not in caplog.text
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_500), hard))
    try:
        async with running(tmp_path) as api:
            assert open_files() < 600
            assert "ulimit -n" in caplog.text
            refused = await api.client.put("/v1/topics/more", json={"partitions": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (refused.status_code, refused.json()["limit"]) == (422, "open_files")


async def test_a_listed_topic_has_its_overrides_and_its_etag(api: Api) -> None:
    """A change can be bound to what the list showed (T8)."""
    for number in range(LISTED_TOGETHER + 1):
        await api.create(f"t{number}", retention_ms="1000")
    listed = (await api.client.get("/v1/topics?prefix=t")).json()["topics"]
    assert len(listed) == LISTED_TOGETHER + 1
    for entry in listed[:2]:
        url = f"/v1/topics/{entry['topic']}"
        assert entry["overrides"] == {"retention.ms": "1000"}
        assert entry["etag"] == (await api.client.get(url)).headers["etag"]
        headers = {"if-match": entry["etag"]}
        change = {"config": {"retention.ms": "2000"}}
        assert (await api.client.patch(url, json=change, headers=headers)).status_code == 200
        assert (await api.client.patch(url, json=change, headers=headers)).status_code == 412


async def test_topics_of_other_programs_may_begin_with_two_underscores(api: Api) -> None:
    """Debezium's heartbeats do; only Kafka's own names are reserved."""
    name = "__debezium-heartbeat.shop"
    await api.create(name)
    answer = await api.client.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1}]})
    assert answer.status_code == 201
    listed = (await api.client.get("/v1/topics")).json()["topics"]
    assert name in [topic["topic"] for topic in listed]
    reserved = await api.client.put("/v1/topics/__transaction_state", json={})
    assert reserved.status_code == 422
    assert "is reserved" in reserved.json()["detail"]
