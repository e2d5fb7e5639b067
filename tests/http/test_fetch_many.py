"""Several partitions in one request: protocol rules F1 to F5."""

import asyncio
import email
import email.policy
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.codecs import records_out
from app.operations.read import fetch_many
from app.operations.wait import Watch
from app.server.process import compose
from engine.errors import StoredDataCorrupt
from tests.support.credentials import bearer, create_key
from tests.support.events import quiet
from tests.support.service import Api, client_of, running
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

FETCH = "/v1/fetch"
PARTITIONS = 4


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    """A service with a topic `events` of four partitions."""
    async with running(tmp_path) as api:
        await api.create(partitions=PARTITIONS)
        yield api


def path(partition: int) -> str:
    return f"/v1/topics/events/partitions/{partition}"


async def put(api: Api, partition: int, *values: object) -> None:
    await api.append(*values, path=f"{path(partition)}/records")


def each(**more: object) -> list[dict[str, object]]:
    """All partitions of the topic."""
    return [{"topic": "events", "partition": number, **more} for number in range(PARTITIONS)]


async def fetch(api: Api, partitions: list[dict[str, object]], **more: object) -> httpx.Response:
    return await api.client.post(FETCH, json={"partitions": partitions, **more})


async def entries(api: Api, *args: Any, **more: Any) -> list[dict[str, Any]]:
    answer = await fetch(api, *args, **more)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["partitions"]
    return found


def values(entry: dict[str, Any]) -> list[object]:
    return [record["value"] for record in entry["records"]]


async def test_each_partition_is_read_as_a_read_reads_it(api: Api) -> None:
    """Every entry is the page that readRecords answers, in the order of the request (F1)."""
    for partition in range(PARTITIONS):
        await put(api, partition, {"a": partition}, partition)
    wanted: list[dict[str, Any]] = [
        {"topic": "events", "partition": 3, "offset": 1},
        {"topic": "events", "partition": 0, "offset": "earliest", "end_offset": 1},
        {"topic": "events", "partition": 1, "offset": "latest"},
        {"topic": "events", "partition": 2, "offset": "ts:0", "isolation": "read_committed"},
        {"topic": "events", "partition": 2, "offset": "99", "on_out_of_range": "earliest"},
    ]
    choices: tuple[dict[str, str], ...] = ({}, {"encoding": "base64", "offsets": "string"})
    for options in choices:
        for one, entry in zip(wanted, await entries(api, wanted, **options), strict=True):
            asked = {name: one[name] for name in one if name not in {"topic", "partition"}}
            url = f"{path(one['partition'])}/records"
            page = await api.client.get(url, params={**asked, **options})
            assert entry.pop("outcome") == "read"
            assert entry.pop("log_id").endswith(".0")
            assert entry == page.json()


async def test_one_failure_is_its_own(api: Api) -> None:
    """A failed partition says why; all others get the response they would get alone."""
    await put(api, 1, "here")
    wanted: list[dict[str, object]] = [
        {"topic": "nowhere", "partition": 0},
        {"topic": "events", "partition": 1},
        {"topic": "events", "partition": 9},
        {"topic": "events", "partition": 1, "offset": 7},
        {"topic": "events", "partition": 1, "log_id": "AAAAAAAAAAAAAAAAAAAAAA.0"},
        {"topic": "__consumer_offsets", "partition": 0},
        {"topic": "events", "partition": 1, "offset": 9 * 10**18},
    ]
    found = await entries(api, wanted, max_wait_ms=60_000)
    assert values(found.pop(1)) == ["here"]
    assert [entry["problem"]["code"] for entry in found] == [
        "topic_not_found",
        "partition_not_found",
        "offset_beyond_log_end",
        "log_replaced",
        "topic_not_found",
        "offset_beyond_log_end",
    ]
    assert found[2]["problem"]["instance"] == path(1)
    assert found[2]["problem"]["log_end_offset"] == 1
    assert {entry["outcome"] for entry in found} == {"failed"}


