"""Bearer tokens: JWTs (RFC 7519) that an issuer signed for this service.

Two checks are done here and not by PyJWT: the algorithm is in the settings, all asymmetric, before
a key is looked up; and times use the service's clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jwt

from app.security.jwks import IssuerKeys
from app.security.principal import InvalidToken, Principal
from app.security.quotas import Meters
from app.security.scopes import Grants
from app.settings import Settings

MAX_TOKENS: Final = 10_000
"""Cached verified tokens, so that each is verified once; beyond it the oldest is removed."""

_CHECKS: Final[Any] = {
    "require": ["aud", "exp", "iss", "sub"],
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
    "enforce_minimum_key_length": True,
}


class Tokens:
    """Verifies tokens. Belongs to the event loop."""

    def __init__(
        self, keys: IssuerKeys, settings: Settings, meters: Meters, *, max_known: int = MAX_TOKENS
    ) -> None:
        self._keys = keys
        self._max_known = max_known
        self._settings = settings
        self._meters = meters
        self._known: dict[bytes, Principal] = {}
        self._known_with = keys.changes

    def identify(self, token: bytes, now_ms: int) -> Principal:
        """Return the token's principal; it may be a moment past its expiry.

        Raises InvalidToken, or CredentialsUnavailable while its key is not known.
        """
        if self._known_with != self._keys.changes:  # a withdrawn key invalidates its tokens
            self._known.clear()
            self._known_with = self._keys.changes
        digest = hashlib.sha256(token).digest()
        principal = self._known.get(digest)
        if principal is None:
            principal = self._verified(token, now_ms)
            if len(self._known) >= self._max_known:
                del self._known[next(iter(self._known))]
            self._known[digest] = principal
        return principal

    def _verified(self, token: bytes, now_ms: int) -> Principal:
        try:
            claims, is_vouched_for = self._claims(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidToken(str(error)) from error
        leeway_ms = self._settings.jwt_leeway_ms
        if _time_ms(claims, "nbf", 0) - leeway_ms > now_ms:
            raise InvalidToken("the token is not valid yet")
        scopes = claims.get(self._settings.jwt_scope_claim, "")
        if isinstance(scopes, str):
            scopes = scopes.split()
        if not isinstance(scopes, list):
            raise InvalidToken(f"{self._settings.jwt_scope_claim} is neither a string nor a list")
        name = f"jwt:{claims['sub']}"
        return Principal(
            name,
            Grants(scope for scope in scopes if isinstance(scope, str)),
            expires_ms=_time_ms(claims, "exp", 0) + leeway_ms,
            meter=self._meters.of(name),
            is_vouched_for=is_vouched_for,
        )

    def _claims(self, token: bytes) -> tuple[dict[str, Any], Callable[[], bool]]:
        """Return the token's claims, and a check that the issuer still has its key."""
        head = jwt.get_unverified_header(token)
        algorithm = head.get("alg")
        if algorithm not in self._settings.jwt_algorithms:
            raise InvalidToken("its algorithm is not accepted")
        key_id = head.get("kid")
        key = self._keys.find(key_id, algorithm)
        if key is None:
            raise InvalidToken("the issuer has no such key")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._settings.jwt_audience,
            issuer=self._settings.jwt_issuer,
            options=_CHECKS,
        )
        return claims, partial(self._keys.has_still, key_id, algorithm, key)


def _time_ms(claims: dict[str, Any], name: str, default: int) -> float:
    """Return a time of the token in milliseconds; InvalidToken if it is not a time."""
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"{name} is not a time")
    return value * 1000
