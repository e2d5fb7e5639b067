"""The ingest profiles of all topics: read without waiting, changed durably.

A profile in use is a value that is ready for the hot path.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from pydantic import ValidationError

from app.operations.ingest.signatures import Signature, signature_of
from app.store.port import Document, Documents
from schemas.ingest import (
    DEFAULT_WINDOW_DELIVERIES,
    DEFAULT_WINDOW_MS,
    NEVER_STORED,
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


_LOG = logging.getLogger(__name__)

_PREFIX: Final = "profile:"
_REVISION_BYTES: Final = 12


class Stored(NamedTuple):
    """A profile as it was put, with its secrets."""

    document: PutIngestProfile
    revision: str
    """Random, so that an ETag says nothing about secrets. Another one after each change."""
    profile: IngestProfile


class Profiles:
    """Belongs to the event loop; `of` may be called by any thread.

    A profile belongs to one topic id: a topic that is created again under a name starts without.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._stored: dict[str, Stored] = {}

    def load(self, topic_ids: Mapping[str, str]) -> None:
        """Take the stored profiles over; raises what `Documents.damaged` returns."""
        found: dict[str, Stored] = {}
        for topic, document in self._documents.named(_PREFIX).items():
            name = _PREFIX + topic
            stored = self._parsed(name, document)
            if document.get("topic_id") != topic_ids.get(topic):
                _LOG.warning("the ingest %s belongs to another topic, and is not used", name)
            else:
                found[topic] = stored
        self._stored = found

    def of(self, topic: str) -> IngestProfile:
        """Return the profile that a topic's deliveries follow."""
        stored = self._stored.get(topic)
        return DEFAULT_PROFILE if stored is None else stored.profile

    def stored(self, topic: str) -> Stored | None:
        """Return the topic's own profile."""
        return self._stored.get(topic)

    async def put(self, topic: str, topic_id: str, document: PutIngestProfile) -> Stored:
        """Store a profile with its secrets, durably; one that is the same keeps its revision."""
        before = self._stored.get(topic)
        if before is not None and before.document == document:
            return before
        revision = secrets.token_hex(_REVISION_BYTES)
        stored = Stored(document, revision, IngestProfile.of(document))
        shown = document.model_dump(mode="json", exclude_none=True)
        entry = {"topic_id": topic_id, "revision": revision, "profile": shown}
        await self._documents.change({_PREFIX + topic: entry})
        self._stored[topic] = stored
        return stored

    async def delete(self, topic: str) -> None:
        """Remove the profile of a topic, durably."""
        await self._documents.change({_PREFIX + topic: None})
        self._stored.pop(topic, None)

    def forget(self, topic: str) -> list[str]:
        """Stop using the profile of a deleted topic; return the documents to remove."""
        self._stored.pop(topic, None)
        name = _PREFIX + topic
        return [name] if name in self._documents.all() else []

    def _parsed(self, name: str, document: Document) -> Stored:
        try:
            profile = PutIngestProfile.model_validate(_without_credentials(name, document))
            if profile.signature is not None and profile.signature.secrets is None:
                raise self._documents.damaged(name, "its signature has no secrets")
            return Stored(profile, str(document["revision"]), IngestProfile.of(profile))
        except ValidationError as error:  # its text has the secrets
            fault = error.errors(include_input=False, include_context=False)[0]
            place = ".".join(map(str, fault["loc"]))
            raise self._documents.damaged(name, f"{place}: {fault['msg']}") from None
        except KeyError as error:
            raise self._documents.damaged(name, f"{error} is missing") from None


def _without_credentials(name: str, document: Document) -> object:
    """Return a stored profile without the headers that are never stored.

    Earlier releases let a profile name some of them. Its topic keeps the rest of the profile.
    """
    profile = document["profile"]
    if not isinstance(profile, dict):
        return profile  # for the model to refuse
    kept = dict(profile)
    for member in ("key", "delivery_id"):
        header = source.get("header") if isinstance(source := profile.get(member), dict) else None
        if str(header).lower() in NEVER_STORED:
            _LOG.warning("the ingest %s takes its %s from %s, not any more", name, member, header)
            del kept[member]
    named = profile.get("headers")
    if isinstance(named, list):
        kept["headers"] = [one for one in named if str(one).lower() not in NEVER_STORED]
    return kept
