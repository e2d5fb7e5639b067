"""What a broker in memory answers to producers and administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i16, i32, i64

from app.store.kafka.errors import milliseconds
from engine.records.header import parse_header
from engine.topic_keys import TOPIC_KEYS, render
from tests.support.fake_log import FakeLog

if TYPE_CHECKING:
    from tests.support.fake_kafka import FakeKafka

NOW: Final = milliseconds(0)


async def produce(fake: FakeKafka, request: Any, r: Any, node: int) -> Any:
    """Append each batch, unless the test has a code for it; some codes come after the append."""
    late = {ErrorCode.not_enough_replicas_after_append, ErrorCode.request_timed_out}
    responses = []
    for topic in request.topic_data:
        partitions = []
        for one in topic.partition_data:
            log, code = fake.asked("Produce", str(topic.name), one.index, node)
            base_offset = -1
            if code is ErrorCode.none:
                code = _judge(log, one.records)
            if code is ErrorCode.none or code in late:
                base_offset = _append(log, one.records)
                fake.move()
            if code is ErrorCode.none and fake.late_errors:
                code = fake.late_errors.popleft()
            partitions.append(
                r.PartitionProduceResponse(
                    index=one.index,
                    error_code=code,
                    base_offset=i64(base_offset),
                    log_append_time=fake.append_time,
                    log_start_offset=i64(log.start_offset),
                    record_errors=tuple(
                        r.BatchIndexAndErrorMessage(
                            batch_index=i32(0), batch_index_error_message=message
                        )
                        for message in fake.record_errors
                    ),
                )
            )
        if "Produce" not in fake.silent:
            responses.append(
                r.TopicProduceResponse(name=topic.name, partition_responses=tuple(partitions))
            )
    fake.silent.discard("Produce")
    if fake.loses_answers["Produce"]:
        fake.loses_answers["Produce"] -= 1
        raise ConnectionError
    return None if request.acks == 0 else r.ProduceResponse(responses=tuple(responses))


def _judge(log: FakeLog, records: bytes) -> ErrorCode:
    """Say what a broker says of a producer's sequence that is neither new nor known."""
    wanted = parse_header(records)
    if not wanted.has_producer_id or _found(log, records) is not None:
        return ErrorCode.none
    expected = 0
    for header in map(parse_header, log.batches):
        if header.producer_id == wanted.producer_id:
            expected = header.last_sequence + 1
    is_next = wanted.base_sequence == expected
    return ErrorCode.none if is_next else ErrorCode.out_of_order_sequence_number


def _found(log: FakeLog, records: bytes) -> int | None:
    """Return the base offset of the batch with this producer and sequence."""
    wanted = parse_header(records)
    for header in map(parse_header, log.batches if wanted.has_producer_id else ()):
        if header[-4:-1] == wanted[-4:-1]:
            return header.base_offset
    return None


def _append(log: FakeLog, records: bytes) -> int:
    """Append a batch, or find the one of the same producer and sequence."""
    found = _found(log, records)
    if found is not None:
        return found
    base_offset, header = log.append(records), parse_header(records)
    if header.has_producer_id:
        log.producers[:] = [
            one for one in log.producers if one["producer_id"] != header.producer_id
        ]
        log.producers.append(
            {
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "last_sequence": header.last_sequence,
                "last_timestamp": header.max_timestamp,
                "coordinator_epoch": -1,
                "current_txn_start_offset": -1,
            }
        )
    return base_offset


async def create_topics(fake: FakeKafka, request: Any, r: Any, _node: int) -> Any:
    """Create the topics; several nodes lead their partitions in turn."""
    results = []
    for one in request.topics:
        code = fake.next_error("CreateTopics")
        name = str(one.name)
        if code is ErrorCode.none and name in fake.topics:
            code = ErrorCode.topic_already_exists
        if code is ErrorCode.none:
            fake.create(name, one.num_partitions)
            fake.configs[name] = {config.name: config.value for config in one.configs}
        results.append(
            r.CreatableTopicResult(
                name=one.name,
                topic_id=fake.topics[name][0] if name in fake.topics else None,
                error_code=code,
                error_message=None,
                configs=None,
            )
        )
    return r.CreateTopicsResponse(throttle_time=NOW, topics=tuple(results))


async def delete_topics(fake: FakeKafka, request: Any, r: Any, _node: int) -> Any:
    results = []
    for one in request.topics:
        code = fake.next_error("DeleteTopics")
        name = next((key for key, (found, _) in fake.topics.items() if found == one.topic_id), None)
        if code is ErrorCode.none and name is None:
            code = ErrorCode.unknown_topic_id
        if code is ErrorCode.none and name is not None:
            del fake.topics[name]
        results.append(r.DeletableTopicResult(name=None, topic_id=one.topic_id, error_code=code))
    return r.DeleteTopicsResponse(throttle_time=NOW, responses=tuple(results))


async def create_partitions(fake: FakeKafka, request: Any, r: Any, _node: int) -> Any:
    results = []
    for one in request.topics:
        code = fake.next_error("CreatePartitions")
        _, logs = fake.topics[str(one.name)]
        if code is ErrorCode.none and one.count <= len(logs):
            code = ErrorCode.invalid_partitions
        while code is ErrorCode.none and len(logs) < one.count:
            logs.append(FakeLog(1))
        results.append(r.CreatePartitionsTopicResult(name=one.name, error_code=code))
    if fake.loses_answers["CreatePartitions"]:
        fake.loses_answers["CreatePartitions"] -= 1
        raise ConnectionError
    return r.CreatePartitionsResponse(throttle_time=NOW, results=tuple(results))


async def incremental_alter_configs(fake: FakeKafka, request: Any, r: Any, _node: int) -> Any:
    results = []
    for one in request.resources:
        code = fake.next_error("IncrementalAlterConfigs")
        configs = fake.configs.setdefault(one.resource_name, {})
        for config in one.configs if code is ErrorCode.none else ():
            if config.config_operation == 0:
                configs[config.name] = config.value
            else:
                configs.pop(config.name, None)
        results.append(
            r.AlterConfigsResourceResponse(
                error_code=code,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
        )
    return r.IncrementalAlterConfigsResponse(throttle_time=NOW, responses=tuple(results))


async def describe_configs(fake: FakeKafka, request: Any, r: Any, _node: int) -> Any:
    """Show a topic's own values, and Kafka's defaults of the others."""
    results = []
    for one in request.resources:
        code = fake.next_error("DescribeConfigs")
        own = fake.configs.get(one.resource_name, {})
        values = {name: render(key.default) for name, key in TOPIC_KEYS.items()} | own
        results.append(
            r.DescribeConfigsResult(
                error_code=code,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                configs=tuple(
                    r.DescribeConfigsResourceResult(
                        name=name,
                        value=value,
                        read_only=False,
                        config_source=i8(1 if name in own else 5),
                        is_sensitive=False,
                        synonyms=(),
                        documentation=None,
                    )
                    for name, value in values.items()
                )
                if code is ErrorCode.none
                else (),
            )
        )
    return r.DescribeConfigsResponse(throttle_time=NOW, results=tuple(results))


async def init_producer_id(fake: FakeKafka, _request: Any, r: Any, _node: int) -> Any:
    fake.producer_ids += 1
    return r.InitProducerIdResponse(
        throttle_time=NOW,
        error_code=fake.next_error("InitProducerId"),
        producer_id=i64(fake.producer_ids),
        producer_epoch=i16(0),
    )
