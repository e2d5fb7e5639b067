"""The service itself."""

from __future__ import annotations

from typing import Literal

from schemas.base import ResponseModel
from schemas.common import Backend, TimestampMs


class ServiceLinks(ResponseModel):
    """Paths to start from."""

    console: str
    """The console, for people with a browser."""
    docs: str
    """Reference of this API, for people."""
    openapi: str
    """OpenAPI document of this API, for programs."""
    topics: str
    """`listTopics`."""
    limits: str
    """`getLimits`."""
    readiness: str
    """`getReadiness`."""
    metrics: str
    """`getMetrics`."""


class ServiceInfo(ResponseModel):
    """What this service is, and where to go on."""

    name: Literal["tidelog"]
    """Always `tidelog`."""
    version: str
    """Version of the service."""
    backend: Backend
    """What stores the logs: `local` is the engine in this process, `kafka` a Kafka cluster."""
    links: ServiceLinks
    """Where to go on."""


class Caller(ResponseModel):
    """The caller's name, and what its credentials allow."""

    name: str
    """Name of the caller, as in the audit log: `key:ops`, or `anonymous` where none are needed."""
    scopes: list[str]
    """What the caller may do: `read:`, `append:` or `admin:` and a pattern of topics, `metrics`."""
    expires_timestamp: TimestampMs | None
    """When the credentials expire, epoch milliseconds; null if they do not."""
    masked_fields: list[str]
    """Fields that the console hides, as the setting `console_masked_fields` has them."""


class Setting(ResponseModel):
    """One setting of the service."""

    value: str
    """Value; of anything but text its JSON."""
    source: Literal["command_line", "environment", "file", "default"]
    """`environment`: a variable `TIDELOG_…` has this value; `file`: `tidelog.toml` has it."""
    description: str
    """What the setting is for."""


class SettingList(ResponseModel):
    """Every setting of the service."""

    settings: dict[str, Setting]
    """Settings by name; the variable of `max_tails` is `TIDELOG_MAX_TAILS`."""


class ApiKeyInfo(ResponseModel):
    """One API key, without the key."""

    id: str
    """Id of the key: its first part, which is public."""
    name: str
    """Name of the key."""
    scopes: list[str]
    """What the key allows."""
    created_timestamp: TimestampMs
    """When the key was created, epoch milliseconds."""
    expires_timestamp: TimestampMs | None
    """When the key expires, epoch milliseconds; null if it does not."""


class ApiKeyList(ResponseModel):
    """The API keys that the service accepts."""

    keys: list[ApiKeyInfo]
    """Keys in the order of their names."""


class TopicConfig(ResponseModel):
    """One topic configuration of Kafka."""

    name: str
    """Name, as in the `config` of `putTopic`."""
    default: str
    """Value of a topic that does not set it, on this service."""
    accepted: str
    """Values that are accepted."""
    description: str
    """Purpose of the configuration."""


class TopicConfigList(ResponseModel):
    """Every topic configuration."""

    configs: list[TopicConfig]
    """Configurations, the most used first."""
