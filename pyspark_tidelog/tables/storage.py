"""The files of a table or checkpoint, in a local folder or in an object store.

An object store takes its options from the environment variables of its libraries: `AWS_…`,
`AZURE_…` and `GOOGLE_…`. Tasks get those of the driver, inside the pickled function: neither a
plan nor a log of Spark contains them.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables.durable_files import create_file
from pyspark_tidelog.tables.target import is_remote

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_")
_REMOVED_AT_ONCE: Final = 1_000  # what one request of S3 takes
_COLOURS: Final = re.compile(r"\x1b\[\d*m|↳")


class Tagged(NamedTuple):
    """An object, and the entity tag that changes with it."""

    data: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder, by its path or URL. It can be pickled to executors."""

    url: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the object store's library reads; it contains secrets."""

    @classmethod
    def at(cls, url: str) -> Storage:
        """Return the storage with the options of this process."""
        found = {k: v for k, v in os.environ.items() if k.startswith(_PREFIXES)}
        return cls(url, found if is_remote(url) else {})

    @contextmanager
    def open_output(self, name: str) -> Iterator[BinaryIO | io.BufferedIOBase]:
        """Create a file; when the block ends it is durable."""
        if is_remote(self.url):
            import obstore  # noqa: PLC0415 -- an extra

            with obstore.open_writer(self._store(), name) as remote:
                yield _Upload(remote)
            return
        path = Path(self.url) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as local:
            yield local
            local.flush()
            os.fsync(local.fileno())

    def load(self, name: str) -> bytes | None:
        """Return a small file, None if it does not exist."""
        if not is_remote(self.url):
            with suppress(FileNotFoundError):
                return Path(self.url, name).read_bytes()
            return None
        found = self.load_tagged(name)
        return None if found is None else found.data

    def load_tagged(self, name: str) -> Tagged | None:
        """Return an object of an object store and its entity tag, None if it does not exist."""
        import obstore  # noqa: PLC0415 -- an extra

        with self._errors("read"), suppress(FileNotFoundError):
            found = obstore.get(self._store(), name)
            return Tagged(bytes(found.bytes()), str(found.meta["e_tag"]))
        return None

    def create(self, name: str, data: bytes) -> bool:
        """Store a small file durably unless it exists, in one step; return whether it holds `data`.

        A put is repeated if its answer was lost, and then finds what it has stored itself.
        """
        if not is_remote(self.url):
            return create_file(Path(self.url, name), data)
        return self.exchange(name, data, None) is not None or self.load(name) == data

    def exchange(self, name: str, data: bytes, tag: str | None) -> str | None:
        """Replace an object if its entity tag is `tag`, None for one that does not exist yet.

        This is one step, of object stores only. Returns the new tag, or None if the object is
        another one.
        """
        import obstore  # noqa: PLC0415 -- an extra
        from obstore.exceptions import (  # noqa: PLC0415 -- the same
            AlreadyExistsError,
            PreconditionError,
        )

        with self._errors("written"):
            try:
                done = obstore.put(
                    self._store(), name, data, mode="create" if tag is None else {"e_tag": tag}
                )
            except (AlreadyExistsError, PreconditionError):
                return None
        return str(done["e_tag"])

    def replace(self, name: str, data: bytes) -> None:
        """Store a small object."""
        import obstore  # noqa: PLC0415 -- an extra

        with self._errors("written"):
            obstore.put(self._store(), name, data)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, by their names in this storage; it does not matter if one is missing."""
        if is_remote(self.url):
            import obstore  # noqa: PLC0415 -- an extra

            for first in range(0, len(names), _REMOVED_AT_ONCE):
                obstore.delete(self._store(), names[first : first + _REMOVED_AT_ONCE])
            return
        for name in names:
            Path(self.url, name).unlink(missing_ok=True)

    def names(self, folder: str = "") -> tuple[list[str], list[str]]:
        """Return the names directly below, or in a folder below: of folders and of objects."""
        import obstore  # noqa: PLC0415 -- an extra

        folders: list[str] = []
        objects: list[str] = []
        with self._errors("read"):
            found = obstore.list_with_delimiter(self._store(), folder or None)
            above = f"{folder}/" if folder else ""
            folders.extend(each.removeprefix(above) for each in found["common_prefixes"])
            objects.extend(each["path"].removeprefix(above) for each in found["objects"])
        return folders, objects

    def _store(self) -> ObjectStore:
        return _opened(self.url, tuple(self.environment.items()))

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415 -- an extra

        try:
            yield
        except (BaseError, OSError) as error:
            raise storage_failure(self.url, done, error) from error


@lru_cache
def _opened(url: str, environment: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Return a client, which keeps its connections: a new one takes 4 ms for each request."""
    from obstore.store import from_url  # noqa: PLC0415 -- an extra

    with _set(dict(environment)):
        return from_url(url)


class _Upload(io.BufferedIOBase):
    """An upload as a file that knows its position, which obstore's does not."""

    def __init__(self, remote: WritableFile) -> None:
        self._remote = remote
        self._written = 0

    def write(self, data: Buffer) -> int:
        count = self._remote.write(data)
        self._written += count
        return count

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written


_OF_METADATA: Final = ("169.254.169.254", "metadata.google.internal", "/metadata/identity")
"""In the error of a library that found no credentials, and asked the machine's cloud for some."""

_CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "ab": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""By the first letters of a scheme."""

_LASTING: Final = (
    ("NoSuchBucket", "the bucket does not exist: create it, or correct the URL"),
    ("ContainerNotFound", "the container does not exist: create it, or correct the URL"),
    ("InvalidAccessKeyId", "the store does not know the access key: correct it"),
    ("SignatureDoesNotMatch", "the secret of the access key is wrong: correct it"),
    ("AccessDenied", "the credentials may not do that: give them the right to read and write it"),
    ("PermissionDenied", "the credentials may not do that: give them the right to do so"),
)
"""What an error of an object store has in it, and what has to be done before another run."""


def storage_failure(place: object, done: str, error: Exception) -> JobFailed:
    """Return the error for a table or file that cannot be read or written, with its remedy."""
    text = sentence_of(error)
    if any(sign in text for sign in _OF_METADATA):
        variables = _CREDENTIALS.get(str(place)[:2], "those of the store's library")
        return JobFailed(
            f"{place} cannot be {done}: there are no credentials for it; set {variables} in the "
            f"environment",
            is_permanent=True,
        )
    for sign, advice in _LASTING:
        if sign in text:
            return JobFailed(f"{place} cannot be {done}: {advice} ({text})", is_permanent=True)
    return JobFailed(f"{place} cannot be {done}: {text}")


def sentence_of(error: Exception) -> str:
    """Return an error of a library in one line without colours, at most 500 characters."""
    text = str(error).partition("Debug source:")[0]
    return " ".join(_COLOURS.sub("", text).split())[:500]


@contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
