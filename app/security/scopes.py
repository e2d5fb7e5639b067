"""Scopes: `read:<pattern>`, `append:<pattern>`, `admin:<pattern>` and `metrics`.

A pattern is a topic's name in which `*` stands for any characters, or none. No scope implies
another, but any scope on a topic allows to see that it exists and where its logs end.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import translate
from typing import Final


class Action(enum.Enum):
    """What can be done with a topic."""

    READ = "read"
    APPEND = "append"
    ADMIN = "admin"


ANY_ACTION: Final = tuple(Action)
METRICS_SCOPE: Final = "metrics"
EVERYTHING: Final = ("read:*", "append:*", "admin:*", METRICS_SCOPE)

_TOPIC_SCOPE: Final = re.compile(r"(read|append|admin):([A-Za-z0-9._*-]{1,249})")


def is_scope(text: str) -> bool:
    """Whether the text is a scope of tidelog; a token may have others, which are ignored."""
    return text == METRICS_SCOPE or _TOPIC_SCOPE.fullmatch(text) is not None


class Grants:
    """What a set of scopes allows; unknown scopes allow nothing."""

    __slots__ = ("_everywhere", "_topics", "metrics", "scopes")

    def __init__(self, scopes: Iterable[str]) -> None:
        self.scopes = tuple(filter(is_scope, scopes))
        """Those that allow something."""
        self.metrics = False
        self._everywhere: set[Action] = set()
        patterns: dict[Action, list[str]] = defaultdict(list)
        for scope in self.scopes:
            if scope == METRICS_SCOPE:
                self.metrics = True
            elif match := _TOPIC_SCOPE.fullmatch(scope):
                action, pattern = Action(match[1]), match[2]
                patterns[action].append(translate(pattern))  # only `*` is special
                if not pattern.strip("*"):
                    self._everywhere.add(action)
        self._topics = {action: re.compile("|".join(some)) for action, some in patterns.items()}

    def allow(self, action: Action, topic: str) -> bool:
        """Whether the action is allowed on the topic, whether or not it exists."""
        pattern = self._topics.get(action)
        return pattern is not None and pattern.match(topic) is not None

    def allow_any(self, actions: Iterable[Action], topic: str) -> bool:
        """Whether one of the actions is allowed on the topic."""
        return any(self.allow(action, topic) for action in actions)

    def allow_everywhere(self, action: Action) -> bool:
        """Whether one scope allows the action on every topic."""
        return action in self._everywhere

    def allow_somewhere(self, action: Action) -> bool:
        """Whether there may be a topic on which the action is allowed."""
        return action in self._topics
