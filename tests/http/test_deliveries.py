"""What the service remembers of deliveries, and for how long: protocol rules I3, I4 and I7."""

import asyncio
import struct
import threading
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from app.codecs.delivery_headers import STATE_HEADER, Seal, State
from app.operations.deliveries.claim import delivery_of
from app.operations.deliveries.deliveries import REBUILD
from engine.errors import TopicNotFound
from engine.fs.names import log_name
from engine.records.builder import build_batch
from tests.support.builders import new_batch
from tests.support.service import (
    BATCHES,
    NDJSON,
    RAW,
    RECORDS,
    Api,
    open_service,
    running,
)
from tests.support.time import START_MS, ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/events/records"
DAY_MS = 86_400_000


@asynccontextmanager
async def running_at(clock: ManualClock, directory: Path) -> AsyncIterator[Api]:
    async with (
        open_service(directory, clock=clock) as service,
        wired(service) as client,
    ):
        yield Api(service, client)


async def post(
    api: Api, key: str, body: bytes = b'{"value":1}', path: str = RECORDS
) -> httpx.Response:
    return await api.client.post(path, content=body, headers=NDJSON | {"idempotency-key": key})


async def statuses(api: Api, keys: Sequence[str]) -> list[int]:
    return [(await post(api, key)).status_code for key in keys]


async def test_the_oldest_keys_are_forgotten_beyond_the_limit(tmp_path: Path) -> None:
    """With `max_deliveries` keys in memory a new one takes the place of the oldest (I4).

    A restart forgets the same ones.
    """
    limits = {"max_deliveries": 3}
    async with running(tmp_path, **limits) as api:
        await api.create()
        assert await statuses(api, "abcd") == [201] * 4
        assert await statuses(api, "dcb") == [200] * 3
        assert (api.service.deliveries.remembered, api.service.deliveries.evicted) == (3, 1)
    async with running(tmp_path, **limits) as api:
        assert await statuses(api, "dcba") == [200, 200, 200, 201]


async def test_all_topics_together_remember_so_many(tmp_path: Path) -> None:
    """The topic with the most keys loses its oldest (I4)."""
    async with running(tmp_path, max_deliveries=100) as api:
        await api.create("few")
        await api.create()
        few = "/v1/topics/few/partitions/0/records"
        assert (await post(api, "few", path=few)).status_code == 201
        for number in range(192):
            assert (await post(api, str(number))).status_code == 201
        assert api.service.deliveries.remembered <= 101
        assert (await post(api, "few", path=few)).status_code == 200
        assert (await post(api, "191")).status_code == 200


async def test_a_key_is_forgotten_after_its_window(tmp_path: Path) -> None:
    """After four days a repetition is a new request (I4); a restart does not change that.

    The times of the records do not matter.
    """
    clock = ManualClock()
    body = b'{"value":1,"timestamp":1}'

    async def told(*wanted: int) -> None:
        async with running_at(clock, tmp_path) as api:
            await api.client.put("/v1/topics/events", json={"config": {"retention.ms": -1}})
            for status in wanted:
                assert (await post(api, "a", body)).status_code == status

    await told(201, 200)
    clock.advance(4 * DAY_MS)
    await told(200, 200)
    clock.advance(1_000)
    await told(201, 200)


async def test_what_is_too_old_leaves_the_memory(tmp_path: Path) -> None:
    """A new delivery takes expired ones out."""
    clock = ManualClock()
    async with running_at(clock, tmp_path) as api:
        await api.create()
        await statuses(api, "abc")
        clock.advance(4 * DAY_MS + 1_000)
        await statuses(api, "d")
        deliveries = api.service.deliveries
        assert (deliveries.remembered, deliveries.evicted) == (1, 0)
        assert deliveries.size_bytes > 0


