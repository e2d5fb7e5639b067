"""After a failed write, stop writing: Kafka's `LogDirFailureChannel`, one per data directory.

A sync that failed can report success when it is tried again, for pages that the kernel has dropped
meanwhile. So the first failure is the last: the directory takes no more writes until a restart has
looked at what is really on the disk.
"""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from engine.errors import Overloaded, StorageFull, StorageOffline, StoredDataCorrupt
from engine.fs.port import HeldLock, NotRegularFile, OpenFileSystem
from engine.metrics import NullRecorder, Recorder

_LOG = logging.getLogger(__name__)

_NO_PERMISSION: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY_FILES: Final = ("too many files are open; the limit is ulimit -n", "open_files")
_NO_MEMORY: Final = (
    "the system has no memory for it; see vm.max_map_count and ulimit -v",
    "memory",
)
_INTERRUPTED: Final = ("a system call was interrupted; try again", "system_calls")
_PASSING: Final = {
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.ENOMEM: _NO_MEMORY,
    errno.EAGAIN: _INTERRUPTED,
    errno.EINTR: _INTERRUPTED,
}
"""Errors that do not mean that the disk failed: what `Overloaded` says, and its limit."""
_OF_ONE_FILE: Final = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EFBIG,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EOVERFLOW,
        errno.EPERM,
        errno.ESPIPE,
    }
)
"""Nothing is wrong with the disk: it is the one file that cannot be used like this."""
_LOOK_MS: Final = 1_000
"""In less than that no other process takes a directory over."""


class DirectoryHealth:
    """Whether one data directory still takes writes, and if not, why not. Thread-safe.

    Reads go on while a directory is offline for writing, until a read itself fails.
    """

    def __init__(self, directory: Path, recorder: Recorder | None = None) -> None:
        self.directory = directory
        self._recorder = recorder or NullRecorder()
        self._lock = threading.Lock()
        self.cause: OSError | None = None
        """The first failure; whatever failed later followed from it, as far as anyone can tell."""
        self._can_read = True
        self.file_system: OpenFileSystem | None = None
        """To sync all of the directory at once; set and used by who has taken the directory."""
        self._held: HeldLock | None = None
        self._looked_ms = 0
        self.writing: Final = _WriteGuard(self)
        """Guard a block that changes the disk: an OSError takes the directory offline.

        So does the loss of the directory's lock, which is looked at before and after.
        """
        self.syncing: Final = _SyncGuard(self)
        """Guard a block that only syncs what has been written.

        As `writing`, but the lock is looked at afterwards alone: what is synced is nobody's loss.
        """
        self.appending: Final = _AppendGuard(self)
        """Guard a block whose only effect is one `File.append` or one `replace_atomically`.

        As `writing`, but without space it raises StorageFull, and without memory or open files
        Overloaded, and stays online: either leaves its file as it was if it fails, so nothing is
        lost when there is space again. A file that was replaced by a link or a FIFO is
        StoredDataCorrupt. A roll is guarded like this as well: what it leaves half done, the next
        one does again.
        """
        self.trying: Final = _TryGuard(self)
        """Guard a block whose changes may stay half done: nobody acts on them, or it is repeated.

        As `appending`, and the lock is looked at before, as in `writing`.
        """
        self.opening: Final = _OpenGuard(self)
        """Guard a block that opens one log, which may fail without the others.

        As `appending`, but an OSError about a single file is passed on as it is: a missing
        permission, a missing file, one that is not a regular file.
        """
        self.reading: Final = _ReadGuard(self)
        """Guard a block that only reads: an OSError takes the directory offline, for reads too.

        Too many open files, too little memory and a file that was replaced do not: Overloaded and
        StoredDataCorrupt, as in `appending`.
        """

    @property
    def is_offline(self) -> bool:
        return self.cause is not None

    def ensure_online(self) -> None:
        """Raise StorageOffline if the directory takes no more writes."""
        if self.cause is not None:
            raise self._offline(self.cause)

    def offline_error(self) -> StorageOffline:
        """Return what `ensure_online` raises; the directory must be offline."""
        assert self.cause is not None, "asked of a directory that takes writes"
        return self._offline(self.cause)

    def watch(self, lock: HeldLock | None) -> None:
        """Take no more writes once this lock of the directory is lost; None if it was released."""
        self._held = lock

    def ensure_taking(self, now_ms: int) -> None:
        """Raise as `ensure_online`; and as `ensure_held`, if that was asked a second ago or more.

        For who cannot look at a file for every write.
        """
        if self.cause is not None:
            raise self._offline(self.cause)
        if not 0 <= now_ms - self._looked_ms < _LOOK_MS:
            self._looked_ms = now_ms
            self.ensure_held()

    def ensure_held(self) -> None:
        """Raise StorageOffline if the directory's lock is lost, and take no more writes.

        A process that was stopped may go on after somebody has removed its lock file and started
        another one in its place; or the directory was removed, and what is synced has no name.
        """
        if self._held is not None:
            try:
                self._held.ensure_held()
            except OSError as error:
                raise self.fail(error) from error

    def ensure_readable(self) -> None:
        """Raise StorageOffline if a read has failed."""
        if not self._can_read:
            assert self.cause is not None, "a failed read takes the directory offline"
            raise self._offline(self.cause)

    def fail(self, error: OSError, *, can_read: bool = True) -> StorageOffline:
        """Take the directory offline because of `error`; return the exception to raise."""
        with self._lock:
            is_first = self.cause is None
            self.cause = cause = self.cause or error
            self._can_read = self._can_read and can_read
        if is_first:
            _LOG.error("%s takes no more writes until restart: %s", self.directory, error)
            self._recorder.directory_offline(str(self.directory))
        return self._offline(cause, has_begun=can_read)

    def _offline(self, cause: OSError, *, has_begun: bool = False) -> StorageOffline:
        return StorageOffline(
            f"{self.directory} is offline until restart: {cause}{permission_advice(cause)}",
            has_begun=has_begun,
            directory=str(self.directory),
        )


