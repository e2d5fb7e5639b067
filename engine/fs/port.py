"""The ports to the operating system: everything the engine does to a disk is a method here.

`engine.fs.posix` implements them with system calls; tests implement them in memory, with a
disk that loses unsynced data. Every failure of the disk is an `OSError` with its errno;
`engine.fs.health` decides whether the directory goes offline. Use after `close` is a `ValueError`,
as with Python's own files: a bug or a lost race, never a failure of the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

from engine.types import Buffer

MAX_SMALL_FILE_BYTES: Final = 256 << 20
"""The largest file that is read whole: a checkpoint, a snapshot, the topics file."""


class Handle(Protocol):
    """An open file or directory; a `with` block closes it."""

    def sync_all(self) -> None:
        """Return once the bytes and all metadata (times, for example) would survive a power cut."""

    def close(self) -> None:
        """Close it without syncing; reads under way end normally. May be called again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class File(Handle, Protocol):
    """An open file that grows at its end: any number of readers, one writer at a time.

    The owner allows one writer (append, truncate) at a time; reads and syncs may run in parallel.
    """

    path: Path
    """The file's path. The caller that renames the file sets it; an open file survives a rename."""

    size_bytes: int
    """The logical size (a preallocated file is longer on disk); it is updated after the write."""

    device: int
    """The number of the file system that has the file's bytes."""

    is_preallocated: bool
    """Whether it was made longer than its content: an append may change no metadata of it."""

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end and return the position where it starts.

        The bytes survive a crash of the process, and a power cut only once synced. If it raises,
        the file's size is unchanged, and bytes that were written are cut off again.
        """

    def append_many(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers at the end, in order, without joining them; as `append`."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position`; fewer only where the file ends."""

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """Return what `read_at` would, in a new buffer, or None if that might wait for the disk.

        On platforms that cannot tell, it reads and may wait.
        """

    def read_aside(self, position: int, length: int) -> Buffer:
        """As `read_at`, but what was not in the page cache before is not kept in it.

        So a copy of a whole log does not displace what its readers need.
        """

    def prefetch(self, position: int, length: int) -> None:
        """Ask the platform to start reading those bytes into the page cache, if it can."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, together with its preallocated tail; never extends it.

        A file that already ends there is not changed, so that it keeps its modification time.
        """

    def sync(self) -> None:
        """Return once the file's bytes and its size would survive a power cut.

        After one failure it always fails, because the kernel reports lost pages only once, to one
        of the threads that sync the file.
        """

    def forget_cached(self) -> None:
        """Sync, and drop the file's page cache if the platform can, so that reads use the disk.

        After a failed sync the page cache may hold pages that are marked clean but are not on the
        disk: no later sync would write them.
        """

    def modified_ms(self) -> int:
        """When the file's content last changed, in ms; renaming does not change it."""

    def version(self) -> str:
        """Return a version that no other file with this name, past or present, has.

        Hexadecimal digits and dashes. It may change without a change of content, by a rename for
        example.
        """