async def test_requests_do_not_wait_long_for_the_keys(tmp_path: Path) -> None:
    """503 with Retry-After while the keys are read from the log; only keys wait for it (I7)."""
    async with running(tmp_path) as api:
        await api.create()
        assert (await post(api, "a")).status_code == 201
    async with running(tmp_path, read_threads=1, delivery_rebuild_timeout_ms=1) as api:
        free = threading.Event()
        busy = asyncio.ensure_future(api.service.workers.read(free.wait))
        for _ in range(2):
            early = await post(api, "a")
            problem = early.json()
            assert (early.status_code, problem["code"]) == (503, "recovering")
            assert (problem["retryable"], problem["side_effects"]) == (True, "none")
            assert early.headers["retry-after"] == "1"
        assert (await api.append("without a key"))["base_offset"] == 1
        free.set()
        await busy
        while (answer := await post(api, "a")).status_code == 503:
            pass
        assert (answer.status_code, answer.json()["base_offset"]) == (200, 0)


async def test_more_partitions_change_nothing_for_a_repetition(tmp_path: Path) -> None:
    """It uses the partitions of the first time, also for records without a key (I3)."""
    body = b"\n".join(b'{"key":"%d","value":%d}' % (number, number) for number in range(20))
    body += b'\n{"value":"without a key"}'
    async with running(tmp_path) as api:
        await api.create(partitions=2)
        first = (await post(api, "a", body, TOPIC)).json()
        await api.client.patch("/v1/topics/events", json={"partitions": 7})
        again = await post(api, "a", body, TOPIC)
        assert again.status_code == 200
        assert again.json()["records"] == first["records"]
    async with running(tmp_path) as api:
        again = await post(api, "a", body, TOPIC)
        assert again.status_code == 200
        assert again.json()["records"] == first["records"]
        assert ends(api, 7) == [*ends(api, 2), 0, 0, 0, 0, 0]


def ends(api: Api, partitions: int) -> list[int]:
    return [api.log(partition=number).watermarks.log_end_offset for number in range(partitions)]


async def test_a_repetition_writes_the_partitions_that_are_missing(tmp_path: Path) -> None:
    """What was cut off, or never written, is written; each record is in the log once (I3)."""
    body = b"\n".join(b'{"key":"%d","value":%d}' % (number, number) for number in range(20))
    async with running(tmp_path) as api:
        await api.create(partitions=3)
        first = (await post(api, "a", body, TOPIC)).json()
        whole = ends(api, 3)
        await truncate(api, partition=1)
        assert ends(api, 3) == [whole[0], 0, whole[2]]
        again = await post(api, "a", body, TOPIC)
        assert (again.status_code, again.json()["records"]) == (201, first["records"])
        assert [part["duplicate"] for part in again.json()["partitions"]] == [True, False, True]
        assert ends(api, 3) == whole
        assert (await post(api, "a", body, TOPIC)).status_code == 200


async def truncate(api: Api, to_offset: int = 0, partition: int = 0) -> None:
    path = f"/v1/topics/events/partitions/{partition}"
    etag = (await api.client.get(f"{path}/offsets")).headers["etag"]
    answer = await api.client.post(
        f"{path}/truncate", json={"to_offset": to_offset}, headers={"if-match": etag}
    )
    assert answer.status_code == 200, answer.text


async def test_what_a_truncation_removed_is_forgotten(api: Api) -> None:
    """What was below the cut is remembered; what was above is written again (I4)."""
    assert await statuses(api, "abc") == [201] * 3
    await truncate(api, to_offset=1)
    assert await statuses(api, "cab") == [201, 200, 201]
    assert await statuses(api, "cab") == [200] * 3
    assert api.log().watermarks.log_end_offset == 3


async def test_what_is_appended_while_the_keys_are_read_is_remembered(api: Api) -> None:
    """A truncation has them read again, while another append is at work."""
    assert await statuses(api, "ab") == [201] * 2
    deliveries = api.service.deliveries
    delivery = delivery_of(api.service.partition("events", 0), b"scope", b"c", bytes(8))
    with deliveries.claim(delivery) as claim:
        await truncate(api, to_offset=1)
        assert await statuses(api, "a") == [200]  # the keys were read again
        appended = api.log().append(new_batch(1))
        claim.written(api.service.partition("events", 0), appended)
    with deliveries.claim(delivery) as claim:
        known: Any = claim.repeated(api.service.partition("events", 0))
        assert (known.base_offset, known.is_duplicate) == (1, True)


