"""The current API keys: read from the data directory, and again when the file changes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from app.errors import CredentialsUnavailable
from app.security.keys import ApiKey, Keys, api_keys_path, id_and_secret, is_secret_of, read_keys
from app.security.principal import Principal
from app.security.quotas import Meters
from app.security.scopes import Grants
from engine.errors import CorruptCheckpoint
from engine.fs.port import FileSystem

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
