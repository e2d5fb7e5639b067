"""Who may send to a topic: an API key as anywhere, a signature, or an ingest token.

A signature can be verified when the body has arrived. Until then its sender is `Unverified`: the
request counts for its client's network, as one without valid credentials does. Otherwise a client
without the secret could use up the quota of the sender.

An ingest token is the last segment of a URL, for senders that can send nothing else:
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
from app.http.answers import Body
from app.operations.ingest.handshakes import may_shake_hands
from app.operations.ingest.profiles import Profiles
from app.security.authority import Security
from app.security.presented import CHALLENGE, CREDENTIAL_HEADERS
from app.security.principal import UNVERIFIED, Principal
from app.security.rules import APPEND
from app.settings import Settings
from app.store.port import Documents, Run
from engine.clock import Clock
from engine.errors import PolicyViolation, Recovering

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
        for token_id, document in self._documents.named(_PREFIX).items():
            name = _PREFIX + token_id
            try:
                token = msgspec.convert(document, IngestToken)
                bytes.fromhex(token.sha256)
            except ValueError as error:
                raise self._documents.damaged(name, str(error)) from None
            if token.topic_id != topic_ids.get(token.topic):
                _LOG.warning("the ingest %s belongs to another topic, and is not used", name)
            else:
                found[token_id] = token
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
            _PREFIX + token_id
            for token_id, document in self._documents.named(_PREFIX).items()
            if document.get("topic") == topic
        ]

    def _add(self, token_id: str, token: IngestToken) -> None:
        self._tokens[token_id] = token
        name = f"ingest:{token.topic}/{token_id}"
        self._principals[token_id] = self._security.sender(name, token.topic)

    def _remove(self, token_id: str) -> None:
        if self._tokens.pop(token_id, None) is not None:
            self._principals.pop(token_id).is_revoked = True


class Unverified(Principal):
    """The sender of one request, from its head on; `Senders.verify` makes it known."""

    __slots__ = ("known", "topic")

    def __init__(self, topic: str, known: Principal) -> None:
        super().__init__(UNVERIFIED, known.grants)
        self.topic = topic
        self.known = known

    def accept(self, body_bytes: int) -> None:
        """Count and log the request for its known principal; QuotaExceeded if that may not send."""
        self.name = self.known.name
        self.meter = self.known.meter
        if self.meter is not None:
            self.meter.admit(APPEND)
            self.meter.received(body_bytes)


class Senders:
    """Identifies the senders of ingest requests. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        profiles: Profiles,
        tokens: IngestTokens,
        security: Security,
        clock: Clock,
    ) -> None:
        self._inline_bytes = settings.inline_append_bytes
        self._principals: dict[str, Principal] = {}
        """By topic, of those that have or had a signature."""
        self._is_loaded = False
        self._profiles = profiles
        self._tokens = tokens
        self._security = security
        self._clock = clock

    def load(self, topic_ids: Mapping[str, str]) -> None:
        """Take over what is stored for these topics; until then every sender is refused."""
        self._profiles.load(topic_ids)
        self._tokens.load(topic_ids)
        self._is_loaded = True

    def forget(self, topic: str) -> list[str]:
        """Forget the profile and the tokens of a deleted topic; return the documents to remove."""
        self._principals.pop(topic, None)
        return [*self._profiles.forget(topic), *self._tokens.forget(topic)]

    def enter(
        self,
        topic: str,
        head: Mapping[bytes, bytes],
        *,
        peer: str | None = None,
        token: str | None = None,
        is_probe: bool = False,
    ) -> Principal | None:
        """Return the sender of a request whose head has arrived; None: `Security` identifies it.

        `peer` is the subject of a client certificate, `token` the last segment of the URL. A probe
        is not signed. The caller is to be admitted by `Security`. Raises Unauthenticated,
        InvalidSignature, and Recovering while it is not known who may send.
        """
        self._ensure_loaded()
        caller = None if token is None else self._tokens.identify(topic, token)
        signature = self._profiles.of(topic).signature
        if signature is not None:
            needs_signature = caller is None and not self._brings_credentials(head, peer)
            if signature.header in head or needs_signature:
                if not is_probe:
                    signature.check(head, self._clock.now_ms())
                return Unverified(topic, self._known(topic))
        return caller

    def topic_of_token(self, token: str) -> str:
        """Return the topic that an ingest token was made for; Unauthenticated if there is none."""
        self._ensure_loaded()
        topic = self._tokens.topic_of(token)
        if topic is None:
            raise Unauthenticated(
                "the token is not an ingest token of this service: it was revoked, or was not "
                "copied whole",
                headers={"www-authenticate": CHALLENGE},
            )
        return topic

    def _ensure_loaded(self) -> None:
        if not self._is_loaded:
            raise Recovering("the ingest profiles are being read")

    def can_verify_now(self, topic: str, body_bytes: int) -> bool:
        """Whether `verify` does not block the event loop, and nothing but an append can follow."""
        profile = self._profiles.of(topic)
        if may_shake_hands(profile):
            return False
        return profile.signature is None or body_bytes <= self._inline_bytes

    def _known(self, topic: str) -> Principal:
        """Return the principal of all senders that sign what they send to a topic."""
        known = self._principals.get(topic)
        if known is None:
            known = self._principals[topic] = self._security.sender(f"ingest:{topic}", topic)
        return known

    def _brings_credentials(self, head: Mapping[bytes, bytes], peer: str | None) -> bool:
        """Whether `Security` will judge credentials; without any configured it judges none."""
        has_some = peer is not None or not CREDENTIAL_HEADERS.isdisjoint(head)
        return has_some and self._security.asks

    def verify(self, caller: Principal, head: Mapping[bytes, bytes], body: Body) -> None:
        """Verify the sender of a request whose body has arrived; others are known already.

        Raises InvalidSignature, QuotaExceeded.
        """
        if isinstance(caller, Unverified):
            self._compare(caller.topic, head, body)
            caller.accept(len(body))

    async def verified(
        self, caller: Principal, head: Mapping[bytes, bytes], body: Body, run: Run
    ) -> None:
        """Do what `verify` does; a large body is hashed by `run`."""
        if not isinstance(caller, Unverified) or len(body) <= self._inline_bytes:
            self.verify(caller, head, body)
            return
        topic = caller.topic
        await run(lambda: self._compare(topic, head, body))
        caller.accept(len(body))

    def _compare(self, topic: str, head: Mapping[bytes, bytes], body: Body) -> None:
        """Raise InvalidSignature unless the body is signed as the profile says by now."""
        signature = self._profiles.of(topic).signature
        if signature is None:
            raise Unauthenticated(
                "the topic's ingest profile was changed while the body arrived: send it again",
                headers={"www-authenticate": CHALLENGE},
            )
        signature.verify(head, body, self._clock.now_ms())
