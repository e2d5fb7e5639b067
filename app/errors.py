"""The service's own errors, without HTTP: `app.http.problems` gives each its problem document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from engine.errors import InvalidTimestamp, TooLarge
from engine.types import Buffer

MAX_ERRORS_LISTED: Final = 100
"""How many faults of one request an error lists."""


class CommitTimedOut(Exception):
    """The disk has not confirmed an append in time: it may be in the log or not."""


class ServiceError(Exception):
    """An error of the service itself; keyword arguments become members of the document."""

    def __init__(
        self, message: str, *, headers: Mapping[str, str] | None = None, **facts: object
    ) -> None:
        super().__init__(message)
        self.headers = headers or {}
        self._facts = facts

    def facts(self) -> Mapping[str, object]:
        return self._facts


class MalformedRequest(ServiceError):
    """JSON, a query or a header that cannot be parsed."""


class InvalidBody(ServiceError):
    """Valid JSON that the operation does not accept."""


def invalid_member(field: str, detail: str) -> InvalidBody:
    """Return the error for one member of a body."""
    fault = {"index": None, "field": field, "code": "invalid", "detail": detail}
    return InvalidBody(f"{field}: {detail}", errors=[fault])


class RouteNotFound(ServiceError):
    """No such path."""


class MethodNotAllowed(ServiceError):
    """The path exists, the method does not."""


class NotAcceptable(ServiceError):
    """None of the media types that the client accepts is available."""


class UnsupportedMediaType(ServiceError):
    """The body's media type or coding is not supported here."""


class DigestMismatch(ServiceError):
    """The body does not match its Content-Digest."""


class GroupNotFound(ServiceError):
    """No offset is stored for this group."""


class CursorNotFound(ServiceError):
    """The group has stored no offset for this partition."""


class SubscriptionNotFound(ServiceError):
    """No such subscription, or none that the caller may see."""


class LeaseLost(ServiceError):
    """The partition has been given to another worker, or the lease is over."""


class IngestProfileNotFound(ServiceError):
    """The topic has no ingest profile of its own."""


class ValueSchemaNotFound(ServiceError):
    """The topic has no value schema."""


class TopicRestoreNotFound(ServiceError):
    """No restore of such a topic is remembered."""


class IngestTokenNotFound(ServiceError):
    """The topic has no such ingest token."""


class RangeNotSatisfiable(ServiceError):
    """The requested range of a file does not exist."""


class RequestTimedOut(ServiceError):
    """The body did not arrive in time."""


class IdempotencyKeyReused(ServiceError):
    """The key has been used for another request."""


class PreconditionRequired(ServiceError):
    """An operation that cannot be undone needs a condition, and the request has none."""


class AppendOutcomeUnknown(CommitTimedOut, ServiceError):
    """The disk has not confirmed an append whose outcome can be queried."""


class ExpiredTimestamp(InvalidTimestamp):
    """The topic's own retention would remove a record at its next pass."""


class Unauthenticated(ServiceError):
    """No credentials, or none that are known."""


SignatureFault = Literal["missing", "malformed", "clock", "mismatch"]


class InvalidSignature(Unauthenticated):
    """The signature of a sender is missing or wrong."""

    reason: SignatureFault = "mismatch"


class Forbidden(ServiceError):
    """The credentials do not allow it."""


class CrossSiteRequest(ServiceError):
    """A page of another site asks for a change."""


class MisdirectedRequest(ServiceError):
    """The request's host is not a name of this service."""


class QuotaExceeded(ServiceError):
    """The principal has used up a quota."""


class CredentialsUnavailable(ServiceError):
    """The credentials cannot be verified at the moment."""


class AppendBrokeOff(ServiceError):
    """A body that is appended in parts ended early; the cause decides status and code.

    The members say how far it got. Once something is written, the request must not be repeated,
    unless `may_repeat`.
    """

    def __init__(
        self, cause: Exception, *, has_written: bool, may_repeat: bool = False, **facts: object
    ) -> None:
        headers = cause.headers if isinstance(cause, ServiceError) else None
        super().__init__(str(cause), headers=headers, **facts)
        self.cause = cause
        self.has_written = has_written
        self.may_repeat = may_repeat


