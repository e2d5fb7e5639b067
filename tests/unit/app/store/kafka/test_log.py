"""What the leader of a log is asked: look-ups, ranges, producers, deletions, commits."""

import asyncio
import json

import pytest
from kio.schema.errors import ErrorCode

from app.errors import CommitTimedOut
from app.operations.producers import get_append_outcome
from app.settings import Settings
from app.store.kafka.appends import PartitionAppends, ProduceRequests
from app.store.kafka.log import ASSUMED_BYTES, KafkaLog
from app.store.kafka.partition import KafkaPartition
from engine.config import LogConfig
from engine.errors import InvalidRequestValue, OffsetBeyondLogEnd, PolicyViolation
from engine.types import FetchIsolation, TimestampAndOffset
from tests.support.builders import new_batch
from tests.support.fake_kafka import eventually
from tests.support.fake_log import FakeLog
from tests.support.time import START_MS
from tests.unit.app.store.kafka.conftest import Client

pytestmark = pytest.mark.anyio

BOUND = FetchIsolation.HIGH_WATERMARK
MINUTE_MS = 60_000


async def filled(client: Client, *minutes: int) -> tuple[FakeLog, KafkaLog]:
    """A log with one record for each time, in minutes after the start."""
    (stored,) = client.fake.create("events")
    for minute in minutes:
        stored.append(new_batch(1, timestamp=START_MS + minute * MINUTE_MS))
    return stored, await client.log()


async def test_records_are_found_by_time(client: Client) -> None:
    """With the leader epoch of their batch; nothing if none is late enough."""
    _, log = await filled(client, 0, 2, 1)
    second = TimestampAndOffset(START_MS + 2 * MINUTE_MS, 1, 0)
    assert await log.offset_for_time(START_MS + 1) == second
    assert await log.offset_for_time(START_MS + 3 * MINUTE_MS) is None
    client.fake.silent = {"ListOffsets"}
    assert await log.max_timestamp() == second


@pytest.mark.parametrize(
    ("config", "minute", "offset"),
    [
        ({}, 1, 0),  # clients choose the times
        ({"message.timestamp.type": "LogAppendTime"}, 1, 1),
        ({"message.timestamp.type": "LogAppendTime"}, 9, 3),
        ({"message.timestamp.before.max.ms": str(MINUTE_MS)}, 2, 1),
    ],
)
async def test_what_was_appended_before_a_time_is_a_safe_guess(
    client: Client, config: dict[str, str], minute: int, offset: int
) -> None:
    """The times of records count only where the brokers set or bound them."""
    _, log = await filled(client, 0, 1, 2)
    time_ms = START_MS + minute * MINUTE_MS
    assert await log.offset_appended_since(time_ms, LogConfig.of(config)) == offset


