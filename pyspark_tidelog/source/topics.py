"""The topics and partitions that a query reads: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import ensure_topic_name, json_object
from pyspark_tidelog.partitions import TopicPartition

TOPIC_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Topics:
    """What the query reads."""

    names: tuple[str, ...] = ()
    """Empty for a pattern: the service is asked for the topics each time."""
    pattern: str | None = None
    """Matches whole names."""
    assigned: tuple[TopicPartition, ...] | None = None
    """If set, only these partitions of the named topics are read."""

    def has(self, log: TopicPartition) -> bool:
        """Whether the query reads this partition of one of its topics."""
        return self.assigned is None or log in self.assigned

    def matches(self, topic: str) -> bool:
        """Whether the query reads a topic of this name."""
        if self.pattern is None:
            return topic in self.names
        return re.fullmatch(self.pattern, topic) is not None


def parse_topics(given: Mapping[str, str]) -> Topics:
    """Read the one option that names the topics; raise OptionError for none, or for two."""
    present = [option for option in TOPIC_OPTIONS if given.get(option.lower(), "").strip()]
    if not present:
        raise OptionError(
            "option subscribe is required, with a topic or a comma list of topics; "
            "or subscribePattern, or assign"
        )
    if len(present) > 1:
        raise OptionError(f"options {' and '.join(present)} exclude each other: give one of them")
    option, text = present[0], given[present[0].lower()].strip()
    if option == "subscribe":
        return Topics(_names(text))
    return _pattern(text) if option == "subscribePattern" else _assigned(text)


def _names(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("option subscribe is required: a topic or a comma list of topics")
    for name in names:
        ensure_topic_name("subscribe", name)
    return tuple(dict.fromkeys(names))


def _pattern(text: str) -> Topics:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(
            f"option subscribePattern: {text!r} is not a regular expression: {error}"
        ) from error
    return Topics(pattern=text)


def _assigned(text: str) -> Topics:
    logs: list[TopicPartition] = []
    for topic, partitions in (json_object(text) or {}).items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)):
            logs.clear()
            break
        ensure_topic_name("assign", topic)
        logs.extend(TopicPartition(topic, partition) for partition in partitions)
    if not logs:
        raise OptionError(f'option assign must be JSON such as {{"topic": [0, 1]}}, not {text!r}')
    return Topics(tuple(dict.fromkeys(log.topic for log in logs)), None, tuple(sorted(set(logs))))


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
