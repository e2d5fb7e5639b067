"""Bearer tokens: JWTs (RFC 7519) that an issuer signed for this service.

Two checks are done here and not by PyJWT: the algorithm is in the settings, all asymmetric, before
a key is looked up; and times use the service's clock.

The issuer's public keys (RFC 7517) come from a file or an https address. They are fetched in the
background, never during a request, and stay valid for a limited time while fetches fail. A token
with an unknown key triggers a fetch; the rate is limited, so that invented key ids cost the issuer
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import httpx
import jwt
import msgspec

from app.errors import CredentialsUnavailable
from app.security.principal import InvalidToken, Meters, Principal
from app.security.rules import Grants
from app.settings import Settings
from engine.clock import Clock
from engine.errors import InvalidConfig
from engine.fs.port import FileSystem

_LOG = logging.getLogger(__name__)

RETRY_MS: Final = 10_000
"""Shortest time between fetches after a failed one, or for tokens with unknown keys."""

FETCH_LIMIT_MS: Final = 5_000
"""How long a fetch of the issuer's keys may take."""

MAX_BYTES: Final = 1024 * 1024
"""A larger key set is refused."""

_FAMILIES: Final[Mapping[str, str]] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

Source: TypeAlias = Callable[[], Awaitable[bytes]]
Jwk: TypeAlias = Mapping[str, Any]


class IssuerKeys:
    """The current keys. Belongs to the event loop."""

    def __init__(self, source: Source, settings: Settings, clock: Clock) -> None:
        self.changes = 0
        """How often the keys have changed."""
        self._source = source
        self._settings = settings
        self._clock = clock
        self._keys: tuple[Jwk, ...] = ()
        self._prepared: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._fetched_ms: int | None = None
        self._known_ms = 0
        """When a fetch last succeeded."""
        self._is_current = False
        self._wanted = asyncio.Event()
        self._fetching = asyncio.Lock()

    def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key that a token names; None if the issuer has no such key.

        Raises CredentialsUnavailable while that is not known; a fetch is then in progress.
        """
        found = self._prepared.get((key_id, algorithm)) or self._prepare(key_id, algorithm)
        if found is not None:
            return found
        if self._may_fetch():
            self._wanted.set()
        elif self._is_current:
            return None
        raise CredentialsUnavailable("the keys of the issuer are being fetched")

    def has_still(self, key_id: str | None, algorithm: str, key: jwt.PyJWK) -> bool:
        """Whether the issuer still has the same key under this id."""
        found = self._prepared.get((key_id, algorithm)) or self._prepare(key_id, algorithm)
        return found is key or (found is not None and bool(found.key == key.key))

    async def refresh(self) -> None:
        """Fetch the keys; if that fails, the current ones stay valid for a limited time.

        One at a time: otherwise a slow fetch could bring keys back that a later one did not find.
        """
        async with self._fetching:
            await self._refresh()

    async def _refresh(self) -> None:
        self._fetched_ms = self._clock.monotonic_ms()
        self._wanted.clear()
        self._is_current = False
        try:
            keys = _parsed(await self._source())
        except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            _LOG.warning("the issuer's keys cannot be fetched: %s", error)
            stale_ms = self._fetched_ms - self._known_ms
            if not self._keys or stale_ms < self._settings.jwks_stale_timeout_ms:
                return
            _LOG.error("the issuer's keys are too old: no token is accepted until they are fetched")
            keys = ()
        else:
            self._is_current = True
            self._known_ms = self._fetched_ms
        if keys != self._keys:
            self._keys = keys
            self._prepared.clear()
            self.changes += 1
            _LOG.info("the issuer has %d keys", len(keys))

    async def keep_fresh(self) -> None:
        """Fetch the keys periodically, sooner if a token needs it; runs until cancelled."""
        while True:
            await self.refresh()
            settings = self._settings
            pause_ms = settings.jwks_refresh_interval_ms
            if not self._is_current:
                pause_ms = min(pause_ms, RETRY_MS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wanted.wait()

    def _may_fetch(self) -> bool:
        if self._fetched_ms is None:
            return True
        passed_ms = self._clock.monotonic_ms() - self._fetched_ms
        return passed_ms >= RETRY_MS

    def _prepare(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the one key for this id and algorithm; a token without an id needs no choice."""
        fitting = [jwk for jwk in self._keys if _fits(jwk, key_id, algorithm)]
        if len(fitting) != 1:
            return None
        try:
            prepared = jwt.PyJWK(dict(fitting[0]), algorithm)
        except jwt.PyJWTError as error:
            _LOG.warning("key %s of the issuer cannot be used: %s", key_id, error)
            return None
        self._prepared[key_id, algorithm] = prepared
        return prepared


def source_of(settings: Settings, fs: FileSystem) -> Source:
    """Return the address or file in the settings; InvalidConfig if it is wrong."""
    if not settings.jwt_issuer or not settings.jwt_audience:
        raise InvalidConfig("jwks needs jwt_issuer and jwt_audience")
    address = urlsplit(settings.jwks)
    if "@" in address.netloc:
        raise InvalidConfig("jwks must not have credentials in the address, because it is logged")
    is_local = _is_local(address.hostname)
    if address.scheme == "https" or (address.scheme == "http" and is_local):
        fetch = partial(_fetched, settings.jwks, FETCH_LIMIT_MS, uses_proxies=not is_local)
        return lambda: asyncio.to_thread(fetch)
    if address.scheme:
        raise InvalidConfig(f"jwks is neither a file nor an https address: {settings.jwks}")
    path = Path(settings.jwks)
    return lambda: asyncio.to_thread(fs.read_bytes, path, follow_links=True)


def _fetched(url: str, limit_ms: int, *, uses_proxies: bool) -> bytes:
    """Return the content of the address; TimeoutError if it is not complete in time."""
    deadline = monotonic() + limit_ms / 1000
    content = bytearray()
    with (
        httpx.Client(timeout=limit_ms / 1000, trust_env=uses_proxies) as client,
        client.stream("GET", url) as response,
    ):
        if not response.is_success:  # httpx would name the URL, whose query may be a secret
            raise OSError(f"the issuer answered with the status {response.status_code}")
        for piece in response.iter_bytes():
            content += piece
            if len(content) > MAX_BYTES:
                raise ValueError(f"the key set is larger than {MAX_BYTES} bytes")
            if monotonic() > deadline:
                raise TimeoutError(f"the key set did not arrive within {limit_ms} ms")
    return bytes(content)


def _is_local(host: str | None) -> bool:
    return host in {"localhost", "127.0.0.1", "::1"}


def _parsed(content: bytes) -> tuple[Jwk, ...]:
    """Return the usable keys; ValueError if this is not a key set, or an empty one."""
    found = msgspec.json.decode(content, type=dict[str, Any]).get("keys")
    listed = found if isinstance(found, list) else []
    keys = tuple(jwk for jwk in listed if isinstance(jwk, dict) and jwk.get("kty") != "oct")
    if not keys:
        raise ValueError("it is not a JWK set with public keys")
    return keys


def _fits(jwk: Jwk, key_id: str | None, algorithm: str) -> bool:
    """Whether the key can have made the signature: by id, type and use."""
    return (
        (key_id is None or jwk.get("kid") == key_id)
        and jwk.get("kty") == _FAMILIES[algorithm[:2]]
        and jwk.get("alg", algorithm) == algorithm
        and jwk.get("use", "sig") == "sig"
    )


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
