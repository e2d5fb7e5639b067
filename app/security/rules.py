"""Scopes, which of them each operation requires, and the audit log.

A scope is `read:<pattern>`, `append:<pattern>`, `admin:<pattern>` or `metrics`. A pattern is a
topic's name in which `*` stands for any characters, or none. No scope implies another, but any
scope on a topic allows to see that it exists and where its logs end. What operations require is one
table, complete by a test. The choice follows Kafka's authorizer: a reader may move its own offsets,
an appender may allocate producer ids.

The audit log says who did what, from where, with which outcome. It has one line for each
administrative request, each change of group offsets, and each request that was refused for its
credentials, scopes or origin. The logger is `tidelog.audit`, so that a handler can select its
lines.
"""

from __future__ import annotations

import enum
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any, Final, NamedTuple


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
        self.metrics = METRICS_SCOPE in self.scopes
        self._everywhere: set[Action] = set()
        patterns: dict[Action, list[str]] = defaultdict(list)
        for match in filter(None, map(_TOPIC_SCOPE.fullmatch, self.scopes)):
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


CALLER_KEY = "tidelog.caller"
"""The scope key of a request's principal, once it is known."""


class Reach(enum.Enum):
    """What a rule checks."""

    OPEN = "open"
    """No credentials are needed."""
    CALLER = "caller"
    """Credentials; the operation itself checks each topic."""
    METRICS = "metrics"
    """The scope `metrics`."""
    SOMEWHERE = "somewhere"
    """The action on any topic."""
    EVERYWHERE = "everywhere"
    """The action on every topic: the operation describes the whole service."""
    TOPIC = "topic"
    """One of the actions on the topic of the path."""