async def test_damage_in_one_partition_fails_that_partition(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage found while rendering only fails its partition."""
    for partition in range(PARTITIONS):
        await put(api, partition, partition)
    real = records_out.render_records
    calls: list[object] = []

    def damaged(data: Any, view: Any) -> Any:
        calls.append(data)
        if len(calls) == 2:
            raise StoredDataCorrupt("damaged", file="f", position=1, offset=2)
        return real(data, view)

    monkeypatch.setattr(fetch_many, "render_records", damaged)
    found = await entries(api, each())
    assert sorted(entry["outcome"] for entry in found) == ["failed", "read", "read", "read"]
    (failed,) = (entry for entry in found if entry["outcome"] == "failed")
    assert failed["problem"]["code"] == "stored_data_corrupt"


async def test_one_budget_is_shared(api: Api) -> None:
    """max_bytes bounds the sum; the partitions that got nothing can be read next time."""
    for partition in range(PARTITIONS):
        await put(api, partition, "x" * 1000)
        await put(api, partition, "x" * 1000)
    one = api.log().reader.size_bytes // 2
    found = await entries(api, each(), max_bytes=3 * one + 10)
    assert sum(len(entry["records"]) for entry in found) == 3
    assert all(entry["next_offset"] == len(entry["records"]) for entry in found)
    bounded = await entries(api, each(max_bytes=one), max_bytes=100 * one)
    assert [len(entry["records"]) for entry in bounded] == [1] * PARTITIONS


async def test_the_first_batch_is_read_whatever_its_size(api: Api) -> None:
    """A reader whose budget is below every batch gets one, from one partition, and goes on."""
    for partition in range(PARTITIONS):
        await put(api, partition, "x" * 1000)
    found = await entries(api, each(), max_bytes=1)
    assert sorted(len(entry["records"]) for entry in found) == [0] * (PARTITIONS - 1) + [1]


@pytest.mark.parametrize("size", ["max_bytes", "max_records"])
async def test_no_partition_starves(api: Api, size: str) -> None:
    """With room for one batch per fetch, a client that continues gets everything of all partitions.

    As (F2) says.
    """
    for partition in range(PARTITIONS):
        for number in range(5):
            await put(api, partition, [partition, number])
    at = [0] * PARTITIONS
    first: list[int] = []
    for _ in range(5 * PARTITIONS):
        wanted: list[dict[str, object]] = [
            {"topic": "events", "partition": number, "offset": at[number]}
            for number in range(PARTITIONS)
        ]
        found = await entries(api, wanted, **{size: 1})
        assert sum(len(entry["records"]) for entry in found) == 1
        for number, entry in enumerate(found):
            if entry["records"]:
                first.append(number)
                assert values(entry) == [[number, at[number]]]
            at[number] = entry["next_offset"]
    assert at == [5] * PARTITIONS
    assert first[:15] != sorted(first[:15])  # one chance in some millions to fail


async def test_a_large_fetch_is_bounded_as_json(tmp_path: Path) -> None:
    """max_answer_bytes bounds the whole answer, and nothing is skipped at it (F2)."""
    async with running(tmp_path, max_answer_bytes=4_500, inline_read_bytes=0) as api:
        await api.create(partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await put(api, partition, *("x" * 400 for _ in range(4)))
        answer = await fetch(api, each())
        assert len(answer.content) <= 4_500
        shown = [len(entry["records"]) for entry in answer.json()["partitions"]]
        assert 3 <= sum(shown) <= 6
        assert [e["next_offset"] for e in answer.json()["partitions"]] == shown


async def test_a_fetch_waits_once_for_any_partition(api: Api) -> None:
    """A commit to one of them answers, with what all have (F3)."""
    waiting = asyncio.create_task(entries(api, each(offset="latest"), max_wait_ms=60_000))
    await quiet(api)
    await put(api, 2, "new")
    found = await asyncio.wait_for(waiting, 30)
    assert [values(entry) for entry in found] == [[], [], ["new"], []]
    admission = api.service.admission
    assert (admission.waiting_readers, admission.answer_bytes, admission.requests) == (0, 0, 0)


async def test_min_bytes_counts_all_partitions_together(api: Api) -> None:
    """Small batches of several partitions add up; records that are there already count."""
    await put(api, 0, "first!")
    size = api.log().reader.size_bytes
    waiting = asyncio.create_task(entries(api, each(), max_wait_ms=60_000, min_bytes=2 * size + 1))
    await quiet(api)
    await put(api, 1, "second")
    await quiet(api)
    assert not waiting.done()
    await put(api, 0, "third!")
    found = await asyncio.wait_for(waiting, 30)
    assert [values(entry) for entry in found] == [["first!", "third!"], ["second"], [], []]


async def test_a_bound_that_cannot_move_is_not_waited_for(api: Api) -> None:
    """Ended by its end_offset everywhere, or by a budget, a fetch is answered at once."""
    await put(api, 0, "a")
    await put(api, 0, "b")
    at_end: list[dict[str, object]] = [{"topic": "events", "partition": 0, "end_offset": 1}]
    for wanted in (at_end, [{**at_end[0], "end_offset": None, "max_bytes": 1}]):
        waiting = entries(api, wanted, max_wait_ms=60_000, min_bytes=100_000)
        (entry,) = await asyncio.wait_for(waiting, 30)
        assert values(entry) == ["a"]


async def test_a_partition_at_its_end_offset_does_not_end_the_wait(api: Api) -> None:
    """The other partitions may still supply the missing bytes."""
    await put(api, 0, "a")
    wanted: list[dict[str, object]] = [
        {"topic": "events", "partition": 0, "end_offset": 1},
        {"topic": "events", "partition": 1},
    ]
    size = api.log().reader.size_bytes
    waiting = asyncio.create_task(entries(api, wanted, max_wait_ms=60_000, min_bytes=size + 1))
    await quiet(api)
    await put(api, 1, "b")
    found = await asyncio.wait_for(waiting, 30)
    assert [values(entry) for entry in found] == [["a"], ["b"]]


async def test_a_wait_ends_at_its_time_and_when_the_service_stops(api: Api) -> None:
    """With the records that are there, which may be none."""
    assert [values(entry) for entry in await entries(api, each(), max_wait_ms=20)] == [[]] * 4
    waiting = asyncio.create_task(entries(api, each(), max_wait_ms=60_000))
    await quiet(api)
    api.service.drain()
    assert [values(entry) for entry in await asyncio.wait_for(waiting, 30)] == [[]] * 4


async def test_what_is_not_cached_is_read_by_a_worker(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cold partition sends the look to another thread, and the answer is the same."""
    for partition in range(PARTITIONS):
        await put(api, partition, partition)
    log = api.log(partition=2)
    real = log.reader.read

    def cold(*arguments: Any, cached_only: bool = False, **options: Any) -> object:
        return None if cached_only else real(*arguments, **options)

    monkeypatch.setattr(log.reader, "read", cold)
    assert [values(entry) for entry in await entries(api, each())] == [[0], [1], [2], [3]]


async def test_a_topic_deleted_while_its_reader_waits_is_told(api: Api) -> None:
    """That partition fails and the fetch is answered; the others are not lost."""
    await api.create("other")
    wanted = [*each(), {"topic": "other", "partition": 0}]
    waiting = asyncio.create_task(entries(api, wanted, max_wait_ms=60_000))
    await quiet(api)
    await api.client.delete("/v1/topics/other")
    found = await asyncio.wait_for(waiting, 30)
    assert [entry["outcome"] for entry in found] == ["read"] * 4 + ["failed"]
    assert found[-1]["problem"]["code"] == "topic_not_found"


async def test_a_topic_deleted_before_its_reader_waits_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the read, and before the reader would be woken: nothing would end its wait."""
    await api.create("other")
    tail = api.service.tail
    real = tail.watch

    def late(*arguments: Any) -> AbstractContextManager[Watch]:
        api.local.manager.delete_topic("other")
        api.service.forget("other")
        return real(*arguments)

    monkeypatch.setattr(tail, "watch", late)
    wanted = [*each(), {"topic": "other", "partition": 0}]
    found = await asyncio.wait_for(entries(api, wanted, max_wait_ms=60_000), 30)
    assert [entry["outcome"] for entry in found] == ["read"] * 4 + ["failed"]
    assert found[-1]["problem"]["code"] == "topic_not_found"


async def test_a_long_poll_on_a_deleted_topic_fails_too(api: Api) -> None:
    """ReadRecords that waits fails as the next request would."""
    waiting = asyncio.create_task(api.client.get(f"{path(0)}/records?max_wait_ms=60000"))
    await quiet(api)
    await api.client.delete("/v1/topics/events")
    answer = await asyncio.wait_for(waiting, 30)
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_a_client_that_goes_is_not_waited_for(api: Api) -> None:
    """Its fetch ends and frees what it held."""
    waiting = asyncio.create_task(
        client_of(gone_while_waiting(api)).post(
            FETCH, json={"partitions": each(), "max_wait_ms": 60_000}
        )
    )
    answer = await asyncio.wait_for(waiting, 30)
    assert answer.status_code == 499
    admission = api.service.admission
    assert (admission.waiting_readers, admission.requests, api.service.tail.waiting) == (0, 0, 0)


def gone_while_waiting(api: Api) -> Any:
    """The service after a client hangs up once its request waits."""
    app = compose(api.service)

    async def call(scope: Any, receive: Any, send: Any) -> None:
        has_sent = False

        async def then_gone() -> Any:
            nonlocal has_sent
            if not has_sent:
                message = await receive()
                has_sent = not message["more_body"]
                return message
            while not api.service.tail.waiting:
                await checkpoint()
            return {"type": "http.disconnect"}

        await app(scope, then_gone, send)

    return call


async def test_raw_parts_are_what_single_requests_answer(api: Api) -> None:
    """multipart/mixed: bytes, type and headers of readBatches, and the URL that answers so (F4)."""
    await put(api, 0, "a", "b")
    await put(api, 1, "c")
    wanted = [
        {"topic": "events", "partition": 0, "offset": 1, "isolation": "read_committed"},
        {"topic": "events", "partition": 1, "end_offset": 1},
        {"topic": "events", "partition": 2},
        {"topic": "events", "partition": 7},
    ]
    answer = await api.client.post(
        FETCH, json={"partitions": wanted}, headers={"accept": "multipart/mixed"}
    )
    head = b"Content-Type: " + answer.headers["content-type"].encode() + b"\r\n\r\n"
    message = email.message_from_bytes(head + answer.content, policy=email.policy.HTTP)
    *parts, failed = message.iter_parts()
    assert len(parts) == 3
    for part in parts:
        single = await api.client.get(part["content-location"])
        assert part.get_content() == single.content
        for name in ("content-type", "content-length", "log-next-offset", "link"):
            assert part[name] == single.headers.get(name)
        assert part["log-first-offset"] == single.headers.get("log-first-offset")
    assert failed["content-type"] == "application/problem+json"
    assert failed["content-location"] == path(7)
    assert b"partition_not_found" in failed.get_content()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_request"),
        ({"partitions": []}, 422, "invalid_request"),
        ({"partitions": [{"topic": "events"}]}, 422, "invalid_request"),
        ({"partitions": each(offset="what")}, 422, "invalid_request"),
        ({"partitions": each(offset=-1)}, 422, "invalid_request"),
        ({"partitions": each(more=1)}, 422, "invalid_request"),
        ({"partitions": each(offset="9" * 19)}, 400, "malformed_request"),
        ({"partitions": each(), "max_wait_ms": -1}, 422, "invalid_request"),
        ({"partitions": each() * 2}, 413, "too_large"),
    ],
)
async def test_a_fetch_that_is_wrong_fails_as_a_whole(
    tmp_path: Path, body: object, status: int, code: str
) -> None:
    """Nothing is read for a body that is not a fetch, or one of too many partitions (F5)."""
    async with running(tmp_path, max_fetch_partitions=7) as api:
        answer = await api.client.post(FETCH, json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        if status == 413:
            assert answer.json()["limit"] == "max_fetch_partitions"


async def test_what_cannot_be_made_or_taken_is_refused(api: Api) -> None:
    """406 and 415 list the supported types."""
    headers = {"accept": "application/vnd.kafka.recordbatch.v2"}
    answer = await api.client.post(FETCH, json={"partitions": each()}, headers=headers)
    assert answer.status_code == 406
    assert answer.json()["accepted"] == ["application/json", "multipart/mixed"]
    taken = await api.client.post(FETCH, content=b"x", headers={"content-type": "text/plain"})
    assert taken.status_code == 415


async def test_many_partitions_are_looked_at_on_a_worker(api: Api) -> None:
    """Beyond some partitions a look is not the event loop's; the answer is the same."""
    await put(api, 3, "x")
    many = each() * 5
    assert len(many) > fetch_many.INLINE_PARTITIONS
    found = await entries(api, many)
    assert [len(entry["records"]) for entry in found] == [0, 0, 0, 1] * 5


async def test_a_forbidden_topic_fails_its_partition_only(tmp_path: Path) -> None:
    """A key for one topic reads that one; for others it does not even learn whether they exist."""
    root = bearer(create_key(tmp_path, "root", "admin:*", "append:*", "read:*"))
    reader = bearer(create_key(tmp_path, "reader", "read:open"))
    async with running(tmp_path) as api:
        api.client.headers.update(root)
        for topic in ("open", "closed"):
            await api.create(topic)
            await api.append(topic, path=f"/v1/topics/{topic}/partitions/0/records")
        wanted = [{"topic": name, "partition": 0} for name in ("open", "closed", "nowhere")]
        async with wired(api.service) as client:
            answer = await client.post(FETCH, json={"partitions": wanted}, headers=reader)
    found = answer.json()["partitions"]
    assert values(found[0]) == ["open"]
    assert [entry["problem"]["code"] for entry in found[1:]] == ["forbidden", "forbidden"]
