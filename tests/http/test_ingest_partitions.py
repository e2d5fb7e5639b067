"""Ingest over several partitions, some of which fail: no success unless all is on disk."""

import asyncio
import json

import httpx
import pytest
from anyio.lowlevel import checkpoint

from engine.errors import StorageOffline
from tests.support.service import Api

pytestmark = pytest.mark.anyio

INGEST = "/v1/topics/spread/ingest"
EVENTS = [
    {"specversion": "1.0", "id": f"{n}", "source": "/a", "type": "b", "partitionkey": f"k{n}"}
    for n in range(20)
]
BATCH = json.dumps(EVENTS).encode()
HEADERS = {"content-type": "application/cloudevents-batch+json", "idempotency-key": "one"}


def ends_of(api: Api) -> list[int]:
    return [api.log("spread", number).watermarks.log_end_offset for number in range(3)]


def let_fail(api: Api, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    logs = [api.log("spread", number) for number in numbers]
    real = api.local.runtime.committer.append

    def append(target: object, *arguments: object, **options: object) -> object:
        if target in logs:
            raise StorageOffline("the disk failed")
        return real(target, *arguments, **options)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(api.local.runtime.committer, "append", append)


async def post(api: Api, headers: dict[str, str] = HEADERS) -> httpx.Response:
    return await api.client.post(INGEST, content=BATCH, headers=headers)


async def test_a_batch_without_an_id_is_written_as_often_as_it_comes(spread: Api) -> None:
    """Over every partition; nothing is remembered of it."""
    without = {name: value for name, value in HEADERS.items() if name != "idempotency-key"}
    for times in (1, 2):
        answer = await post(spread, without)
        assert (answer.status_code, answer.json()["count"]) == (200, len(EVENTS))
        assert sum(ends_of(spread)) == times * len(EVENTS)
    assert all(ends_of(spread))


async def test_a_partition_that_fails_is_the_answer_and_the_others_are_named(
    spread: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender would take 207 for a success. Repeated, only the missing partition is written."""
    with monkeypatch.context() as patch:
        let_fail(spread, patch, 0)
        refused = await post(spread)
    assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
    assert refused.json()["side_effects"] == "unknown"
    ends = ends_of(spread)
    written = {part["partition"]: part["count"] for part in refused.json()["written"]}
    assert written == {1: ends[1], 2: ends[2]}
    assert ends[0] == 0
    answer = await post(spread)
    assert (answer.status_code, answer.json()["count"]) == (200, len(EVENTS))
    assert ends_of(spread)[1:] == ends[1:]
    assert sum(ends_of(spread)) == len(EVENTS)


async def test_if_every_partition_fails_nothing_was_written(
    spread: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem is that of an append to one partition."""
    let_fail(spread, monkeypatch, 0, 1, 2)
    refused = await post(spread)
    assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
    assert "written" not in refused.json()
    assert ends_of(spread) == [0, 0, 0]


async def test_a_partition_whose_flush_fails_is_not_among_those_on_disk(
    patient: Api,
) -> None:
    """Its records may be in its log; the others are named as written."""
    log, *others = (patient.log("spread", number) for number in range(3))
    with log._core.syncing:  # noqa: SLF001  # a disk that never confirms
        posting = asyncio.create_task(post(patient))
        while not posting.done():
            for other in others:
                patient.local.commits.committed([(other, other.durability.commit())])
            patient.local.commits.abandon([log], StorageOffline("the disk failed"))
            await checkpoint()
    refused = posting.result()
    assert (refused.status_code, refused.json()["code"]) == (503, "storage_offline")
    assert {part["partition"] for part in refused.json()["written"]} == {1, 2}
