"""The problem document (RFC 9457) with Kafka's error number."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from schemas.base import ResponseModel
from schemas.common import Absent, Count, Int32, Int64
from schemas.produce import IngestedPart

Code = Literal[
    "append_outcome_unknown",
    "archive_unavailable",
    "backend_refused",
    "backend_unavailable",
    "corrupt_batch",
    "credentials_unavailable",
    "cross_site_request",
    "draining",
    "expired_timestamp",
    "forbidden",
    "group_not_found",
    "group_offset_not_found",
    "idempotency_key_reused",
    "ingest_profile_not_found",
    "topic_restore_not_found",
    "value_schema_not_found",
    "ingest_token_not_found",
    "internal_error",
    "invalid_config",
    "invalid_record",
    "invalid_request",
    "invalid_signature",
    "invalid_timestamp",
    "invalid_topic_name",
    "invalid_transaction_state",
    "lease_lost",
    "log_replaced",
    "malformed_request",
    "method_not_allowed",
    "misdirected_request",
    "not_acceptable",
    "not_enough_replicas",
    "not_supported_by_backend",
    "offset_below_log_start",
    "offset_beyond_log_end",
    "overloaded",
    "partition_not_found",
    "policy_violation",
    "precondition_failed",
    "precondition_required",
    "producer_fenced",
    "producer_not_found",
    "quota_exceeded",
    "range_not_satisfiable",
    "recovering",
    "request_timeout",
    "route_not_found",
    "segment_not_found",
    "sequence_gap",
    "storage_full",
    "storage_offline",
    "stored_data_corrupt",
    "subscription_not_found",
    "too_large",
    "topic_conflict",
    "topic_not_found",
    "unauthenticated",
    "unexpected_offset",
    "unsupported_media_type",
]


class RecordError(ResponseModel):
    """What is wrong with one record or one parameter."""

    model_config = ConfigDict(extra="allow")

    index: Int64 | None = None
    """Position of the record in the request, from 0; null if no record is concerned."""
    field: str | None = None
    """Member, parameter or header that is wrong; null if it is the whole record or body."""
    code: str
    """What is wrong, for programs."""
    detail: str
    """What is wrong, for people."""


class Problem(ResponseModel):
    """Why a request failed, whether to try again, and whether anything may have been written.

    The members from `errors` on are optional; a later release may add more.
    """

    model_config = ConfigDict(extra="allow")

    type: str
    """`urn:tidelog:problem:<code>`."""
    title: str
    """Summary of the problem type, for people."""
    status: Int32
    """HTTP status."""
    detail: str
    """What went wrong this time, for people."""
    instance: str
    """Path of the request."""
    code: Code
    """What went wrong, for programs."""
    retryable: bool
    """Whether the same request may succeed later."""
    side_effects: Literal["none", "unknown"]
    """`none`: nothing was written; `unknown`: something may have been written."""
    kafka_error_code: Int32 | Absent = None
    """Kafka's number for the error."""
    kafka_error: str | Absent = None
    """Kafka's name for the error."""
    trace_id: str
    """Trace id of the request's `traceparent`, or a new one; it is in the service's log."""

    errors: list[RecordError] | Absent = None
    """One entry for each record or parameter that is wrong, at most 100."""
    field: str | Absent = None
    """Member of the body that is wrong."""
    header: str | Absent = None
    """Request header that is wrong."""
    parameter: str | Absent = None
    """Query parameter that is wrong."""
    accepted: list[str] | Absent = None
    """What would have been accepted."""
    accepted_encodings: list[str] | Absent = None
    """Content encodings that would have been accepted."""
    name: str | Absent = None
    """Configuration key, topic or file that is wrong."""
    value: str | Absent = None
    """Value that was refused."""

    topic: str | Absent = None
    """Topic concerned."""
    partition: Int32 | Absent = None
    """Partition concerned."""
    partitions: Int32 | Absent = None
    """Number of partitions that the topic has."""
    config: dict[str, str] | Absent = None
    """Configuration overrides that the existing topic has."""
    retention_ms: Int64 | Absent = None
    """`retention.ms` of the topic."""
    group: str | Absent = None
    """Group concerned."""
    log: str | Absent = None
    """Log concerned, as `<topic>-<partition>`."""
    log_id: str | Absent = None
    """`log_id` of the log now."""
    expected_log_id: str | Absent = None
    """`log_id` that the request asked for."""

    offset: Int64 | Absent = None
    """Offset concerned."""
    next_offset: Int64 | Absent = None
    """Offset to continue from to skip the record concerned."""
    log_start_offset: Count | Absent = None
    """First offset that can be read."""
    local_log_start_offset: Count | Absent = None
    """First offset on the disk: only the archive has those before it."""
    high_watermark: Count | Absent = None
    """End of what is flushed to disk, exclusive."""
    last_stable_offset: Count | Absent = None
    """End of what `read_committed` readers see, exclusive."""
    log_end_offset: Count | Absent = None
    """Offset that the next record gets."""
    etag: str | None = None
    """Current ETag, for the next `If-Match`; null if the resource does not exist."""
    expected: Int64 | Absent = None
    """Sequence or log end offset that was expected."""
    received: Int64 | Absent = None
    """Sequence that was received."""

    limit: str | Absent = None
    """Name of the limit that was exceeded, as in `/v1/limits`."""
    limit_bytes: Int64 | Absent = None
    """Value of the limit, in the unit that its name ends in."""
    limit_ms: Int64 | Absent = None
    """Value of the limit, in milliseconds."""
    limit_value: Int64 | Absent = None
    """Value of the limit, in the unit that its name ends in."""
    actual_bytes: Int64 | Absent = None
    """Value of the request, in the same unit."""
    size_bytes: Int64 | Absent = None
    """Size of the file, in bytes."""

    scope: str | Absent = None
    """Scope that the credentials lack."""
    origin: str | Absent = None
    """Origin that is not allowed."""
    host: str | Absent = None
    """`Host` header that the service does not accept."""
    outcome: str | Absent = None
    """Path of `getAppendOutcome` for this append."""

    base_offset: Int64 | None = None
    """First offset of the batch, segment or body concerned; null if nothing was written."""
    first_offset: Int64 | Absent = None
    """First offset of the bytes sent."""
    last_offset: Int64 | None = None
    """Last offset of the batch or body concerned, inclusive; null if nothing was written."""
    batch_base_offset: Int64 | Absent = None
    """Base offset of the batch that contains the offset."""
    batch_next_offset: Int64 | Absent = None
    """End of the batch that contains the offset, exclusive."""
    committed_lines: Int64 | Absent = None
    """With `stream=true`: lines that are committed."""
    committed_records: Int64 | Absent = None
    """With `stream=true`: records that are committed."""
    line: Int64 | None = None
    """With ingested NDJSON, or `stream=true`: line that is wrong, from 1; null if it is none of
    them."""
    written: list[IngestedPart] | Absent = None
    """If an ingest over several partitions failed midway: the records on disk. A repeated request
    appends it again, unless it has a delivery id."""

    producer_id: Int64 | Absent = None
    """Producer concerned."""
    producer_epoch: Int32 | Absent = None
    """Epoch of the producer."""
    epoch: Int32 | Absent = None
    """Epoch that was sent."""
    current_epoch: Int32 | Absent = None
    """Epoch of the producer now."""
    coordinator_epoch: Int32 | Absent = None
    """Coordinator epoch that was sent."""
    current_coordinator_epoch: Int32 | Absent = None
    """Coordinator epoch now."""
    transaction_first_offset: Int64 | Absent = None
    """First offset of the open transaction."""

    file: str | Absent = None
    """Name of the damaged file."""
    position: Int64 | Absent = None
    """Position in the file or body, in bytes."""
    index: Int64 | Absent = None
    """Position of the record in its batch, from 0."""
    stored_crc: Int64 | Absent = None
    """CRC that the batch states."""
    computed_crc: Int64 | Absent = None
    """CRC of the bytes."""
    magic: Int32 | Absent = None
    """Magic byte of the batch."""
    codec: str | Absent = None
    """Compression codec that is not supported."""
    segment: str | Absent = None
    """Segment concerned."""
    entries: Int64 | Absent = None
    """Entries that the index has."""
    start_offset: Int64 | Absent = None
    """Start offset of the epoch."""
    directory: str | Absent = None
    """Data directory concerned."""
    directories: list[str] | Absent = None
    """Data directories concerned."""
