"""Stops all writes to a data directory after a failed one; Kafka's `LogDirFailureChannel`.

A failed sync can report success when it is repeated, although the kernel has dropped the pages. So
after the first failure the directory refuses writes until a restart has checked what is really on
the disk.
"""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path
from typing import Final

from engine.errors import Overloaded, StorageFull, StorageOffline, StoredDataCorrupt
from engine.fs.port import HeldLock, NotRegularFile, OpenFileSystem
from engine.metrics import NullRecorder, Recorder

_LOG = logging.getLogger(__name__)

_NO_PERMISSION: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY_FILES: Final = ("too many files are open; the limit is ulimit -n", "open_files")
_NO_MEMORY: Final = (
    "the system is out of memory; see ulimit -v",
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
"""Errors that do not mean that the disk failed: the message of `Overloaded`, and its limit."""
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
"""Errors of a single file that do not mean that the disk failed."""
_LOOK_MS: Final = 1_000
"""How old the last check of the lock may be; no process can take over a directory faster."""


class DirectoryHealth:
    """Whether one data directory accepts writes, and the cause if it does not. Thread-safe.

    Reads continue while a directory is offline for writes, until a read fails.
    """

    def __init__(self, directory: Path, recorder: Recorder | None = None) -> None:
        self.directory = directory
        self._recorder = recorder or NullRecorder()
        self._lock = threading.Lock()
        self.cause: OSError | None = None
        """The first failure; later ones may only be its consequences."""
        self._can_read = True
        self.file_system: OpenFileSystem | None = None
        """The handle to sync the whole file system; set by the owner of the directory."""
        self._held: HeldLock | None = None
        self._looked_ms = 0
        self.writing: Final = _WriteGuard(self)
        """Guard a block that changes the disk: an OSError takes the directory offline.

        So does the loss of the directory's lock, which is checked before and after.
        """
        self.syncing: Final = _SyncGuard(self)
        """Guard a block that only syncs data that is written already.

        As `writing`, but the lock is only checked afterwards, because syncing more does no harm.
        Afterwards the directory must still be online: a sync may succeed because another one has
        failed, and the kernel has dropped its pages.
        """
        self.appending: Final = _AppendGuard(self)
        """Guard a block whose only effect is one `File.append` or one `replace_atomically`.

        As `writing`, but if space is lacking, or the file may not grow, it raises StorageFull, and
        if memory or open files are lacking Overloaded, and the directory stays online: both effects
        leave the file unchanged when they fail, so nothing is lost. A file that was replaced by a
        link or a FIFO is StoredDataCorrupt. A roll uses this guard too: the next one repeats what a
        failed roll left half done.
        """
        self.trying: Final = _TryGuard(self)
        """Guard a block whose changes may stay half done, because they are unused or repeated.

        As `appending`, and the lock is checked before too, as in `writing`.
        """
        self.opening: Final = _OpenGuard(self)
        """Guard a block that opens one log, which may fail alone.

        As `appending`, but an OSError of a single file is raised unchanged: a missing permission, a
        missing file, or one that is not regular.
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
        """Raise StorageOffline if the directory refuses writes."""
        if self.cause is not None:
            raise self._offline(self.cause)

    def offline_error(self) -> StorageOffline:
        """Return what `ensure_online` raises; the directory must be offline."""
        assert self.cause is not None, "the directory is online"
        return self._offline(self.cause)

    def watch(self, lock: HeldLock | None) -> None:
        """Refuse writes once this lock of the directory is lost; None if it was released."""
        self._held = lock

    def ensure_taking(self, now_ms: int) -> None:
        """Raise as `ensure_online`, and as `ensure_held` if the lock was not checked for a second.

        For callers that cannot afford a system call for every write.
        """
        if self.cause is not None:
            raise self._offline(self.cause)
        if not 0 <= now_ms - self._looked_ms < _LOOK_MS:
            self._looked_ms = now_ms
            self.ensure_held()

    def ensure_held(self) -> None:
        """Raise StorageOffline, and refuse writes from now on, if the directory's lock is lost.

        A suspended process may continue after its lock file was removed and another process was
        started in its place; or the directory was removed, so that synced files have no name.
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
            _LOG.error("%s refuses writes until restart: %s", self.directory, error)
            self._recorder.directory_offline(str(self.directory))
        return self._offline(cause, has_begun=can_read)

    def _offline(self, cause: OSError, *, has_begun: bool = False) -> StorageOffline:
        return StorageOffline(
            f"{self.directory} is offline until restart: {cause}{permission_advice(cause)}",
            has_begun=has_begun,
            directory=str(self.directory),
        )


def permission_advice(error: OSError) -> str:
    """Return advice to append to the error's message if a permission is missing."""
    return "; let this user read and write it" if error.errno in _NO_PERMISSION else ""


class _Guard:
    """Used by many threads at once: it keeps no state between `__enter__` and `__exit__`."""

    __slots__ = ("_health",)

    def __init__(self, health: DirectoryHealth) -> None:
        self._health = health

    def __enter__(self) -> None:
        if self._health.cause is not None:
            raise self._health.offline_error()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._health.fail(error) from error


class _SyncGuard(_Guard):
    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            # If another sync has failed meanwhile, this one may have found the lost pages clean.
            if self._health.cause is not None:
                raise self._health.offline_error()
            self._health.ensure_held()  # otherwise the synced data may have no name
        else:
            super().__exit__(kind, error, trace)


class _WriteGuard(_Guard):
    __slots__ = ()

    def __enter__(self) -> None:
        super().__enter__()
        self._health.ensure_held()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._health.ensure_held()
        else:
            super().__exit__(kind, error, trace)


class _AppendGuard(_Guard):
    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        directory = self._health.directory
        if error.errno in _NO_SPACE:
            raise StorageFull(
                f"no space left under {directory}", directory=str(directory)
            ) from error
        if error.errno == errno.EFBIG:
            raise StorageFull(
                f"{error.filename or directory} would exceed the largest size of a file; see "
                "ulimit -f (LimitFSIZE= of systemd), and lower segment.bytes of the topic",
                directory=str(directory),
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not (isinstance(error, OSError) and error.errno in _OF_ONE_FILE):
            super().__exit__(kind, error, trace)


class _ReadGuard(_Guard):
    __slots__ = ()

    def __enter__(self) -> None:
        self._health.ensure_readable()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            _raise_if_online(error)
        if isinstance(error, OSError):
            raise self._health.fail(error, can_read=False) from error


def _raise_if_online(error: OSError) -> None:
    """Raise Overloaded or StoredDataCorrupt unless the error means that the disk failed.

    A file of a log that was replaced by something else damages that log only.
    """
    if error.errno in _PASSING:
        message, limit = _PASSING[error.errno]
        raise Overloaded(message, limit=limit) from error
    if isinstance(error, NotRegularFile | IsADirectoryError):
        file = str(error.filename)
        what = f"{file} cannot be used: {error.strerror}"
        raise StoredDataCorrupt(what, file=file, position=0, offset=-1) from error
