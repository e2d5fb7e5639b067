"""Who is the caller, and may they do this? Asked before anything else happens.

The answer is synchronous, so that `app.wire` can ask too; files and key sets are read in the
background. Without credentials and quotas the check costs one attribute access.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from app.errors import Forbidden, QuotaExceeded, Unauthenticated
from app.security.key_ring import KeyRing
from app.security.keys import PREFIX, Keys, api_keys_path
from app.security.lasting import Lasting
from app.security.presented import (
    CHALLENGE,
    CREDENTIAL_HEADERS,
    Headers,
    Presented,
    is_canonical,
    malformed,
    presented_in,
    refused,
)
from app.security.principal import ANONYMOUS, InvalidToken, Principal, anonymous, forbidden
from app.security.quotas import Meters, Quota
from app.security.rules import RULES, Reach, Rule
from app.security.scopes import Grants, is_scope
from app.settings import Settings
from engine.clock import Clock
from engine.errors import CorruptCheckpoint, InvalidConfig, Recovering
from engine.fs.port import FileSystem

if TYPE_CHECKING:
    from app.security.jwks import IssuerKeys
    from app.security.tokens import Tokens

PEER_KEY: Final = "tidelog.client_certificate"
"""The scope key of the client certificate's subject, as RFC 4514 writes it."""

MAX_CACHED_DECISIONS: Final = 10_000
"""Cached decisions by credentials, operation and topic; beyond it the cache is cleared."""


