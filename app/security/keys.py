"""API keys: `tlk_<id>_<secret>`. The data directory stores only the hash of the secret.

A secret is 256 random bits. There is no dictionary to try, so a slow hash would protect nothing;
one round of SHA-256 checks a request's key in a microsecond. A reader of the file learns names and
scopes and cannot make a request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from app.security.rules import is_scope
from engine.checkpoint.kafka_files import corrupt
from engine.checkpoint.tidelog_files import read_json, write_json
from engine.errors import DirectoryLocked, InvalidRequestValue
from engine.fs.directories import ensure_directory
from engine.fs.names import API_KEYS_FILE, API_KEYS_LOCK
from engine.fs.port import FileSystem

VERSION: Final = 1
PREFIX: Final = b"tlk_"
"""The prefix of every key, so that scanners for leaked secrets can recognise it."""

MAX_KEYS: Final = 10_000
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_NO_HASH: Final = bytes(hashlib.sha256().digest_size)


class ApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stored key, by its id."""

    name: str
    sha256: str
    """SHA-256 of the secret, in hexadecimal digits."""
    scopes: tuple[str, ...]
    created_ms: int
    expires_ms: int | None = None
    quota: dict[str, int] = {}
    """Rates that override the settings: `requests`, `bytes_in`, `bytes_out`; 0: unlimited."""


Keys = Mapping[str, ApiKey]


def api_keys_path(directory: Path) -> Path:
    """The file of a data directory's keys; once it exists, every request needs credentials."""
    return directory / API_KEYS_FILE


def read_keys(fs: FileSystem, directory: Path) -> dict[str, ApiKey] | None:
    """Return the keys by id; None without a file. CorruptCheckpoint if it is damaged."""
    path = api_keys_path(directory)
    found = read_json(fs, path, VERSION, ("keys",))
    if found is None:
        return None
    try:
        keys = msgspec.convert(found.get("keys"), dict[str, ApiKey])
        for key in keys.values():
            bytes.fromhex(key.sha256)
    except ValueError as error:
        raise corrupt(path, f"its keys are malformed: {error}") from error
    return keys


@contextmanager
def changing_keys(fs: FileSystem, directory: Path) -> Iterator[dict[str, ApiKey]]:
    """Yield the keys to change; replace the file durably when the block succeeds.

    A running service is not affected: it only reads. DirectoryLocked if another process is changing
    the keys.
    """
    ensure_directory(fs, directory)
    try:
        lock = fs.lock(directory / API_KEYS_LOCK)
    except BlockingIOError as error:
        raise DirectoryLocked(
            f"the keys of {directory} are being changed by another process",
            directory=str(directory),
        ) from error
    try:
        keys = read_keys(fs, directory) or {}
        yield keys
        write_json(fs, api_keys_path(directory), VERSION, {"keys": msgspec.to_builtins(keys)})
    finally:
        lock.release()


def add_key(
    keys: dict[str, ApiKey],
    name: str,
    scopes: tuple[str, ...],
    *,
    now_ms: int,
    expires_ms: int | None = None,
    quota: Mapping[str, int] | None = None,
) -> tuple[str, str]:
    """Add a key; return its id and the key itself, which is not stored.

    InvalidRequestValue if the name is taken or invalid, a scope is invalid, or there are too many
    keys.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestValue(
            f"{name!r} is not a valid name: 1 to 64 of letters, digits, '.', '_', '@' and '-'",
            name=name,
        )
    if any(key.name == name for key in keys.values()):
        raise InvalidRequestValue(f"a key named {name!r} exists; revoke it first", name=name)
    if len(keys) >= MAX_KEYS:
        raise InvalidRequestValue(f"the maximum of {MAX_KEYS} keys is reached")
    wrong = [scope for scope in scopes if not is_scope(scope)]
    if wrong or not scopes:
        raise InvalidRequestValue(
            f"{wrong[0] if wrong else ''!r} is not a scope: read:PATTERN, append:PATTERN, "
            "admin:PATTERN or metrics, where a pattern is a topic's name with * for any characters"
        )
    key_id = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    keys[key_id] = ApiKey(name, digest, scopes, now_ms, expires_ms, dict(quota or {}))
    return key_id, f"{PREFIX.decode()}{key_id}_{secret}"


def revoke_key(keys: dict[str, ApiKey], name_or_id: str) -> tuple[str, ApiKey]:
    """Remove a key by its id or name; InvalidRequestValue if there is none."""
    for key_id, key in keys.items():
        if name_or_id in {key_id, key.name}:
            return key_id, keys.pop(key_id)
    raise InvalidRequestValue(f"key {name_or_id!r} does not exist", name=name_or_id)


def id_and_secret(token: bytes) -> tuple[str, bytes]:
    """Return the two halves of a key, unchecked; the token begins with `PREFIX`."""
    key_id, _, secret = token.removeprefix(PREFIX).partition(b"_")
    return key_id.decode("latin-1"), secret


def is_secret_of(secret: bytes, key: ApiKey | None) -> bool:
    """Whether the secret is the key's; takes the same time for a wrong one and for no key."""
    expected = _NO_HASH if key is None else bytes.fromhex(key.sha256)
    return hmac.compare_digest(hashlib.sha256(secret).digest(), expected)
