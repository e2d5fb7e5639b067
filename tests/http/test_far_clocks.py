"""Clocks in the far past and future, the host's and the clients'."""

from pathlib import Path

import pytest

from engine.records.builder import build_batch
from engine.types import INT64_MAX
from tests.support.service import BATCHES, OFFSETS, RAW, RECORDS, Api, open_service
from tests.support.time import ManualClock
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

YEAR_10000_MS = 253_402_300_800_000
LOG = "/v1/topics/events/partitions/0"


async def test_a_clock_that_is_far_off_breaks_nothing(tmp_path: Path) -> None:
    """Records without a time get the clock's, bounds go by it, times before it are taken (A6)."""
    clock = ManualClock()
    walls = (0, 2**62, 0)
    async with open_service(tmp_path, clock=clock) as service, wired(service) as client:
        api = Api(service, client)
        await api.create(retention_ms=-1)
        for now_ms in walls:
            clock.set_wall(now_ms)
            assert (await api.append("now"))["timestamp"] == now_ms
            assert (await api.append("then", timestamp=0))["timestamp"] == 0
            for work in ("roll", "flush", "retention?dry_run=true"):
                answer = await client.post(f"{LOG}/{work}")
                assert answer.status_code == 200, answer.text
        records = (await client.get(RECORDS)).json()["records"]
        assert [one["timestamp"] for one in records] == [at for now in walls for at in (now, 0)]
        latest = (await client.get(OFFSETS, params={"timestamp": "max_timestamp"})).json()
        assert (latest["offset"], latest["timestamp"]) == (2, 2**62)


async def test_a_record_from_the_far_future_is_refused(tmp_path: Path) -> None:
    """In JSON and in raw batches a time beyond the bound is 422, and nothing is written (A6)."""
    batch = bytes(build_batch([(INT64_MAX, None, b"x", [])]))
    clock = ManualClock()
    async with open_service(tmp_path, clock=clock) as service, wired(service) as client:
        api = Api(service, client)
        await api.create()
        for now_ms in (0, YEAR_10000_MS):
            clock.set_wall(now_ms)
            body = {"records": [{"value": 1, "timestamp": INT64_MAX}]}
            for answer in (
                await client.post(RECORDS, json=body),
                await client.post(BATCHES, content=batch, headers=RAW),
            ):
                problem = answer.json()
                assert (answer.status_code, problem["code"]) == (422, "invalid_timestamp")
                assert (problem["kafka_error_code"], problem["side_effects"]) == (32, "none")
        assert (await api.append("after"))["base_offset"] == 0
