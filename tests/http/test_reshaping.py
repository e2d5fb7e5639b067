"""Truncation and compaction over HTTP: protocol rules M7 and M8."""

from pathlib import Path

import pytest

from engine.fs.names import log_name
from tests.support.builders import new_batch
from tests.support.damage import one_bit_flipped
from tests.support.logs import read_headers
from tests.support.service import OFFSETS, RECORDS, Api, running

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"
KEPT = "/v1/topics/kept/partitions/0"


async def tag_of(api: Api) -> dict[str, str]:
    """The condition that the log ends where it ends now."""
    return {"if-match": (await api.client.get(OFFSETS)).headers["etag"]}


async def test_truncation_cuts_where_the_client_saw_the_end(api: Api) -> None:
    """The records from the offset on are gone, in a new epoch whose ETag the answer has."""
    await api.append(1, 2)
    await api.append(3)
    before = (await api.client.get(f"{RECORDS}?offset=0")).links["next"]["url"]
    cut = await api.client.post(f"{LOG}/truncate", json={"to_offset": 2}, headers=await tag_of(api))
    assert cut.status_code == 200, cut.text
    report = cut.json()
    assert (report["high_watermark"], report["log_end_offset"], report["leader_epoch"]) == (2, 2, 1)
    assert report["log_id"] == api.log().reader.log_id
    assert {"if-match": cut.headers["etag"]} == await tag_of(api)
    page = (await api.client.get(RECORDS)).json()
    assert [record["value"] for record in page["records"]] == [1, 2]
    assert (await api.client.get(before)).json()["code"] == "log_replaced"
    assert (await api.append("new"))["base_offset"] == 2


async def test_truncation_needs_the_present_end(api: Api) -> None:
    """Without a condition 428, with an outdated one 412 with the present tag; nothing cut.

    As (M7) says.
    """
    await api.append(1)
    old = await tag_of(api)
    await api.append(2)
    bare = await api.client.post(f"{LOG}/truncate", json={"to_offset": 0})
    assert (bare.status_code, bare.json()["code"]) == (428, "precondition_required")
    stale = await api.client.post(f"{LOG}/truncate", json={"to_offset": 0}, headers=old)
    assert (stale.status_code, stale.json()["code"]) == (412, "precondition_failed")
    assert {"if-match": stale.json()["etag"]} == await tag_of(api)
    malformed = {"if-match": "no tag"}
    wrong = await api.client.post(f"{LOG}/truncate", json={"to_offset": 0}, headers=malformed)
    assert (wrong.status_code, wrong.json()["header"]) == (400, "if-match")
    assert api.log().watermarks.log_end_offset == 2


async def test_a_truncation_takes_no_record_below_its_offset(api: Api) -> None:
    """Inside a batch it is refused, with the possible offsets; nothing is cut (M7)."""
    await api.append(1)
    await api.append(2, 3, 4)
    await api.append(5)
    tag = await tag_of(api)
    for amid in (2, 3):
        refused = await api.client.post(f"{LOG}/truncate", json={"to_offset": amid}, headers=tag)
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (422, "invalid_request")
        assert (problem["batch_base_offset"], problem["batch_next_offset"]) == (1, 4)
    assert await tag_of(api) == tag
    stale = await api.client.post(
        f"{LOG}/truncate", json={"to_offset": 2}, headers={"if-match": '"0-9-00000000"'}
    )
    assert stale.status_code == 412, "whose view has passed is told that first"
    for between in (5, 4, 1):
        cut = await api.client.post(
            f"{LOG}/truncate", json={"to_offset": between}, headers=await tag_of(api)
        )
        assert cut.json()["log_end_offset"] == between


async def test_a_log_that_starts_inside_a_batch_cannot_start_lower(api: Api) -> None:
    """The offsets in the error are those that are left: deleted offsets are not assigned again."""
    await api.append(1, 2, 3, 4)
    await api.client.post(f"{LOG}/delete-records", json={"before_offset": 2})
    amid = await api.client.post(
        f"{LOG}/truncate", json={"to_offset": 3}, headers=await tag_of(api)
    )
    assert amid.status_code == 422
    assert (amid.json()["batch_base_offset"], amid.json()["batch_next_offset"]) == (2, 4)
    for to_offset in (2, 1):
        cut = await api.client.post(
            f"{LOG}/truncate", json={"to_offset": to_offset}, headers=await tag_of(api)
        )
        assert (cut.json()["log_start_offset"], cut.json()["log_end_offset"]) == (to_offset,) * 2


