"""The one question that every lane asks before it does anything: who is it, and are they allowed.

Synchronous, so that the lane below ASGI can ask it too; what has to be fetched or read for the
answer is fetched and read in the background. Where neither credentials nor quotas are configured
the answer costs one look at an attribute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from app.http.problems import Unauthenticated
from app.security.key_ring import KeyRing
from app.security.keys import PREFIX, api_keys_path
from app.security.lasting import Lasting
from app.security.presented import (
    CHALLENGE,
    CREDENTIAL_HEADERS,
    Headers,
    Presented,
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
"""Where a request's scope has the subject of the client's certificate, as RFC 4514 writes it."""

MAX_LET_IN: Final = 10_000
"""Credentials remembered with an operation and a topic; beyond it all are looked at anew."""


class Security:
    """Knows who may do what; raises InvalidConfig if the settings contradict each other.

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
        self._let_in: dict[tuple[object, ...], Principal] = {}
        self._keys_known = 0
        self._keys_read_ms = 0
        """When the API keys were last looked at with success, on the monotonic clock."""
        self._is_known = False
        self._is_open = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def asks(self) -> bool:
        """Whether credentials are asked for."""
        return bool(self._ring.is_used or self._tokens is not None or self._certificates)

    @property
    def is_open_to_all(self) -> bool:
        """Whether it is known that no credentials are asked for."""
        return self._is_known and not self.asks

    async def open(self) -> None:
        """Read the keys and go on looking for changes; CorruptCheckpoint if they are damaged.

        Until then nobody is let in. An issuer that is elsewhere is not waited for.
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
        """End what goes on in the background."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def authorize(
        self, operation: str, topic: str, headers: Headers, peer: str | None = None
    ) -> Principal:
        """Return who asks for an operation on a topic; for hot requests, so it remembers.

        Raises what `identify` and `admit` raise.
        """
        if self._is_open:
            return self._anybody
        if self._keys_known != self._key_changes:  # what a withdrawn key signed counts no more
            self._forget()
        # Who has been let in to do the same before is found by what they show. An attacker learns
        # nothing from the time that takes: bytes are compared only if their keyed hashes agree.
        credentials = [header for header in headers if header[0] in CREDENTIAL_HEADERS]
        shown = (operation, topic, peer, *credentials)
        principal = self._let_in.get(shown)
        if principal is None or not principal.is_valid(self._clock.now_ms()):
            principal = self.identify(operation, headers, peer)
            self.admit(principal, operation, topic)
            if len(self._let_in) >= MAX_LET_IN:
                self._let_in.clear()
            self._let_in[shown] = principal
        elif principal.meter is not None:
            principal.meter.admit(_rule_of(operation))
        return principal

    def identify(
        self, operation: str | None, headers: Headers, peer: str | None = None
    ) -> Principal:
        """Return who asks; `peer` is the subject of the client's certificate.

        Raises Unauthenticated, MalformedRequest for headers that contradict each other, and
        CredentialsUnavailable or Recovering while it cannot be told.
        """
        if self._is_open or self._needs_nobody(_rule_of(operation)):
            return self._anybody
        if not self._is_known:
            raise Recovering("the credentials are being read")
        return self._known(headers, peer) if self.asks else self._anybody

    def admit(self, principal: Principal, operation: str | None, topic: str | None) -> None:
        """Let the principal in, and count one request of its quota.

        Raises Forbidden if the operation is not allowed, QuotaExceeded if a quota is used up.
        """
        rule = _rule_of(operation)
        if self._is_open or self._needs_nobody(rule):
            return
        _ensure_allowed(principal, rule, topic)
        if principal.meter is not None:
            principal.meter.admit(rule)

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
                raise refused("the client certificate is of nobody known here")
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
            raise refused("this is no API key, and tokens are not taken here")
        try:
            return self._tokens.identify(token, self._clock.now_ms())
        except InvalidToken as error:
            raise refused(f"the token is not valid: {error}") from error

    async def refresh_keys(self) -> None:
        """Look whether the API keys have changed, and put what was found in force.

        A damaged file lets nobody in; one that cannot be opened does not either, after
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
        """Judge everybody anew."""
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
        self._let_in.clear()
        self._keys_known = self._key_changes

    def _decide(self) -> None:
        self._is_open = not self.asks and self._anybody.meter is None
        self._anybody.is_revoked = self.asks


def has_credentials(settings: Settings, fs: FileSystem) -> bool:
    """Whether a service with these settings will ask for credentials from the start."""
    is_keyed = fs.exists(api_keys_path(settings.data_directory))
    return bool(is_keyed or settings.jwks or settings.client_certificates)


def refuse_credentials_in(query: bytes) -> None:
    """Raise MalformedRequest if credentials are in the URL, where every log would have them."""
    if b"access_token=" in query.lower() or b"api_key=" in query.lower():
        raise malformed("credentials belong into the Authorization header, never into the URL")


def peer_of(scope: Mapping[str, Any]) -> str | None:
    """Return the subject of the client's certificate, if it has shown one."""
    name: str | None = scope.get(PEER_KEY)
    return name


def _rule_of(operation: str | None) -> Rule:
    """Return the rule of an operation; nobody could call one that had none."""
    rule = RULES.get(operation or "")
    assert rule is not None, "every operation has its rule, a test says"
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
    elif rule.reach is Reach.METRICS and not grants.metrics:
        raise forbidden("metrics")


def _certificates(settings: Settings, meters: Meters) -> dict[str, Principal]:
    if settings.client_certificates and settings.tls_client_ca is None:
        raise InvalidConfig("client_certificates needs tls_client_ca: who vouches for them")
    principals = {}
    for subject, scopes in settings.client_certificates.items():
        wrong = [scope for scope in scopes if not is_scope(scope)]
        if wrong:
            raise InvalidConfig(f"client_certificates: {wrong[0]!r} is not a scope")
        name = f"cert:{subject}"
        principals[subject] = Principal(name, Grants(scopes), meter=meters.of(name))
    return principals