async def test_a_client_cannot_write_the_header(tmp_path: Path) -> None:
    """Raw batches may have any header: only one that was made with the secret counts (I5)."""
    async with running(tmp_path) as api:
        await api.create()
        delivery = delivery_of(api.service.partition("events", 0), b"key anonymous", b"a", bytes(8))
        for secret in (bytes(32), await api.service.deliveries.secret()):
            digest = delivery.digest(secret)
            state = State(digest, bytes(8), api.service.clock.now_ms(), 1, 0)
            sealed = state.pack(Seal(secret, delivery.topic_id), None, b"")
            forged = build_batch([(START_MS, None, b"", [(STATE_HEADER, sealed)])])
            sent = await api.client.post(BATCHES, content=bytes(forged), headers=RAW)
            assert sent.status_code == 201
    async with running(tmp_path) as api:
        with await api.service.deliveries.claimed(delivery) as claim:
            (known,) = claim.known.values()
        assert known.base_offset == 1


async def test_a_copy_of_a_record_does_not_count(tmp_path: Path) -> None:
    """A repetition gets the offsets of the first record with its id."""
    async with running(tmp_path) as api:
        await api.create()
        assert await statuses(api, "a") == [201]
        batches = (await api.client.get(BATCHES)).content
        assert (await api.client.post(BATCHES, content=batches, headers=RAW)).status_code == 201
    async with running(tmp_path) as api:
        again = await post(api, "a")
        assert (again.status_code, again.json()["base_offset"]) == (200, 0)


async def test_deliveries_go_on_beside_an_offline_partition(tmp_path: Path) -> None:
    """Each partition knows what it has; that of a key is always the same."""
    other = RECORDS.replace("/0/", "/1/")
    async with running(tmp_path) as api:
        await api.create(partitions=2)
        assert (await post(api, "a", path=RECORDS)).status_code == 201
        assert (await post(api, "b", path=other)).status_code == 201
        log_file = api.log(partition=1).directory / log_name(0)
    log_file.unlink()
    log_file.mkdir()
    async with running(tmp_path) as api:
        assert (await post(api, "b", path=other)).json()["code"] == "storage_offline"
        assert await statuses(api, "ac") == [200, 201]


async def test_a_deleted_topic_has_no_deliveries(api: Api) -> None:
    """A request from before the deletion is refused; one after it is the first."""
    old = delivery_of(api.service.partition("events", 0), b"", b"a", bytes(8))
    for again in (False, True):
        assert (await api.client.delete("/v1/topics/events")).status_code == 204
        if again:
            await api.create()
        with pytest.raises(TopicNotFound):
            await api.service.deliveries.claimed(old)
        if not again:
            await api.create()
    assert await statuses(api, "a") == [201]


async def test_a_rebuild_ends_with_the_service(tmp_path: Path) -> None:
    """The request that waits for it is refused."""
    async with running(tmp_path, read_threads=1) as api:
        await api.create()
        assert await statuses(api, "a") == [201]
    async with running(tmp_path, read_threads=1) as api:
        free = threading.Event()
        busy = asyncio.ensure_future(api.service.workers.read(free.wait))
        waiting = asyncio.ensure_future(post(api, "a"))
        while not any(task.get_name() == REBUILD for task in asyncio.all_tasks()):
            await checkpoint()
        api.service.deliveries.close()
        refused = await waiting
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        free.set()
        await busy


@pytest.mark.parametrize("accepted_ms", [0, 2**42, 2**63, 2**64 - 1])
async def test_a_planted_header_neither_stops_nor_pushes_out(
    tmp_path: Path, accepted_ms: int
) -> None:
    """Any client that may append can plant them, with any time; the true ids are all found."""
    async with running(tmp_path) as api:
        await api.create()
        profile = {"window_deliveries": 10}
        await api.client.put("/v1/topics/events/ingest-profile", json=profile)
        assert await statuses(api, "abcde") == [201] * 5
        for number in range(30):
            packed = struct.pack(">B16s8sQIH", 2, bytes([number]) * 16, bytes(8), accepted_ms, 1, 0)
            header = urlsafe_b64encode(packed + bytes(12))
            batch = build_batch([(START_MS, None, b"", [(STATE_HEADER, header)])])
            sent = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
            assert sent.status_code == 201
    async with running(tmp_path) as api:
        assert await statuses(api, "abcde") == [200] * 5
        assert await statuses(api, "f") == [201]
