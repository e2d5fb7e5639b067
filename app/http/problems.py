"""Maps every error to its problem document: one table, keyed by exception type.

An assertion checks that it is complete. Kafka's error numbers cannot be the key, because one number
can have several statuses (1 is 410 or 416).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from app.disk_paths import without_paths
from app.errors import (
    MAX_ERRORS_LISTED,
    AppendBrokeOff,
    AppendOutcomeUnknown,
    BackendRefused,
    BackendUnavailable,
    CommitTimedOut,
    CredentialsUnavailable,
    CrossSiteRequest,
    CursorNotFound,
    DigestMismatch,
    Draining,
    ExpiredTimestamp,
    Forbidden,
    GroupNotFound,
    IdempotencyKeyReused,
    IngestProfileNotFound,
    IngestTokenNotFound,
    InvalidBody,
    InvalidSignature,
    LeaseLost,
    MalformedRequest,
    MethodNotAllowed,
    MisdirectedRequest,
    NotAcceptable,
    NotEnoughReplicas,
    NotSupportedByBackend,
    PreconditionRequired,
    QuotaExceeded,
    RangeNotSatisfiable,
    RecordTooLarge,
    RequestTimedOut,
    RouteNotFound,
    ServiceError,
    SubscriptionNotFound,
    TopicRestoreNotFound,
    Unauthenticated,
    UnsupportedMediaType,
    ValueSchemaNotFound,
)
from app.http.answers import NO_STORE, PROBLEM, Answer, Headers, etag_of
from app.http.request_checks import advice_of
from engine import errors as engine_errors
from engine.errors import (
    EngineError,
    ErrorCode,
    InvalidRecord,
    StorageOffline,
    leaf_errors,
)
from engine.log.results import LogTag

_LOG = logging.getLogger(__name__)

RETRY_AFTER: Final = (b"retry-after", b"1")
_RETRY: Final = (RETRY_AFTER,)


class Kind(NamedTuple):
    """The members that all problems of one kind share."""

    status: int
    code: str
    title: str
    retryable: bool = False
    side_effects: Literal["none", "unknown"] = "none"
    headers: tuple[tuple[bytes, bytes], ...] = ()


_E = engine_errors

KINDS: Final[Mapping[type[Exception], Kind]] = {
    MalformedRequest: Kind(400, "malformed_request", "The request cannot be read"),
    InvalidBody: Kind(422, "invalid_request", "The operation does not accept this body"),
    RouteNotFound: Kind(404, "route_not_found", "The path does not exist"),
    MethodNotAllowed: Kind(405, "method_not_allowed", "The path does not support the method"),
    NotAcceptable: Kind(406, "not_acceptable", "No acceptable media type"),
    RequestTimedOut: Kind(
        408, "request_timeout", "The body did not arrive in time", retryable=True
    ),
    UnsupportedMediaType: Kind(415, "unsupported_media_type", "Unsupported media type"),
    DigestMismatch: Kind(422, "corrupt_batch", "The digest does not match", retryable=True),
    IdempotencyKeyReused: Kind(
        422, "idempotency_key_reused", "The key belongs to another request"
    ),
    PreconditionRequired: Kind(428, "precondition_required", "The operation needs a condition"),
    Unauthenticated: Kind(401, "unauthenticated", "Credentials are needed"),
    InvalidSignature: Kind(401, "invalid_signature", "The sender's signature is not valid"),
    Forbidden: Kind(403, "forbidden", "The credentials do not allow this"),
    CrossSiteRequest: Kind(
        403, "cross_site_request", "Pages of other sites are not allowed to change anything"
    ),
    MisdirectedRequest: Kind(421, "misdirected_request", "The Host is not a name of this service"),
    QuotaExceeded: Kind(429, "quota_exceeded", "A quota is used up", retryable=True),
    CredentialsUnavailable: Kind(
        503, "credentials_unavailable", "The issuer's keys are not known yet",
        retryable=True, headers=_RETRY,
    ),
    BackendUnavailable: Kind(
        503, "backend_unavailable", "The Kafka cluster does not answer",
        retryable=True, headers=_RETRY,
    ),
    NotEnoughReplicas: Kind(
        503, "not_enough_replicas", "Too few replicas are in sync",
        retryable=True, headers=_RETRY,
    ),
    BackendRefused: Kind(503, "backend_refused", "The Kafka cluster refused the request"),
    Draining: Kind(503, "draining", "The service is stopping", retryable=True, headers=_RETRY),
    CommitTimedOut: Kind(
        504, "append_outcome_unknown", "The disk has not confirmed the append",
        retryable=True, side_effects="unknown",
    ),
    _E.CorruptBatch: Kind(422, "corrupt_batch", "The batch is damaged", retryable=True),
    _E.InvalidRecord: Kind(422, "invalid_record", "A record is not acceptable"),
    _E.InvalidTimestamp: Kind(422, "invalid_timestamp", "A timestamp is out of bounds"),
    ExpiredTimestamp: Kind(422, "expired_timestamp", "Retention would delete a record at once"),
    _E.UnsupportedMagic: Kind(415, "unsupported_media_type", "Unsupported message format"),
    _E.UnsupportedCompression: Kind(415, "unsupported_media_type", "Unsupported compression"),
    _E.TooLarge: Kind(413, "too_large", "A limit is exceeded"),
    _E.BatchSetTooLarge: Kind(413, "too_large", "A limit is exceeded"),
    RecordTooLarge: Kind(413, "too_large", "A record is larger than a response may be"),
    _E.DecodeBudgetSpent: Kind(413, "too_large", "A limit is exceeded"),
    _E.InvalidConfig: Kind(422, "invalid_config", "The configuration is not valid"),
    _E.InvalidTopicName: Kind(422, "invalid_topic_name", "The topic name is not valid"),
    _E.PolicyViolation: Kind(422, "policy_violation", "The topic's policy forbids this"),
    _E.InvalidRequestValue: Kind(422, "invalid_request", "A value is out of range"),
    _E.OffsetsOutOfOrder: Kind(422, "invalid_record", "Offsets do not ascend"),
    _E.OffsetBelowLogStart: Kind(410, "offset_below_log_start", "The offset was deleted"),
    _E.OffsetBeyondLogEnd: Kind(
        416, "offset_beyond_log_end", "The offset does not exist yet", retryable=True
    ),
    RangeNotSatisfiable: Kind(416, "range_not_satisfiable", "The file does not have this range"),
    _E.UnexpectedAppendOffset: Kind(409, "unexpected_offset", "A batch starts below the log end"),
    _E.SequenceGap: Kind(409, "sequence_gap", "The sequence is not the next one"),
    _E.ProducerFenced: Kind(403, "producer_fenced", "A producer with a newer epoch has written"),
    _E.CoordinatorFenced: Kind(403, "producer_fenced", "A newer coordinator has written a marker"),
    _E.InvalidTransactionState: Kind(
        409, "invalid_transaction_state", "The state of the transaction does not allow this"
    ),
    _E.ProducerNotFound: Kind(404, "producer_not_found", "No such producer"),
    _E.TopicNotFound: Kind(404, "topic_not_found", "No such topic"),
    _E.PartitionNotFound: Kind(404, "partition_not_found", "No such partition"),
    GroupNotFound: Kind(404, "group_not_found", "No such group"),
    CursorNotFound: Kind(404, "group_offset_not_found", "The group has not stored this offset"),
    SubscriptionNotFound: Kind(404, "subscription_not_found", "No such subscription"),
    LeaseLost: Kind(409, "lease_lost", "The worker does not have the partition any more"),
    IngestProfileNotFound: Kind(
        404, "ingest_profile_not_found", "The topic has no ingest profile"
    ),
    TopicRestoreNotFound: Kind(404, "topic_restore_not_found", "No restore of such a topic"),
    ValueSchemaNotFound: Kind(404, "value_schema_not_found", "The topic has no value schema"),
    IngestTokenNotFound: Kind(404, "ingest_token_not_found", "No such ingest token"),
    _E.SegmentNotFound: Kind(404, "segment_not_found", "No such segment"),
    _E.TopicConflict: Kind(409, "topic_conflict", "The topic exists and differs"),
    _E.PreconditionFailed: Kind(412, "precondition_failed", "A condition is not met"),
    _E.LogReplaced: Kind(409, "log_replaced", "The log was replaced"),
    _E.Overloaded: Kind(
        503, "overloaded", "A bounded queue is full", retryable=True, headers=_RETRY
    ),
    _E.Recovering: Kind(
        503, "recovering", "The logs are being opened", retryable=True, headers=_RETRY
    ),
    _E.ArchiveUnavailable: Kind(
        503,
        "archive_unavailable",
        "Only the archive has the records, and it does not answer",
        retryable=True,
        headers=_RETRY,
    ),
    _E.StorageOffline: Kind(
        503, "storage_offline", "The disk failed; no more writes until a restart"
    ),  # side effects are unknown if the write had begun
    _E.LogOffline: Kind(503, "storage_offline", "The log could not be opened"),
    NotSupportedByBackend: Kind(
        501, "not_supported_by_backend", "The service's backend does not support this"
    ),
    _E.StorageFull: Kind(507, "storage_full", "No space is left", retryable=True),
    _E.StoredDataCorrupt: Kind(500, "stored_data_corrupt", "Stored data is damaged"),
    # These usually occur at startup and in the background; a request can meet them too.
    _E.CorruptIndex: Kind(500, "stored_data_corrupt", "An index is damaged"),
    _E.IndexFull: Kind(500, "internal_error", "An index is full"),
    _E.CorruptSnapshot: Kind(500, "stored_data_corrupt", "A snapshot is damaged"),
    _E.CorruptCheckpoint: Kind(500, "stored_data_corrupt", "A checkpoint is damaged"),
    _E.InconsistentTopicId: Kind(500, "stored_data_corrupt", "A directory has another topic id"),
    _E.DirectoryLocked: Kind(503, "storage_offline", "Another process owns the data directory"),
    _E.InvalidDataDirectory: Kind(503, "storage_offline", "The data directory is not usable"),
    _E.SegmentOverflow: Kind(500, "internal_error", "An offset is too large for its segment"),
}  # fmt: skip

INTERNAL: Final = Kind(
    500, "internal_error", "The request failed inside the service", side_effects="unknown"
)

_MISSING = set(leaf_errors(EngineError)) - KINDS.keys()
assert not _MISSING, f"every engine error needs a status: {_MISSING}"


def kind_of(error: Exception) -> Kind:
    """Return the kind of the nearest class; an unexpected error is `internal_error`."""
    if isinstance(error, AppendBrokeOff):
        return kind_of(error.cause)
    for ancestor in type(error).__mro__:
        kind = KINDS.get(ancestor)
        if kind is not None:
            return kind
    return INTERNAL


def problem_members(error: Exception) -> dict[str, object]:
    """Return the members about the error itself, without place and time."""
    if isinstance(error, AppendBrokeOff):
        of_cause = {**problem_members(error.cause), **error.facts()}
        if not error.has_written:
            return of_cause
        may_repeat = error.may_repeat and kind_of(error.cause).retryable
        return of_cause | {"retryable": may_repeat, "side_effects": "unknown"}
    kind = kind_of(error)
    detail = str(error) if kind is not INTERNAL else "an unexpected error was logged"
    facts: Mapping[str, object] = {}
    if isinstance(error, EngineError | ServiceError):
        detail, facts = without_paths(detail, error.facts())
    members: dict[str, object] = {
        "type": f"urn:tidelog:problem:{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "code": kind.code,
        "retryable": kind.retryable,
        "side_effects": kind.side_effects,
    }
    if isinstance(error, StorageOffline) and error.has_begun:
        members["side_effects"] = "unknown"
    kafka_code = (
        error.kafka_code if isinstance(error, EngineError) else _KAFKA_CODES.get(type(error))
    )
    if kafka_code is not None:
        members["kafka_error_code"] = int(kafka_code)
        members["kafka_error"] = kafka_code.name
    if isinstance(error, InvalidRecord) and error.errors:
        members["errors"] = [_listed(entry) for entry in error.errors[:MAX_ERRORS_LISTED]]
    for name, value in facts.items():
        if isinstance(value, LogTag):
            members["etag"] = etag_of(*value).decode()
        else:
            members.setdefault(name, value)
    return members


def problem_answer(error: Exception, *, path: str, trace: bytes | None = None) -> Answer:
    """Return the problem document of an error; an unexpected one is logged with its stack.

    `trace` is the request's traceparent; document and log line contain its trace id.
    """
    kind = kind_of(error)
    members = problem_members(error)
    members["detail"] = f"{members['detail']}{advice_of(members, path)}"
    members["instance"] = path
    members["trace_id"] = trace_id_of(trace) or secrets.token_hex(16)
    if kind.status >= 500 and kind.status not in {501, 503}:
        _LOG.error("%s: %s", path, error, exc_info=error, extra={"trace_id": members["trace_id"]})
    headers: Headers = [(b"content-type", PROBLEM), NO_STORE, *kind.headers]
    if isinstance(error, ServiceError):
        headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    document = msgspec.json.encode(members, enc_hook=_encode)
    return Answer(
        kind.status, headers, document + b"\n"
    )  # or a shell's prompt would follow on the same line


def problem_as(problem: Answer, status: int, media_type: bytes, body: bytes) -> Answer:
    """Return a problem in the format of another protocol; the other headers stay."""
    headers = [
        (name, media_type if name == b"content-type" else value) for name, value in problem.headers
    ]
    return Answer(status, headers, body)


def trace_id_of(trace: bytes | None) -> str | None:
    """Return the trace id of the result of `trace_of`; None without one."""
    return None if trace is None else trace.split(b"-")[1].decode()


_KAFKA_CODES: Final[Mapping[type[Exception], ErrorCode]] = {
    GroupNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    CursorNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    UnsupportedMediaType: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    Unauthenticated: ErrorCode.SASL_AUTHENTICATION_FAILED,
    InvalidSignature: ErrorCode.SASL_AUTHENTICATION_FAILED,
    Forbidden: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    DigestMismatch: ErrorCode.CORRUPT_MESSAGE,
    RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    CommitTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    AppendOutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
    BackendUnavailable: ErrorCode.BROKER_NOT_AVAILABLE,
    NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def _listed(entry: Mapping[str, object]) -> dict[str, object]:
    return {"index": None, "field": None, "code": "invalid", "detail": "", **entry}


def _encode(value: Any) -> object:  # noqa: ANN401  # whatever an error carries can be said somehow
    return str(value)
