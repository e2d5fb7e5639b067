"""Topic description and configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Model
from schemas.common import DECIMAL, INT32_MAX, Count, Int64, Marks, PageParameters, PartitionNumber

ConfigText = str | int | float | bool
PartitionCount = Annotated[int, Field(ge=1, le=INT32_MAX, examples=[4]), DECIMAL]


class PutTopic(Model):
    """What a topic shall be. Absent configuration keys mean Kafka's defaults."""

    partitions: PartitionCount = 1
    config: Annotated[
        dict[str, ConfigText],
        Field(examples=[{"retention.ms": "-1", "segment.bytes": "1048576"}]),
    ] = Field(default_factory=dict)
    """Kafka's topic configuration keys; values as strings or numbers."""


class UpdateTopic(Model):
    """A merge patch (RFC 7396) of the configuration; null takes an override away."""

    partitions: PartitionCount | None = None
    """More partitions than now, or as many; never fewer."""
    config: Annotated[dict[str, ConfigText | None], Field(examples=[{"retention.ms": None}])] = (
        Field(default_factory=dict)
    )


class ConfigEntry(Model):
    """One configuration value in force and where it comes from."""

    value: str
    source: Literal["topic", "adopted", "default"]


class Topic(Model):
    """One topic with its effective configuration."""

    topic: str
    topic_id: str
    """22 characters of base64url, as Kafka prints it."""
    partitions: int
    adopted: bool
    """Found in the data directory without a configuration of ours: nothing is ever deleted."""
    config: dict[str, ConfigEntry]


class TopicSummary(Model):
    """One line of the topic list."""

    topic: str
    topic_id: str
    partitions: int
    offline_partitions: list[PartitionNumber]
    """Those whose log could not be opened at the start: their reads and appends are refused."""


class TopicList(Model):
    """One page of topics in the order of their names."""

    topics: list[TopicSummary]
    next_page_token: str | None
    """Give it as `page_token` to go on; null at the end."""


class Partition(Marks):
    """One partition: offsets, bytes, segments, epoch, producers."""

    topic: str
    partition: PartitionNumber
    leader_epoch: Int64
    recovery_point: Count
    size_bytes: Count
    segments: int
    active_producers: int
    log_id: str


class PartitionList(Model):
    """All partitions of a topic."""

    topic: str
    partitions: list[Partition]


class ListParameters(PageParameters):
    """Which page of topics."""

    prefix: Annotated[str, Field(max_length=249)] = ""
