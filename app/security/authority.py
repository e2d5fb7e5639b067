"""Who is the caller, and may they do this? Asked before anything else happens.

The answer is synchronous, so that `app.wire` can ask too; files and key sets are read in the
background. Without credentials and quotas the check costs one attribute access.

API keys are read from the data directory, and again when the file changes. Long requests end when
their credentials expire or are revoked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from app.errors import CredentialsUnavailable, Forbidden, QuotaExceeded, Unauthenticated
from app.security.keys import (
    PREFIX,
    ApiKey,
    Keys,
    api_keys_path,
    id_and_secret,
    is_secret_of,
    read_keys,
)
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
from app.security.principal import (
    ANONYMOUS,
    InvalidToken,
    Meters,
    Principal,
    Quota,
    anonymous,
    forbidden,
)
from app.security.rules import RULES, Grants, Reach, Rule, is_scope
from app.settings import Settings
from engine.clock import Clock
from engine.errors import CorruptCheckpoint, InvalidConfig, Recovering
from engine.fs.port import FileSystem

if TYPE_CHECKING:
    from app.security.tokens import IssuerKeys, Tokens


_LOG = logging.getLogger(__name__)
_UNREADABLE: Final = "unreadable"
"""A version that no file has, so that the next readable file is read."""

_AUDIT = logging.getLogger("tidelog.audit")


class Reading(NamedTuple):
    """The version and the content of the file; no keys if there is no file."""

    version: str | None
    keys: Keys


class KeyRing:
    """Looks up keys by id. `read` may run on any thread, the rest belongs to the event loop.

    A created, changed or revoked key takes effect with the next read. Once there was a file,
    credentials are required: if the file is removed, damaged, or cannot be opened for long, every
    key is refused, because one may have been revoked in it.
    """

    def __init__(self, fs: FileSystem, directory: Path, meters: Meters) -> None:
        self.is_used = False
        """Whether there has been a file of keys."""
        self._is_closed = False
        """Whether every key is refused because the file cannot be read."""
        self._fs = fs
        self._directory = directory
        self._meters = meters
        self._version: str | None = None
        self._keys: Keys = {}
        self._principals: dict[str, Principal] = {}
        self._complaint = ""

    @property
    def keys(self) -> Keys:
        """The keys that are accepted, by id."""
        return {} if self._is_closed else self._keys

    def read(self) -> Reading | None:
        """Return the file's content; None if it was read before.

        Raises CorruptCheckpoint or OSError if it cannot be read.
        """
        try:
            with self._fs.open(api_keys_path(self._directory), read_only=True) as file:
                version = file.version()
        except FileNotFoundError:
            return Reading(None, {}) if self._version is not None else None
        if version == self._version:
            return None
        return Reading(version, read_keys(self._fs, self._directory) or {})

    def take(self, reading: Reading, *, at_start: bool = False) -> None:
        """Use what was read; the principals of unchanged keys stay the same objects."""
        self._complaint = ""
        self._is_closed = False
        self._version = reading.version
        before, self._keys = self._keys, reading.keys
        if not at_start:
            _tell_changes(before, reading.keys)
        self.is_used = self.is_used or reading.version is not None
        for key_id, key in before.items():
            if reading.keys.get(key_id) != key:
                self._revoke(key_id)
        for key_id, key in reading.keys.items():
            if key_id not in self._principals:
                self._principals[key_id] = self._principal(key_id, key)

    def complain(self, error: CorruptCheckpoint | OSError) -> None:
        """Log once that the file cannot be read."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            _LOG.error("the API keys cannot be read: %s", error)

    def close(self) -> None:
        """Refuse every key until the file can be read again."""
        if self._is_closed:
            return
        self._is_closed = self.is_used = True
        self._version = _UNREADABLE
        for key_id in tuple(self._principals):
            self._revoke(key_id)
        _LOG.error("no API key is accepted until the file of keys can be read")

    def _revoke(self, key_id: str) -> None:
        principal = self._principals.pop(key_id, None)
        if principal is not None:
            principal.is_revoked = True

    def identify(self, token: bytes) -> Principal | None:
        """Return the principal of a key; None for an unknown, wrong or revoked one.

        Raises CredentialsUnavailable while the file cannot be read.
        """
        if self._is_closed:
            raise CredentialsUnavailable("the API keys cannot be read; the service's log says why")
        key_id, secret = id_and_secret(token)
        if not is_secret_of(secret, self._keys.get(key_id)):
            return None
        return self._principals[key_id]

    def _principal(self, key_id: str, key: ApiKey) -> Principal:
        name = f"key:{key.name}"
        return Principal(
            name,
            Grants(key.scopes),
            expires_ms=key.expires_ms,
            meter=self._meters.of(f"{name}/{key_id}", key.quota),
        )


def _tell_changes(before: Keys, after: Keys) -> None:
    for action, some, others in (("revoked", before, after), ("created", after, before)):
        for key_id in some.keys() - others.keys():
            named = {"action": action, "key": some[key_id].name, "key_id": key_id}
            _AUDIT.info("API key %s", action, extra=named)


class _Going(NamedTuple):
    """One long answer or body."""

    caller: Principal
    end: Callable[[], None]


class Lasting:
    """Tails, waiting readers, streams and downloads with their callers. Belongs to the event loop.

    Each of them checks its caller before every part. Those that wait for a commit, or for their
    client, are woken or cut off here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._going: dict[Hashable, _Going] = {}

    def add(self, key: Hashable, caller: Principal, end: Callable[[], None]) -> None:
        """Call `end` when the caller's credentials end, until it is removed."""
        self._going[key] = _Going(caller, end)

    def remove(self, key: Hashable) -> None:
        """Remove the entry with this key."""
        del self._going[key]

    @contextmanager
    def during(self, caller: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the caller's credentials end within the block."""
        key = object()
        self.add(key, caller, end)
        try:
            yield
        finally:
            self.remove(key)

    def end_invalid(self) -> None:
        """End long requests without valid credentials."""
        now_ms = self._clock.now_ms()
        for going in tuple(self._going.values()):  # some of them remove themselves at once
            if not going.caller.is_valid(now_ms):
                going.end()


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
        self._reading = asyncio.Lock()
        """One reading of the keys at a time: a slow one could bring a revoked key back."""
        self._issuer_keys: IssuerKeys | None = None
        self._tokens: Tokens | None = None
        if settings.jwks:
            from app.security.tokens import (  # noqa: PLC0415  # loads httpx and jwt
                IssuerKeys,
                Tokens,
                source_of,
            )

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

    async def reread(self) -> None:
        """Read all keys now, not at their next interval; those of an issuer if it may be asked."""
        await self.refresh_keys()
        self.lasting.end_invalid()
        if self._issuer_keys is not None:
            await self._issuer_keys.refresh()

    async def refresh_keys(self) -> None:
        """Check whether the API keys have changed, and use the result.

        A damaged file invalidates all keys at once; a file that cannot be opened, after
        `api_keys_read_timeout_ms`.
        """
        async with self._reading:
            await self._refresh_keys()

    async def _refresh_keys(self) -> None:
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
