"""The configurations of topics at a cluster: what a topic overrides, and what is in effect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.static.primitive import i8

from app.store.kafka.cluster import Cluster
from app.store.kafka.errors import ensure_done
from engine.config import LogConfig
from engine.errors import InvalidConfig
from engine.topic_keys import TOPIC_KEYS, EffectiveValue, canonical

TOPIC_RESOURCE: Final = i8(2)
FROM_TOPIC: Final = 1
"""The source of a value that is the topic's own."""
DESCRIBED_TOGETHER: Final = 200
"""Topics of one request."""

_SET: Final = i8(0)
_DELETE: Final = i8(1)


class TopicConfig(NamedTuple):
    """The configuration of one topic."""

    overrides: Mapping[str, str]
    """The topic's own values, in canonical spelling."""
    values: Mapping[str, EffectiveValue]
    """Every value in effect."""
    config: LogConfig

    @classmethod
    def of(cls, entries: Iterable[DescribeConfigsResourceResult]) -> Self:
        values = {
            entry.name: EffectiveValue(
                entry.value, "topic" if entry.config_source == FROM_TOPIC else "default"
            )
            for entry in sorted(entries, key=lambda entry: entry.name)
            if entry.value is not None
        }
        overrides = {name: one.value for name, one in values.items() if one.source == "topic"}
        effective = {name: one.value for name, one in values.items()}
        return cls(dict(_spelled(overrides)), values, LogConfig.of(dict(_known(effective))))


def _spelled(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield values in canonical spelling; those that are not known here, as they are."""
    known = dict(_known(values))
    for name, value in values.items():
        yield name, known.get(name, value)


def _known(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values that mean something here, in canonical spelling."""
    for name, value in values.items():
        with suppress(InvalidConfig):
            yield from canonical({name: value}).items()


async def describe(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicConfig]:
    """Return the configurations of topics, as far as the cluster gives them."""
    found: dict[str, TopicConfig] = {}
    for first in range(0, len(names), DESCRIBED_TOGETHER):
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                )
                for name in names[first : first + DESCRIBED_TOGETHER]
            )
        )
        response = await cluster.send(cluster.any_node(), request, DescribeConfigsResponse)
        for one in response.results:
            if one.error_code is ErrorCode.none:
                found[one.resource_name] = TopicConfig.of(one.configs)
            await asyncio.sleep(0)  # each takes some 100 µs of the loop
    return found


async def alter(
    cluster: Cluster, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Change a topic's own values; raises what `ensure_done` raises."""
    set_values = [
        AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in after.items()
        if before.get(key) != value
    ]
    deleted = [
        AlterableConfig(name=key, config_operation=_DELETE, value=None)
        for key in before
        if key not in after
    ]
    if not set_values and not deleted:
        return
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configs=(*set_values, *deleted)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    response = await cluster.send(cluster.any_node(), request, IncrementalAlterConfigsResponse)
    for one in response.responses:
        ensure_done(one.error_code, one.error_message)


def wanted_overrides(overrides: Mapping[str, object]) -> dict[str, str]:
    """Return values as a client wants them, in canonical spelling; raises InvalidConfig.

    Names that are not known here are the cluster's to judge.
    """
    known = {name: value for name, value in overrides.items() if name in TOPIC_KEYS}
    others = {name: str(value) for name, value in overrides.items() if name not in TOPIC_KEYS}
    return {**canonical(known), **others}  # type: ignore[arg-type]  # the request's model checks it
