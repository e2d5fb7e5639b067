"""The ingest profile of a topic, as a value that is ready for the hot path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from app.operations.ingest.signatures.schemes import signature_of
from app.operations.ingest.signatures.signature import Signature
from schemas.ingest import (
    DEFAULT_WINDOW_DELIVERIES,
    DEFAULT_WINDOW_MS,
    Handshake,
    PutIngestProfile,
    PutIngestSource,
    Split,
)

_IGNORED: Final = frozenset({b"content-length", b"traceparent"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value is found: in the body, or in headers."""

    pointer: str | None = None
    """A JSON Pointer into the body, or into each part of a split body."""
    headers: tuple[bytes, ...] = ()
    """Request headers, in lower case: one, or several that make an id together."""

    @classmethod
    def of(cls, document: PutIngestSource | None) -> Self | None:
        if document is None:
            return None
        names = document.names()
        return cls(document.pointer, tuple(name.lower().encode() for name in names))


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

    handshake: Handshake | None = None
    """What the sender asks before it sends, or wants as an answer."""

    ignored: frozenset[bytes] = _IGNORED
    """Headers, in lower case, whose values change neither a record nor the delivery's id."""

    @classmethod
    def of(cls, document: PutIngestProfile) -> Self:
        """Return the profile that a valid document, with its secrets, describes.

        Raises ValueError for a public key that is none.
        """
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
            handshake=document.handshake,
            ignored=ignored.difference(names, *[one.headers for one in (key, delivery_id) if one]),
        )


def _delivery_id_of(signature: Signature | None) -> Source | None:
    """Return where the senders of a scheme put the delivery's id."""
    if signature is None or (signature.delivery_header or signature.delivery_pointer) is None:
        return None
    header = signature.delivery_header
    return Source(signature.delivery_pointer, () if header is None else (header,))


DEFAULT_PROFILE: Final = IngestProfile()
"""Of a topic without one."""
