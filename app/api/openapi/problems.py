"""The problems that the OpenAPI document shows: real errors, with the members that they bring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app import errors
from app.http.problems import INTERNAL, KINDS, kind_of, problem_members
from engine import errors as engine_errors
from engine.log.results import LogTag

_MARKS: Final[dict[str, object]] = {
    "log_start_offset": 41,
    "high_watermark": 97,
    "last_stable_offset": 97,
    "log_end_offset": 99,
}

_ERRORS: Final[tuple[Exception, ...]] = (
    errors.MalformedRequest("query.offset: Field required", parameter="offset"),
    errors.Unauthenticated("this needs credentials: Authorization: Bearer <API key or token>"),
    errors.InvalidSignature(
        "the request has no Stripe-Signature: this topic expects the scheme stripe",
        header="Stripe-Signature",
    ),
    errors.Forbidden("the credentials do not have the scope read:flights", scope="read:flights"),
    errors.QuotaExceeded(
        "the quota of 100 requests a second (quota_requests_per_second) is used up",
        limit="quota_requests_per_second",
        limit_value=100,
    ),
    errors.GroupNotFound("group 'lake' has stored no offset", group="lake"),
    errors.CursorNotFound("group 'lake' has stored no offset for flights-0", group="lake"),
    errors.PreconditionRequired(
        "truncation needs If-Match with the ETag of an offsets response", header="if-match"
    ),
    errors.UnsupportedMediaType(
        "media type 'text/plain' is not accepted",
        accepted=["application/json", "application/x-ndjson"],
    ),
    errors.NotAcceptable(
        "none of the accepted media types is available",
        accepted=["application/json", "application/x-ndjson"],
    ),
    errors.RangeNotSatisfiable("the requested range is not within 239 bytes", size_bytes=239),
    errors.AppendOutcomeUnknown(
        "the disk has not confirmed flights-0 in time",
        outcome="/v1/topics/flights/partitions/0/producers/7/appends/12",
    ),
    errors.ExpiredTimestamp(
        "nothing was written; records that are not acceptable: 1, which retention.ms (604800000) "
        "of the topic would remove at its next pass",
        [
            {
                "index": 0,
                "field": "timestamp",
                "code": "expired_timestamp",
                "detail": "timestamp 1788000000 is before 1787395200123",
            }
        ],
        retention_ms=604_800_000,
    ),
    errors.NotSupportedByBackend(
        "this operation needs a service that stores the logs in its own data directories"
    ),
    engine_errors.InvalidRecord(
        "nothing was written; records that are not acceptable: 1",
        [{"index": 2, "field": "value", "code": "missing", "detail": "the record has no value"}],
    ),
    engine_errors.InvalidTimestamp(
        "nothing was written; records that are not acceptable: 1",
        [
            {
                "index": 0,
                "field": "timestamp",
                "code": "invalid_timestamp",
                "detail": "timestamp 4102444800000 is not within 0 to 1788003600123",
            }
        ],
    ),
    engine_errors.CorruptBatch(
        "batch at offset 0: checksum 0x6c6f673a is stored, 0x8c6b559a computed",
        base_offset=0,
        stored_crc=0x6C6F673A,
        computed_crc=0x8C6B559A,
    ),
    engine_errors.TooLarge(
        "the body is larger than max_request_bytes (16777216)",
        limit="max_request_bytes",
        limit_bytes=16_777_216,
        actual_bytes=16_777_217,
    ),
    engine_errors.OffsetBelowLogStart("offset 3 is below the log start 41", offset=3, **_MARKS),
    engine_errors.OffsetBeyondLogEnd("offset 120 is beyond the log end 99", offset=120, **_MARKS),
    engine_errors.SequenceGap(
        "producer 7, epoch 0: sequence 12 was expected, 14 was received",
        producer_id=7,
        producer_epoch=0,
        expected=12,
        received=14,
    ),
    engine_errors.ProducerFenced(
        "producer 7 has written with epoch 2", producer_id=7, current_epoch=2, epoch=1
    ),
    engine_errors.InvalidTransactionState("producer 7 has no open transaction", producer_id=7),
    engine_errors.ProducerNotFound("flights-0 has no producer 7", producer_id=7),
    engine_errors.TopicNotFound("topic 'flights' does not exist", topic="flights"),
    engine_errors.PartitionNotFound("topic 'flights' has no partition 9", topic="flights"),
    engine_errors.SegmentNotFound("no segment begins at 7", base_offset=7),
    engine_errors.TopicConflict(
        "topic 'flights' exists with 4 partitions and configuration {}",
        topic="flights",
        partitions=4,
        config={},
    ),
    engine_errors.PreconditionFailed(
        "the log end is 99, not the expected one",
        expected=97,
        log_end_offset=99,
        tag=LogTag(0, 99, 0x2B23BFCE),
    ),
    engine_errors.LogReplaced(
        "the URL was made for another log",
        expected_log_id="GGWwOTJ4QjWGBO7f11HfIA.0",
        log_id="GGWwOTJ4QjWGBO7f11HfIA.1",
    ),
    engine_errors.Overloaded(
        "max_requests (1024) is reached", limit="max_requests", limit_value=1_024
    ),
    engine_errors.StorageOffline(
        "/data is offline until restart: [Errno 5] Input/output error", directory="/data"
    ),
    engine_errors.StorageFull("no space left under /data", directory="/data"),
    engine_errors.StoredDataCorrupt(
        "/data/flights-0/00000000000000000000.log, byte 544: batch at offset 2: checksum "
        "0x6c6f673a is stored, 0x8c6b559a computed",
        file=Path("/data/flights-0/00000000000000000000.log"),
        position=544,
        offset=2,
    ),
)
"""As they are raised; of kinds that are not here nothing is known beside the table."""


def example_problems(status: int) -> dict[str, dict[str, Any]]:
    """Return an example for each code that a status can have, the members it brings included."""
    shown = {(kind_of(error).status, kind_of(error).code): error for error in _ERRORS}
    found: dict[str, Exception] = {}
    for error, kind in KINDS.items():
        if kind.status == status:
            found[kind.code] = shown.get((status, kind.code)) or error(kind.title)
    if status == INTERNAL.status:
        found[INTERNAL.code] = Exception(INTERNAL.title)
    return {code: {"value": _document(error)} for code, error in sorted(found.items())}


def _document(error: Exception) -> Mapping[str, object]:
    members = problem_members(error)
    return members | {
        "instance": "/v1/topics/flights",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    }
