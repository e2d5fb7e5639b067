"""What the proxies' clients send and get; names are theirs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, WithJsonSchema

from schemas.base import Model, Parameters, ResponseModel
from schemas.common import (
    DECIMAL,
    INT64,
    Absent,
    Count,
    Int32,
    Int64,
    Offset,
    PartitionNumber,
    TimestampMs,
    TopicShown,
)

Broker = Annotated[Int32, Field(description="Broker id.")]
Nothing = Annotated[None, WithJsonSchema({})]
NoText = Annotated[None, WithJsonSchema({"type": ["string", "null"]})]
NoNumber = Annotated[None, WithJsonSchema({"type": ["integer", "null"], "format": "int32"})]


class KafkaRestBrokers(ResponseModel):
    """The brokers of the cluster: always one."""

    brokers: list[Broker]
    """Broker ids."""


class KafkaRestReplica(ResponseModel):
    """The one replica of a partition."""

    broker: Broker
    leader: bool
    """Whether the replica is the leader."""
    in_sync: bool
    """Whether the replica is in sync."""


class KafkaRestPartition(ResponseModel):
    """One partition, of a cluster of one broker."""

    partition: PartitionNumber
    leader: Broker
    replicas: list[KafkaRestReplica]
    """The one replica."""


class KafkaRestTopic(ResponseModel):
    """A topic with its effective configuration."""

    name: TopicShown
    configs: dict[str, str]
    """Effective configuration by Kafka's key."""
    partitions: list[KafkaRestPartition]
    """Partitions in the order of their numbers."""


class KafkaRestOffsets(ResponseModel):
    """Both ends of a partition for readers."""

    beginning_offset: Count
    """First offset that can be read."""
    end_offset: Count
    """End of what readers see, exclusive."""


class KafkaRestHeader(Model):
    """One header of a record, as Strimzi has it."""

    key: str
    """Header name."""
    value: str | None = None
    """Header value in base64. Default: null."""


class KafkaRestRecordIn(Model):
    """One record to produce: any JSON, or strings of base64, as the media type says."""

    key: JsonValue = None
    """Key. Default: null, no key."""
    value: JsonValue = None
    """Value. Default: null, a tombstone."""
    partition: PartitionNumber | None = None
    """Partition. Default: chosen by the key, as a Kafka producer does."""
    timestamp: TimestampMs | None = None
    """Epoch milliseconds. Default: the time of the append."""
    headers: list[KafkaRestHeader] | None = None
    """Record headers, in order. Default: none."""


class KafkaRestProduce(Model):
    """Records to produce."""

    records: Annotated[list[KafkaRestRecordIn], Field(min_length=1)]
    """Records to produce."""
    key_schema: NoText = None
    """Must be null: schemas are not supported. Default: null."""
    key_schema_id: NoNumber = None
    """Must be null: schemas are not supported. Default: null."""
    value_schema: NoText = None
    """Must be null: schemas are not supported. Default: null."""
    value_schema_id: NoNumber = None
    """Must be null: schemas are not supported. Default: null."""


class KafkaRestProducedRecord(ResponseModel):
    """Partition and offset of a written record; nulls and an error if it was not written."""

    partition: PartitionNumber | None
    """Partition; null if the record was not written."""
    offset: Count | None
    """Offset; null if the record was not written."""
    error_code: Int32 | None
    """50003: a retry may succeed; 50002: a retry fails again; null if the record was written."""
    error: str | None
    """What went wrong, for people; null if the record was written."""


class KafkaRestError(ResponseModel):
    """Every error of these operations."""

    error_code: Int32
    """The status, or five digits that begin with it: 40401 topic, 40402 partition not found; 40403
    topic not found, where one is described."""
    message: str
    """What went wrong, for people."""
    offsets: list[KafkaRestProducedRecord] | Absent = None
    """The outcome of each record; only in a 422 for records that are too large for the topic."""


class KafkaRestProduced(ResponseModel):
    """The outcome of each record."""

    offsets: list[KafkaRestProducedRecord]
    """One entry for each record, in the order of the request."""
    key_schema_id: Nothing
    """Always null: schemas are not supported."""
    value_schema_id: Nothing
    """Always null: schemas are not supported."""


class KafkaRestHeaderOut(ResponseModel):
    """One header of a record that was read, as Strimzi has it."""

    key: str
    """Header name."""
    value: str | None
    """Header value in base64; null if it has none."""


class KafkaRestRecord(ResponseModel):
    """One record that was read."""

    topic: TopicShown
    key: JsonValue
    """Key: JSON, or base64, as the media type says."""
    value: JsonValue
    """Value: JSON, or base64, as the media type says."""
    partition: PartitionNumber
    offset: Count
    """Offset of the record."""
    timestamp: Int64
    """Epoch milliseconds; -1 for a record without a timestamp."""
    headers: list[KafkaRestHeaderOut]
    """Record headers, in order."""
    key_encoding: Literal["utf8", "base64"] | Absent = None
    """Only if JSON was asked for and the key is not JSON: how the string shows its bytes."""
    value_encoding: Literal["utf8", "base64"] | Absent = None
    """Only if JSON was asked for and the value is not JSON: how the string shows its bytes."""


class KafkaRestReadParameters(Parameters):
    """Where a read starts, how much it takes and how long it waits; as Redpanda's proxy has it."""

    offset: Offset
    """Offset to start from."""
    timeout: Annotated[int, Field(ge=0), INT64, DECIMAL] = 1_000
    """Milliseconds to wait for the first record. Default 1,000."""
    max_bytes: Annotated[int, Field(ge=0), INT64, DECIMAL] | None = None
    """Upper bound for stored bytes in the response; one whole batch is returned even if it is
    larger. Default: `default_fetch_bytes` of `/v1/limits` (1 MiB)."""
