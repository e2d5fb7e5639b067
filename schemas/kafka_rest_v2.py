"""What the proxies' clients send and get; names are theirs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from schemas.base import Model, Parameters
from schemas.common import DECIMAL, Count, Offset, PartitionNumber, TimestampMs


class KafkaRestError(Model):
    """Every error of these operations."""

    error_code: int
    """The status, or five digits that begin with it: 40401 topic, 40402 partition not found."""
    message: str


class KafkaRestReplica(Model):
    """The one replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class KafkaRestPartition(Model):
    """One partition, of a cluster of one broker."""

    partition: PartitionNumber
    leader: int
    replicas: list[KafkaRestReplica]


class KafkaRestTopic(Model):
    """A topic with the configuration in force."""

    name: str
    configs: dict[str, str]
    partitions: list[KafkaRestPartition]


class KafkaRestOffsets(Model):
    """Where a partition begins, and the end of what readers see; exclusive."""

    beginning_offset: Count
    end_offset: Count


class KafkaRestHeader(Model):
    """One header of a record, as Strimzi has it."""

    key: str
    value: str | None = None
    """In base64."""


class KafkaRestRecordIn(Model):
    """One record to produce: any JSON, or strings of base64, as the media type says."""

    key: JsonValue = None
    value: JsonValue = None
    partition: PartitionNumber | None = None
    """Absent: by the key, as a Kafka producer would choose."""
    timestamp: TimestampMs | None = None
    headers: list[KafkaRestHeader] | None = None


class KafkaRestProduce(Model):
    """Records to produce."""

    records: Annotated[list[KafkaRestRecordIn], Field(min_length=1)]
    key_schema: None = None
    key_schema_id: None = None
    value_schema: None = None
    value_schema_id: None = None


class KafkaRestProducedRecord(Model):
    """Where a record is; or, with nulls there, why it is not."""

    partition: PartitionNumber | None
    offset: Count | None
    error_code: int | None
    """50003: it may help to send it again; 50002: it does not."""
    error: str | None


class KafkaRestProduced(Model):
    """One entry a record, in the order of the request."""

    offsets: list[KafkaRestProducedRecord]
    key_schema_id: None
    value_schema_id: None


class KafkaRestRecord(Model):
    """One record that was read."""

    topic: str
    key: JsonValue
    value: JsonValue
    partition: PartitionNumber
    offset: Count


class KafkaRestReadParameters(Parameters):
    """Where a read starts, how much it takes and how long it waits; as Redpanda's proxy has it."""

    offset: Offset
    timeout: Annotated[int, Field(ge=0), DECIMAL] = 1_000
    """Milliseconds to wait for the first record."""
    max_bytes: Annotated[int, Field(ge=0), DECIMAL] | None = None
    """Bytes of stored batches; one whole batch is returned even if it is larger."""