class Security:
    """Decides who may do what; raises InvalidConfig for contradictory settings.

    Belongs to the event loop; only files are read elsewhere.
    """

    def __init__(self, settings: Settings, *, clock: Clock, fs: FileSystem) -> None:
        self._settings = settings
        self._clock = clock
        quota = Quota(
            settings.quota_requests_per_second,
            settings.quota_bytes_in_per_second,
            settings.quota_bytes_out_per_second,
        )
        self._meters = Meters(quota, clock)
        self._ring = KeyRing(fs, settings.data_directory, self._meters)
        self._certificates = _certificates(settings, self._meters)
        self._issuer_keys: IssuerKeys | None = None
        self._tokens: Tokens | None = None
        if settings.jwks:
            from app.security.jwks import IssuerKeys, source_of  # noqa: PLC0415  # loads httpx and jwt
            from app.security.tokens import Tokens  # noqa: PLC0415  # the same

            self._issuer_keys = IssuerKeys(source_of(settings, fs), settings, clock)
            self._tokens = Tokens(self._issuer_keys, settings, self._meters)
        self.lasting = Lasting(clock)
        self._anybody = anonymous(None if quota == Quota() else self._meters.of(ANONYMOUS))
        self._decisions: dict[tuple[object, ...], Principal] = {}
        self._keys_known = 0
        self._keys_read_ms = 0
        """When the API keys were last read successfully, by the monotonic clock."""
        self._is_known = False
        self._is_open = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def asks(self) -> bool:
        """Whether credentials are required."""
        return bool(self._ring.is_used or self._tokens is not None or self._certificates)

    @property
    def keys(self) -> Keys:
        """The API keys that are accepted, by id."""
        return self._ring.keys

    @property
    def is_open_to_all(self) -> bool:
        """Whether it is certain that no credentials are required."""
        return self._is_known and not self.asks

    async def open(self) -> None:
        """Read the keys and start to check for changes; CorruptCheckpoint if they are damaged.

        Until then every request is refused. A remote issuer is not waited for.
        """
        reading = await asyncio.to_thread(self._ring.read)
        self._keys_read_ms = self._clock.monotonic_ms()
        if reading is not None:
            self._ring.take(reading, at_start=True)
        work: list[Coroutine[Any, Any, None]] = [self._watch_keys()]
        if self._issuer_keys is not None:
            if "://" not in self._settings.jwks:
                await self._issuer_keys.refresh()
            work.append(self._issuer_keys.keep_fresh())
        self._tasks = tuple(asyncio.create_task(some) for some in work)
        self._is_known = True
        self._decide()

    async def close(self) -> None:
        """Stop the background tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def sender(self, name: str, topic: str) -> Principal:
        """Return a principal that may append to one topic, for a sender with no credentials."""
        return Principal(name, Grants((f"append:{topic}",)), meter=self._meters.of(name))

    def authorize(
        self, operation: str, topic: str, headers: Headers, peer: str | None = None
    ) -> Principal:
        """Return the caller of an operation on a topic; caches the decision for hot requests.

        Raises what `identify` and `admit` raise.
        """
        if self._is_open:
            return self._anybody
        if self._keys_known != self._key_changes:  # a withdrawn key invalidates its tokens
            self._forget()
        # Earlier decisions are found by the credentials. Timing reveals nothing to an attacker:
        # bytes are compared only if their keyed hashes are equal.
        credentials = [header for header in headers if header[0] in CREDENTIAL_HEADERS]
        shown = (operation, topic, peer, *credentials)
        principal = self._decisions.get(shown)
        if principal is None or not principal.is_valid(self._clock.now_ms()):
            principal = self.identify(operation, headers, peer)
            self.admit(principal, operation, topic)
            if all(map(is_canonical, credentials)):
                if len(self._decisions) >= MAX_CACHED_DECISIONS:
                    self._decisions.clear()
                self._decisions[shown] = principal
        elif principal.meter is not None:
            principal.meter.admit(_rule_of(operation))
        return principal

    def identify(
        self, operation: str | None, headers: Headers, peer: str | None = None
    ) -> Principal:
        """Return the caller; `peer` is the subject of the client's certificate.

        Raises Unauthenticated, MalformedRequest for contradictory headers, and
        CredentialsUnavailable or Recovering while the credentials cannot be verified.
        """
        if self._is_open or self._needs_nobody(_rule_of(operation)):
            return self._anybody
        if not self._is_known:
            raise Recovering("the credentials are being loaded")
        return self._known(headers, peer) if self.asks else self._anybody

    def admit(self, principal: Principal, operation: str | None, topic: str | None) -> None:
        """Admit the principal, and count one request of its quota.

        Raises Forbidden if the operation is not allowed, QuotaExceeded if a quota is used up.
        """
        rule = _rule_of(operation)
        if self._is_open or self._needs_nobody(rule):
            return
        _ensure_allowed(principal, rule, topic)
        if principal.meter is not None:
            principal.meter.admit(rule)

    def refused(
        self, error: Exception, operation: str, headers: Headers, peer: str | None = None
    ) -> Principal | None:
        """Return the principal that `authorize` refused with this error, for logs and quotas.

        None if the credentials identify no principal.
        """
        if isinstance(error, Forbidden | QuotaExceeded):
            return self.identify(operation, headers, peer)
        return None

    def _needs_nobody(self, rule: Rule) -> bool:
        is_left_open = rule.reach is Reach.METRICS and self._settings.open_metrics
        return rule.reach is Reach.OPEN or is_left_open

    def _known(self, headers: Headers, peer: str | None) -> Principal:
        presented = presented_in(headers, self._settings.max_credential_bytes)
        if presented is None:
            if peer is None:
                raise Unauthenticated(
                    "this needs credentials: Authorization: Bearer <API key or token>",
                    headers={"www-authenticate": CHALLENGE},
                )
            principal = self._certificates.get(peer)
            if principal is None:
                raise refused("the subject of the client certificate is not in client_certificates")
            return principal
        principal = self._presented(presented)
        if not principal.is_valid(self._clock.now_ms()):
            raise refused("the credentials have expired")
        return principal

    def _presented(self, presented: Presented) -> Principal:
        token = presented.token
        if token.startswith(PREFIX):
            principal = self._ring.identify(token)
            if principal is None:
                raise refused("the API key is not valid")
            return principal
        if not presented.is_bearer:
            raise refused("the password of Basic, or X-API-Key, is not an API key")
        if self._tokens is None:
            raise refused("this is not an API key, and tokens are not configured")
        try:
            return self._tokens.identify(token, self._clock.now_ms())
        except InvalidToken as error:
            raise refused(f"the token is not valid: {error}") from error

    async def refresh_keys(self) -> None:
        """Check whether the API keys have changed, and use the result.

        A damaged file invalidates all keys at once; a file that cannot be opened, after
        `api_keys_read_timeout_ms`.
        """
        now_ms = self._clock.monotonic_ms()
        try:
            reading = await asyncio.to_thread(self._ring.read)
        except (CorruptCheckpoint, OSError) as error:
            self._ring.complain(error)
            unread_ms = now_ms - self._keys_read_ms
            is_late = self._ring.is_used and unread_ms >= self._settings.api_keys_read_timeout_ms
            if is_late or isinstance(error, CorruptCheckpoint):
                self._ring.close()
                self._renew()
            return
        self._keys_read_ms = now_ms
        if reading is not None:
            self._ring.take(reading)
            self._renew()

    def _renew(self) -> None:
        """Forget all cached decisions."""
        self._forget()
        self._decide()

    async def _watch_keys(self) -> None:
        while True:
            await asyncio.sleep(self._settings.api_keys_check_interval_ms / 1000)
            await self.refresh_keys()
            self.lasting.end_invalid()

    @property
    def _key_changes(self) -> int:
        return 0 if self._issuer_keys is None else self._issuer_keys.changes

    def _forget(self) -> None:
        self._decisions.clear()
        self._keys_known = self._key_changes

    def _decide(self) -> None:
        self._is_open = not self.asks and self._anybody.meter is None
        self._anybody.is_revoked = self.asks


def has_credentials(settings: Settings, fs: FileSystem) -> bool:
    """Whether a service with these settings requires credentials from the start."""
    is_keyed = fs.exists(api_keys_path(settings.data_directory))
    return bool(is_keyed or settings.jwks or settings.client_certificates)


def refuse_credentials_in(query: bytes) -> None:
    """Raise MalformedRequest for credentials in the URL, which would be in every log."""
    if b"access_token=" in query.lower() or b"api_key=" in query.lower():
        raise malformed("send credentials in the Authorization header, never in the URL")


def peer_of(scope: Mapping[str, Any]) -> str | None:
    """Return the subject of the client's certificate, if there is one."""
    name: str | None = scope.get(PEER_KEY)
    return name


