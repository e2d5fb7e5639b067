"""The ingest profiles of all topics: read without waiting, changed durably."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import ValidationError

from app.operations.ingest.profile import DEFAULT_PROFILE, IngestProfile
from app.store.documents import Document, Documents
from schemas.ingest import NEVER_STORED, PutIngestProfile

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
        for name, document in self._documents.all().items():
            if not name.startswith(_PREFIX):
                continue
            topic = name.removeprefix(_PREFIX)
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
