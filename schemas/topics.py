"""Topic description and configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema
from typing_extensions import TypeAliasType

from schemas.base import Model, ResponseModel
from schemas.common import (
    DECIMAL,
    INT32,
    INT32_MAX,
    Absent,
    Count,
    Int64,
    LeaderEpoch,
    LogId,
    Marks,
    NextPageToken,
    PageParameters,
    PartitionNumber,
    TopicShown,
)

ConfigValue = TypeAliasType(
    "ConfigValue",
    Annotated[
        str | int | float | bool,
        WithJsonSchema(
            {
                "oneOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}],
                "description": "A configuration value, as text or as the number or boolean itself.",
            }
        ),
    ],
)
PartitionCount = Annotated[int, Field(ge=1, le=INT32_MAX, examples=[4]), INT32, DECIMAL]
TopicId = Annotated[
    str, Field(description="Topic id: 22 characters of base64url, as Kafka prints it.")
]
PartitionsShown = Annotated[int, Field(ge=1, description="Number of partitions."), INT32]


class PutTopic(Model):
    """The wanted topic."""

    partitions: PartitionCount = 1
    """Number of partitions. Default 1."""
    config: Annotated[
        dict[str, ConfigValue],
        Field(examples=[{"retention.ms": "-1", "segment.bytes": "1048576"}]),
    ] = Field(default_factory=dict)
    """Kafka's topic configuration keys. Default: none, Kafka's default for every key."""


class UpdateTopic(Model):
    """A merge patch (RFC 7396) of the configuration."""

    partitions: PartitionCount | None = None
    """New number of partitions, not fewer than now. Default: unchanged."""
    config: Annotated[dict[str, ConfigValue | None], Field(examples=[{"retention.ms": None}])] = (
        Field(default_factory=dict)
    )
    """Configuration keys to change; null removes an override. Default: none."""


class ConfigEntry(ResponseModel):
    """One effective configuration value."""

    value: str
    """Value as Kafka writes it."""
    source: Literal["topic", "adopted", "default"]
    """Set on the topic, the rule for adopted topics, or the default."""


class Topic(ResponseModel):
    """One topic with its effective configuration."""

    topic: TopicShown
    topic_id: TopicId
    partitions: PartitionsShown
    adopted: bool
    """`true`: found in the data directory without a configuration; nothing is ever deleted."""
    config: dict[str, ConfigEntry]
    """Effective configuration by key."""


class TopicSummary(ResponseModel):
    """One line of the topic list."""

    topic: TopicShown
    topic_id: TopicId
    partitions: PartitionsShown
    overrides: dict[str, str]
    """Configuration keys that are set on the topic itself, with their values."""
    etag: str
    """ETag of the topic, as `getTopic` answers it: for `If-Match` of a change."""
    offline_partitions: list[PartitionNumber]
    """Partitions that take no appends: they could not be opened at the start, then reads are 503,
    too; or their data directory has failed since."""
    has_ingest_profile: bool
    """Whether deliveries to the topic have a profile (`getIngestProfile`)."""
    has_value_schema: bool
    """Whether a schema says how its values are decoded (`getValueSchema`)."""
    size_bytes: Count | None
    """Bytes of all segments on the disk; null if a partition could not be opened, and on a Kafka
    cluster."""
    newest_timestamp: Int64 | None
    """Largest timestamp among the newest records, epoch milliseconds; null without records that
    have one, and on a Kafka cluster."""


class TopicList(ResponseModel):
    """One page of topics."""

    topics: list[TopicSummary]
    """Topics in the order of their names."""
    next_page_token: NextPageToken


class Partition(Marks):
    """One partition: offsets, bytes, segments, epoch, producers."""

    topic: TopicShown
    partition: PartitionNumber
    leader_epoch: LeaderEpoch
    recovery_point: Count
    """Offset below which a restart scans nothing, because indexes and snapshots are on disk too."""
    archived_offset: Count | Absent = None
    """End of what the archive has, exclusive; absent without an archive, or before its first
    look."""
    local_log_start_offset: Count | Absent = None
    """First offset on the disk: only the archive has what is between the log start and this one.
    Absent without an archive."""
    size_bytes: Count
    """Bytes of all segments."""
    segments: Count | None
    """Number of segments; null on a Kafka cluster."""
    active_producers: Count
    """Number of producers whose state the log keeps."""
    log_id: LogId


class PartitionList(ResponseModel):
    """All partitions of a topic."""

    topic: TopicShown
    partitions: list[Partition]
    """Partitions in the order of their numbers."""
    offline_partitions: list[PartitionNumber]
    """Partitions that take no appends; those that could not be opened are not in `partitions`."""


class ListParameters(PageParameters):
    """Which page of topics."""

    prefix: Annotated[str, Field(max_length=249)] = ""
    """Return only topics whose name starts with this. Default: empty, all topics."""
