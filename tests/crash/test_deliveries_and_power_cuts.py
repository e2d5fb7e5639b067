"""Deliveries against a dictionary, with power cuts between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx
import pytest

from engine.clock import SystemClock
from tests.support.builders import DATA, SMALL_INDEXES, with_data
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import NDJSON, Api, open_service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

PARTITIONS = 3
LIVES = 8
STEPS = 30


@asynccontextmanager
async def served(disk: ForgetfulDisk) -> AsyncIterator[Api]:
    disk.now_ms = SystemClock().now_ms()
    settings: dict[str, Any] = {
        "default_topic_config": dict(SMALL_INDEXES),
        "commit_interval_ms": 5,
        "inline_append_bytes": 150,
        "checkpoint_interval_ms": 1 << 40,
    }
    async with (
        open_service(DATA, fs=disk, **settings) as service,
        wired(service) as client,
    ):
        yield Api(service, client)


def body_of(number: int) -> bytes:
    chance = Random(number)
    return b"\n".join(
        b'{"key":"%d","value":"%d %d"}' % (chance.randrange(9), number, index)
        for index in range(chance.randrange(1, 6))
    )


def places_of(receipt: dict[str, Any]) -> Any:
    return receipt["records"] if "records" in receipt else receipt["base_offset"]


async def deliver(api: Api, number: int) -> httpx.Response:
    """Send a delivery, the first time or again: to a partition or to the topic."""
    log = "/v1/topics/events" if number % 2 else "/v1/topics/events/partitions/0"
    acks = "1" if number % 3 == 0 else "all"
    headers = NDJSON | {"idempotency-key": f"key-{number}"}
    return await api.client.post(
        f"{log}/records?acks={acks}", content=body_of(number), headers=headers
    )


async def values_of(api: Api) -> list[str]:
    """Return the values of all committed records."""
    values: list[str] = []
    for number in range(PARTITIONS):
        path = f"/v1/topics/events/partitions/{number}/records"
        page = (await api.client.get(path, params={"max_records": 100_000})).json()
        values += [record["value"] for record in page["records"]]
    return values


@pytest.mark.parametrize("seed", range(4))
async def test_a_power_cut_forgets_a_delivery_with_its_records(seed: int) -> None:
    """What was answered as being on disk is remembered; what is lost is written again.

    With acks=1 a delivery may be lost, as a whole or in some partitions. A repetition is answered
    when it is on disk.
    """
    chance = Random(seed)
    disk = with_data(ForgetfulDisk())
    certain: dict[int, Any] = {}
    sent: set[int] = set()
    for life in range(LIVES):
        async with served(disk) as api:
            if not life:
                await api.create(partitions=PARTITIONS, segment_bytes=2_000)
            this_life: dict[int, Any] = {}
            for _ in range(STEPS):
                number = chance.randrange(10 * (life + 1))
                answer = await deliver(api, number)
                assert answer.status_code in (200, 201), answer.text
                places = places_of(answer.json())
                known = certain.get(number, this_life.get(number))
                if known is not None:
                    assert (answer.status_code, places) == (200, known)
                assert answer.status_code == 201 or number in sent
                sent.add(number)
                this_life[number] = places
                if number % 3 or answer.status_code == 200:
                    certain[number] = places
            cut = disk.after_power_cut()
        disk = cut
    async with served(disk) as api:
        for number in sent:
            answer = await deliver(api, number)
            assert number not in certain or places_of(answer.json()) == certain[number]
            assert (await deliver(api, number)).status_code == 200
        values = await values_of(api)
    assert len(values) == len(set(values))
    assert {value.split()[0] for value in values} == {str(number) for number in sent}
    assert len(values) == sum(body_of(number).count(b"\n") + 1 for number in sent)
    assert len(sent) > 50
