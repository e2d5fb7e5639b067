"""The answers of operations in the document: their headers, their links, the problems they can be.

Links are for programs that walk an API by its document. Values are runtime expressions (OpenAPI
3.1), or constants. Links have parameters only: openapi-generator refuses an object as
`requestBody`. The problems shown are real errors, with the members that they bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from app import errors
from app.http.problems import INTERNAL, KINDS, kind_of, problem_members
from engine import errors as engine_errors
from engine.log.results import LogTag

Json: TypeAlias = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_NUMBER: Final[Json] = {"type": "integer", "format": "int64", "minimum": 0}


class _Header(NamedTuple):
    """A header of answers."""

    description: str
    schema: Json = _TEXT
    example: object = None


HEADERS: Final[Mapping[str, _Header]] = {
    "Accept-Encoding": _Header("Content encodings that are accepted", example="gzip, zstd"),
    "Accept-Post": _Header("Media types that are accepted"),
    "Accept-Ranges": _Header("`Range` is supported for this response", example="bytes"),
    "Allow": _Header("Methods of this path", example="GET, HEAD, OPTIONS, POST"),
    "Cache-Control": _Header(
        "`no-store`; `private` or `public`, `max-age=31536000, immutable` for an immutable page",
        example="no-store",
    ),
    "Content-Disposition": _Header("File name for a download"),
    "Content-Encoding": _Header("`gzip` or `zstd`, as `Accept-Encoding` prefers; none if absent"),
    "Content-Range": _Header("Range of bytes sent, and the total size", example="bytes 0-99/239"),
    "ETag": _Header("Strong entity tag, for `If-Match` and `If-None-Match`"),
    "Idempotency-Replayed": _Header(
        "`true`: the offsets are those of the first request with this key"
    ),
    "Link": _Header(
        'URL to read on from (`rel="next"`); in a 504 that of `getAppendOutcome` (`rel="status"`)',
        example='</v1/topics/flights/partitions/0/records?offset=42>; rel="next"',
    ),
    "Location": _Header("Path of what was created; of an append, the URL that reads its records"),
    "Log-End-Offset": _Header("Offset that the next record gets", _NUMBER),
    "Log-Explain": _Header("With `explain=true`: segment read, and why the response ended"),
    "Log-First-Offset": _Header("Base offset of the first batch, not above `offset`", _NUMBER),
    "Log-High-Watermark": _Header("End of what is flushed to disk, exclusive", _NUMBER),
    "Log-Id": _Header("`log_id` of the log", example="MbVOaUkkR46WnfKUMqB8JQ.0"),
    "Log-Last-Stable-Offset": _Header("End of what `read_committed` reads, exclusive", _NUMBER),
    "Log-Leader-Epoch": _Header("Leader epoch of the log", _NUMBER),
    "Log-Next-Offset": _Header("Offset to read on from", _NUMBER),
    "Log-Start-Offset": _Header("First offset that can be read", _NUMBER),
    "Retry-After": _Header("Seconds to wait before the next attempt", _NUMBER),
    "Vary": _Header("Request headers that the response depends on"),
    "WWW-Authenticate": _Header("What is missing (RFC 6750); not in a 403 of a fenced producer"),
    "WebHook-Allowed-Origin": _Header("The `WebHook-Request-Origin` that may send"),
    "WebHook-Allowed-Rate": _Header("Requests per minute that are taken, or `*`", example="*"),
    "Want-Content-Digest": _Header("Digest algorithms that are accepted (RFC 9530)"),
    "X-Accel-Buffering": _Header("`no`: nginx does not buffer events and streams", example="no"),
    "traceparent": _Header("The request's `traceparent` (W3C Trace Context); absent without one"),
}

MARKS: Final = (
    "Log-Id",
    "Log-Start-Offset",
    "Log-High-Watermark",
    "Log-Last-Stable-Offset",
    "Log-End-Offset",
    "Log-Next-Offset",
    "Log-Leader-Epoch",
)
"""On every answer about one log, all from one snapshot."""

_ABOUT_LOGS: Final = (
    "compactLog",
    "deleteRecords",
    "flushLog",
    "getCompaction",
    "getAppendOutcome",
    "getMove",
    "getPartition",
    "listProducers",
    "listSegments",
    "movePartition",
    "rollSegment",
    "runRetention",
)
_EVERYWHERE: Final = ("traceparent", "Cache-Control")
_JSON: Final = ("Content-Encoding", "Vary")
_APPENDED: Final = (*MARKS, "ETag", "Link", "Location")
_READ: Final = (*MARKS, "ETag", "Link", "Log-Explain", "Vary")
_PART: Final = ("Accept-Ranges", "Content-Range")
_PERMISSION: Final = ("Allow", "WebHook-Allowed-Origin", "WebHook-Allowed-Rate")
_FILE: Final = (*MARKS, "ETag", "Link", "Accept-Ranges", "Content-Disposition")

_OF_ANSWERS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("putTopic", "200"): ("ETag", "Location"),
    ("putTopic", "201"): ("ETag", "Location"),
    ("getTopic", "200"): ("ETag",),
    ("getTopic", "304"): ("ETag",),
    ("updateTopic", "200"): ("ETag",),
    ("appendTopicRecords", "200"): ("Idempotency-Replayed",),
    **{
        (name, status): _APPENDED
        for name in ("appendRecords", "appendBatches")
        for status in ("200", "201", "202")
    },
    ("appendRecords", "200"): (*_APPENDED, "Idempotency-Replayed"),
    ("readRecords", "200"): (*_READ, "Accept-Ranges", "X-Accel-Buffering"),
    ("readRecords", "206"): (*_READ, *_PART),
    ("readRecords", "304"): ("ETag", "Vary"),
    ("readBatches", "200"): (*_READ, "Log-First-Offset", "Accept-Ranges", "X-Accel-Buffering"),
    ("readBatches", "206"): (*_READ, "Log-First-Offset", *_PART),
    ("readBatches", "304"): ("ETag",),
    ("tailRecords", "200"): (*MARKS, "Link", "X-Accel-Buffering"),
    ("tailTopic", "200"): ("X-Accel-Buffering",),
    ("kafkaRestReadRecords", "200"): MARKS,
    ("getMetrics", "200"): _JSON,  # text that is compressed all the same
    ("getOffsets", "200"): (*MARKS, "ETag", "Link"),
    ("getOffsetAt", "200"): (*MARKS, "ETag", "Link"),
    ("downloadSegment", "200"): _FILE,
    ("downloadSegment", "206"): (*_FILE, "Content-Range"),
    ("downloadSegment", "304"): ("ETag",),
    ("truncateLog", "200"): (*MARKS, "ETag"),
    ("endTransaction", "200"): (*MARKS, "ETag"),
    **{(name, "200"): MARKS for name in _ABOUT_LOGS},
    ("movePartition", "202"): MARKS,
    ("allowIngest", "200"): _PERMISSION,
    ("allowIngestWithToken", "200"): _PERMISSION,
    **{
        (name, status): ("ETag",)
        for name in ("getGroupOffset", "putGroupOffset", "getIngestProfile", "putIngestProfile")
        for status in ("200", "201", "304")
    },
}
"""What an answer has besides what all have."""

_OF_ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    "400": ("Want-Content-Digest", "WWW-Authenticate"),
    "401": ("WWW-Authenticate",),
    "403": ("WWW-Authenticate",),
    "415": ("Accept-Encoding", "Accept-Post"),
    "416": ("Content-Range",),
    "429": ("Retry-After",),
    "503": ("Retry-After",),
    "504": ("Link",),
}


def add_headers(document: Json) -> None:
    """Declare the headers of every answer; each is one component of the document."""
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if "$ref" not in response:
                    names = _OF_ANSWERS.get((operation["operationId"], status), ())
                    is_json = any(name.endswith("json") for name in response.get("content", {}))
                    response["headers"] = _references(*names, *(_JSON if is_json else ()))
    document["components"]["headers"] = dict(_components())


def error_headers(status: str) -> Json:
    """Return the headers that an error of this status can have."""
    return _references(*_JSON, *_OF_ERRORS.get(status, ()))


def _references(*names: str) -> Json:
    every = sorted({*_EVERYWHERE, *names})
    return {name: {"$ref": f"#/components/headers/{name}"} for name in every}


def _components() -> Iterator[tuple[str, Json]]:
    for name, header in HEADERS.items():
        described: Json = {"description": header.description, "schema": header.schema}
        if name in MARKS:
            described["required"] = True
        if header.example is not None:
            described["example"] = header.example
        yield name, described


class _Ways(NamedTuple):
    """The operations that one kind of answer leads on to."""

    operations: tuple[str, ...]
    parameters: Mapping[str, str]


_TOPIC: Final = {"path.topic": "$request.path.topic"}
_FIRST_LOG: Final = {**_TOPIC, "path.partition": "0"}
_LOG: Final = {**_TOPIC, "path.partition": "$request.path.partition"}
_GROUP: Final = {"path.group": "$request.path.group"}
_GROUP_OFFSET: Final = {**_GROUP, **_LOG}

_OF_TOPICS: Final = (
    "getTopic",
    "updateTopic",
    "deleteTopic",
    "listPartitions",
    "appendTopicRecords",
    "getTopicOffsets",
    "planSplits",
    "kafkaRestGetTopic",
    "kafkaRestListPartitions",
    "kafkaRestProduceToTopic",
)
_OF_LOGS: Final = (
    "getPartition",
    "appendRecords",
    "appendBatches",
    "readRecords",
    "readBatches",
    "tailRecords",
    "getOffsets",
    "listSegments",
    "rollSegment",
    "flushLog",
    "runRetention",
    "deleteRecords",
    "compactLog",
    "getMove",
    "movePartition",
    "listProducers",
    "kafkaRestGetPartition",
    "kafkaRestProduceToPartition",
    "kafkaRestGetOffsets",
)

_FROM_A_TOPIC: Final = (
    _Ways(_OF_TOPICS, _TOPIC),
    _Ways(_OF_LOGS, _FIRST_LOG),
    _Ways(("kafkaRestReadRecords",), {**_FIRST_LOG, "query.offset": "0"}),
)
_FROM_AN_APPEND: Final = (
    _Ways(("readRecords", "readBatches"), {**_LOG, "query.offset": "$response.body#/base_offset"}),
    _Ways(("appendRecords",), {**_LOG, "header.if-match": "$response.header.ETag"}),
    _Ways(("truncateLog",), {**_LOG, "header.if-match": "$response.header.ETag"}),
    _Ways(
        (
            "deleteRecords",
            "getOffsets",
            "listSegments",
            "listProducers",
            "rollSegment",
            "flushLog",
        ),
        _LOG,
    ),
)
_FROM_A_GROUP_OFFSET: Final = (
    _Ways(("getGroupOffset",), _GROUP_OFFSET),
    _Ways(
        ("putGroupOffset", "deleteGroupOffset"),
        {**_GROUP_OFFSET, "header.if-match": "$response.header.ETag"},
    ),
    _Ways(("listGroupOffsets", "getGroupLag"), _GROUP),
)
_FROM_A_MOVE: Final = (_Ways(("getMove",), _LOG),)

_WAYS: Final[Mapping[tuple[str, str], tuple[_Ways, ...]]] = {
    ("putTopic", "200"): _FROM_A_TOPIC,
    ("putTopic", "201"): _FROM_A_TOPIC,
    ("appendRecords", "200"): _FROM_AN_APPEND,
    ("appendRecords", "201"): _FROM_AN_APPEND,
    ("appendBatches", "200"): _FROM_AN_APPEND,
    ("appendBatches", "201"): _FROM_AN_APPEND,
    ("readRecords", "200"): (
        _Ways(
            ("readRecords", "readBatches", "tailRecords"),
            {**_LOG, "query.offset": "$response.body#/next_offset"},
        ),
    ),
    ("getOffsets", "200"): (
        _Ways(("appendRecords",), {**_LOG, "header.if-match": "$response.header.ETag"}),
        _Ways(("truncateLog",), {**_LOG, "header.if-match": "$response.header.ETag"}),
    ),
    ("listSegments", "200"): (
        _Ways(
            ("downloadSegment",),
            {
                **_LOG,
                "path.base_offset": "$response.body#/segments/0/base_offset",
                "path.kind": "log",
            },
        ),
    ),
    ("putGroupOffset", "200"): _FROM_A_GROUP_OFFSET,
    ("putGroupOffset", "201"): _FROM_A_GROUP_OFFSET,
    ("movePartition", "200"): _FROM_A_MOVE,
    ("movePartition", "202"): _FROM_A_MOVE,
}


def add_links(made: Json) -> None:
    """Say in each answer that leads on to other requests which ones, and with what of it."""
    left = dict(_WAYS)
    for path in made["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                ways = left.pop((operation["operationId"], status), None)
                if ways is not None:
                    response["links"] = dict(_links(ways))
    assert not left, f"links for missing responses: {left.keys()}"


def _links(ways: tuple[_Ways, ...]) -> Mapping[str, Json]:
    links: dict[str, Json] = {}
    for one in ways:
        for operation_id in one.operations:
            link: Json = {"operationId": operation_id, "parameters": dict(one.parameters)}
            assert operation_id not in links, f"two links to {operation_id}"
            links[operation_id] = link
    return links


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
    engine_errors.ArchiveUnavailable(
        "offset 17 is in the archive only, which was not read yet: the disk has the offsets from "
        "9000 on. Try again later; if it stays so, /readyz says why",
        offset=17,
        local_log_start_offset=9_000,
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