class RecordTooLarge(ServiceError):
    """A single record is larger than an answer may be; a reader can skip it."""

    def __init__(self, offset: int, *, size_bytes: int, limit: tuple[str, int]) -> None:
        name, limit_bytes = limit
        super().__init__(
            f"the record at offset {offset} takes at least {size_bytes} bytes in a response, "
            f"more than {name} allows ({limit_bytes}): read its batch as stored (readBatches), or "
            f"skip it by reading from offset {offset + 1}",
            limit=name,
            limit_bytes=limit_bytes,
            actual_bytes=size_bytes,
            offset=offset,
            next_offset=offset + 1,
        )


class NotSupportedByBackend(ServiceError):
    """An operation that the store of this service cannot do."""


class BackendUnavailable(ServiceError):
    """The Kafka cluster does not answer at present; it has done nothing."""


class BackendRefused(ServiceError):
    """The Kafka cluster refuses what the service asks, for a reason that no client can remove."""


class NotEnoughReplicas(ServiceError):
    """Too few replicas of the partition are in sync; nothing was written."""


class Draining(ServiceError):
    """The service is stopping."""


HALF_A_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][\dA-Fa-f]{2}(?!\\u[dD][c-fC-F])"
    rb"|[c-fC-F](?<!\\u[dD][89abAB]..\\u[dD].)[\dA-Fa-f]{2})",
    re.DOTALL,
)
"""In JSON without escaped backslashes: the escape of a lone surrogate."""


_TRAILING: Final = "trailing characters"
_BEGINNINGS: Final = frozenset({b"{", b"["})
_CUT: Final = ("Input data was truncated", "EOF while parsing")
"""How msgspec and pydantic name what they find."""

_OTHER_CONTENT: Final = (
    (b"\x1f\x8b", "it is compressed; send Content-Encoding: gzip with it"),
    (b"\x28\xb5\x2f\xfd", "it is compressed; send Content-Encoding: zstd with it"),
    (b"\xff\xfe", "it is UTF-16"),
    (b"\xfe\xff", "it is UTF-16"),
)
"""What a body begins with that was sent as it lay in a file."""


def body_too_large(limit: tuple[str, int], actual_bytes: int) -> TooLarge:
    """Return the refusal of a body beyond a limit, of which so much is known to have come."""
    name, limit_bytes = limit
    return TooLarge(
        f"the body is larger than {name} ({limit_bytes})",
        limit=name,
        limit_bytes=limit_bytes,
        actual_bytes=actual_bytes,
    )


def malformed_json(body: Buffer, reason: object) -> MalformedRequest:
    """Return why a body is not JSON in UTF-8, where, and what to send instead.

    `reason` is the parser's message. It is replaced where the parser names a symptom only: an empty
    body is "truncated" to it, and JSON lines are "trailing characters".
    """
    content = bytes(body)
    for magic, cause in _OTHER_CONTENT:
        if content.startswith(magic):
            return MalformedRequest(f"the body is not JSON in UTF-8: {cause}")
    if not content.strip():
        return MalformedRequest("the body is empty: send JSON")
    half = HALF_A_PAIR.search(content.replace(rb"\\", b"  "))
    if half is not None:
        escape, byte = half[0].decode(), half.start()
        reason = f"{escape} is half of a surrogate pair without the other half (byte {byte})"
    elif _TRAILING in str(reason) and content.lstrip()[:1] in _BEGINNINGS:
        return MalformedRequest(
            f"the body is more than one JSON value ({reason}): one value per line is "
            "Content-Type: application/x-ndjson, which curl sends with --data-binary, because -d "
            "removes line ends"
        )
    elif any(sign in str(reason) for sign in _CUT):
        reason = f"it ends before its JSON does, after {len(content)} bytes"
    return MalformedRequest(f"the body is not JSON in UTF-8: {reason}")
