"""The ingest profile of a topic, as a value that is ready for the hot path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from app.operations.ingest.signatures.schemes import signature_of
from app.operations.ingest.signatures.signature import Signature
from schemas.ingest import (
    DEFAULT_WINDOW_DELIVERIES,
    DEFAULT_WINDOW_MS,
    PutIngestProfile,
    PutIngestSource,
    Split,
)

_IGNORED: Final = frozenset({b"content-length", b"traceparent"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value is found: one of the two is None."""

    pointer: str | None = None
    """A JSON Pointer into the body, or into each part of a split body."""
    header: bytes | None = None
    """A request header, in lower case."""

    @classmethod
    def of(cls, document: PutIngestSource | None) -> Self | None:
        if document is None:
            return None
        header = document.header
        return cls(document.pointer, None if header is None else header.lower().encode())


@dataclass(frozen=True, slots=True)
class IngestProfile:
    """How the bodies that senders post to a topic become records."""

    split: Split = "none"
    key: Source | None = None
    """None: records have no key, unless their format brings one."""
    headers: tuple[bytes, ...] = ()
    """Request headers that become record headers, in lower case: those of the scheme, then those of
    the document. `content-type` is not one of them: it always does."""
    delivery_id: Source | None = None
    """None: where the format of the body, or of the request, has it."""
    window_ms: int = DEFAULT_WINDOW_MS
    window_deliveries: int = DEFAULT_WINDOW_DELIVERIES
    signature: Signature | None = None
    """What authenticates a sender without other credentials. None: nothing does."""

    ignored: frozenset[bytes] = _IGNORED
    """Headers, in lower case, whose values change neither a record nor the delivery's id."""

    @classmethod
    def of(cls, document: PutIngestProfile) -> Self:
        """Return the profile that a valid document, with its secrets, describes."""
        signature = None if document.signature is None else signature_of(document.signature)
        names = dict.fromkeys(() if signature is None else signature.headers)
        names |= dict.fromkeys(name.lower().encode() for name in document.headers)
        names.pop(b"content-type", None)
        key = Source.of(document.key)
        delivery_id = Source.of(document.delivery_id) or _delivery_id_of(signature)
        ignored = _IGNORED if signature is None else _IGNORED | {signature.header}
        return cls(
            split=document.split,
            key=key,
            headers=tuple(names),
            delivery_id=delivery_id,
            window_ms=document.window_ms,
            window_deliveries=document.window_deliveries,
            signature=signature,
            ignored=ignored.difference(names, *[[one.header] for one in (key, delivery_id) if one]),
        )


def _delivery_id_of(signature: Signature | None) -> Source | None:
    """Return where the senders of a scheme put the delivery's id."""
    if signature is None or (signature.delivery_header or signature.delivery_pointer) is None:
        return None
    return Source(signature.delivery_pointer, signature.delivery_header)


DEFAULT_PROFILE: Final = IngestProfile()
"""Of a topic without one."""
