"""The service's own errors, without HTTP: `app.http.problems` gives each its problem document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from engine.errors import InvalidTimestamp

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


class IngestProfileNotFound(ServiceError):
    """The topic has no ingest profile of its own."""


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
