"""Reads of one log of a cluster: their bounds, their retries, and what readers share."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from app.errors import BackendUnavailable
from app.store.kafka.log import KafkaLog
from app.store.kafka.read.page import Wanted
from engine.errors import (
    LogReplaced,
    OffsetBelowLogStart,
    OffsetBeyondLogEnd,
    StoredDataCorrupt,
    TopicNotFound,
)
from engine.log.results import Fetched, ReadEnd
from engine.records.control import ControlType, build_end_marker
from engine.records.scan import iter_headers
from engine.types import FetchIsolation
from tests.support.builders import new_batch
from tests.support.fake_log import FakeLog
from tests.support.time import START_MS
from tests.unit.app.store.kafka.conftest import Client

pytestmark = pytest.mark.anyio

WHOLE = 1 << 20
BATCH = bytes(new_batch(2))
SIZE = len(BATCH)
COMMITTED = FetchIsolation.TXN_COMMITTED


def wanted(
    offset: int,
    max_bytes: int = WHOLE,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    *,
    end_offset: int | None = None,
    minimum_one_batch: bool = True,
) -> Wanted:
    return Wanted(offset, max_bytes, isolation, end_offset, minimum_one_batch)


def shown(fetched: Fetched) -> tuple[list[int], int, ReadEnd]:
    """The batches of a read, where it goes on, and why it ended."""
    offsets = [header.base_offset for _, header in iter_headers(fetched.data)]
    return offsets, fetched.next_offset, fetched.ended_by


async def filled(client: Client, batches: int = 3) -> tuple[FakeLog, KafkaLog]:
    """A log with batches of two records, at the broker and here."""
    (stored,) = client.fake.create("events")
    client.fake.append(stored, *[BATCH] * batches)
    return stored, await client.log()


async def test_a_page_ends_where_its_bounds_say(client: Client) -> None:
    """Not where a segment of the broker ends: it is the same on every replica."""
    stored, log = await filled(client, batches=4)
    stored.segment_ends = {2, 4}
    assert shown(await log.read(wanted(1))) == ([0, 2, 4, 6], 8, ReadEnd.LOG_BOUND)
    three = await log.read(wanted(0, 3 * SIZE + 1))
    assert shown(three) == ([0, 2, 4], 6, ReadEnd.MAX_BYTES)
    assert shown(await log.read(wanted(0, 2 * SIZE))) == ([0, 2], 4, ReadEnd.MAX_BYTES)
    assert shown(await log.read(wanted(0, 1))) == ([0], 2, ReadEnd.MAX_BYTES)
    assert shown(await log.read(wanted(0, end_offset=3))) == ([0, 2], 4, ReadEnd.END_OFFSET)
    assert shown(await log.read(wanted(8))) == ([], 8, ReadEnd.LOG_BOUND)
    small = await log.read(wanted(0, 1, minimum_one_batch=False))
    assert shown(small) == ([], 0, ReadEnd.MAX_BYTES)


async def test_a_gap_counts_as_read(client: Client) -> None:
    """Compaction may leave nothing up to the end, or up to an end offset."""
    (stored,) = client.fake.create("events")
    stored.append(BATCH)
    stored.append(BATCH, base_offset=10)
    stored.high_watermark = 20
    log = await client.log()
    assert shown(await log.read(wanted(2, end_offset=5))) == ([], 5, ReadEnd.END_OFFSET)
    assert shown(await log.read(wanted(0, end_offset=5))) == ([0], 5, ReadEnd.END_OFFSET)
    stored.append(BATCH, base_offset=30)
    assert shown(await log.read(wanted(12))) == ([], 20, ReadEnd.LOG_BOUND)


async def test_what_needs_no_records_asks_for_the_offsets_alone(client: Client) -> None:
    """An empty range, and a reader without room."""
    _, log = await filled(client)
    nothing = await log.read(wanted(3, end_offset=3))
    assert shown(nothing) == ([], 3, ReadEnd.END_OFFSET)
    assert shown(await log.read(wanted(3, 0, minimum_one_batch=False)))[2] is ReadEnd.MAX_BYTES
    assert shown(await log.read(wanted(6, 0, minimum_one_batch=False)))[2] is ReadEnd.LOG_BOUND
    assert client.fake.requests["Fetch"] == 0
    assert log.read_now(wanted(3, end_offset=3), waits=True) is None
    with pytest.raises(OffsetBeyondLogEnd):
        await log.read(wanted(7, end_offset=7))


async def test_a_read_out_of_range_says_where_the_log_is(client: Client) -> None:
    """Below its start and beyond its end; a retry if the log has moved meanwhile."""
    stored, log = await filled(client)
    stored.start_offset = 2
    with pytest.raises(OffsetBelowLogStart) as below:
        await log.read(wanted(1))
    assert below.value.facts()["log_start_offset"] == 2
    with pytest.raises(OffsetBeyondLogEnd):
        await log.read(wanted(7))
    client.fake.errors["Fetch"].append(ErrorCode.offset_out_of_range)
    assert shown(await log.read(wanted(4))) == ([4], 6, ReadEnd.LOG_BOUND)


async def test_equal_reads_of_one_turn_are_one_request(client: Client) -> None:
    """A later one is another: its answer must not be older than the question."""
    _, log = await filled(client)
    await log.refresh()
    reads = await asyncio.gather(*(log.read(wanted(0)) for _ in range(100)))
    assert client.fake.requests["Fetch"] == 1
    assert all(one is reads[0] for one in reads)
    await log.read(wanted(0))
    assert client.fake.requests["Fetch"] == 2
    assert reads[0].watermarks is log.marks.watermarks


async def test_a_new_leader_is_found(client: Client) -> None:
    """It is read once it has all committed records."""
    stored, log = await filled(client)
    await log.read(wanted(0))
    stored.leader, stored.epoch = 2, 1
    client.fake.errors["ListOffsets"] += [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.offset_not_available,
    ]
    assert shown(await log.read(wanted(0)))[1] == 6
    assert log.marks.leader_epoch == 1


async def test_a_lost_connection_is_opened_again(client: Client) -> None:
    """So are an answer without the log, as of a broker that throttles, and a fenced epoch."""
    _, log = await filled(client)
    client.fake.closes["Fetch"] = 1
    client.fake.silent = {"Fetch", "ListOffsets"}
    client.fake.errors["FetchSession"].append(ErrorCode.none)
    client.fake.errors["Fetch"] += [ErrorCode.none, ErrorCode.fenced_leader_epoch]
    assert shown(await log.read(wanted(0)))[1] == 6
    counted = {
        sample.labels["code"]
        for family in client.metrics.collect()
        for sample in family.samples
        if sample.name == "tidelog_kafka_errors_total"
    }
    assert counted == {"no_answer", "fenced_leader_epoch"}


async def test_a_cluster_that_does_not_answer_is_unavailable(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time of a read, not of a request; nothing is held then."""
    _, log = await filled(client)
    await log.refresh()
    monkeypatch.setattr(log._reads, "timeout_ms", 50)  # noqa: SLF001  # a setting of the service
    for name in ("Fetch", "ListOffsets"):
        client.fake.holds[name] = asyncio.Event()
    for asked in (log.read(wanted(0)), log.refresh(), log.max_timestamp()):
        with pytest.raises(BackendUnavailable):
            await asked
    for name in ("Fetch", "ListOffsets"):
        client.fake.holds.pop(name).set()
    assert client.metrics.in_flight_bytes["fetch"] == 0


