"""Who may send to a topic: an API key as anywhere, a signature, or an ingest token.

A signature can be verified when the body has arrived. Until then its sender is `Unverified`: the
request counts for its client's network, as one without valid credentials does. Otherwise a client
without the secret could use up the quota of the sender.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.http.answers import Body
from app.http.problems import Unauthenticated
from app.operations.ingest.profiles import Profiles
from app.operations.ingest.tokens import IngestTokens
from app.security.authority import Security
from app.security.presented import CHALLENGE, CREDENTIAL_HEADERS
from app.security.principal import UNVERIFIED, Principal
from app.security.rules import APPEND
from app.security.scopes import Grants
from app.settings import Settings
from app.store.port import Run
from engine.clock import Clock

_NOTHING = Grants(())


class Unverified(Principal):
    """The sender of one request, from its head on; `Senders.verify` makes it known."""

    __slots__ = ("topic",)

    def __init__(self, topic: str) -> None:
        super().__init__(UNVERIFIED, _NOTHING)
        self.topic = topic

    def become(self, known: Principal) -> None:
        """Count and log the rest of the request for a principal; belongs to the event loop."""
        self.name = known.name
        self.grants = known.grants
        self.meter = known.meter


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
        self._profiles = profiles
        self._tokens = tokens
        self._security = security
        self._clock = clock

    def enter(
        self,
        topic: str,
        head: Mapping[bytes, bytes],
        *,
        peer: str | None = None,
        token: str | None = None,
    ) -> Principal | None:
        """Return the sender of a request whose head has arrived; None: `Security` knows it.

        `peer` is the subject of a client certificate, `token` the last segment of the URL. Raises
        Unauthenticated, InvalidSignature, QuotaExceeded.
        """
        caller = None if token is None else self._tokens.identify(topic, token)
        signature = self._profiles.of(topic).signature
        if signature is not None:
            needs_signature = caller is None and not self._brings_credentials(head, peer)
            if signature.header in head or needs_signature:
                signature.check(head, self._clock.now_ms())
                return Unverified(topic)
        if caller is not None and caller.meter is not None:
            caller.meter.admit(APPEND)
        return caller

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
            self._accept(caller, len(body))

    async def verified(
        self, caller: Principal, head: Mapping[bytes, bytes], body: Body, run: Run
    ) -> None:
        """Do what `verify` does; a large body is hashed by `run`."""
        if not isinstance(caller, Unverified) or len(body) <= self._inline_bytes:
            self.verify(caller, head, body)
            return
        topic = caller.topic
        await run(lambda: self._compare(topic, head, body))
        self._accept(caller, len(body))

    def _compare(self, topic: str, head: Mapping[bytes, bytes], body: Body) -> None:
        """Raise InvalidSignature unless the body is signed as the profile says by now."""
        signature = self._profiles.of(topic).signature
        if signature is None:
            raise Unauthenticated(
                "the topic's ingest profile was changed while the body arrived: send it again",
                headers={"www-authenticate": CHALLENGE},
            )
        signature.verify(head, body, self._clock.now_ms())

    def _accept(self, caller: Unverified, body_bytes: int) -> None:
        caller.become(self._security.sender(f"ingest:{caller.topic}", caller.topic))
        if caller.meter is not None:
            caller.meter.admit(APPEND)
            caller.received(body_bytes)
