"""Who may send to a topic: an API key as anywhere, a signature, or an ingest token.

A signature can be verified when the body has arrived. Until then its sender is `Unverified`: the
request counts for its client's network, as one without valid credentials does. Otherwise a client
without the secret could use up the quota of the sender.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.errors import Unauthenticated
from app.http.answers import Body
from app.operations.ingest.handshakes import may_shake_hands
from app.operations.ingest.profiles import Profiles
from app.operations.ingest.tokens import IngestTokens
from app.security.authority import Security
from app.security.presented import CHALLENGE, CREDENTIAL_HEADERS
from app.security.principal import UNVERIFIED, Principal
from app.security.rules import APPEND
from app.settings import Settings
from app.store.port import Run
from engine.clock import Clock
from engine.errors import Recovering


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
