"""Group offsets over HTTP: protocol rules G1 to G8."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from app.operations.service import Service
from app.settings import Settings
from app.store.local.group_offsets import OFFSETS_TOPIC, decode_key, decode_value
from app.store.port import CursorKey
from engine.records.batch import BatchView
from engine.records.scan import iter_headers
from engine.types import TopicPartition
from schemas.groups import GroupLag, GroupList, GroupOffset, GroupOffsetList
from tests.support.service import Api, local, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

CURSOR = "/v1/groups/lake/offsets/events/0"


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service whose offsets topic has few partitions, and ten records."""
    # Nothing is committed in time that is not asked for.
    async with running(tmp_path, offsets_topic_partitions=3, commit_interval_ms=600_000) as api:
        await api.create(partitions=2)
        await api.append(*range(10))
        yield api


async def put(
    api: Api, offset: int, url: str = CURSOR, headers: dict[str, str] | None = None, **more: object
) -> httpx.Response:
    return await api.client.put(url, json={"offset": offset, **more}, headers=headers)


async def stored(api: Api, url: str = CURSOR) -> Any:
    answer = await api.client.get(url)
    assert answer.status_code == 200, answer.text
    return answer.json()["offset"]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_an_offset_is_stored_and_found(api: Api) -> None:
    """The first put is 201, the next 200; metadata and time are returned too. As (G1) says."""
    first = await put(api, 4, leader_epoch=0, metadata="run 17")
    assert first.status_code == 201
    assert (await put(api, 5, leader_epoch=0, metadata="run 18")).status_code == 200
    found = await api.client.get(CURSOR)
    cursor = GroupOffset.model_validate_json(found.content)
    assert (cursor.group, cursor.topic, cursor.partition) == ("lake", "events", 0)
    assert (cursor.offset, cursor.leader_epoch, cursor.metadata) == (5, 0, "run 18")
    assert cursor.commit_timestamp is not None
    assert cursor.commit_timestamp <= api.service.clock.now_ms()
    assert found.headers["cache-control"] == "no-store"
    assert (await put(api, 0, "/v1/groups/lake/offsets/events/1")).json()["leader_epoch"] is None


async def test_offsets_outlive_a_restart(tmp_path: Path) -> None:
    """Acknowledged offsets and deletions are present again, with the same tag."""
    async with running(tmp_path, offsets_topic_partitions=3) as api:
        await api.create(partitions=2)
        tag = (await put(api, 0, metadata="kept")).headers["etag"]
        await put(api, 0, CURSOR.replace("lake", "other"))
        await api.client.delete(CURSOR.replace("lake", "other"))
    async with running(tmp_path) as api:
        again = await api.client.get(CURSOR)
        assert (again.json()["metadata"], again.headers["etag"]) == ("kept", tag)
        assert (await api.client.get("/v1/groups")).json()["groups"] == ["lake"]


async def test_the_offsets_topic_is_kafkas(api: Api) -> None:
    """Compacted, with Kafka's segment size, and a broker could read its records (G8)."""
    await put(api, 7, metadata="m")
    topic = api.local.manager.topic(OFFSETS_TOPIC)
    assert dict(topic.overrides) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "4194304",
    }
    log = api.log(OFFSETS_TOPIC, abs(hash_of_lake()) % 3)
    fetched = log.reader.read(0, max_bytes=1000)
    assert fetched is not None
    ((position, _),) = iter_headers(fetched.data)
    (record,) = BatchView(fetched.data, position).records()
    assert record.key is not None
    assert record.value is not None
    assert decode_key(record.key) == CursorKey("lake", "events", 0)
    assert decode_value(record.value).offset == 7


def hash_of_lake() -> int:
    """Java's `"lake".hashCode()`, spelled out."""
    return ord("l") * 31**3 + ord("a") * 31**2 + ord("k") * 31 + ord("e")


async def test_a_put_can_be_bound_to_what_is_stored(api: Api) -> None:
    """If-Match takes the tag, If-None-Match: * requires that none is stored.

    Else 412 with the present tag. As (G2) says.
    """
    created = await put(api, 1, headers={"if-none-match": "*"})
    tag = created.headers["etag"]
    assert refusal(await put(api, 2, headers={"if-none-match": "*"})) == (
        412,
        "precondition_failed",
    )
    refused = await put(api, 2, headers={"if-match": '"0-99"'})
    assert (refusal(refused), refused.json()["etag"]) == ((412, "precondition_failed"), tag)
    moved = await put(api, 2, headers={"if-match": f'"x", {tag}'})
    assert (moved.status_code, await stored(api)) == (200, 2)
    assert refusal(await put(api, 3, headers={"if-match": tag}))[0] == 412
    assert (await put(api, 3, headers={"if-match": "*"})).status_code == 200
    other = CURSOR.replace("lake", "other")
    assert refusal(await put(api, 3, other, {"if-match": "*"}))[0] == 412
    assert refusal(await put(api, 3, headers={"if-match": "untagged"})) == (
        400,
        "malformed_request",
    )


