"""Appends to a cluster: in order, repeated only where that is safe, answered as the broker says."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from app.errors import (
    AppendBrokeOff,
    BackendRefused,
    BackendUnavailable,
    CommitTimedOut,
    NotEnoughReplicas,
    NotSupportedByBackend,
)
from app.http.problems import problem_members
from app.store.port import Partition, RemotePartition
from engine.errors import (
    CorruptBatch,
    InvalidRecord,
    Overloaded,
    ProducerFenced,
    SequenceGap,
    TooLarge,
    TopicNotFound,
    UnsupportedMagic,
    WouldBlock,
)
from engine.log.results import Appended
from engine.records.control import ControlType, build_end_marker
from engine.records.header import ATTRIBUTES_POSITION, MAGIC_POSITION, TRANSACTIONAL_MASK
from engine.records.scan import iter_headers
from tests.support.builders import new_batch
from tests.support.fake_kafka import FakeKafka, eventually
from tests.support.fake_log import FakeLog
from tests.support.kafka_store import Opened, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(fake: FakeKafka, tmp_path: Path) -> AsyncIterator[Opened]:
    """A store that gives up soon."""
    async with opened(fake, tmp_path, commit_timeout_ms=1_000) as service:
        yield service


def producer(sequence: int, count: int = 1, epoch: int = 0) -> bytearray:
    """A batch of producer 7."""
    return new_batch(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def sequences(log: FakeLog) -> list[int]:
    return [header.base_sequence for batch in log.batches for _, header in iter_headers(batch)]


async def test_a_batch_is_stored_as_it_was_sent(fake: FakeKafka, service: Opened) -> None:
    """Only its base offset and leader epoch are the broker's."""
    (log,) = fake.create("events")
    partition, batch = await service.partition(), new_batch(3)
    appended = await service.append(partition, batch)
    assert (appended.base_offset, appended.last_offset, appended.records_count) == (0, 2, 3)
    assert log.batches[0][16:] == bytes(batch[16:])
    assert partition.watermarks.high_watermark == 3


async def test_acks_are_kafkas(fake: FakeKafka, service: Opened) -> None:
    """With 1 nothing is committed yet; with 0 no broker says where the batch is."""
    (log,) = fake.create("events")
    partition = await service.partition()
    await service.append(partition, new_batch(1), "1")
    marks = partition.watermarks
    assert (marks.high_watermark, marks.log_end_offset) == (0, 1)
    appended = await service.append(partition, new_batch(2), "0")
    assert (appended.base_offset, appended.last_offset, appended.records_count) == (-1, -1, 2)
    await service.append(partition, new_batch(1), "all")
    assert log.end_offset == 4
    assert partition.watermarks.high_watermark == 4


async def test_appends_of_one_turn_share_a_request(fake: FakeKafka, service: Opened) -> None:
    """One batch of each partition; several of one partition take as many requests."""
    fake.create("events", 2)
    even, odd = await service.partition("events", 0), await service.partition("events", 1)
    first = await service.partition()
    await asyncio.gather(*[service.append(one, new_batch(1)) for one in (even, odd, first)])
    assert fake.requests["Produce"] == 3  # two connections, and a second batch of one partition


async def test_the_time_of_the_append_is_the_brokers(fake: FakeKafka, service: Opened) -> None:
    """With `LogAppendTime` the response has it."""
    fake.create("events")
    fake.append_time = datetime(2026, 1, 1, tzinfo=UTC)
    appended = await service.append(await service.partition(), new_batch(1))
    assert appended.timestamp == 1_767_225_600_000
    (share,) = appended.shared_out([(1, 5)])
    assert share.timestamp == appended.timestamp


async def test_a_repetition_is_a_duplicate(fake: FakeKafka, service: Opened) -> None:
    """The broker answers the first offsets, below what is known to be the log's end."""
    (log,) = fake.create("events")
    partition = await service.partition()
    first = await service.append(partition, producer(0, 2))
    again = await service.append(partition, producer(0, 2))
    assert (first.is_duplicate, again.is_duplicate, again.base_offset) == (False, True, 0)
    assert log.end_offset == 2


