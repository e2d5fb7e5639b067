"""Producers over HTTP: protocol rules P1 to P4."""

import asyncio
from pathlib import Path

import pytest

from app.store.local import transactions
from engine.records.builder import build_batch
from engine.types import INT32_MAX
from tests.support.builders import new_batch
from tests.support.service import BATCHES, RAW, RECORDS, Api, running
from tests.support.time import OF_ANY_YEAR

pytestmark = pytest.mark.anyio

LOG = "/v1/topics/events/partitions/0"


def identity(producer_id: int, sequence: int, epoch: int = 0) -> dict[str, str]:
    return {
        "producer-id": str(producer_id),
        "producer-epoch": str(epoch),
        "producer-sequence": str(sequence),
    }


async def send(api: Api, count: int, headers: dict[str, str], acks: str = "all") -> None:
    """Append a number of records idempotently."""
    records = {"records": [{"value": 1}] * count}
    answer = await api.client.post(f"{RECORDS}?acks={acks}", json=records, headers=headers)
    assert answer.status_code == 201, answer.text


async def begin(api: Api, producer_id: int = 7, sequence: int = 0) -> None:
    """Append one record in a transaction."""
    batch = new_batch(
        producer_id=producer_id, producer_epoch=1, base_sequence=sequence, is_transactional=True
    )
    answer = await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    assert answer.status_code == 201, answer.text


def ending(action: str, producer_id: int = 7, epoch: int = 1) -> dict[str, object]:
    return {"producer_id": producer_id, "producer_epoch": epoch, "action": action}


async def outcome(api: Api, sequence: int, **parameters: int) -> tuple[object, object, object]:
    """What became of a sequence of producer 5, and where."""
    url = f"{LOG}/producers/5/appends/{sequence}"
    answer = await api.client.get(url, params=parameters)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["outcome"], body["base_offset"], body["last_offset"]


async def test_producers_are_listed_by_their_ids(api: Api) -> None:
    """Each with its epoch, last sequence and open transaction; page by page (P1)."""
    await send(api, 2, identity(9, 0, epoch=3))
    await begin(api)
    first = (await api.client.get(f"{LOG}/producers", params={"page_size": 1})).json()
    (shown,) = first["producers"]
    assert (shown["producer_id"], shown["current_txn_start_offset"]) == (7, 2)
    page = {"page_token": first["next_page_token"]}
    second = (await api.client.get(f"{LOG}/producers", params=page)).json()
    (shown,) = second["producers"]
    assert (shown["producer_id"], shown["producer_epoch"], shown["last_sequence"]) == (9, 3, 1)
    assert (shown["current_txn_start_offset"], second["next_page_token"]) == (None, None)


async def test_the_outcome_of_an_append_can_be_asked_for(api: Api) -> None:
    """By any sequence of the batch; the next ones are absent, old ones forgotten (P2)."""
    for sequence in range(0, 14, 2):
        await send(api, 2, identity(5, sequence))
    assert await outcome(api, 12) == ("committed", 12, 13)
    assert await outcome(api, 13) == ("committed", 12, 13)
    assert await outcome(api, 4) == ("committed", 4, 5)
    assert await outcome(api, 14) == ("absent", None, None)
    assert await outcome(api, 3) == ("forgotten", None, None)
    assert await outcome(api, 14 + 2**30 - 1) == ("absent", None, None)
    assert await outcome(api, 14 + 2**30) == ("forgotten", None, None)  # sequences come again
    assert await outcome(api, 12, producer_epoch=0) == ("committed", 12, 13)
    assert await outcome(api, 0, producer_epoch=1) == ("absent", None, None)
    await send(api, 1, identity(5, 0, epoch=1))
    assert await outcome(api, 12, producer_epoch=0) == ("forgotten", None, None)


async def test_what_is_not_on_disk_yet_is_written(api: Api) -> None:
    """Between append and commit the records could still be lost, and the response says so."""
    batch = build_batch(
        [(0, None, b"1", ())], producer_id=5, producer_epoch=0, base_sequence=INT32_MAX
    )
    api.log().append(batch)
    assert await outcome(api, INT32_MAX) == ("written", 0, 0)
    api.log().durability.commit()
    assert await outcome(api, INT32_MAX) == ("committed", 0, 0)
    assert await outcome(api, 0) == ("absent", None, None)


async def test_an_unknown_producer_is_not_found(api: Api) -> None:
    """404 with its own code, for outcomes and transactions, even if others are known."""
    await begin(api)
    asked = await api.client.get(f"{LOG}/producers/5/appends/0")
    assert (asked.status_code, asked.json()["code"]) == (404, "producer_not_found")
    ended = await api.client.post(f"{LOG}/transactions", json=ending("commit", producer_id=5))
    assert (ended.status_code, ended.json()["code"]) == (404, "producer_not_found")


