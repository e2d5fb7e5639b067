"""The engine's errors as a tree; app/http/problems.py gives every leaf a status.

    EngineError
    ├── InvalidRequest            the bytes or numbers that came in are wrong; nothing was written
    │   ├── CorruptBatch          wrong framing or checksum
    │   ├── InvalidRecord         well formed, wrong content; lists the records
    │   ├── InvalidTimestamp      outside the topic's bounds
    │   ├── UnsupportedMagic      a message format that is not accepted
    │   ├── UnsupportedCompression
    │   ├── TooLarge              one named limit was passed
    │   ├── DecodeBudgetSpent     the content of one request is too much to decode
    │   ├── InvalidConfig
    │   ├── InvalidTopicName
    │   ├── PolicyViolation
    │   └── InvalidRequestValue   an argument that can never be right
    ├── OffsetError
    │   ├── OffsetBelowLogStart
    │   ├── OffsetBeyondLogEnd
    │   └── UnexpectedAppendOffset
    ├── ProducerError
    │   ├── SequenceGap
    │   ├── ProducerFenced
    │   ├── CoordinatorFenced
    │   ├── InvalidTransactionState
    │   └── ProducerNotFound
    ├── NotFound
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   └── SegmentNotFound
    ├── TopicConflict
    ├── PreconditionFailed        the log end is not where the caller expected it
    ├── LogReplaced               the topic was recreated or the log truncated
    ├── Overloaded                a bounded queue is full
    ├── Recovering                the log is not open yet
    ├── ArchiveUnavailable        only the archive has the records, and it did not return them
    ├── StorageError
    │   ├── StorageOffline        a write failed: no more writes until restart
    │   ├── LogOffline            the log could not be opened at the last start
    │   ├── StorageFull
    │   ├── StoredDataCorrupt     damage found while reading
    │   ├── CorruptIndex          a derived file is wrong and must be rebuilt
    │   ├── CorruptSnapshot
    │   ├── CorruptCheckpoint
    │   └── InconsistentTopicId
    ├── DirectoryLocked           another process owns the data directory
    └── SegmentOverflow           an offset that its segment's files cannot express

Every error carries Kafka's error number where the protocol has one, and the facts a caller needs as
attributes, so that callers need not parse messages.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar


@enum.unique
class ErrorCode(enum.IntEnum):
    """Kafka's error numbers, as far as the log uses them."""

    UNKNOWN = -1
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    TOPIC_AUTHORIZATION_FAILED = 29
    INVALID_TIMESTAMP = 32
    TOPIC_ALREADY_EXISTS = 36
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103


class WouldBlock(Exception):
    """The operation would wait for the disk, or for a thread that may be waiting for it.

    A signal between the engine and its caller, who repeats the operation on another thread.
    """


class EngineError(Exception):
    """The base of all errors of the engine."""

    kafka_code: ClassVar[ErrorCode | None] = None

    def facts(self) -> Mapping[str, object]:
        """Return what programs need besides the message, by name."""
        return {}


class _FactualError(EngineError):
    """An error whose keyword arguments are its facts and its attributes."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self._facts = facts

    def facts(self) -> Mapping[str, object]:
        return self._facts


class InvalidRequest(_FactualError):
    """The bytes or numbers that came in are wrong; nothing was written."""


class CorruptBatch(InvalidRequest):
    """Framing or checksum of a batch is wrong."""

    kafka_code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(InvalidRequest):
    """The batch is intact and its content is wrong; `errors` lists the records concerned."""

    kafka_code = ErrorCode.INVALID_RECORD

    def __init__(
        self, message: str, errors: Sequence[Mapping[str, object]] = (), **facts: object
    ) -> None:
        super().__init__(message, **facts)
        self.errors = tuple(errors)


class InvalidTimestamp(InvalidRecord):
    """At least one record's time is outside the topic's bounds."""

    kafka_code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedMagic(InvalidRequest):
    """The message format is not accepted."""

    kafka_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(InvalidRequest):
    """The codec bits do not name a known codec."""

    kafka_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class TooLarge(InvalidRequest):
    """One named limit was passed."""

    kafka_code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, message: str, *, limit: str, limit_bytes: int, actual_bytes: int) -> None:
        super().__init__(message, limit=limit, limit_bytes=limit_bytes, actual_bytes=actual_bytes)


class BatchSetTooLarge(TooLarge):
    """The batches of one append are larger than a segment may be."""

    kafka_code = ErrorCode.RECORD_LIST_TOO_LARGE


class DecodeBudgetSpent(InvalidRequest):
    """Decoding the content of one request takes more bytes or processor time than it may."""

    kafka_code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidConfig(InvalidRequest):
    """A topic configuration has an unknown name or a value out of range."""

    kafka_code = ErrorCode.INVALID_CONFIG


class InvalidTopicName(InvalidRequest):
    """A topic name breaks Kafka's rule: 1 to 249 of letters, digits, `.`, `_`, `-`."""

    kafka_code = ErrorCode.INVALID_TOPIC