async def test_of_two_conditional_puts_one_wins(api: Api) -> None:
    """Both are sent at once with the same tag: the second is judged by the first."""
    tag = (await put(api, 1)).headers["etag"]
    answers = await asyncio.gather(*(put(api, n, headers={"if-match": tag}) for n in (2, 3)))
    assert sorted(answer.status_code for answer in answers) == [200, 412]


async def test_the_first_puts_may_come_at_once(api: Api) -> None:
    """Each finds no offsets topic; it is made once and all are stored."""
    answers = await asyncio.gather(
        *(put(api, 1, f"/v1/groups/{group}/offsets/events/0") for group in "abc")
    )
    assert [answer.status_code for answer in answers] == [201, 201, 201]


async def test_a_put_outlives_the_deletion_before_it(api: Api) -> None:
    """Sent together, they are processed in order: deleted, then stored again."""
    await put(api, 1)
    gone, stored_anew = await asyncio.gather(api.client.delete(CURSOR), put(api, 2))
    assert (gone.status_code, stored_anew.status_code) == (204, 201)
    assert await stored(api) == 2


async def test_a_get_can_be_conditional(api: Api) -> None:
    """304 while the tag is the stored one's, without a body; a put changes it."""
    tag = (await put(api, 1)).headers["etag"]
    for known in (tag, f'"x", W/{tag}'):
        same = await api.client.get(CURSOR, headers={"if-none-match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    await put(api, 1)
    assert (await api.client.get(CURSOR, headers={"if-none-match": tag})).status_code == 200


async def test_an_offset_is_deleted(api: Api) -> None:
    """204, then it is not found; conditions work for deletions too."""
    tag = (await put(api, 1)).headers["etag"]
    refused = await api.client.delete(CURSOR, headers={"if-match": '"0-99"'})
    assert (refusal(refused), await stored(api)) == ((412, "precondition_failed"), 1)
    gone = await api.client.delete(CURSOR, headers={"if-match": tag})
    assert (gone.status_code, gone.content) == (204, b"")
    for answer in (await api.client.get(CURSOR), await api.client.delete(CURSOR)):
        assert refusal(answer) == (404, "group_offset_not_found")
    assert refusal(await api.client.get("/v1/groups/lake/offsets")) == (404, "group_not_found")
    assert (await put(api, 1)).status_code == 201


async def test_an_offset_is_somewhere_in_its_log(api: Api) -> None:
    """The log end is the highest offset that can be stored; below the log start is allowed.

    As (G3) says.
    """
    assert (await put(api, 10)).status_code == 201
    beyond = await put(api, 11)
    assert refusal(beyond) == (416, "offset_beyond_log_end")
    assert beyond.json()["log_end_offset"] == 10
    await api.client.post(
        "/v1/topics/events/partitions/0/delete-records", json={"before_offset": 5}
    )
    assert (await put(api, 2)).status_code == 200


@pytest.mark.parametrize(
    "body",
    [{}, {"offset": -1}, {"offset": 2**63}, {"offset": 1, "leader_epoch": 2**31}, {"offset": "x"}],
)
async def test_a_body_that_is_no_cursor_is_refused(api: Api, body: dict[str, object]) -> None:
    """422 names the field, and nothing is stored."""
    refused = await api.client.put(CURSOR, json=body)
    assert refusal(refused) == (422, "invalid_request")
    assert refusal(await api.client.get(CURSOR)) == (404, "group_offset_not_found")


async def test_cursors_are_only_kept_for_partitions_that_are_there(api: Api) -> None:
    """An unknown topic or partition is 404, an internal topic is as unknown as any."""
    for place in ("nowhere/0", "events/2", f"{OFFSETS_TOPIC}/0"):
        answer = await put(api, 0, f"/v1/groups/lake/offsets/{place}")
        assert answer.status_code == 404
    assert refusal(await put(api, 0, "/v1/groups/lake/offsets/events/2"))[1] == (
        "partition_not_found"
    )


async def test_names_and_notes_have_limits(tmp_path: Path) -> None:
    """Longer or unprintable ones are refused; an encoded slash is part of a group's name.

    As (G4) says.
    """
    async with running(tmp_path, offsets_topic_partitions=1, max_group_metadata_bytes=4) as api:
        await api.create()
        for name in ("x" * 256, "line%0Abreak", "%7F", "%FF", "%2E", "%2e%2E"):
            refused = await put(api, 0, f"/v1/groups/{name}/offsets/events/0")
            assert refusal(refused) == (422, "invalid_request")
        large = await put(api, 0, metadata="fünf")
        assert refusal(large) == (413, "too_large")
        assert large.json()["limit"] == "max_group_metadata_bytes"
        assert (await put(api, 0, metadata="four")).status_code == 201
        slashed = await put(api, 0, "/v1/groups/a%2Fb%20c/offsets/events/0")
        assert slashed.json()["group"] == "a/b c"
        assert (await api.client.get("/v1/groups/a%2fb%20c/offsets")).status_code == 200


async def test_the_number_of_cursors_is_bounded(tmp_path: Path) -> None:
    """One more group or offset than the limit is refused by its name; those there still move."""
    async with running(
        tmp_path,
        offsets_topic_partitions=1,
        max_groups=2,
        max_group_offsets=3,
        max_offsets_per_group=2,
    ) as api:
        await api.create(partitions=9)
        await put(api, 0)
        await put(api, 0, "/v1/groups/other/offsets/events/0")
        refused = await put(api, 0, "/v1/groups/third/offsets/events/0")
        assert (refusal(refused), refused.json()["limit"]) == (
            (422, "policy_violation"),
            "max_groups",
        )
        await put(api, 0, "/v1/groups/lake/offsets/events/1")
        refused = await put(api, 0, "/v1/groups/other/offsets/events/1")
        assert refused.json()["limit"] == "max_group_offsets"
        await api.client.delete("/v1/groups/other/offsets/events/0")
        refused = await put(api, 0, "/v1/groups/lake/offsets/events/2")
        assert refused.json()["limit"] == "max_offsets_per_group"
        assert (await put(api, 0)).status_code == 200
        assert (await put(api, 0, "/v1/groups/third/offsets/events/0")).status_code == 201


async def test_groups_and_their_offsets_are_listed_page_by_page(api: Api) -> None:
    """By name, and by topic and partition; a token continues after the page (G5)."""
    await api.create("alpha")
    for group in ("b", "a", "c"):
        await put(api, 0, f"/v1/groups/{group}/offsets/events/1")
    await put(api, 0, "/v1/groups/a/offsets/events/0")
    await put(api, 0, "/v1/groups/a/offsets/alpha/0")
    names: list[str] = []
    token: str | None = ""
    while token is not None:
        query = {"page_size": "2"} | ({"page_token": token} if token else {})
        page = (await api.client.get("/v1/groups", params=query)).json()
        names += GroupList.model_validate(page).groups
        token = page["next_page_token"]
    assert names == ["a", "b", "c"]
    url = "/v1/groups/a/offsets"
    first = (await api.client.get(url, params={"page_size": 2})).json()
    GroupOffsetList.model_validate(first)
    assert [(one["topic"], one["partition"]) for one in first["offsets"]] == [
        ("alpha", 0),
        ("events", 0),
    ]
    rest = (await api.client.get(url, params={"page_token": first["next_page_token"]})).json()
    assert [one["partition"] for one in rest["offsets"]] == [1]
    assert rest["next_page_token"] is None
    for token in ("?", "YQ=="):
        wrong = await api.client.get(url, params={"page_token": token})
        assert refusal(wrong) == (400, "malformed_request")


async def test_compaction_keeps_what_is_stored(tmp_path: Path) -> None:
    """The last record of each cursor stays in its place, and with it the ETag; deletions too."""
    async with running(tmp_path, offsets_topic_partitions=1) as api:
        await api.create()
        for number in range(20):
            await put(api, 0, metadata=str(number))
        tag = (await api.client.get(CURSOR)).headers["etag"]
        await put(api, 0, CURSOR.replace("lake", "other"))
        await api.client.delete(CURSOR.replace("lake", "other"))
        log = api.log(OFFSETS_TOPIC)
        before = log.reader.size_bytes
        log.roll()
        await api.service.workers.administer(lambda: api.local.runtime.cleaner.clean_now(log))
        assert log.reader.size_bytes < before / 4
    async with running(tmp_path) as api:
        found = await api.client.get(CURSOR)
        assert (found.json()["metadata"], found.headers["etag"]) == ("19", tag)
        assert (await api.client.get("/v1/groups")).json()["groups"] == ["lake"]


async def test_lag_is_what_is_left_to_read(api: Api) -> None:
    """Against the high watermark or the last stable offset; what retention took was missed (G6)."""
    await put(api, 4)
    await put(api, 0, "/v1/groups/lake/offsets/events/1")
    await api.client.post(
        "/v1/topics/events/partitions/0/delete-records", json={"before_offset": 6}
    )
    lag = (await api.client.get("/v1/groups/lake/lag")).json()
    GroupLag.model_validate(lag)
    assert lag["total_lag"] == 4
    assert lag["max_lag_ms"] == lag["partitions"][0].pop("lag_ms") >= 0
    assert lag["partitions"][0] == {
        "topic": "events",
        "partition": 0,
        "offset": 4,
        "log_start_offset": 6,
        "end_offset": 10,
        "lag": 4,
        "missed": 2,
    }
    committed = await api.client.get("/v1/groups/lake/lag?isolation=read_committed")
    assert TypeAdapter(GroupLag).validate_json(committed.content).total_lag == 4
    assert refusal(await api.client.get("/v1/groups/none/lag")) == (404, "group_not_found")


async def test_a_deleted_topic_takes_its_cursors_along(api: Api) -> None:
    """A topic created again under the name has no cursors; other topics keep theirs (G7)."""
    await api.create("kept")
    await put(api, 9)
    await put(api, 0, "/v1/groups/lake/offsets/kept/0")
    await api.client.delete("/v1/topics/events")
    left = (await api.client.get("/v1/groups/lake/offsets")).json()["offsets"]
    assert [one["topic"] for one in left] == ["kept"]
    await api.create()
    assert refusal(await api.client.get(CURSOR)) == (404, "group_offset_not_found")


async def test_cursors_that_a_crash_left_are_deleted_before_the_name_is_reused(
    api: Api,
) -> None:
    """A new topic never has the cursors of an earlier topic of that name."""
    await put(api, 9)
    api.local.manager.delete_topic("events")  # and here the process would have died
    api.service.forget("events")
    lag = (await api.client.get("/v1/groups/lake/lag")).json()
    assert (lag["partitions"][0]["lag"], lag["total_lag"]) == (None, 0)
    await api.create()
    assert refusal(await api.client.get(CURSOR)) == (404, "group_offset_not_found")


async def test_clients_do_not_reach_the_offsets_topic_by_name(api: Api) -> None:
    """Not listed, not described, not read, not appended to, not configured."""
    await put(api, 1)
    log = f"/v1/topics/{OFFSETS_TOPIC}/partitions/0"
    get, post = api.client.get, api.client.post
    names = [one["topic"] for one in (await get("/v1/topics")).json()["topics"]]
    assert names == ["events"]
    for answer in (
        await get(f"/v1/topics/{OFFSETS_TOPIC}"),
        await get(f"/v1/topics/{OFFSETS_TOPIC}/partitions"),
        await get(f"{log}/records"),
        await get(f"{log}/offsets"),
        await post(f"{log}/records", json={"records": [{"value": 1, "key": "k"}]}),
        await post(f"/v1/topics/{OFFSETS_TOPIC}/records", json={"records": [{"value": 1}]}),
        await post(f"{log}/delete-records", json={"before_offset": -1}),
    ):
        assert refusal(answer) == (404, "topic_not_found")
    assert (await api.client.delete(f"/v1/topics/{OFFSETS_TOPIC}")).status_code == 422
    assert await stored(api) == 1


async def test_what_is_not_on_disk_is_not_found(tmp_path: Path) -> None:
    """A cursor that was not flushed does not count, although the next put is checked against it."""
    async with running(tmp_path, offsets_topic_partitions=1) as api:
        await api.create()
        assert (await put(api, 0)).status_code == 201
        await api.append("one")
    async with running(tmp_path, commit_timeout_ms=1) as api:
        with api.log(OFFSETS_TOPIC)._core.syncing:  # noqa: SLF001  # a disk that never confirms
            late = await put(api, 1)
            assert refusal(late) == (504, "append_outcome_unknown")
            await put(api, 0, "/v1/groups/new/offsets/events/0")
            assert (await api.client.get("/v1/groups")).json()["groups"] == ["lake"]
            offsets = (await api.client.get("/v1/groups/lake/offsets")).json()["offsets"]
            assert offsets[0]["offset"] == 0
            assert await stored(api) == 0
            assert refusal(await put(api, 0, headers={"if-none-match": "*"}))[0] == 412
            assert refusal(await api.client.delete(CURSOR)) == (504, "append_outcome_unknown")
            assert refusal(await api.client.delete(CURSOR))[0] == 404
        api.log(OFFSETS_TOPIC).durability.commit()
        assert refusal(await api.client.get(CURSOR)) == (404, "group_offset_not_found")


async def test_a_service_that_reads_its_cursors_is_not_ready(tmp_path: Path) -> None:
    """Readiness has the number of loaded logs of the offsets topic, and their total."""
    async with running(tmp_path, offsets_topic_partitions=2) as api:
        await api.create()
        await put(api, 0)
    service = Service(Settings(data_directory=tmp_path))
    async with wired(service) as client:
        local(service).runtime.open()
        local(service).groups.load()
        report = await client.get("/readyz")
        assert report.status_code == 503
        assert report.json()["recovery"]["loaded_group_logs"] == 2
        assert report.json()["recovery"]["total_group_logs"] == 2
    await service.close()
    assert TopicPartition(OFFSETS_TOPIC, 0) in {
        log.topic_partition for log in local(service).manager.logs()
    }