def _rule_of(operation: str | None) -> Rule:
    """Return the rule of an operation; every operation has one."""
    rule = RULES.get(operation or "")
    assert rule is not None, "every operation has a rule"
    return rule


def _ensure_allowed(principal: Principal, rule: Rule, topic: str | None) -> None:
    grants = principal.grants
    if rule.reach is Reach.TOPIC:
        assert topic is not None, "the path of such an operation has a topic"
        if not grants.allow_any(rule.actions, topic):
            raise forbidden(f"{rule.actions[0].value}:{topic}")
    elif rule.reach is Reach.SOMEWHERE:
        if not any(map(grants.allow_somewhere, rule.actions)):
            raise forbidden(f"{rule.actions[0].value}:*")
    elif rule.reach is Reach.EVERYWHERE:
        if not any(map(grants.allow_everywhere, rule.actions)):
            raise forbidden(f"{rule.actions[0].value}:*")
    elif rule.reach is Reach.METRICS and not grants.metrics:
        raise forbidden("metrics")


def _certificates(settings: Settings, meters: Meters) -> dict[str, Principal]:
    if settings.client_certificates and settings.tls_client_ca is None:
        raise InvalidConfig("client_certificates needs tls_client_ca, which signs them")
    principals = {}
    for subject, scopes in settings.client_certificates.items():
        wrong = [scope for scope in scopes if not is_scope(scope)]
        if wrong:
            raise InvalidConfig(f"client_certificates: {wrong[0]!r} is not a scope")
        name = f"cert:{subject}"
        principals[subject] = Principal(name, Grants(scopes), meter=meters.of(name))
    return principals
