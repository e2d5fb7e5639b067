"""The port to object storage: all that an archive asks of a bucket.

Objects are written whole or not at all, and no object is ever overwritten with other content.
`app.buckets` implements the port with a library for S3, Google Cloud Storage, Azure and plain
directories; tests implement it in memory, with a bucket that fails, lies and forgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from engine.types import Buffer


class ArchiveError(Exception):
    """The archive cannot be used as asked; the text says what to do."""


class StoreUnavailable(ArchiveError):
    """The object store did not do what was asked; a later attempt may succeed."""


class ObjectMissing(ArchiveError):
    """The object does not exist."""


class ArchiveDamaged(ArchiveError):
    """An object is not what the archive says it is."""


class ArchiveFenced(ArchiveError):
    """The archive belongs to another data directory, or to a later process of this one."""


class StoredObject(NamedTuple):
    """An object in a listing."""

    name: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """A bucket, or a folder of it. Thread-safe; every method raises StoreUnavailable.

    Names are relative, with slashes between their parts.
    """

    url: str
    """Where it is, for people; without credentials."""

    def put(self, name: str, content: Iterable[Buffer], size_bytes: int) -> None:
        """Write an object of that size; on return it is durable, and has all the content.

        If `content` raises, so does this, and there is no object. The caller gives the name to no
        other content.
        """

    def put_new(self, name: str, content: bytes) -> bool:
        """Write an object unless the name exists; return whether it was written.

        Of several callers with one name only one gets True. False may also mean that this caller's
        own earlier attempt succeeded and its answer was lost.
        """

    def get(self, name: str) -> bytes:
        """Return a whole small object; ObjectMissing."""

    def read(self, name: str) -> Iterator[Buffer]:
        """Yield an object's content in order; ObjectMissing."""

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        """Return a part of an object that has it all; ObjectMissing.

        A reader waits for it: it fails earlier than the others, and is repeated less often.
        """

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose names begin with `prefix`, which ends at a slash, or all.

        A store may be late: the listing may lack new objects, and have removed ones.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are ignored."""
