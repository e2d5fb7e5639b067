"""What a broker refuses, as errors of the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from app.errors import (
    BackendRefused,
    BackendUnavailable,
    Forbidden,
    NotEnoughReplicas,
    QuotaExceeded,
)
from engine.errors import (
    CorruptBatch,
    InvalidConfig,
    InvalidRecord,
    InvalidRequestValue,
    InvalidTimestamp,
    InvalidTopicName,
    InvalidTransactionState,
    OffsetBeyondLogEnd,
    PolicyViolation,
    TopicConflict,
    TopicNotFound,
    UnsupportedCompression,
    UnsupportedMagic,
)


class NoAnswer(Exception):
    """A broker has not answered: it cannot be reached, or the connection was lost."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        """Whether the broker may have received the request."""


class NotTrusted(NoAnswer):
    """A broker refuses the service's credentials, or the service the broker's certificate."""


class Moved(Exception):
    """The broker answers that another one has to be asked, or the same one later.

    It has done nothing.
    """

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"the broker answers {code.name.upper()}")
        self.code = code


STALE: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_controller,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
"""Answers after which the metadata is read again and the request is repeated: the broker has done
nothing."""

_Make = Callable[[str], Exception]

_ERRORS: Final[Mapping[ErrorCode, _Make]] = {
    ErrorCode.offset_out_of_range: OffsetBeyondLogEnd,
    ErrorCode.corrupt_message: CorruptBatch,
    ErrorCode.unknown_topic_or_partition: TopicNotFound,
    ErrorCode.unknown_topic_id: TopicNotFound,
    ErrorCode.invalid_topic_exception: InvalidTopicName,
    ErrorCode.not_enough_replicas: NotEnoughReplicas,
    ErrorCode.invalid_timestamp: InvalidTimestamp,
    ErrorCode.topic_already_exists: TopicConflict,
    ErrorCode.invalid_partitions: InvalidRequestValue,
    ErrorCode.invalid_replication_factor: InvalidRequestValue,
    ErrorCode.invalid_config: InvalidConfig,
    ErrorCode.invalid_request: InvalidRequestValue,
    ErrorCode.unsupported_for_message_format: UnsupportedMagic,
    ErrorCode.policy_violation: PolicyViolation,
    ErrorCode.invalid_txn_state: InvalidTransactionState,
    ErrorCode.unsupported_compression_type: UnsupportedCompression,
    ErrorCode.invalid_record: InvalidRecord,
    ErrorCode.throttling_quota_exceeded: QuotaExceeded,
    ErrorCode.topic_authorization_failed: Forbidden,
}


def error_of(code: ErrorCode, message: str | None = None) -> Exception:
    """Return the error of the contract for a broker's refusal; `message` is the broker's own."""
    sentence = message or f"the Kafka cluster answers {code.name.upper()}"
    make = _ERRORS.get(code)
    if make is not None:
        return make(sentence)
    if code in STALE or code.retriable:
        return BackendUnavailable(sentence)
    return BackendRefused(sentence)


def ensure_done(code: ErrorCode, message: str | None = None) -> None:
    """Raise Moved if another broker has to be asked, or what the broker refuses."""
    if code is ErrorCode.none:
        return
    if code in STALE:
        raise Moved(code)
    raise error_of(code, message)


def milliseconds(duration_ms: int) -> i32Timedelta:
    """Return a duration as kio takes it."""
    return i32Timedelta.parse(timedelta(milliseconds=duration_ms))
