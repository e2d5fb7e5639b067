"""What a broker in memory answers to readers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from app.store.kafka.errors import milliseconds
from engine.records.header import parse_header
from tests.support.fake_log import FakeLog

if TYPE_CHECKING:
    from tests.support.fake_kafka import FakeKafka

NOW: Final = milliseconds(0)
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


async def fetch(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    deadline = asyncio.get_running_loop().time() + request.max_wait.total_seconds()
    while True:
        moved = fake.moved
        topics, found = [], False
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                place = (topic.topic_id, one.partition, node, one.current_leader_epoch)
                log, code = fake.asked("Fetch", *place)
                committed = request.isolation_level == 1
                partitions.append(_fetched(r, one, log, code, committed=committed))
            found |= any(one.records or one.error_code is not ErrorCode.none for one in partitions)
            shown = () if "Fetch" in fake.silent else tuple(partitions)
            topics.append(r.FetchableTopicResponse(topic_id=topic.topic_id, partitions=shown))
        if found or asyncio.get_running_loop().time() >= deadline:
            break
        fake.waiting_fetches += 1
        try:
            async with asyncio.timeout_at(deadline):
                await moved.wait()
        except TimeoutError:
            continue
        finally:
            fake.waiting_fetches -= 1
    fake.silent.discard("Fetch")
    return r.FetchResponse(
        throttle_time=NOW,
        error_code=fake.next_error("FetchSession"),
        responses=tuple(topics),
    )


def _fetched(r: Any, one: Any, log: FakeLog, code: ErrorCode, *, committed: bool) -> Any:
    offset = int(one.fetch_offset)
    bound = log.stable if committed else log.high
    if code is ErrorCode.none and not log.start_offset <= offset <= log.end_offset:
        code = ErrorCode.offset_out_of_range
    is_good = code is ErrorCode.none
    return r.PartitionData(
        partition_index=one.partition,
        error_code=code,
        high_watermark=i64((log.reported_high or log.high) if is_good else -1),
        last_stable_offset=i64((log.reported_high or log.stable) if is_good else -1),
        log_start_offset=i64(log.start_offset if is_good else -1),
        aborted_transactions=tuple(
            r.AbortedTransaction(producer_id=i64(producer_id), first_offset=i64(first))
            for producer_id, first in log.aborted
        )
        if committed
        else None,
        records=log.records(offset, bound, one.partition_max_bytes) if is_good else b"",
    )


async def list_offsets(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            log, code = fake.asked(
                "ListOffsets",
                topic.name,
                one.partition_index,
                node,
                one.current_leader_epoch,
            )
            timestamp, offset = _offset(log, one.timestamp, committed=request.isolation_level == 1)
            is_good = code is ErrorCode.none
            partitions.append(
                r.ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    error_code=code,
                    timestamp=i64(timestamp if is_good else -1),
                    offset=i64(offset if is_good else -1),
                    leader_epoch=i32(log.epoch if offset >= 0 else -1),
                )
            )
        shown = () if "ListOffsets" in fake.silent else tuple(partitions)
        topics.append(r.ListOffsetsTopicResponse(name=topic.name, partitions=shown))
    fake.silent.discard("ListOffsets")
    return r.ListOffsetsResponse(throttle_time=NOW, topics=tuple(topics))


def _offset(log: FakeLog, timestamp: int, *, committed: bool) -> tuple[int, int]:
    if timestamp == EARLIEST:
        return -1, log.start_offset
    if timestamp == -1:
        return -1, log.stable if committed else log.high
    headers = [parse_header(batch, 0) for batch in log.batches]
    if timestamp == MAX_TIMESTAMP:
        latest = max(headers, key=lambda one: one.max_timestamp, default=None)
        return (-1, -1) if latest is None else (latest.max_timestamp, latest.base_offset)
    for header in headers:
        if header.max_timestamp >= timestamp and header.base_offset < log.high:
            return header.max_timestamp, header.base_offset
    return -1, -1


async def describe_producers(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    topics = []
    for topic in request.topics:
        partitions = []
        for number in topic.partition_indexes:
            log, code = fake.asked("DescribeProducers", topic.name, number, node)
            producers = tuple(r.ProducerState(**one) for one in log.producers)
            partitions.append(
                r.PartitionResponse(
                    partition_index=number, error_code=code, active_producers=producers
                )
            )
        topics.append(r.TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return r.DescribeProducersResponse(throttle_time=NOW, topics=tuple(topics))


async def delete_records(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    topics = []
    for topic in request.topics:
        results = []
        for one in topic.partitions:
            log, code = fake.asked("DeleteRecords", topic.name, one.partition_index, node)
            if code in {ErrorCode.none, ErrorCode.request_timed_out}:
                log.start_offset = max(log.start_offset, int(one.offset))
            results.append(
                r.DeleteRecordsPartitionResult(
                    partition_index=one.partition_index,
                    low_watermark=i64(log.start_offset),
                    error_code=code,
                )
            )
        topics.append(r.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return r.DeleteRecordsResponse(throttle_time=NOW, topics=tuple(topics))


async def describe_log_dirs(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    topics = []
    for topic in request.topics if fake.sizes else ():
        partitions = [
            r.DescribeLogDirsPartition(
                partition_index=number,
                partition_size=i64(sum(map(len, log.batches))),
                offset_lag=i64(0),
                is_future_key=False,
            )
            for number in topic.partitions
            if isinstance(log := fake.log(topic.topic, number, node), FakeLog)
        ]
        topics.append(r.DescribeLogDirsTopic(name=topic.topic, partitions=tuple(partitions)))
    result = r.DescribeLogDirsResult(
        error_code=ErrorCode.none, log_dir="/kafka", topics=tuple(topics)
    )
    return r.DescribeLogDirsResponse(
        throttle_time=NOW, error_code=ErrorCode.none, results=(result,)
    )
