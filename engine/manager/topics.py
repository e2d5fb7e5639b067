"""Decides which topics exist: reconciles the topics file with the partition directories.

For tidelog's topics the file is the truth: it is written before the first partition directory is
created, and marks a deleted topic before the first one is renamed. So after a crash in between the
next start either creates the missing partitions, or removes the directories of the deleted topic.
Directories of other topics are a broker's: their topics are adopted, with unlimited retention,
because Kafka's defaults could delete their data in the first retention pass.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

from engine.checkpoint.kafka_files import format_topic_id
from engine.checkpoint.tidelog_files import TopicEntry
from engine.config import EngineConfig, LogConfig
from engine.errors import (
    InconsistentTopicId,
    InvalidRequestValue,
    InvalidTopicName,
    PolicyViolation,
    TopicConflict,
)
from engine.fs.names import MAX_TOPIC_LENGTH, is_valid_topic_name
from engine.records.header import HEADER_BYTES
from engine.topic_keys import ADOPTED_DEFAULTS, TOPIC_KEYS, canonical
from engine.topic_values import ConfigValue
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

INTERNAL_TOPICS: Final = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
"""Kafka's own (`Topic.INTERNAL_TOPICS`, the log of its controllers, the index of tiered storage).
Other names that begin with `__` are topics of other programs, such as Debezium's heartbeats."""

OWN_PREFIX: Final = "__tidelog"
"""Of topics that this service keeps in a Kafka cluster."""

_SIZES_OF_SEGMENTS: Final = ("segment.bytes", "segment.index.bytes", "index.interval.bytes")
_LARGEST_ENTRY_BYTES: Final = 12
"""The larger index entry: that of the time index."""

Overrides: TypeAlias = Mapping[str, ConfigValue]
"""Configuration as received, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `overrides` are canonical: Kafka's names and spelling, sorted."""

    name: str
    topic_id: str
    partitions: int
    """One more than the highest partition; an adopted topic may lack some below it."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    adopted: bool = False
    """Whether it was found in a broker's directory, so that its configuration is unknown."""
    was_compacted: bool = False
    """Whether it may have been compacted: by an earlier configuration, the defaults, or a
    broker."""
    added_partitions: int = 0
    """How many of the last partitions of an adopted topic were added since its adoption."""
    entry: TopicEntry = field(init=False, repr=False, compare=False)
    """The topic's entry in the topics file. Always the same object, so that unchanged entries are
    not encoded again."""

    def __post_init__(self) -> None:
        compacted = self.was_compacted or self._asks_for_compaction
        entry = TopicEntry(
            self.topic_id,
            self.partitions,
            self.overrides,
            self.adopted,
            compacted=compacted,
            added_partitions=self.added_partitions,
        )
        object.__setattr__(self, "entry", entry)

    @property
    def own_partitions(self) -> range:
        """The partitions that tidelog created: a start creates those that are missing.

        The partitions of an adopted topic that were missing at its adoption are on other brokers.
        """
        return range(
            self.partitions - self.added_partitions if self.adopted else 0, self.partitions
        )

    def with_partitions(self, partitions: int) -> Self:
        """Return the topic with partitions added."""
        added = self.added_partitions + partitions - self.partitions if self.adopted else 0
        return replace(self, partitions=partitions, added_partitions=added)

    @property
    def may_have_gaps(self) -> bool:
        """Whether compaction may have removed offsets, now or earlier."""
        return self.adopted or self.was_compacted or self._asks_for_compaction

    @property
    def _asks_for_compaction(self) -> bool:
        return "compact" in self.overrides.get("cleanup.policy", "")

    def under(self, defaults: Mapping[str, str]) -> Self:
        """Return the topic to record: marked as compacted if the defaults compact it.

        The defaults may differ at the next start, and missing offsets would then look lost.
        """
        policy = {} if self.adopted else {"cleanup.policy": defaults.get("cleanup.policy", "")}
        is_compacted = "compact" in {**policy, **self.overrides}.get("cleanup.policy", "").lower()
        return replace(self, was_compacted=self.was_compacted or is_compacted)

    def is_gapless(self, config: LogConfig) -> bool:
        """Whether logs of this configuration have no gaps other than recorded ones."""
        return not (self.may_have_gaps or config.is_compacted)

    @property
    def is_internal(self) -> bool:
        """Whether it belongs to a broker or to the service itself: clients do not see it."""
        return is_internal(self.name)

    def log_config(self, defaults: Mapping[str, str]) -> LogConfig:
        """Return the configuration of the topic's logs: its overrides over the defaults."""
        adopted = ADOPTED_DEFAULTS if self.adopted else {}
        return LogConfig.of({**defaults, **adopted, **self.overrides})

    @classmethod
    def of_entry(cls, name: str, entry: TopicEntry) -> Self:
        return cls(
            name,
            entry.id,
            entry.partitions,
            entry.config,
            entry.adopted,
            entry.compacted,
            entry.added_partitions,
        )


