"""Who asks: a name for logs and quotas, and what it may do."""

from __future__ import annotations

from typing import Final

from app.auth.quotas import Meter
from app.auth.scopes import ANY_ACTION, EVERYTHING, Action, Grants
from app.problems import Forbidden, Unauthenticated


class InvalidToken(Exception):
    """A token is not good; the sentence says why, as far as that helps its owner."""


class Principal:
    """Whoever a request's credentials stand for. Belongs to the event loop."""

    __slots__ = ("expires_ms", "grants", "is_revoked", "meter", "name")

    def __init__(
        self,
        name: str,
        grants: Grants,
        *,
        expires_ms: float | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.name = name
        self.grants = grants
        self.expires_ms = expires_ms
        """From then on, by the wall clock, it is nobody any more."""
        self.meter = meter
        self.is_revoked = False

    def is_valid(self, now_ms: int) -> bool:
        """Whether the credentials still hold: for answers that go on after they were checked."""
        return not self.is_revoked and (self.expires_ms is None or now_ms < self.expires_ms)

    def may_see(self, topic: str) -> bool:
        """Whether the topic is there for this principal."""
        return self.grants.allow_any(ANY_ACTION, topic)

    def may(self, action: Action, topic: str) -> bool:
        """Whether the action on the topic is allowed."""
        return self.grants.allow(action, topic)

    def ensure(self, action: Action, topic: str) -> None:
        """Raise Forbidden unless the action on the topic is allowed."""
        if not self.grants.allow(action, topic):
            raise forbidden(f"{action.value}:{topic}")

    def ensure_held(self, now_ms: int) -> None:
        """Raise unless an answer that lasts may go on.

        Unauthenticated if the credentials have ended or were revoked meanwhile, QuotaExceeded if
        what was sent has used up the quota.
        """
        if not self.is_valid(now_ms):
            raise Unauthenticated(
                "the credentials do not hold any more",
                headers={"www-authenticate": 'Bearer realm="tidelog", error="invalid_token"'},
            )
        if self.meter is not None:
            self.meter.ensure_bytes_out()

    def received(self, size_bytes: int) -> None:
        """Count bytes of a body against the quota, if there is one."""
        if self.meter is not None:
            self.meter.received(size_bytes)

    def sent(self, size_bytes: int) -> None:
        """Count bytes of an answer against the quota, if there is one."""
        if self.meter is not None:
            self.meter.sent(size_bytes)


def forbidden(scope: str) -> Forbidden:
    """Return the refusal of credentials that lack a scope."""
    quoted = scope if scope.isascii() and scope.isprintable() and '"' not in scope else "*"
    challenge = f'Bearer realm="tidelog", error="insufficient_scope", scope="{quoted}"'
    return Forbidden(
        f"the credentials do not have the scope {scope}",
        headers={"www-authenticate": challenge},
        scope=scope,
    )


ANONYMOUS: Final = Principal("anonymous", Grants(EVERYTHING))
"""Whoever asks where no credentials are configured."""