async def test_an_unknown_outcome_names_where_to_ask(tmp_path: Path) -> None:
    """The 504 of an append with a producer has the URL; without one there is no URL.

    As (P3) says.
    """
    async with running(tmp_path, commit_timeout_ms=1, commit_interval_ms=600_000) as api:
        await api.create(**OF_ANY_YEAR)
        api.log().append(new_batch(1))  # the first append is made, and flushed, by a worker
        # the flusher is never woken: a disk that never confirms
        api.local.commits.attach(asyncio.get_running_loop(), lambda: None)
        record = {"records": [{"value": 1}]}
        asked = await api.client.post(RECORDS, json=record, headers=identity(5, 0))
        assert (asked.status_code, asked.json()["code"]) == (504, "append_outcome_unknown")
        assert (asked.json()["kafka_error_code"], asked.json()["side_effects"]) == (7, "unknown")
        url = asked.json()["outcome"]
        assert asked.headers["link"] == f'<{url}>; rel="status"'
        assert (await api.client.get(url)).json()["outcome"] == "written"
        batch = bytes(new_batch(producer_id=6, producer_epoch=0, base_sequence=0))
        raw = await api.client.post(BATCHES, content=batch, headers=RAW)
        assert raw.json()["outcome"] == f"{LOG}/producers/6/appends/0"
        plain = await api.client.post(RECORDS, json=record)
        assert (plain.status_code, "outcome" in plain.json()) == (504, False)


async def test_a_transaction_is_committed(api: Api) -> None:
    """Its records become stable with the marker, which no reader is shown."""
    await begin(api)
    before = (await api.client.get(f"{LOG}/offsets")).json()
    assert (before["last_stable_offset"], before["high_watermark"]) == (0, 1)
    ended = await api.client.post(f"{LOG}/transactions", json=ending("commit"))
    assert ended.status_code == 200, ended.text
    report = ended.json()
    assert (report["first_offset"], report["marker_offset"], report["action"]) == (0, 1, "commit")
    assert (report["last_stable_offset"], report["high_watermark"]) == (2, 2)
    assert ended.headers["etag"] == (await api.client.get(f"{LOG}/offsets")).headers["etag"]
    page = (await api.client.get(f"{RECORDS}?isolation=read_committed")).json()
    assert ([one["offset"] for one in page["records"]], page["next_offset"]) == ([0], 2)


async def test_a_transaction_is_aborted_and_the_next_one_open(api: Api) -> None:
    """Committed readers never see its records, and the producer continues."""
    await begin(api)
    ended = await api.client.post(f"{LOG}/transactions", json=ending("abort"))
    assert ended.json()["action"] == "abort"
    await begin(api, sequence=1)
    await api.client.post(f"{LOG}/transactions", json=ending("commit"))
    page = (await api.client.get(f"{RECORDS}?isolation=read_committed")).json()
    assert [one["offset"] for one in page["records"]] == [2]


@pytest.mark.parametrize("action", ["commit", "abort"])
async def test_a_repeated_end_is_answered_as_the_first(tmp_path: Path, action: str) -> None:
    """The answer may have been lost: also after other appends, and after a restart (P4)."""
    async with running(tmp_path) as api:
        await api.create()
        await begin(api)
        first = await api.client.post(f"{LOG}/transactions", json=ending(action))
        await api.append(1, 2)
        again = await api.client.post(f"{LOG}/transactions", json=ending(action))
        assert (again.status_code, again.headers["etag"]) == (200, first.headers["etag"])
        for name in ("first_offset", "marker_offset", "action", "producer_epoch"):
            assert again.json()[name] == first.json()[name]
        assert again.json()["log_end_offset"] == 4
    async with running(tmp_path) as api:
        last = await api.client.post(f"{LOG}/transactions", json=ending(action))
        assert (last.status_code, last.json()["marker_offset"]) == (200, 1)
        assert last.json()["first_offset"] is None
        other = "abort" if action == "commit" else "commit"
        refused = await api.client.post(f"{LOG}/transactions", json=ending(other))
        assert refused.status_code == 409
        await begin(api, sequence=1)
        ended = await api.client.post(f"{LOG}/transactions", json=ending(other))
        assert (ended.json()["first_offset"], ended.json()["marker_offset"]) == (4, 5)


async def test_no_end_is_found_that_is_out_of_reach(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is bounded, and begins neither below the log start nor before a batch."""
    monkeypatch.setattr(transactions, "MAX_SOUGHT_OFFSETS", 1)
    monkeypatch.setattr(transactions, "PIECE_BYTES", 1)
    monkeypatch.setattr(transactions, "MAX_ENDED", 0)
    await begin(api)
    await api.append(1)
    await api.client.post(f"{LOG}/transactions", json=ending("commit"))
    assert api.local.topics.transactions.ended == {}
    again = await api.client.post(f"{LOG}/transactions", json=ending("commit"))
    assert again.status_code == 409
    await api.client.post(f"{LOG}/delete-records", json={"before_offset": -1})
    again = await api.client.post(f"{LOG}/transactions", json=ending("commit"))
    assert again.status_code == 409


async def test_only_an_open_transaction_ends(api: Api) -> None:
    """Another end is 409, an older epoch 403, and neither writes a marker (P4)."""
    await begin(api)
    fenced = await api.client.post(f"{LOG}/transactions", json=ending("commit", epoch=0))
    assert (fenced.status_code, fenced.json()["code"]) == (403, "producer_fenced")
    await api.client.post(f"{LOG}/transactions", json=ending("commit"))
    for other in (ending("abort"), ending("commit", epoch=2)):
        again = await api.client.post(f"{LOG}/transactions", json=other)
        assert (again.status_code, again.json()["code"]) == (409, "invalid_transaction_state")
    assert api.log().watermarks.log_end_offset == 2
    wrong = await api.client.post(f"{LOG}/transactions", json=ending("forget"))
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "action")