async def test_a_batch_that_compaction_emptied_can_be_cut_anywhere(api: Api) -> None:
    """It has no records: its header keeps the producer's last sequence."""
    await api.client.put("/v1/topics/kept", json={"config": {"cleanup.policy": "compact"}})
    log = api.log("kept")
    for producer_id in (7, 8):
        log.append(new_batch(5, producer_id=producer_id, producer_epoch=0, base_sequence=0))
    log.roll()
    await api.append("end", path=f"{KEPT}/records", key="end")
    await api.client.post(f"{KEPT}/compact")
    assert read_headers(log)[0].records_count == 0
    tag = {"if-match": (await api.client.get(f"{KEPT}/offsets")).headers["etag"]}
    cut = await api.client.post(f"{KEPT}/truncate", json={"to_offset": 3}, headers=tag)
    assert (cut.status_code, cut.json()["log_end_offset"]) == (200, 3)


async def test_damage_is_cut_off_wherever_it_is_asked_for(tmp_path: Path) -> None:
    """An unreadable batch does not prevent the cut."""
    async with running(tmp_path) as api:
        await api.create()
        await api.append(1, 2, 3)
    path = tmp_path / "events-0" / log_name(0)
    path.write_bytes(one_bit_flipped(path.read_bytes()))
    async with running(tmp_path) as api:
        cut = await api.client.post(
            f"{LOG}/truncate", json={"to_offset": 1}, headers=await tag_of(api)
        )
        assert (cut.status_code, cut.json()["log_end_offset"]) == (200, 1)


async def test_truncation_beyond_the_end_is_refused(api: Api) -> None:
    """There is nothing to cut: 416 with the marks, and the same epoch as before."""
    await api.append(1)
    tag = await tag_of(api)
    beyond = await api.client.post(f"{LOG}/truncate", json={"to_offset": 2}, headers=tag)
    assert (beyond.status_code, beyond.json()["code"]) == (416, "offset_beyond_log_end")
    assert (beyond.json()["offset"], beyond.json()["log_end_offset"]) == (2, 1)
    assert await tag_of(api) == tag


async def test_waiting_appends_are_answered_before_a_truncation(tmp_path: Path) -> None:
    """An append that the truncation removes was on disk first, and its client gets success."""
    async with running(tmp_path, commit_interval_ms=600_000, commit_timeout_ms=2_000) as api:
        await api.create()
        await api.client.post(f"{RECORDS}?acks=1", json={"records": [{"value": 1}]})
        waiting = api.local.commits.wait(api.log(), 1)
        assert waiting is not None
        tag = await tag_of(api)
        cut = await api.client.post(f"{LOG}/truncate", json={"to_offset": 0}, headers=tag)
        assert cut.json()["log_end_offset"] == 0
        await waiting


async def test_compaction_on_demand_keeps_the_last_of_each_key(api: Api) -> None:
    """Of two values of a key one is left below the active segment; the report counts them."""
    await api.create("kept", cleanup_policy="compact")
    await api.append(1, 2, key="a", path=f"{KEPT}/records")
    await api.client.post(f"{KEPT}/roll")
    await api.append(3, key="b", path=f"{KEPT}/records")
    answer = await api.client.post(f"{KEPT}/compact")
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert (report["first_dirty_offset"], report["end_offset"], report["keys_count"]) == (0, 2, 1)
    assert (report["records_read"], report["records_kept"]) == (2, 1)
    page = (await api.client.get(f"{KEPT}/records")).json()
    assert [(one["offset"], one["value"]) for one in page["records"]] == [(1, 2), (2, 3)]


async def test_a_log_that_is_not_compacted_is_left_alone(api: Api) -> None:
    """422 names the policy; only the topic's policy allows old values to be removed (M8)."""
    refused = await api.client.post(f"{LOG}/compact")
    assert (refused.status_code, refused.json()["code"]) == (422, "policy_violation")