async def test_ranges_are_cut_by_offsets(client: Client) -> None:
    """Their bytes are shares of the log's size, or a guess where that is not shown."""
    stored, log = await filled(client, *range(10))
    size = sum(map(len, stored.batches))
    assert await log.size_bytes() == size
    assert await log.extent_bytes(0, 5, BOUND) == -(-size // 2)
    splits = await log.splits(0, 10, BOUND, parts=3, max_offsets=None, at_most=9)
    assert [(start, end) for start, end, _ in splits] == [(0, 3), (3, 6), (6, 10)]
    few = await log.splits(0, 10, BOUND, parts=1, max_offsets=2, at_most=2)
    assert [(start, end) for start, end, _ in few] == [(0, 2), (2, 4)]
    assert await log.splits(5, 5, BOUND, parts=3, max_offsets=None, at_most=9) == [(5, 5, 0)]
    with pytest.raises(OffsetBeyondLogEnd):
        await log.extent_bytes(0, 11, BOUND)
    client.fake.sizes = False
    assert await log.size_bytes() == 10 * ASSUMED_BYTES


async def test_producers_are_the_leaders(client: Client) -> None:
    """By id; the offset of a producer's last sequence is unknown."""
    stored, log = await filled(client, 0)
    usual = {"producer_epoch": 3, "coordinator_epoch": 0, "last_timestamp": START_MS}
    stored.producers = [
        {"producer_id": 9, "last_sequence": -1, "current_txn_start_offset": -1, **usual},
        {"producer_id": 7, "last_sequence": 4, "current_txn_start_offset": 0, **usual},
    ]
    client.fake.errors["DescribeProducers"].append(ErrorCode.not_leader_or_follower)
    first, second = await log.producers()
    assert (first.producer_id, first.last_sequence, first.transaction_first_offset) == (7, 4, 0)
    assert (second.producer_id, second.batches, second.transaction_first_offset) == (9, (), None)


async def test_records_are_given_up(client: Client) -> None:
    """A replica that is down does not matter; what the topic forbids does."""
    stored, log = await filled(client, 0, 1, 2)
    client.fake.errors["DeleteRecords"].append(ErrorCode.request_timed_out)
    await log.delete_records(1)
    assert (stored.start_offset, log.marks.watermarks.log_start_offset) == (1, 1)
    await log.delete_records(-1)
    assert log.marks.watermarks.log_start_offset == 3
    for offset, error in ((4, OffsetBeyondLogEnd), (-2, InvalidRequestValue)):
        with pytest.raises(error):
            await log.delete_records(offset)
    client.fake.errors["DeleteRecords"].append(ErrorCode.policy_violation)
    with pytest.raises(PolicyViolation):
        await log.delete_records(3)


async def test_a_commit_is_waited_for(client: Client) -> None:
    """The callback is called once, later."""
    stored, log = await filled(client, 0, 1)
    stored.high_watermark = 1
    told: list[Exception | None] = []
    assert log.when_committed(2, told.append)
    waiting = asyncio.create_task(log.committed(2))
    asked = client.fake.requests["ListOffsets"]
    await eventually(lambda: client.fake.requests["ListOffsets"] > asked)
    assert not waiting.done()
    stored.high_watermark = None
    await waiting
    await eventually(lambda: bool(told))
    assert told == [None]
    assert not log.when_committed(2, told.append)


async def test_a_commit_that_does_not_come_times_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller does not know whether it will."""
    stored, log = await filled(client, 0, 1)
    stored.high_watermark = 1
    monkeypatch.setattr(log._reads, "commit_timeout_ms", 20)  # noqa: SLF001  # a setting of the service
    told: list[Exception | None] = []
    assert log.when_committed(2, told.append)
    with pytest.raises(CommitTimedOut):
        await log.committed(2)
    await eventually(lambda: bool(told))
    assert isinstance(told[0], CommitTimedOut)


async def test_readers_of_a_deleted_topic_are_woken(client: Client) -> None:
    """They find out themselves."""
    _, log = await filled(client, 0)
    log.abandon(RuntimeError())
    assert client.moved == [log]


async def test_the_outcome_of_an_append_is_known_without_its_offsets(client: Client) -> None:
    """Up to a producer's last sequence everything was written; not what comes after it."""
    stored, log = await filled(client, 0, 1)
    stored.producers = [
        {
            "producer_id": 7,
            "producer_epoch": 3,
            "coordinator_epoch": -1,
            "last_sequence": 4,
            "last_timestamp": START_MS,
        }
    ]
    settings = Settings(kafka=client.fake.addresses)
    requests = ProduceRequests(settings, client.cluster, client.metrics)
    appends = PartitionAppends(
        log.topic_partition,
        cluster=client.cluster,
        requests=requests,
        marks=log.marks,
        timeout_ms=1_000,
    )
    partition = KafkaPartition(log, appends, LogConfig(), "")
    for sequence, outcome in ((0, "written"), (4, "written"), (5, "absent")):
        answer = await get_append_outcome(partition, 7, sequence, 3)
        found = json.loads(bytes(answer.body))
        assert (found["outcome"], found["base_offset"], found["last_offset"]) == (
            outcome,
            None,
            None,
        )
        assert found["next_sequence"] == 5
