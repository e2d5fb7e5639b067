"""The caller: a name for logs and quotas, and its scopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.errors import Forbidden, Unauthenticated
from app.security.quotas import Meter
from app.security.scopes import ANY_ACTION, EVERYTHING, Action, Grants
from engine.clock import Clock

_REFUSALS: Final = frozenset({429, 503})


class InvalidToken(Exception):
    """An invalid token; the message says why, as far as that helps its owner."""


class Principal:
    """The caller that a request's credentials identify. Belongs to the event loop."""

    __slots__ = ("expires_ms", "grants", "is_revoked", "is_vouched_for", "meter", "name")

    def __init__(
        self,
        name: str,
        grants: Grants,
        *,
        expires_ms: float | None = None,
        meter: Meter | None = None,
        is_vouched_for: Callable[[], bool] | None = None,
    ) -> None:
        self.name = name
        self.grants = grants
        self.expires_ms = expires_ms
        """Expiry time, wall-clock ms."""
        self.is_vouched_for = is_vouched_for
        """Whether the issuer still vouches for the credentials; None if there is no issuer."""
        self.meter = meter
        self.is_revoked = False

    def is_valid(self, now_ms: int) -> bool:
        """Whether the credentials are still valid: for answers that outlive their check."""
        return (
            not self.is_revoked
            and (self.expires_ms is None or now_ms < self.expires_ms)
            and (self.is_vouched_for is None or self.is_vouched_for())
        )

    def may_see(self, topic: str) -> bool:
        """Whether this principal may see the topic."""
        return self.grants.allow_any(ANY_ACTION, topic)

    def may(self, action: Action, topic: str) -> bool:
        """Whether the action on the topic is allowed."""
        return self.grants.allow(action, topic)

    def ensure(self, action: Action, topic: str) -> None:
        """Raise Forbidden unless the action on the topic is allowed."""
        if not self.grants.allow(action, topic):
            raise forbidden(f"{action.value}:{topic}")

    def ensure_held(self, clock: Clock) -> None:
        """Raise unless a long answer may continue.

        Raises what `ensure_valid` does, and QuotaExceeded if the bytes sent have used up the quota.
        """
        self.ensure_valid(clock)
        if self.meter is not None:
            self.meter.ensure_bytes_out()

    def ensure_valid(self, clock: Clock) -> None:
        """Raise Unauthenticated if the credentials have expired or were revoked."""
        if not self.is_revoked and self.expires_ms is None and self.is_vouched_for is None:
            return  # the usual case needs no clock
        if not self.is_valid(clock.now_ms()):
            raise self.ended()

    def ended(self) -> Unauthenticated:
        """Return the error for credentials that have expired or were revoked."""
        return Unauthenticated(
            "the credentials are no longer valid",
            headers={"www-authenticate": 'Bearer realm="tidelog", error="invalid_token"'},
        )

    def debt_s(self, rate: str) -> float:
        """Return how long a long body or answer must pause to stay within its quota."""
        return 0.0 if self.meter is None else self.meter.debt_s(rate)

    def refund(self) -> None:
        """Give a request back to the quota, if there is one: it was refused for lack of room."""
        if self.meter is not None:
            self.meter.refund()

    def received(self, size_bytes: int) -> None:
        """Count bytes of a body against the quota, if there is one."""
        if self.meter is not None:
            self.meter.received(size_bytes)

    def sent(self, size_bytes: int, status: int) -> None:
        """Count bytes of an answer against the quota, if there is one; refusals are free."""
        if self.meter is not None and status not in _REFUSALS:
            self.meter.sent(size_bytes)


def forbidden(scope: str) -> Forbidden:
    """Return the error for credentials without a scope."""
    quoted = scope if scope.isascii() and scope.isprintable() and '"' not in scope else "*"
    challenge = f'Bearer realm="tidelog", error="insufficient_scope", scope="{quoted}"'
    return Forbidden(
        f"the credentials do not have the scope {scope}",
        headers={"www-authenticate": challenge},
        scope=scope,
    )


ANONYMOUS: Final = "anonymous"
"""The caller's name if no credentials are configured."""

UNVERIFIED: Final = "unverified"
"""The name of a sender whose signature has not been verified yet."""

UNKNOWN: Final = frozenset({ANONYMOUS, UNVERIFIED})
"""Names of callers that any client may have."""


def anonymous(meter: Meter | None = None) -> Principal:
    """Return the caller if no credentials are configured."""
    return Principal(ANONYMOUS, Grants(EVERYTHING), meter=meter)
