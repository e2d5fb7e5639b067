"""Buckets for the archive: S3, Google Cloud Storage, Azure and plain directories, with obstore.

Credentials, endpoint and region are from the environment, by each store's usual names
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME …),
or from the machine's role. docs/backup.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from engine.archive.store import ArchiveError, ObjectMissing, StoredObject, StoreUnavailable
from engine.fs.directories import ensure_directory
from engine.fs.posix import PosixFileSystem
from engine.types import Buffer

SCHEMES: Final = ("s3", "gs", "az", "file")

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Larger objects are uploaded in parts of this size, some at once: memory of an upload."""

PARTS_AT_ONCE: Final = 3

REQUEST_TIMEOUT: Final = timedelta(seconds=30)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
RETRY_TIMEOUT: Final = timedelta(seconds=20)
MAX_RETRIES: Final = 3
"""Then the next pass tries again."""

READ_TIMEOUT: Final = timedelta(seconds=10)
"""For a range of records that a reader waits for, and its one repetition."""

_DELETED_AT_ONCE: Final = 1_000

_FS: Final = PosixFileSystem()


def open_bucket(url: str) -> Bucket:
    """Return the bucket, or the folder of one, that a URL names; ArchiveError for a wrong one."""
    folder = folder_in(url)
    if folder is not None:
        return Folder(url, folder)
    try:
        store = _store_at(url, REQUEST_TIMEOUT, RETRY_TIMEOUT, MAX_RETRIES)
        readers = _store_at(url, READ_TIMEOUT, READ_TIMEOUT, max_retries=1)
    except (BaseError, ValueError) as error:
        raise ArchiveError(f"{url} cannot be used: {_first_line(error)}") from error
    return Bucket(url, store, readers)


def _store_at(
    url: str, timeout: timedelta, retry_timeout: timedelta, max_retries: int
) -> obstore.store.ObjectStore:
    return from_url(
        url,
        client_options={
            "timeout": timeout,
            "connect_timeout": CONNECT_TIMEOUT,
            "allow_http": True,  # only if an operator gives an endpoint with http://
        },
        retry_config={"max_retries": max_retries, "retry_timeout": retry_timeout},
    )


def folder_in(url: str) -> Path | None:
    """Return the directory that a URL names; None for a bucket. ArchiveError for a wrong URL."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
        raise ArchiveError(
            f"{url!r} is not the URL of an archive: s3://bucket/folder, gs://bucket/folder, "
            "az://account/container/folder or file:///folder"
        )
    if parts.username or parts.password or parts.query:
        raise ArchiveError(
            "the URL of an archive has no credentials and no query: they belong into the "
            "environment, by the names that docs/backup.md lists"
        )
    if parts.scheme != "file":
        return None
    if parts.netloc:
        raise ArchiveError(f"{url!r} names a host: write file:///{parts.netloc}{parts.path}")
    return Path(unquote(parts.path))


class Bucket:
    """An object store on the network. Thread-safe."""

    def __init__(
        self,
        url: str,
        store: obstore.store.ObjectStore,
        readers: obstore.store.ObjectStore | None = None,
    ) -> None:
        """`readers` is the same store for those who wait for records: it fails earlier."""
        self.url = url
        self._store = store
        self._readers = readers or store

    def put(self, name: str, content: Iterable[Buffer], size_bytes: int) -> None:
        with self._asking():
            if size_bytes <= CHUNK_BYTES:
                obstore.put(self._store, name, b"".join(content), use_multipart=False)
            else:
                obstore.put(
                    self._store,
                    name,
                    iter(content),
                    chunk_size=CHUNK_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )

    def put_new(self, name: str, content: bytes) -> bool:
        try:
            with self._asking():
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except _Exists:
            return False
        return True

    def get(self, name: str) -> bytes:
        with self._asking():
            return bytes(obstore.get(self._store, name).bytes())

    def read(self, name: str) -> Iterator[Buffer]:
        with self._asking():
            for data in obstore.get(self._store, name).stream(min_chunk_size=1 << 20):
                yield memoryview(data)

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        with self._asking():
            part = obstore.get_range(self._readers, name, start=position, length=length)
        return memoryview(part)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        with self._asking():
            for page in obstore.list(self._store, prefix or None):
                for one in page:
                    modified_ms = round(one["last_modified"].timestamp() * 1000)
                    yield StoredObject(one["path"], one["size"], modified_ms)

    def delete(self, names: Iterable[str]) -> None:
        left = iter(names)
        while some := list(islice(left, _DELETED_AT_ONCE)):
            try:
                with self._asking():
                    obstore.delete(self._store, some)
            except ObjectMissing:
                for name in some:  # the store refused all of them because of one
                    self._delete_one(name)

    def _delete_one(self, name: str) -> None:
        try:
            with self._asking():
                obstore.delete(self._store, name)
        except ObjectMissing:
            pass

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self.url}: {_first_line(error)}") from error
        except AlreadyExistsError as error:
            raise _Exists from error
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"{self.url}: {_first_line(error)}") from error


class Folder(Bucket):
    """A plain directory, on another disk or a network file system: what is written is synced."""

    def __init__(self, url: str, directory: Path) -> None:
        try:
            ensure_directory(_FS, directory)
            store = LocalStore(directory, automatic_cleanup=False)
        except (BaseError, OSError, ValueError) as error:
            raise ArchiveError(f"{url} cannot be used: {_first_line(error)}") from error
        super().__init__(url, store)
        self._directory = directory

    def put(self, name: str, content: Iterable[Buffer], size_bytes: int) -> None:
        super().put(name, content, size_bytes)
        self._sync(name)

    def put_new(self, name: str, content: bytes) -> bool:
        is_new = super().put_new(name, content)
        self._sync(name)
        return is_new

    def _sync(self, name: str) -> None:
        """Sync the file, and the directories that lead to it: any of them may be new."""
        path = self._directory / name
        with self._asking():
            with _FS.open(path, read_only=True) as file:
                file.sync_all()
            for one in path.parents:
                if one.is_relative_to(self._directory):
                    _FS.sync_directory(one)


class _Exists(Exception):
    """The name is taken."""


def _first_line(error: Exception) -> str:
    """Return what the library says without its debug output."""
    return str(error).split("\n", 1)[0].strip()
