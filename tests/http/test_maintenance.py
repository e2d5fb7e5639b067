"""Segments, roll, flush, retention and producer ids over HTTP: protocol rules M1 to M6."""

import asyncio
import threading
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from tests.support.service import Api, running

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"


async def test_a_roll_seals_what_is_there(api: Api) -> None:
    """A log with records gets a new segment; an empty active one is kept and reported (M1)."""
    empty = (await api.client.post(f"{LOG}/roll")).json()
    assert (empty["rolled"], empty["old_base_offset"], empty["new_base_offset"]) == (False, 0, 0)
    await api.append(1, 2)
    rolled = (await api.client.post(f"{LOG}/roll")).json()
    assert (rolled["rolled"], rolled["old_base_offset"], rolled["new_base_offset"]) == (True, 0, 2)
    segments = (await api.client.get(f"{LOG}/segments")).json()["segments"]
    assert [(one["base_offset"], one["next_offset"], one["is_active"]) for one in segments] == [
        (0, 2, False),
        (2, 2, True),
    ]


async def test_a_flush_raises_the_recovery_point(api: Api) -> None:
    """Afterwards everything is on disk and readable, whatever its acks were (M2)."""
    await api.client.post(f"{LOG}/records?acks=1", json={"records": [{"value": 1}]})
    report = (await api.client.post(f"{LOG}/flush")).json()
    assert (report["recovery_point"], report["high_watermark"], report["log_end_offset"]) == (
        1,
        1,
        1,
    )


async def test_retention_tells_before_it_removes(api: Api) -> None:
    """A dry run names the segments and reasons and removes nothing; the same run then does (M3)."""
    await api.append(1, timestamp=1_000)
    await api.client.patch("/v1/topics/events", json={"config": {"retention.ms": None}})
    await api.client.post(f"{LOG}/roll")
    await api.append(2)
    told = (await api.client.post(f"{LOG}/retention", params={"dry_run": "true"})).json()
    assert (await api.client.post(f"{LOG}/retention?dry_run")).json() == told
    assert [(one["base_offset"], one["reason"]) for one in told["removed"]] == [(0, "time")]
    assert (told["dry_run"], told["log_start_offset"]) == (True, 0)
    done = (await api.client.post(f"{LOG}/retention")).json()
    assert done["removed"] == told["removed"]
    assert done["log_start_offset"] == 1


async def test_records_are_given_up_below_an_offset(api: Api) -> None:
    """The log start rises; -1 means the high watermark; beyond it is 416 (M4)."""
    await api.append(1, 2, 3)
    some = await api.client.post(f"{LOG}/delete-records", json={"before_offset": 2})
    assert some.json()["log_start_offset"] == 2
    everything = await api.client.post(f"{LOG}/delete-records", json={"before_offset": -1})
    assert everything.json()["log_start_offset"] == 3
    beyond = await api.client.post(f"{LOG}/delete-records", json={"before_offset": 9})
    assert (beyond.status_code, beyond.json()["code"]) == (416, "offset_beyond_log_end")
    wrong = await api.client.post(f"{LOG}/delete-records", json={"before_offset": -2})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "before_offset")


async def test_no_producer_id_is_given_out_twice(api: Api) -> None:
    """Each allocation is a new identity (M6)."""
    answers = [await api.client.post("/v1/producers") for _ in range(3)]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["producer_id"] for answer in answers}) == 3


async def test_compactions_keep_no_operator_waiting(tmp_path: Path) -> None:
    """While they wait for each other everything else continues.

    Beyond `max_compactions` it is 503 (E6).
    """
    async with running(tmp_path, max_compactions=2) as api:
        await api.create(cleanup_policy="compact")
        done = threading.Event()
        long_ones = [asyncio.ensure_future(api.service.workers.compact(done.wait)) for _ in "ab"]
        await checkpoint()
        refused = await api.client.post(f"{LOG}/compact")
        assert (refused.status_code, refused.json()["limit"]) == (503, "max_compactions")
        assert refused.headers["retry-after"] == "1"
        assert (await api.client.post(f"{LOG}/flush")).status_code == 200
        done.set()
        await asyncio.gather(*long_ones)
        assert (await api.client.post(f"{LOG}/compact")).status_code == 200


async def test_what_a_compaction_would_rewrite_is_told_before(tmp_path: Path) -> None:
    """The range and its bytes; the report of the compaction then has the same range (M8)."""
    async with running(tmp_path) as api:
        await api.create(cleanup_policy="compact")
        for number in range(4):
            await api.append(number, key="k")
        await api.client.post(f"{LOG}/roll")
        before = (await api.client.get(f"{LOG}/compaction")).json()
        assert (before["first_dirty_offset"], before["end_offset"]) == (0, 4)
        assert (before["clean_bytes"], before["dirty_ratio"], before["is_due"]) == (0, 1.0, True)
        assert before["cleanable_bytes"] > 0
        report = (await api.client.post(f"{LOG}/compact")).json()
        assert (report["first_dirty_offset"], report["end_offset"]) == (0, 4)
        after = (await api.client.get(f"{LOG}/compaction")).json()
        assert (after["first_dirty_offset"], after["end_offset"]) == (4, 4)
        assert (after["cleanable_bytes"], after["is_due"]) == (0, False)
        await api.create("plain")
        answer = await api.client.get("/v1/topics/plain/partitions/0/compaction")
        assert (answer.status_code, answer.json()["code"]) == (422, "policy_violation")


async def test_retention_names_the_record_that_holds_it(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """A time in the future keeps its segment and all after it: the answer and the log say so."""
    await api.create("late", retention_ms=-1, message_timestamp_after_max_ms=2**62)
    log = "/v1/topics/late/partitions/0"
    future = api.service.clock.now_ms() + 10**9
    for timestamp in (0, future, 0, 0):
        record = {"value": 1, "timestamp": timestamp}
        await api.client.post(f"{log}/records", json={"records": [record]})
        await api.client.post(f"{log}/roll")
    await api.client.patch("/v1/topics/late", json={"config": {"retention.ms": "1"}})
    report = (await api.client.post(f"{log}/retention?dry_run")).json()
    assert report["held_by"] == {"base_offset": 1, "largest_timestamp": future}
    assert [one["base_offset"] for one in report["removed"]] == [0]
    with caplog.at_level("WARNING"):
        for _ in range(2):
            assert (await api.client.post(f"{log}/retention")).json()["held_by"]
    told = [one for one in caplog.messages if "is in the future" in one]
    assert len(told) <= 1
    await api.client.patch("/v1/topics/late", json={"config": {"retention.ms": "-1"}})
    report = (await api.client.post(f"{log}/retention?dry_run")).json()
    assert "held_by" not in report
