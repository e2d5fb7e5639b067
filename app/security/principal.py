"""The caller: a name for logs and quotas, its scopes, and how much it may ask and send.

A quota is requests and bytes per second of one principal: token buckets with the tokens of one
second. The cost of a request is known when it is over, so a bucket may go into debt; its principal
is refused until the debt is paid. A single large body is accepted, a sequence of them is limited to
the rate. (Kafka's quotas work the same way, on averages.)
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.errors import Forbidden, QuotaExceeded, Unauthenticated
from app.security.rules import ANY_ACTION, EVERYTHING, Action, Grants, Rule
from engine.clock import Clock

MAX_METERS: Final = 10_000
"""Principals whose use is stored; beyond it the one that was idle for longest is removed."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Rates per second; 0: unlimited."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def replaced(self, overrides: Mapping[str, int]) -> Quota:
        """Return the quota with a principal's own rates in place of the general ones."""
        return Quota(
            overrides.get("requests", self.requests),
            overrides.get("bytes_in", self.bytes_in),
            overrides.get("bytes_out", self.bytes_out),
        )


class Bucket:
    """The remaining tokens of one rate; refills over time, up to one second's worth."""

    __slots__ = ("_filled_ms", "_level", "_rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._level = float(rate)
        self._filled_ms = now_ms

    def take(self, amount: int) -> None:
        """Take an amount, on credit if necessary."""
        self._level -= amount

    def wait_s(self, now_ms: int) -> int:
        """Return the whole seconds until something can be taken; 0: now."""
        self._fill(now_ms)
        if self._level > 0:
            return 0
        return max(1, math.ceil(-self._level / self._rate))

    def debt_s(self, now_ms: int) -> float:
        """Return the time until the debt is paid."""
        self._fill(now_ms)
        return max(0.0, -self._level / self._rate)

    def _fill(self, now_ms: int) -> None:
        grown = self._level + (now_ms - self._filled_ms) * self._rate / 1000
        self._level = min(float(self._rate), grown)
        self._filled_ms = now_ms


class Meter:
    """The use of one principal. Belongs to the event loop."""

    __slots__ = ("_buckets", "_clock", "quota")

    def __init__(self, quota: Quota, clock: Clock) -> None:
        self.quota = quota
        self._clock = clock
        now_ms = clock.monotonic_ms()
        rates = {"requests": quota.requests, "bytes_in": quota.bytes_in}
        rates["bytes_out"] = quota.bytes_out
        self._buckets = {name: Bucket(rate, now_ms) for name, rate in rates.items() if rate}

    def admit(self, rule: Rule) -> None:
        """Count a request; raises QuotaExceeded if one of its rates is used up."""
        self._ensure("requests", *_asked(rule))
        self._take("requests", 1)

    def ensure_bytes_out(self) -> None:
        """Raise QuotaExceeded if the answers so far have used up their rate."""
        self._ensure("bytes_out")

    def _ensure(self, *names: str) -> None:
        for name in names:
            bucket = self._buckets.get(name)
            if bucket is None:
                continue
            wait_s = bucket.wait_s(self._clock.monotonic_ms())
            if wait_s:
                rate = getattr(self.quota, name)
                limit = f"quota_{name}_per_second"
                raise QuotaExceeded(
                    f"the quota of {rate} {name.replace('_', ' ')} a second ({limit}) is used up",
                    headers={"retry-after": str(wait_s)},
                    limit=limit,
                    limit_value=rate,
                )

    def debt_s(self, rate: str) -> float:
        """Return how long a long body or answer must pause to stay within a rate."""
        bucket = self._buckets.get(rate)
        return 0.0 if bucket is None else bucket.debt_s(self._clock.monotonic_ms())

    def refund(self) -> None:
        """Uncount a request that was refused for lack of room."""
        self._take("requests", -1)

    def received(self, size_bytes: int) -> None:
        """Count bytes of bodies as sent."""
        self._take("bytes_in", size_bytes)

    def sent(self, size_bytes: int) -> None:
        """Count bytes of answers."""
        self._take("bytes_out", size_bytes)

    def _take(self, name: str, amount: int) -> None:
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.take(amount)


def _asked(rule: Rule) -> tuple[str, ...]:
    """Return the rates that this request needs: a used-up rate for bodies does not stop reads."""
    if rule.actions == (Action.READ,):
        return ("bytes_out",)
    if rule.actions == (Action.APPEND,):
        return ("bytes_in",)
    return ()


class Meters:
    """The meters of all principals, by name. Belongs to the event loop."""

    def __init__(self, quota: Quota, clock: Clock) -> None:
        self.quota = quota
        self._clock = clock
        self._meters: OrderedDict[str, Meter] = OrderedDict()

    def of(self, name: str, overrides: Mapping[str, int] | None = None) -> Meter | None:
        """Return the principal's meter; a new one if its rates have changed.

        None if the principal has no limits.
        """
        quota = self.quota.replaced(overrides or {})
        if quota == Quota():
            self._meters.pop(name, None)
            return None
        meter = self._meters.pop(name, None)
        if meter is None or meter.quota != quota:
            meter = Meter(quota, self._clock)
        self._meters[name] = meter
        if len(self._meters) > MAX_METERS:
            self._meters.popitem(last=False)
        return meter


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