def new_topic_id() -> str:
    """Return a new topic id; like Kafka's, it never begins with a dash."""
    while (topic_id := format_topic_id(uuid.uuid4().bytes)).startswith("-"):
        pass
    return topic_id


def is_internal(name: str) -> bool:
    """Whether a topic of this name belongs to a broker or to the service itself."""
    return name in INTERNAL_TOPICS or name.startswith(OWN_PREFIX)


def ensure_valid_name(name: str, *, internal: bool = False) -> None:
    """Raise InvalidTopicName unless the name is legal for a topic, internal or not."""
    if not is_valid_topic_name(name):
        raise InvalidTopicName(
            f"{name!r} is not a topic name: 1 to {MAX_TOPIC_LENGTH} of letters, digits, '.', '_' "
            "and '-', but not '.' or '..'",
            topic=name,
        )
    if is_internal(name) and not internal:
        raise InvalidTopicName(
            f"{name!r} is reserved: Kafka's internal topics have such names, and those of tidelog",
            topic=name,
        )


def ensure_may_be_changed(topic: Topic, *, internal: bool = False) -> None:
    """Raise PolicyViolation for a broker's internal topic, unless `internal` is given."""
    if topic.is_internal and not internal:
        raise PolicyViolation(
            f"{topic.name} belongs to the broker that wrote this directory and cannot be changed",
            topic=topic.name,
        )


def merged(overrides: Mapping[str, str], changes: Overrides) -> dict[str, str]:
    """Apply a merge patch (RFC 7396): None removes a key, but not one that never existed."""
    patched: dict[str, ConfigValue] = {**overrides, **changes}
    removed = {name for name in patched if patched[name] is None and name in TOPIC_KEYS}
    return canonical({name: patched[name] for name in patched if name not in removed})


def ensure_same(existing: Topic, wanted: Topic) -> Topic:
    """Return the existing topic; TopicConflict if it differs from the wanted one."""
    if existing.partitions == wanted.partitions and existing.overrides == wanted.overrides:
        return existing
    raise TopicConflict(
        f"topic {existing.name!r} exists with {existing.partitions} partitions and "
        f"configuration {dict(existing.overrides)}",
        topic=existing.name,
        partitions=existing.partitions,
        config=dict(existing.overrides),
    )


def legal_config(topic: Topic, config: EngineConfig, before: Topic | None = None) -> LogConfig:
    """Return the configuration of the topic's logs; raise if a limit forbids it.

    Values that the topic had `before` are allowed, even beyond a limit.
    """
    limit = config.max_partitions_per_topic
    if not 1 <= topic.partitions <= limit:
        raise InvalidRequestValue(
            f"a topic has 1 to {limit} partitions, not {topic.partitions}",
            limit="max_partitions_per_topic",
            partitions=topic.partitions,
        )
    wanted = topic.log_config(config.default_topic_config)
    overrides = {} if before is None else before.overrides
    if any(topic.overrides.get(key) != overrides.get(key) for key in _SIZES_OF_SEGMENTS):
        _ensure_large_segments(wanted, config.min_segment_bytes)
    return wanted