class Rule(NamedTuple):
    """The requirement of one operation."""

    reach: Reach
    actions: tuple[Action, ...] = ()

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the scopes of which one is required, with `{topic}` for that of the path."""
        if self.reach is Reach.CALLER:
            return ()
        if self.reach is Reach.METRICS:
            return (METRICS_SCOPE,)
        topic = "{topic}" if self.reach is Reach.TOPIC else "*"
        return tuple(f"{action.value}:{topic}" for action in self.actions)

    @property
    def is_administrative(self) -> bool:
        """Whether the operation is in the audit log."""
        return self.actions == (Action.ADMIN,)


OPEN: Final = Rule(Reach.OPEN)
CALLER: Final = Rule(Reach.CALLER)
READS: Final = Rule(Reach.CALLER, (Action.READ,))
SEE: Final = Rule(Reach.TOPIC, ANY_ACTION)
READ: Final = Rule(Reach.TOPIC, (Action.READ,))
APPEND: Final = Rule(Reach.TOPIC, (Action.APPEND,))
ADMIN: Final = Rule(Reach.TOPIC, (Action.ADMIN,))
ADMINS: Final = Rule(Reach.CALLER, (Action.ADMIN,))
OF_SERVICE: Final = Rule(Reach.EVERYWHERE, (Action.ADMIN,))

RULES: Final[Mapping[str, Rule]] = {
    "listTopics": CALLER,
    "putTopic": ADMIN,
    "getTopic": SEE,
    "updateTopic": ADMIN,
    "deleteTopic": ADMIN,
    "listPartitions": SEE,
    "getPartition": SEE,
    "restoreTopic": ADMIN,
    "getTopicRestore": ADMIN,
    "getValueSchema": SEE,
    "putValueSchema": ADMIN,
    "deleteValueSchema": ADMIN,
    "getIngestProfile": SEE,
    "putIngestProfile": ADMIN,
    "deleteIngestProfile": ADMIN,
    "createIngestToken": ADMIN,
    "listIngestTokens": ADMIN,
    "listIngestRefusals": ADMIN,
    "deleteIngestToken": ADMIN,
    "appendTopicRecords": APPEND,
    "appendRecords": APPEND,
    "appendBatches": APPEND,
    "ingest": APPEND,
    "checkIngest": APPEND,
    "ingestOtlp": APPEND,
    "ingestHec": APPEND,
    "checkHec": APPEND,
    "allowHec": APPEND,
    "ingestWithToken": APPEND,
    "checkIngestWithToken": APPEND,
    "allowIngest": OPEN,
    "allowIngestWithToken": OPEN,
    "readRecords": READ,
    "readBatches": READ,
    "readTopic": READ,
    "tailRecords": READ,
    "tailTopic": READ,
    "fetchMany": READS,
    "getOffsets": SEE,
    "getOffsetAt": SEE,
    "getTopicOffsets": SEE,
    "planSplits": READ,
    "listSegments": SEE,
    "downloadSegment": READ,
    "rollSegment": ADMIN,
    "flushLog": ADMIN,
    "runRetention": ADMIN,
    "deleteRecords": ADMIN,
    "truncateLog": ADMIN,
    "compactLog": ADMIN,
    "getCompaction": SEE,
    "listDirectories": OF_SERVICE,
    "listMoves": OF_SERVICE,
    "getScrubReport": OF_SERVICE,
    "movePartition": ADMIN,
    "getMove": ADMIN,
    "allocateProducer": Rule(Reach.SOMEWHERE, (Action.APPEND,)),
    "listProducers": READ,
    "getAppendOutcome": SEE,
    "endTransaction": APPEND,
    "listGroups": READS,
    "listGroupLags": READS,
    "listGroupOffsets": READS,
    "getGroupOffset": READ,
    "putGroupOffset": READ,
    "deleteGroupOffset": READ,
    "getGroupLag": READS,
    "listSubscriptions": ADMINS,
    "getSubscription": ADMINS,
    "putSubscription": ADMINS,
    "updateSubscription": ADMINS,
    "deleteSubscription": ADMINS,
    "testSubscription": ADMINS,
    "renewLease": READS,
    "releaseLease": READS,
    "listLeases": READS,
    "getService": OPEN,
    "getCaller": CALLER,
    "getSettings": OF_SERVICE,
    "listKeys": OF_SERVICE,
    "listTopicConfigs": CALLER,
    "getLiveness": OPEN,
    "getReadiness": OPEN,
    "getMetrics": Rule(Reach.METRICS),
    "getHistory": Rule(Reach.METRICS),
    "getLimits": CALLER,
    "kafkaRestListBrokers": CALLER,
    "kafkaRestListTopics": CALLER,
    "kafkaRestGetTopic": SEE,
    "kafkaRestListPartitions": SEE,
    "kafkaRestGetPartition": SEE,
    "kafkaRestGetOffsets": SEE,
    "kafkaRestReadRecords": READ,
    "kafkaRestProduceToTopic": APPEND,
    "kafkaRestProduceToPartition": APPEND,
    "kafkaRestUseConsumer": CALLER,
}


_AUDIT = logging.getLogger("tidelog.audit")

_GROUP_CHANGES: Final = frozenset({"putGroupOffset", "deleteGroupOffset"})

AUDITED: Final = _GROUP_CHANGES.union(
    name for name, rule in RULES.items() if rule.is_administrative
)

REFUSED: Final = frozenset({401, 403, 421})
"""Statuses of failed logins, missing scopes, pages of other sites and foreign hosts."""


def audit(scope: Mapping[str, Any], operation: str, status: int) -> None:
    """Log an answered request: an operation of `AUDITED`, or a status of `REFUSED`."""
    caller = scope.get(CALLER_KEY)
    _AUDIT.info(
        "%s by %s: %d",
        operation,
        "unknown" if caller is None else caller.name,
        status,
        extra={
            "principal": None if caller is None else caller.name,
            "operation": operation,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "outcome": "done" if 200 <= status < 300 else "refused" if status < 500 else "failed",
            "client": (scope.get("client") or ("",))[0],
        },
    )
