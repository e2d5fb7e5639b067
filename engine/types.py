"""The engine's shared value types."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
UNKNOWN_OFFSET: Final = -1
UNKNOWN_POSITION: Final = -1


class TopicPartition(NamedTuple):
    """One partition of one topic: the name of a log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetPosition(NamedTuple):
    """An offset and a byte position in its segment file."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp in ms and the offset it belongs to."""

    timestamp: int
    offset: int


class TimestampAndOffset(NamedTuple):
    """The result of a look-up by time: the record, and the leader epoch of its batch, if known."""

    timestamp: int
    offset: int
    leader_epoch: int | None


class EpochOffset(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class OffsetMetadata(NamedTuple):
    """An offset and its location; Kafka's `LogOffsetMetadata`.

    `segment_base_offset` and `position` are -1 until the location is looked up ("offset only").
    """

    offset: int
    segment_base_offset: int = UNKNOWN_OFFSET
    position: int = UNKNOWN_POSITION

    @property
    def is_offset_only(self) -> bool:
        return self.segment_base_offset == UNKNOWN_OFFSET and self.position == UNKNOWN_POSITION

    def is_on_older_segment_than(self, other: OffsetMetadata) -> bool:
        """Whether both locations are known and this one is in an earlier segment."""
        if self.is_offset_only or other.is_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset


UNKNOWN_OFFSET_METADATA: Final = OffsetMetadata(UNKNOWN_OFFSET)


class AppendOrigin(enum.Enum):
    """The source of an append, which decides what is checked; Kafka's `AppendOrigin`."""

    CLIENT = "client"  # offsets assigned, everything checked
    COORDINATOR = "coordinator"  # offsets assigned, markers allowed, sequences not checked
    REPLICATION = "replication"  # offsets kept: followers, recovery, reload


class FetchIsolation(enum.Enum):
    """How far a reader may read; Kafka's `FetchIsolation`."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "read_uncommitted"
    TXN_COMMITTED = "read_committed"


class LogStartReason(enum.Enum):
    """Why the log start rose, for the service's log; Kafka's reasons."""

    SEGMENT_DELETION = "segment deletion"
    CLIENT_RECORD_DELETION = "client record deletion"
    LEADER_OFFSET_INCREMENTED = "leader offset incremented"


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker ended; offsets inclusive, `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of a transaction index; offsets inclusive, `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
