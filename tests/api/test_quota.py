"""Quotas through the service: what is counted, and how it is refused."""

from pathlib import Path

import httpx
import pytest

from tests.support.credentials import bearer, create_key
from tests.support.service import RECORDS, Api, client_of, fast, running, slow
from tests.support.time import ManualClock

pytestmark = pytest.mark.anyio

ALL = ("read:*", "append:*", "admin:*")


def refused(answer: httpx.Response, seconds: int, limit: str) -> None:
    """Look at the refusal of somebody who has used too much."""
    assert answer.status_code == 429, answer.text
    problem = answer.json()
    assert (problem["code"], problem["retryable"]) == ("quota_exceeded", True)
    assert (problem["limit"], problem["kafka_error_code"]) == (limit, 89)
    assert problem["side_effects"] == "none"
    assert answer.headers["retry-after"] == str(seconds)


async def filled(api: Api, size_bytes: int) -> None:
    """Append one record of so many bytes."""
    answer = await api.client.post(RECORDS, json={"records": [{"value": "x" * size_bytes}]})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("lane", [fast, slow])
async def test_bytes_that_come_in_are_counted(tmp_path: Path, lane: object) -> None:
    """A body beyond the rate is taken, and the next one when it has been paid for."""
    clock = ManualClock()
    async with running(tmp_path, clock=clock, quota_bytes_in_per_second=1_000) as api:
        await api.create()
        clock.advance(1_000)
        async with client_of(lane(api.service)) as client:  # type: ignore[operator]  # a lane
            body = {"records": [{"value": "x" * 10_000}]}
            assert (await client.post(RECORDS, json=body)).status_code == 201
            refused(await client.post(RECORDS, json=body), 10, "quota_bytes_in_per_second")
            assert (await client.get(RECORDS)).status_code == 200
            clock.advance(10_000)
            assert (await client.post(RECORDS, json=body)).status_code == 201
    assert api.log().watermarks.log_end_offset == 2


@pytest.mark.parametrize("lane", [fast, slow])
async def test_bytes_that_go_out_are_counted(tmp_path: Path, lane: object) -> None:
    """A large answer is given, and the next one when it has been paid for."""
    clock = ManualClock()
    async with running(tmp_path, clock=clock, quota_bytes_out_per_second=1_000) as api:
        await api.create()
        await filled(api, 5_000)
        clock.advance(2_000)
        async with client_of(lane(api.service)) as client:  # type: ignore[operator]  # a lane
            client.headers["accept-encoding"] = "identity"  # what is sent is what counts
            answer = await client.get(RECORDS)
            seconds = -(-(len(answer.content) - 1_000) // 1_000)
            refused(await client.get(RECORDS), seconds, "quota_bytes_out_per_second")
            await filled(api, 10)  # whoever may not read may still append
            clock.advance(seconds * 1_000)
            assert (await client.get(RECORDS)).status_code == 200


async def test_requests_are_counted_for_each_principal(tmp_path: Path) -> None:
    """One key's use is not another's, and a key may have a rate of its own (Z6)."""
    keys = {
        "one": create_key(tmp_path, "one", *ALL),
        "two": create_key(tmp_path, "two", *ALL),
        "more": create_key(tmp_path, "more", *ALL, quota={"requests": 5}),
        "free": create_key(tmp_path, "free", *ALL, quota={"requests": 0}),
    }
    clock = ManualClock()
    async with running(tmp_path, clock=clock, quota_requests_per_second=2) as api:
        counted = {}
        for name, key in keys.items():
            answers = [await api.client.get("/v1/topics", headers=bearer(key)) for _ in range(8)]
            counted[name] = sum(answer.status_code == 200 for answer in answers)
            if counted[name] < 8:
                refused(answers[-1], 1, "quota_requests_per_second")
        assert counted == {"one": 2, "two": 2, "more": 5, "free": 8}
        assert (await api.client.get("/livez")).status_code == 200


async def test_a_refused_request_leaves_nothing_behind(tmp_path: Path) -> None:
    """It holds nothing, and what it asked for is not done."""
    async with running(tmp_path, clock=ManualClock(), quota_requests_per_second=1) as api:
        await api.create()
        answer = await api.client.delete("/v1/topics/events")
        refused(answer, 1, "quota_requests_per_second")
        assert "events" in api.service.manager.topics()
        admission = api.service.admission
        assert (admission.requests, admission.body_bytes, admission.answer_bytes) == (0, 0, 0)


async def test_the_limits_tell_the_quotas(tmp_path: Path) -> None:
    """A client can look up what it may use."""
    async with running(tmp_path, quota_requests_per_second=7) as api:
        limits = (await api.client.get("/v1/limits")).json()["limits"]
        assert limits["quota_requests_per_second"] == 7
        assert limits["quota_bytes_in_per_second"] == 0
