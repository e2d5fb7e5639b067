"""Every acknowledged change survives a power cut.

The power goes off right after the response, and removes everything that was not synced.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.security.keys import add_key, changing_keys, read_keys, revoke_key
from engine.errors import StorageFull, StorageOffline
from engine.fs import names
from tests.support.builders import DATA, EVENTS, SMALL_INDEXES, World, new_batch, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import fill, read_values
from tests.support.service import RAW, RECORDS, Api, open_service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

OTHER = Path("/other")
PARTITION = "/v1/topics/events/partitions/0"
CURSOR = "/v1/groups/readers/offsets/events/0"
MARKS = ("log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset")


@asynccontextmanager
async def served(disk: ForgetfulDisk) -> AsyncIterator[Api]:
    """The service with two directories on that disk; background work only runs on request."""
    async with (
        open_service(
            DATA,
            fs=disk,
            more_data_directories=(OTHER,),
            default_topic_config=dict(SMALL_INDEXES),
            retention_check_interval_ms=1 << 40,
            checkpoint_interval_ms=1 << 40,
        ) as service,
        wired(service) as client,
    ):
        yield Api(service, client)


@contextmanager
def idle_scheduler(api: Api) -> Iterator[None]:
    """Keep the thread of background tasks busy, so that it flushes nothing by itself."""
    released = threading.Event()

    def wait() -> None:
        released.wait()

    api.local.runtime._scheduler.once("wait", 0, wait)  # noqa: SLF001 - it has no other way in
    try:
        yield
    finally:
        released.set()


async def state_of(api: Api) -> dict[str, Any]:
    """All that readers and administrators see, without what a start may change."""
    state: dict[str, Any] = {}
    topics = (await api.client.get("/v1/topics?page_size=100")).json()["topics"]
    for topic in (one["topic"] for one in topics):
        state[topic] = described = (await api.client.get(f"/v1/topics/{topic}")).json()
        for number in range(described["partitions"]):
            path = f"/v1/topics/{topic}/partitions/{number}"
            answer = await api.client.get(f"{path}/offsets")
            offsets = answer.json()
            segments = (await api.client.get(f"{path}/segments")).json()["segments"]
            records = await api.client.get(f"{path}/records?offset=earliest")
            directory = (await api.client.get(f"{path}/move")).json()["directory"]
            marks = {key: offsets[key] for key in MARKS} | {"etag": answer.headers["etag"]}
            state[path] = marks, directory, records.json()["records"]
            state[f"{path}/segments"] = [one["base_offset"] for one in segments]
    cursor = await api.client.get(CURSOR)
    state["cursor"] = cursor.status_code, cursor.json().get("offset")
    return state


async def prepare(api: Api) -> None:
    """A topic of three segments with a stored offset, all of it on disk."""
    await api.create(cleanup_policy="compact,delete", retention_ms=-1, segment_bytes=1 << 20)
    for value in range(3):
        await api.append(value, value, key="same")
        assert (await api.client.post(f"{PARTITION}/roll")).is_success
    assert (await api.client.put(CURSOR, json={"offset": 2})).status_code == 201
    await api.append(3, key="same")


async def truncate(api: Api) -> Any:
    tag = (await api.client.get(f"{PARTITION}/offsets")).headers["etag"]
    return await api.client.post(
        f"{PARTITION}/truncate", json={"to_offset": 4}, headers={"if-match": tag}
    )


async def remove_segments(api: Api) -> Any:
    config = {"config": {"retention.bytes": "100"}}
    assert (await api.client.patch("/v1/topics/events", json=config)).is_success
    answer = await api.client.post(f"{PARTITION}/retention")
    assert len(answer.json()["removed"]) > 1
    return answer


async def move(api: Api) -> Any:
    before = (await api.client.get(f"{PARTITION}/move")).json()["directory"]
    target = str(OTHER if before == str(DATA) else DATA)
    answer = await api.client.post(f"{PARTITION}/move", json={"directory": target})
    api.local.runtime.mover.stop()  # it ends the running move first
    return answer


ONE_MORE = {"key": "other", "value": 9}
Change = Callable[[Api], Awaitable[Any]]
CHANGES: dict[str, Change] = {
    "putTopic": lambda api: api.client.put("/v1/topics/new", json={"partitions": 3}),
    "updateTopic": lambda api: api.client.patch(
        "/v1/topics/events", json={"config": {"retention.ms": "5000000"}, "partitions": 2}
    ),
    "deleteTopic": lambda api: api.client.delete("/v1/topics/events"),
    "appendRecords": lambda api: api.client.post(
        RECORDS, json={"records": [{"value": 9, "key": "k"}]}
    ),
    "rollSegment": lambda api: api.client.post(f"{PARTITION}/roll"),
    "flushLog": lambda api: api.client.post(f"{PARTITION}/flush"),
    "runRetention": remove_segments,
    "deleteRecords": lambda api: api.client.post(
        f"{PARTITION}/delete-records", json={"before_offset": 3}
    ),
    "truncateLog": truncate,
    "compactLog": lambda api: api.client.post(f"{PARTITION}/compact"),
    "movePartition": move,
    "putGroupOffset": lambda api: api.client.put(CURSOR, json={"offset": 3}),
    "deleteGroupOffset": lambda api: api.client.delete(CURSOR),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_was_answered_survives_a_power_cut(name: str) -> None:
    """The same is seen before and after it."""
    disk = with_data(ForgetfulDisk())
    disk.make_directory(OTHER)
    disk.sync_directory(OTHER.parent)
    async with served(disk) as api:
        await prepare(api)
        before = await state_of(api)
        with idle_scheduler(api):
            answer = await CHANGES[name](api)
            assert answer.is_success, answer.text
            found = disk.after_power_cut()
        seen = await state_of(api)
        assert (seen == before) == (name == "flushLog")
    async with served(found) as api:
        assert await state_of(api) == seen


async def test_no_producer_id_is_given_out_again_after_a_power_cut() -> None:
    """Those of a block are used up with the process."""
    disk = with_data(ForgetfulDisk())
    async with served(disk) as api:
        given = (await api.client.post("/v1/producers")).json()["producer_id"]
        found = disk.after_power_cut()
    async with served(found) as api:
        assert (await api.client.post("/v1/producers")).json()["producer_id"] > given


async def test_the_end_of_a_transaction_survives_a_power_cut() -> None:
    """The decision is visible, and the transaction cannot end in another way."""
    disk = with_data(ForgetfulDisk())
    async with served(disk) as api:
        await api.create()
        producer_id = (await api.client.post("/v1/producers")).json()["producer_id"]
        batch = new_batch(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        appended = await api.client.post(f"{PARTITION}/batches", content=bytes(batch), headers=RAW)
        assert appended.is_success, appended.text
        end = {"producer_id": producer_id, "producer_epoch": 0, "action": "commit"}
        answer = await api.client.post(f"{PARTITION}/transactions", json=end)
        assert answer.is_success, answer.text
        found = disk.after_power_cut()
    async with served(found) as api:
        offsets = (await api.client.get(f"{PARTITION}/offsets")).json()
        assert offsets["last_stable_offset"] == offsets["log_end_offset"] == 2
        again = await api.client.post(f"{PARTITION}/transactions", json=end | {"action": "abort"})
        assert again.status_code == 409


async def test_a_change_of_keys_survives_a_power_cut() -> None:
    """After the command a created key is accepted, and a revoked one is refused."""
    disk = with_data(ForgetfulDisk())
    for name in ("kept", "revoked"):
        with changing_keys(disk, DATA) as keys:
            add_key(keys, name, ("admin:*",), now_ms=0)
    with changing_keys(disk, DATA) as keys:
        revoke_key(keys, "revoked")
    found = read_keys(disk.after_power_cut(), DATA)
    assert found == read_keys(disk, DATA)
    assert found is not None
    assert [key.name for key in found.values()] == ["kept"]


@pytest.mark.parametrize("operation", ["append", "rename"])
async def test_records_that_cannot_be_deleted_for_sure_stay(operation: str) -> None:
    """The log start moves once it is on disk; a refused deletion changes nothing."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    values = fill(log, batches=3)
    log.durability.commit()
    error = errno.ENOSPC if operation == "append" else errno.EIO
    world.disk.fail(operation, error=error, path_end=f"{names.LOG_START_CHECKPOINT}.tmp")
    with pytest.raises((StorageFull, StorageOffline)):
        manager.delete_records(log, 2)
    assert log.watermarks.log_start_offset == 0
    assert read_values(log) == values


async def test_records_of_a_topic_that_is_being_deleted_leave_no_line() -> None:
    """A topic that is created again under the name would use it."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    fill(log, batches=3)
    log.durability.commit()
    manager.delete_topic("events")
    manager.delete_records(log, 2)
    manager.create_topic("events", 1, {})
    world.restart(power_cut=True)
    assert world.open_manager().log(EVENTS).watermarks.log_start_offset == 0