def permission_advice(error: OSError) -> str:
    """Return the end of a sentence about the error: what to do if a permission is missing."""
    return "; let this user read and write it" if error.errno in _NO_PERMISSION else ""


class _Guard:
    """Entered by many threads at once: it keeps nothing between `__enter__` and `__exit__`."""

    __slots__ = ("_health",)

    def __init__(self, health: DirectoryHealth) -> None:
        self._health = health

    def __enter__(self) -> None:
        if self._health.cause is not None:
            raise self._health.offline_error()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise self._health.fail(error) from error


class _SyncGuard(_Guard):
    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._health.ensure_held()  # else nobody will find what was synced
        else:
            super().__exit__(kind, error, trace)


class _WriteGuard(_SyncGuard):
    __slots__ = ()

    def __enter__(self) -> None:
        super().__enter__()
        self._health.ensure_held()


class _AppendGuard(_Guard):
    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in _NO_SPACE:
            directory = self._health.directory
            raise StorageFull(
                f"no space left under {directory}", directory=str(directory)
            ) from error
        _raise_if_online(error)
        raise self._health.fail(error) from error


class _TryGuard(_AppendGuard):
    __slots__ = ()

    def __enter__(self) -> None:
        super().__enter__()
        self._health.ensure_held()


class _OpenGuard(_AppendGuard):
    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not (isinstance(error, OSError) and error.errno in _OF_ONE_FILE):
            super().__exit__(kind, error, trace)


class _ReadGuard(_Guard):
    __slots__ = ()

    def __enter__(self) -> None:
        self._health.ensure_readable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            _raise_if_online(error)
        if isinstance(error, OSError):
            raise self._health.fail(error, can_read=False) from error


def _raise_if_online(error: OSError) -> None:
    """Raise for an error that does not mean that the disk failed.

    A file of a log that was replaced by something else is the damage of that log alone.
    """
    if error.errno in _PASSING:
        message, limit = _PASSING[error.errno]
        raise Overloaded(message, limit=limit) from error
    if isinstance(error, NotRegularFile | IsADirectoryError):
        file = str(error.filename)
        what = f"{file} cannot be used: {error.strerror}"
        raise StoredDataCorrupt(what, file=file, position=0, offset=-1) from error
