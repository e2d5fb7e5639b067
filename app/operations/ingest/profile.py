"""The ingest profile of a topic, as a value that is ready for the hot path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from schemas.ingest import (
    DEFAULT_WINDOW_DELIVERIES,
    DEFAULT_WINDOW_MS,
    IngestSource,
    PutIngestProfile,
    Split,
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value is found: one of the two is None."""

    pointer: str | None = None
    """A JSON Pointer into the body, or into each part of a split body."""
    header: bytes | None = None
    """A request header, in lower case."""

    @classmethod
    def of(cls, document: IngestSource | None) -> Self | None:
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
    """Request headers that become record headers, in lower case; without `content-type`, which
    always does."""
    delivery_id: Source | None = None
    """None: where the format of the body, or of the request, has it."""
    window_ms: int = DEFAULT_WINDOW_MS
    window_deliveries: int = DEFAULT_WINDOW_DELIVERIES

    @classmethod
    def of(cls, document: PutIngestProfile) -> Self:
        """Return the profile that a valid document describes."""
        names = dict.fromkeys(name.lower().encode() for name in document.headers)
        names.pop(b"content-type", None)
        return cls(
            split=document.split,
            key=Source.of(document.key),
            headers=tuple(names),
            delivery_id=Source.of(document.delivery_id),
            window_ms=document.window_ms,
            window_deliveries=document.window_deliveries,
        )


DEFAULT_PROFILE: Final = IngestProfile()
"""Of a topic without one."""
