"""The scopes that each operation requires: one table, complete by a test.

The choice follows Kafka's authorizer: any scope on a topic allows to describe it, a reader may move
its own offsets, an appender may allocate producer ids.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from app.security.scopes import ANY_ACTION, METRICS_SCOPE, Action


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
OF_SERVICE: Final = Rule(Reach.EVERYWHERE, (Action.ADMIN,))

RULES: Final[Mapping[str, Rule]] = {
    "listTopics": CALLER,
    "putTopic": ADMIN,
    "getTopic": SEE,
    "updateTopic": ADMIN,
    "deleteTopic": ADMIN,
    "listPartitions": SEE,
    "getPartition": SEE,
    "getIngestProfile": SEE,
    "putIngestProfile": ADMIN,
    "deleteIngestProfile": ADMIN,
    "createIngestToken": ADMIN,
    "listIngestTokens": ADMIN,
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
    "listGroupOffsets": READS,
    "getGroupOffset": READ,
    "putGroupOffset": READ,
    "deleteGroupOffset": READ,
    "getGroupLag": READS,
    "getService": OPEN,
    "getCaller": CALLER,
    "getSettings": OF_SERVICE,
    "listKeys": OF_SERVICE,
    "listTopicConfigs": CALLER,
    "getLiveness": OPEN,
    "getReadiness": OPEN,
    "getMetrics": Rule(Reach.METRICS),
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