class IndexFile(Protocol):
    """An open file of fixed size that is written anywhere: what was stored survives the process.

    Read and written by system calls, whose errors are errors: an access to a memory map that the
    disk cannot serve kills the process (SIGBUS).
    """

    path: Path
    """The file's path. The caller that renames the file sets it."""

    is_new: bool
    """Whether opening created the file."""

    size_bytes: int
    """The length of the file."""

    reserved_bytes: int
    """Space is allocated below this position: a store there does not fail on a full disk, except
    where the file system writes each change to a new place."""

    def load(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position`; fewer only if the file was cut meanwhile."""

    def store(self, position: int, data: bytes) -> None:
        """Write `data`, within the file's length; after an OSError any part may be written."""

    def reserve(self, end: int) -> None:
        """Allocate disk space up to position `end`, exclusive, and some more."""

    def resize(self, size_bytes: int) -> None:
        """Make the file exactly that long, zero-filled or cut; 0 is allowed."""

    def sync(self) -> None:
        """Return once everything stored would survive a power cut."""

    def close(self) -> None:
        """Close the file without syncing; loads under way end normally. May be called again."""


class OpenDirectory(Handle, Protocol):
    """A directory that was opened early, so that syncing it cannot fail for lack of descriptors.

    Open it before the first change of a name that it is going to sync.
    """

    def sync_all(self) -> None:
        """Return once the names in it would survive a power cut, even if it was renamed itself."""


class OpenFileSystem(Handle, Protocol):
    """A handle to sync a whole file system."""

    device: int
    """The number of the file system."""

    def sync_all(self) -> None:
        """Return once earlier writes that changed metadata, and names, would survive a power cut.

        A write inside a file's length may still be in the disk's cache: XFS flushes the disk only
        if its journal has something to write. Files of a file system that is mounted below are not
        covered, whatever they changed.

        Raises OSError if any write in it failed since it was opened or last synced; the kernel
        reports that once. Not thread-safe: only one of two threads would get the error.
        """


class HeldLock(Protocol):
    """A lock on a file that other processes respect."""

    def ensure_held(self) -> None:
        """Raise OSError if the lock file is gone or replaced, so that others could lock it."""

    def release(self) -> None:
        """Release the lock, and remove the lock file if it is still ours. May be called again.

        A failed removal is ignored: a file without a lock does not exclude other processes.
        """


class NotRegularFile(OSError):
    """The path is a link, a FIFO or another special file; the disk has not failed."""


class DirectoryEntry(NamedTuple):
    """One name in a directory; a symbolic link or a FIFO is neither a file nor a directory."""

    name: str
    is_directory: bool
    is_file: bool


class Space(NamedTuple):
    """The size of a file system, and the free bytes for unprivileged processes."""

    total_bytes: int
    free_bytes: int


class FileSystem(Protocol):
    """The operations of the operating system that the engine uses. Thread-safe."""

    def open(
        self,
        path: Path,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        preallocate_bytes: int = 0,
        follow_links: bool = False,
    ) -> File:
        """Open a regular file; `create` it if missing, or only if missing when `exclusive`.

        Raises NotRegularFile or IsADirectoryError for anything else, and does not wait for the
        other end of a FIFO. A symbolic link is only followed with `follow_links`, which is for
        files outside the data directories.

        A file that this call creates with `preallocate_bytes` is that long on disk and logically
        empty; an existing one keeps its length.
        """

    def open_index(
        self, path: Path, size_bytes: int | None = None, *, read_only: bool = False
    ) -> IndexFile:
        """Open a file at its present length; a missing one is created, `size_bytes` zeros long.

        As in `open`, it must be a regular file. FileNotFoundError if it is missing and `size_bytes`
        is not given or it is opened read-only.
        """

    def exists(self, path: Path) -> bool:
        """Whether anything exists at this path."""

    def is_directory(self, path: Path) -> bool:
        """Whether the path is a directory; False for a link to one."""

    def real_directory(self, path: Path) -> Path | None:
        """Return the directory that a path leads to, with all links resolved; None if to none."""

    def is_misplaced(self, path: Path) -> bool:
        """Whether the path exists and is not a regular file, so that `open` would refuse it."""

    def size_bytes(self, path: Path) -> int:
        """Return the file's length on disk, including a preallocated tail."""

    def space(self, path: Path) -> Space:
        """Return the size and free space of the file system of a path."""

    def modified_ms(self, path: Path) -> int:
        """Return when the file was last modified, in ms since the epoch."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set the file's modification time."""

    def read_bytes(self, path: Path, *, follow_links: bool = False) -> bytes:
        """Return a whole small file, opened as in `open`. EFBIG above MAX_SMALL_FILE_BYTES."""

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def list_entries(self, path: Path) -> list[DirectoryEntry]:
        """Return the names in a directory, sorted, and which of them are directories."""

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Create a directory; an existing one is accepted, an existing file is an error."""

    def open_directory(self, path: Path) -> OpenDirectory:
        """Open a directory, to sync it later."""

    def open_file_system(self, path: Path) -> OpenFileSystem | None:
        """Open the file system of `path`, to sync all of it later.

        Returns None if the platform cannot sync it as a whole, or does not report failed writes.
        """

    def sync_directory(self, path: Path) -> None:
        """Return once the names in this directory would survive a power cut."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory atomically; an existing target file is replaced.

        A power cut may undo it until the directory is synced.
        """

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; readers that have it open can continue."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it."""

    def lock(self, path: Path) -> HeldLock:
        """Lock `path`, created if missing, against other processes and other callers in this one.

        BlockingIOError if it is locked. A crash releases the lock and leaves the file in place.
        """