@pytest.mark.parametrize(
    ("code", "error", "side_effects"),
    [
        (ErrorCode.out_of_order_sequence_number, SequenceGap, "none"),
        (ErrorCode.invalid_producer_epoch, ProducerFenced, "none"),
        (ErrorCode.not_enough_replicas, NotEnoughReplicas, "none"),
        (ErrorCode.not_enough_replicas_after_append, CommitTimedOut, "unknown"),
        (ErrorCode.request_timed_out, CommitTimedOut, "unknown"),
        (ErrorCode.unknown_server_error, CommitTimedOut, "unknown"),
        (ErrorCode.message_too_large, TooLarge, "none"),
        (ErrorCode.corrupt_message, CorruptBatch, "none"),
        (ErrorCode.cluster_authorization_failed, BackendRefused, "none"),
        (ErrorCode.concurrent_transactions, BackendUnavailable, "none"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_refusal_is_the_contracts(
    fake: FakeKafka,
    service: Opened,
    code: ErrorCode,
    error: type[Exception],
    side_effects: str,
) -> None:
    """Each code of the broker, with whether anything may have been written."""
    fake.create("events")
    partition = await service.partition()
    fake.errors["Produce"].append(code)
    with pytest.raises(error) as caught:
        await service.append(partition, new_batch(1))
    assert problem_members(caught.value)["side_effects"] == side_effects
    assert f'code="{code.name}"' in _exposed(service)


def _exposed(service: Opened) -> str:
    return "".join(
        f'code="{sample.labels["code"]}"'
        for family in service.store.collect()
        for sample in family.samples
        if "code" in sample.labels
    )


async def test_refused_records_are_named(fake: FakeKafka, service: Opened) -> None:
    """The broker says which records of a batch it does not take; other refusals have none."""
    fake.create("events")
    partition = await service.partition()
    fake.record_errors = ["a key is needed"]
    fake.errors["Produce"] += [ErrorCode.invalid_record, ErrorCode.corrupt_message]
    with pytest.raises(InvalidRecord) as caught:
        await service.append(partition, new_batch(1))
    assert caught.value.errors == ({"index": 0, "detail": "a key is needed"},)
    with pytest.raises(CorruptBatch):
        await service.append(partition, new_batch(1))


async def test_a_new_leader_is_found(fake: FakeKafka, service: Opened) -> None:
    """A broker that does not lead has written nothing: the batch is sent to the one that does."""
    (log,) = fake.create("events")
    partition = await service.partition()
    log.leader, log.epoch = 2, 1
    appended = await service.append(partition, new_batch(1))
    assert (appended.base_offset, partition.leader_epoch) == (0, 1)
    assert fake.requests["Produce"] == 2


async def test_a_lost_answer_is_repeated_for_a_producer(fake: FakeKafka, service: Opened) -> None:
    """Its sequence says that it is the same batch: it is written once."""
    (log,) = fake.create("events")
    partition = await service.partition()
    fake.loses_answers["Produce"] = 1
    appended = await service.append(partition, producer(0))
    assert (appended.base_offset, appended.is_duplicate) == (0, False)
    assert len(log.batches) == 1


async def test_a_lost_answer_without_a_producer_is_unknown(
    fake: FakeKafka, service: Opened
) -> None:
    """A second attempt could write the batch twice."""
    (log,) = fake.create("events")
    partition = await service.partition()
    fake.loses_answers["Produce"] = 1
    with pytest.raises(CommitTimedOut, match="not sent again"):
        await service.append(partition, new_batch(1))
    assert len(log.batches) == 1


async def test_a_batch_of_a_leader_that_resigns_is_not_sent_again(
    fake: FakeKafka, service: Opened
) -> None:
    """It answers as one that never led, but with the offset: the new leader may have the batch."""
    (log,) = fake.create("events")
    partition = await service.partition()
    fake.late_errors.append(ErrorCode.not_leader_or_follower)
    with pytest.raises(CommitTimedOut, match="may have the batch"):
        await service.append(partition, new_batch(1))
    fake.late_errors.append(ErrorCode.not_leader_or_follower)
    assert (await service.append(partition, producer(0))).base_offset == 1
    assert len(log.batches) == 2


@pytest.mark.parametrize(
    "later",
    [ErrorCode.not_enough_replicas, ErrorCode.not_leader_or_follower],
    ids=lambda code: code.name,
)
async def test_a_refusal_does_not_undo_a_lost_answer(
    fake: FakeKafka, service: Opened, later: ErrorCode
) -> None:
    """The first attempt has written the batch, whatever the brokers answer to the next ones."""
    (log,) = fake.create("events")
    partition = await service.partition()
    fake.loses_answers["Produce"] = 1
    fake.errors["Produce"] += [ErrorCode.none, *[later] * 10_000]
    with pytest.raises(CommitTimedOut) as caught:
        await service.append(partition, producer(0))
    assert problem_members(caught.value)["side_effects"] == "unknown"
    assert len(log.batches) == 1


async def test_a_broker_that_dies_does_not_undo_a_lost_answer(
    fake: FakeKafka, service: Opened
) -> None:
    """The last attempt was not sent; the first one was."""
    fake.create("events")
    partition = await service.partition()
    fake.holds["Produce"] = asyncio.Event()
    append = asyncio.create_task(service.append(partition, producer(0)))
    await eventually(partial(_has_sent_more_than, fake, 0))
    await fake.stop(1)
    fake.holds.pop("Produce").set()
    with pytest.raises(CommitTimedOut):
        await append


async def test_a_producers_batch_waits_no_longer_than_its_time(
    fake: FakeKafka, service: Opened
) -> None:
    """Those that wait for an earlier one have not been sent when it ends."""
    (log,) = fake.create("events")
    partition = await service.partition()
    fake.holds["Produce"] = asyncio.Event()
    batches = [producer(sequence) for sequence in range(4)]
    done = await asyncio.gather(
        *[service.append(partition, one) for one in batches], return_exceptions=True
    )
    assert [type(one) for one in done] == [CommitTimedOut, *[BackendUnavailable] * 3]
    fake.holds.pop("Produce").set()
    assert (await service.append(partition, producer(1))).base_offset == 1
    assert sequences(log) == [0, 1]


async def test_an_answer_without_the_partition_is_no_answer(
    fake: FakeKafka, service: Opened
) -> None:
    """It does not say whether the batch was written."""
    fake.create("events")
    partition = await service.partition()
    fake.silent.add("Produce")
    with pytest.raises(CommitTimedOut):
        await service.append(partition, new_batch(1))


async def test_a_broker_that_is_gone_has_written_nothing(fake: FakeKafka, service: Opened) -> None:
    """Until a leader is there, or the request's time is over."""
    (log,) = fake.create("events")
    partition = await service.partition()
    await fake.stop(1)
    with pytest.raises(BackendUnavailable):
        await service.append(partition, new_batch(1))
    log.leader = 2
    assert (await service.append(partition, new_batch(1))).base_offset == 0


async def test_a_producers_unanswered_batch_is_unknown(fake: FakeKafka, service: Opened) -> None:
    """When its time is over, the service cannot say whether it was written."""
    fake.create("events")
    partition = await service.partition()
    fake.holds["Produce"] = asyncio.Event()
    with pytest.raises(CommitTimedOut):
        await service.append(partition, producer(0))
    fake.holds.pop("Produce").set()


async def test_a_lost_cluster_is_refused_soon(
    fake: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any broker a request does not wait for its time; a broker that is back is used."""
    monkeypatch.setattr("app.store.kafka.cluster.LOST_SECONDS", 0.0)
    async with opened(fake, tmp_path) as service:
        fake.create("events")
        partition = await service.partition()
        for node in (1, 2):
            await fake.stop(node)
        with pytest.raises(BackendUnavailable):
            await service.append(partition, new_batch(1))
        assert service.store.failure() is not None
        with pytest.raises(BackendUnavailable):
            await service.store.topics.allocate_producer()
        await fake.start(1)
        await service.store.topics.look_for("events")
        assert service.store.failure() is None
        assert (await service.append(partition, new_batch(1))).base_offset == 0


async def test_a_producers_batches_keep_their_order(fake: FakeKafka, service: Opened) -> None:
    """One is in flight at a time, also while a leader is looked for."""
    (log,) = fake.create("events")
    partition = await service.partition()
    fake.errors["Produce"].append(ErrorCode.not_leader_or_follower)
    batches = [producer(sequence) for sequence in range(8)]
    done = await asyncio.gather(*[service.append(partition, one) for one in batches])
    assert sequences(log) == list(range(8))
    assert [one.base_offset for one in done] == list(range(8))


async def test_batches_of_one_body_follow_each_other(fake: FakeKafka, service: Opened) -> None:
    """Kafka takes one of a partition in a request."""
    (log,) = fake.create("events")
    appended = await service.append(await service.partition(), new_batch(2) + new_batch(1))
    assert (appended.base_offset, appended.last_offset, appended.records_count) == (0, 2, 3)
    assert [one.base_offset for one in appended.one_by_one()] == [0, 2]
    assert len(log.batches) == 2


async def test_a_body_that_breaks_off_says_how_far_it_is(fake: FakeKafka, service: Opened) -> None:
    """What was written stays; only a producer may send all of it again."""
    fake.create("events")
    partition = await service.partition()
    for body, may_repeat in ((new_batch(1) * 2, False), (producer(0) + producer(1), True)):
        fake.errors["Produce"] += [ErrorCode.none, ErrorCode.not_enough_replicas]
        with pytest.raises(AppendBrokeOff) as caught:
            await service.append(partition, body)
        members = problem_members(caught.value)
        assert (members["retryable"], members["side_effects"]) == (may_repeat, "unknown")
        assert members["committed_records"] == 1


async def test_wrong_bodies_are_refused_whole(fake: FakeKafka, service: Opened) -> None:
    """Before the first batch is sent."""
    (log,) = fake.create("events")
    partition, good = await service.partition(), new_batch(1)
    torn, damaged, old, transaction = good[:-1], new_batch(1), new_batch(1), new_batch(1)
    damaged[-1] ^= 1
    old[MAGIC_POSITION] = 1
    transaction[ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL_MASK
    marker = build_end_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    for wrong, error in (
        (b"", CorruptBatch),
        (torn, CorruptBatch),
        (damaged, CorruptBatch),
        (old, UnsupportedMagic),
        (transaction, NotSupportedByBackend),
        (marker, InvalidRecord),
        (new_batch(1, value=bytes(2_000_000)), TooLarge),
    ):
        with pytest.raises(error):
            await service.append(partition, good + bytes(wrong) if wrong else wrong)
    assert log.batches == []


async def test_bytes_in_flight_are_bounded(fake: FakeKafka, tmp_path: Path) -> None:
    """Beyond the limit an append is refused; one that is larger alone goes."""
    batch = new_batch(1)
    async with opened(fake, tmp_path, max_kafka_produce_bytes=len(batch) + 1) as service:
        fake.create("events")
        partition = await service.partition()
        done = await asyncio.gather(
            *[service.append(partition, batch) for _ in range(2)], return_exceptions=True
        )
        assert [type(one) for one in done] == [Appended, Overloaded]
        assert (await service.append(partition, new_batch(100))).records_count == 100


async def test_a_deleted_topic_is_not_found(fake: FakeKafka, service: Opened) -> None:
    """As soon as its broker says so."""
    fake.create("events")
    partition = await service.partition()
    del fake.topics["events"]
    with pytest.raises(TopicNotFound):
        await service.append(partition, new_batch(1))


async def test_the_batcher_gets_its_result_by_a_call(fake: FakeKafka, service: Opened) -> None:
    """Or the error; nothing can be appended at once."""
    fake.create("events")
    partition = await service.partition()
    assert isinstance(partition, RemotePartition)
    told: list[Appended | Exception] = []
    both = asyncio.Event()

    def settle(result: Appended | Exception) -> None:
        told.append(result)
        if len(told) == 2:
            both.set()

    partition.send(new_batch(1), acks="all", checked=True, settle=settle)
    partition.send(b"?", acks="all", checked=True, settle=settle)
    async with asyncio.timeout(10):
        await both.wait()
    assert {type(one) for one in told} == {Appended, CorruptBatch}
    with pytest.raises(WouldBlock):
        partition.append_now(new_batch(1), acks="all", checked=True)
    partition.commit_soon()


async def test_an_abandoned_append_leaves_the_others_alone(
    fake: FakeKafka, service: Opened
) -> None:
    """Its client has gone: its answer, or the loss of it, is dropped."""
    fake.create("events")
    partition = await service.partition()
    for loses in (0, 1):
        fake.holds["Produce"] = asyncio.Event()
        append = asyncio.create_task(_append(service, partition))
        await eventually(partial(_has_sent_more_than, fake, loses))
        fake.loses_answers["Produce"] = loses
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        fake.holds.pop("Produce").set()
    assert (await service.append(partition, producer(0))).records_count == 1


def _has_sent_more_than(fake: FakeKafka, count: int) -> bool:
    return fake.requests["Produce"] > count


async def _append(service: Opened, partition: Partition) -> Appended:
    return await service.append(partition, new_batch(1))