def _ensure_large_segments(config: LogConfig, min_bytes: int) -> None:
    """Raise PolicyViolation if a segment may be full before it has `min_bytes`."""
    entries = config.segment_index_bytes // _LARGEST_ENTRY_BYTES
    indexed_bytes = entries * max(config.index_interval_bytes, HEADER_BYTES)
    for value, what in (
        (config.segment_bytes, "segment.bytes"),
        (indexed_bytes, "the bytes that segment.index.bytes and index.interval.bytes allow"),
    ):
        if value < min_bytes:
            raise PolicyViolation(
                f"{what}: {value} is below min_segment_bytes ({min_bytes})",
                limit="min_segment_bytes",
            )


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The work of a start before it can open the logs."""

    topics: Mapping[str, Topic]
    unmarked: tuple[TopicPartition, ...]
    """Partitions of known topics without a directory, because of a crash, and directories without a
    topic id, because of a crash or of a broker before 2.8."""
    leftovers: tuple[TopicPartition, ...]
    """Directories of topics whose deletion a crash interrupted."""


def reconcile(
    recorded: Mapping[str, TopicEntry], found: Mapping[TopicPartition, str | None]
) -> Reconciled:
    """Decide which topics exist.

    `recorded` is the content of the topics file, `found` the topic ids in the partition
    directories, None where it is missing. Raises InconsistentTopicId if directories of one topic
    disagree.
    """
    deleted = {name: entry.id for name, entry in recorded.items() if entry.deleted}
    leftovers = {
        log
        for log, topic_id in found.items()
        if log.topic in deleted and topic_id in {None, deleted[log.topic]}
    }
    served = {log: topic_id for log, topic_id in found.items() if log not in leftovers}
    topics = {
        name: Topic.of_entry(name, entry) for name, entry in recorded.items() if not entry.deleted
    }
    for name, directories in _by_topic(served).items():
        topics[name] = _reconcile_topic(name, topics.get(name), directories)
    # A broker before 2.8 wrote no topic ids: Kafka 4 would set such a partition aside as a stray.
    unmarked = {log for log, topic_id in served.items() if topic_id is None}
    unmarked |= {
        log
        for topic in topics.values()
        for log in (TopicPartition(topic.name, number) for number in topic.own_partitions)
        if log not in served
    }
    return Reconciled(topics, tuple(sorted(unmarked)), tuple(sorted(leftovers)))


def _by_topic(
    found: Mapping[TopicPartition, str | None],
) -> dict[str, dict[TopicPartition, str | None]]:
    by_topic: dict[str, dict[TopicPartition, str | None]] = {}
    for log, topic_id in sorted(found.items()):
        by_topic.setdefault(log.topic, {})[log] = topic_id
    return by_topic


def _reconcile_topic(
    name: str, recorded: Topic | None, directories: Mapping[TopicPartition, str | None]
) -> Topic:
    """Return the topic according to its directories and, if any, its record."""
    topic_id = _common_id(directories)
    partitions = 1 + max(log.partition for log in directories)
    if recorded is None:
        _LOG.info("adopting topic %s with %d partition directories", name, len(directories))
        return Topic(name, topic_id or new_topic_id(), partitions, adopted=True)
    if topic_id is not None and topic_id != recorded.topic_id:
        # A broker served the directories meanwhile, under its own topic id. It may have compacted
        # the logs, so missing offsets no longer prove a lost tail.
        _LOG.warning("topic %s now has id %s; it had %s", name, topic_id, recorded.topic_id)
        recorded = replace(recorded, topic_id=topic_id, was_compacted=True)
    if partitions > recorded.partitions:  # a broker added some, maybe others elsewhere
        return replace(recorded, partitions=partitions, added_partitions=0)
    return recorded


def _common_id(directories: Mapping[TopicPartition, str | None]) -> str | None:
    ids = {topic_id: str(log) for log, topic_id in directories.items() if topic_id is not None}
    if len(ids) > 1:
        raise InconsistentTopicId(
            "directories of one topic have different topic ids: "
            + ", ".join(f"{directory} {topic_id}" for topic_id, directory in ids.items())
            + "; move those that do not belong here out of the data directory",
            directories=sorted(ids.values()),
        )
    return next(iter(ids), None)