class PolicyViolation(InvalidRequest):
    """The topic's policy forbids the operation."""

    kafka_code = ErrorCode.POLICY_VIOLATION


class InvalidRequestValue(InvalidRequest):
    """An argument that can never be right."""

    kafka_code = ErrorCode.INVALID_REQUEST


class OffsetError(_FactualError):
    """An offset is out of range; the facts carry both ends of the log."""

    kafka_code = ErrorCode.OFFSET_OUT_OF_RANGE


class OffsetBelowLogStart(OffsetError):
    """Retention or a deletion has removed the offset."""


class OffsetBeyondLogEnd(OffsetError):
    """The offset does not exist yet."""


class UnexpectedAppendOffset(OffsetError):
    """Batches with given offsets start below the log end."""

    kafka_code = ErrorCode.UNKNOWN


class OffsetsOutOfOrder(InvalidRequest):
    """Batches with given offsets do not ascend."""

    kafka_code = ErrorCode.UNKNOWN


class ProducerError(_FactualError):
    """A producer's number or state forbids the append; nothing was written."""


class SequenceGap(ProducerError):
    """The sequence is not the next one; facts: producer_id, expected, received."""

    kafka_code = ErrorCode.OUT_OF_ORDER_SEQUENCE


class ProducerFenced(ProducerError):
    """A newer epoch of this producer has written; facts: producer_id, current_epoch, epoch."""

    kafka_code = ErrorCode.INVALID_PRODUCER_EPOCH


class CoordinatorFenced(ProducerError):
    """A newer coordinator has written a marker for this producer."""

    kafka_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class InvalidTransactionState(ProducerError):
    """The producer's transaction is not in a state that allows this."""

    kafka_code = ErrorCode.INVALID_TXN_STATE


class ProducerNotFound(ProducerError):
    """No such producer is known to this log."""

    kafka_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NotFound(_FactualError):
    """What the request names does not exist."""

    kafka_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicNotFound(NotFound):
    """No such topic."""


class PartitionNotFound(NotFound):
    """The topic has no such partition."""


class SegmentNotFound(NotFound):
    """The log has no such segment, or no such file of it."""


class TopicConflict(_FactualError):
    """The topic exists and differs from what was asked for."""

    kafka_code = ErrorCode.TOPIC_ALREADY_EXISTS


class PreconditionFailed(_FactualError):
    """The log end is not where the caller expected it; nothing was written."""


class LogReplaced(_FactualError):
    """The topic was recreated, or the log truncated, since the caller's last request."""

    kafka_code = ErrorCode.UNKNOWN_TOPIC_ID


class Overloaded(_FactualError):
    """A bounded queue is full; nothing was written."""


class Recovering(_FactualError):
    """The log is not open yet; the facts give the progress."""


class ArchiveUnavailable(_FactualError):
    """Only the archive has the records, and it did not return them; a later attempt may succeed."""


class StorageError(_FactualError):
    """The disk, or the data on it, prevents the operation."""

    kafka_code = ErrorCode.STORAGE_ERROR


class StorageOffline(StorageError):
    """A write failed: the directory takes no more writes until restart.

    `has_begun` says whether the write had begun, so that a part of it may be on disk; otherwise
    nothing was written.
    """

    def __init__(self, message: str, *, has_begun: bool = False, **facts: object) -> None:
        super().__init__(message, **facts)
        self.has_begun = has_begun


class LogOffline(StorageError):
    """The log could not be opened at the last start; facts: topic, partition, file.

    Position and offset too, if a known place is damaged.
    """


class StorageFull(StorageError):
    """No space is left on the device."""


class StoredDataCorrupt(StorageError):
    """Damage found while reading; facts: file, position, offset. It is never served."""

    kafka_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, message: str, *, file: Path | str, position: int, offset: int) -> None:
        super().__init__(message, file=str(file), position=position, offset=offset)
        self.file = Path(file)
        self.position = position
        self.offset = offset


class CorruptIndex(StorageError):
    """A derived index is wrong and must be rebuilt from the log."""


class IndexFull(StorageError):
    """An index has no room for another entry; the segment must be rolled."""


class CorruptSnapshot(StorageError):
    """A producer snapshot is wrong and must be dropped."""


class CorruptCheckpoint(StorageError):
    """A checkpoint file is wrong."""


class InconsistentTopicId(StorageError):
    """A directory belongs to another topic of the same name."""

    kafka_code = ErrorCode.INCONSISTENT_TOPIC_ID


class DirectoryLocked(_FactualError):
    """Another process owns the data directory."""


class InvalidDataDirectory(_FactualError):
    """The data directory holds something unexpected, and guessing could lose data."""


class SegmentOverflow(_FactualError):
    """An offset is too far from its segment's base offset to be expressed in 32 bits."""


def leaf_errors(root: type[EngineError]) -> Iterator[type[EngineError]]:
    """Yield every class below `root` that has no children, and `root` itself if it has none."""
    children = root.__subclasses__()
    if not children:
        yield root
    for child in children:
        yield from leaf_errors(child)
