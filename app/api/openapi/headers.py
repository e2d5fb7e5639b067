"""The headers of answers, for the document: what each says, and which answers have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

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