async def test_a_topic_that_was_created_again_is_another_log(client: Client) -> None:
    """Nothing of it is read under the old id; a deleted one is not found."""
    _, log = await filled(client)
    await log.read(wanted(0))
    client.fake.create("events")[0].append(BATCH)
    with pytest.raises(LogReplaced):
        await log.read(wanted(0))
    del client.fake.topics["events"]
    await client.cluster.refresh()
    with pytest.raises(TopicNotFound):
        await log.read(wanted(0))


async def test_a_log_that_lost_committed_records_is_replaced(client: Client) -> None:
    """After an unclean election: what was read may be other records now."""
    stored, log = await filled(client)
    await log.read(wanted(0))
    del stored.batches[1:]
    stored.epoch = 1
    with pytest.raises(LogReplaced, match="unclean"):
        await log.read(wanted(0))
    assert client.replaced == [log.topic_partition]


async def test_aborted_records_are_left_out(client: Client) -> None:
    """As the broker's list says; nothing above the last stable offset is read."""
    (stored,) = client.fake.create("events")
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    marker = build_end_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
    )
    client.fake.append(stored, BATCH, new_batch(1, base_sequence=0, **options), marker, BATCH)
    client.fake.append(stored, new_batch(1, base_sequence=1, **options))
    stored.aborted, stored.last_stable_offset = [(7, 2)], 6
    log = await client.log()
    fetched = await log.read(wanted(0, isolation=COMMITTED))
    assert shown(fetched) == ([0, 4], 6, ReadEnd.LOG_BOUND)
    assert fetched.watermarks.last_stable_offset == 6
    assert shown(await log.read(wanted(0))) == ([0, 2, 3, 4, 6], 7, ReadEnd.LOG_BOUND)
    assert log.marks.watermarks.last_stable_offset == 6


async def test_records_that_a_broker_adds_meanwhile_are_below_the_bound(client: Client) -> None:
    """It reads its offsets before the records: these may end above them."""
    stored, log = await filled(client)
    await log.refresh()
    stored.reported_high = 4
    fetched = await log.read(wanted(0))
    assert (fetched.next_offset, fetched.watermarks.high_watermark) == (6, 6)
    stable = await log.read(wanted(0, isolation=COMMITTED))
    assert stable.watermarks.last_stable_offset == 6


async def test_a_response_without_a_batch_is_damage(client: Client) -> None:
    """A reader would ask for it again and again."""
    stored, log = await filled(client, batches=2)
    stored.batches[1] = stored.batches[1][:-3]
    with pytest.raises(StoredDataCorrupt, match="without a whole batch"):
        await log.read(wanted(2))
