"""Ingest tokens: the last segment of a URL, for senders that can send nothing else.

`tli_<id>_<secret>`; only the SHA-256 of the secret is stored, as for API keys.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from app.errors import IngestTokenNotFound, Unauthenticated
from app.security.authority import Security
from app.security.presented import CHALLENGE
from app.security.principal import Principal
from app.store.documents import Documents
from engine.errors import PolicyViolation

_LOG = logging.getLogger(__name__)

MAX_TOKENS: Final = 100
"""Of one topic."""

_PREFIX: Final = "token:"
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_TOKEN: Final = re.compile(r"tli_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NO_HASH: Final = bytes(hashlib.sha256().digest_size)


class IngestToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored token, by its id."""

    topic: str
    topic_id: str
    sha256: str
    """SHA-256 of the secret, in hexadecimal digits."""
    created_ms: int


class IngestTokens:
    """The tokens of all topics. Belongs to the event loop.

    Like a profile, a token belongs to one topic id.
    """

    def __init__(self, documents: Documents, security: Security) -> None:
        self._documents = documents
        self._security = security
        self._tokens: dict[str, IngestToken] = {}
        self._principals: dict[str, Principal] = {}

    def load(self, topic_ids: Mapping[str, str]) -> None:
        """Take the stored tokens over; raises what `Documents.damaged` returns."""
        found: dict[str, IngestToken] = {}
        for name, document in self._documents.all().items():
            if not name.startswith(_PREFIX):
                continue
            try:
                token = msgspec.convert(document, IngestToken)
                bytes.fromhex(token.sha256)
            except ValueError as error:
                raise self._documents.damaged(name, str(error)) from None
            if token.topic_id != topic_ids.get(token.topic):
                _LOG.warning("the ingest %s belongs to another topic, and is not used", name)
            else:
                found[name.removeprefix(_PREFIX)] = token
        for token_id in self._tokens.keys() - found.keys():
            self._remove(token_id)
        for token_id in found.keys() - self._tokens.keys():
            self._add(token_id, found[token_id])

    def identify(self, topic: str, text: str) -> Principal:
        """Return the principal of a token; Unauthenticated for any other text.

        Takes the same time for a wrong secret and for no token.
        """
        match = _TOKEN.fullmatch(text)
        token_id, secret = match.groups() if match is not None else ("", "")
        token = self._tokens.get(token_id)
        is_of_topic = token is not None and token.topic == topic
        expected = bytes.fromhex(token.sha256) if token is not None else _NO_HASH
        is_secret = hmac.compare_digest(hashlib.sha256(secret.encode()).digest(), expected)
        if not (is_secret and is_of_topic):
            raise Unauthenticated(
                f"the last segment of the URL is not a valid ingest token of {topic}: it was "
                "revoked, belongs to another topic, or was not copied whole",
                headers={"www-authenticate": CHALLENGE},
            )
        return self._principals[token_id]

    def topic_of(self, text: str) -> str | None:
        """Return the topic that a token was made for; only `identify` looks at its secret."""
        match = _TOKEN.fullmatch(text)
        token = None if match is None else self._tokens.get(match[1])
        return None if token is None else token.topic

    def of(self, topic: str) -> dict[str, IngestToken]:
        """Return the tokens of a topic by id, the oldest first."""
        mine = {key: token for key, token in self._tokens.items() if token.topic == topic}
        return dict(sorted(mine.items(), key=lambda one: (one[1].created_ms, one[0])))

    async def create(self, topic: str, topic_id: str, now_ms: int) -> tuple[str, str]:
        """Add a token, durably; return its id and the token itself, which is not stored."""
        if len(self.of(topic)) >= MAX_TOKENS:
            raise PolicyViolation(
                f"{topic} has {MAX_TOKENS} ingest tokens, the maximum: delete one first",
                topic=topic,
            )
        token_id = secrets.token_hex(_ID_BYTES)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        token = IngestToken(topic, topic_id, digest, now_ms)
        await self._documents.change({_PREFIX + token_id: msgspec.to_builtins(token)})
        if token_id not in self._tokens:
            self._add(token_id, token)
        return token_id, f"tli_{token_id}_{secret}"

    async def delete(self, topic: str, token_id: str) -> None:
        """Revoke a token, durably; requests under way end. IngestTokenNotFound if there is none."""
        if token_id not in self.of(topic):
            raise IngestTokenNotFound(f"{topic} has no ingest token with this id", topic=topic)
        await self._documents.change({_PREFIX + token_id: None})
        self._remove(token_id)

    def forget(self, topic: str) -> list[str]:
        """Revoke the tokens of a deleted topic; return the documents to remove."""
        for token_id in self.of(topic):
            self._remove(token_id)
        return [
            name
            for name, document in self._documents.all().items()
            if name.startswith(_PREFIX) and document.get("topic") == topic
        ]

    def _add(self, token_id: str, token: IngestToken) -> None:
        self._tokens[token_id] = token
        name = f"ingest:{token.topic}/{token_id}"
        self._principals[token_id] = self._security.sender(name, token.topic)

    def _remove(self, token_id: str) -> None:
        if self._tokens.pop(token_id, None) is not None:
            self._principals.pop(token_id).is_revoked = True
