"""Keys for tests: made in the data directory, as `tidelog keys create` makes them."""

from collections.abc import Mapping
from pathlib import Path

from app.security.keys import add_key, changing_keys, revoke_key
from engine.fs.posix import PosixFileSystem
from tests.support.time import START_MS

FS = PosixFileSystem()


def create_key(
    directory: Path,
    name: str,
    *scopes: str,
    expires_ms: int | None = None,
    quota: Mapping[str, int] | None = None,
) -> str:
    """Make a key and return it."""
    with changing_keys(FS, directory) as keys:
        _, key = add_key(keys, name, scopes, now_ms=START_MS, expires_ms=expires_ms, quota=quota)
    return key


def revoke(directory: Path, name: str) -> None:
    with changing_keys(FS, directory) as keys:
        revoke_key(keys, name)


def bearer(token: str) -> dict[str, str]:
    """The header that carries a key or a token."""
    return {"authorization": f"Bearer {token}"}
