"""The ports to the operating system: whatever the engine does to a disk is a method here.

`engine.fs.filesystem` implements them with system calls; a test's disk that forgets what was not
synced implements them in memory. Every failure of the disk surfaces as an `OSError` with its errno;
`engine.fs.health` decides what becomes of the directory. Using something after `close` is a
`ValueError`, as with Python's own files: a bug or a lost race, never a fault of the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from engine.types import Buffer

MAX_SMALL_FILE_BYTES: Final = 256 << 20
"""The largest file that is read whole: a checkpoint, a snapshot, the file of topics."""


class Handle(Protocol):
    """Something open; a `with` block lets go of it."""

    def sync_all(self) -> None:
        """Return once the bytes and all metadata (times, for example) would survive a power cut."""

    def close(self) -> None:
        """Let go of it, without syncing; reads under way end normally. May be repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class File(Handle, Protocol):
    """An open file that grows at its end: any number of readers, one writer at a time.

    The writer (append, truncate) is serialised by its owner; reads and syncs may run beside it.
    """

    path: Path
    """Where the file lies now. Whoever renames the file sets it; an open file follows a rename."""

    size_bytes: int
    """The logical size (a preallocated file is longer on disk); it moves after the write."""

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end and return the position where it starts.

        After a process crash the bytes are there, after a power cut only once synced. If it raises,
        the file's size is what it was, and whatever was half written is cut off again.
        """

    def append_many(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers at the end one after another, without joining them; as `append`."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position`; fewer only where the file ends."""

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """Return what `read_at` would, in a buffer of the caller's own, or None if that might wait.

        Where the platform cannot tell, it reads and may wait.
        """

    def prefetch(self, position: int, length: int) -> None:
        """Have the disk begin to read those bytes, as far as the platform can be told so."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, its preallocated tail included; never makes it longer.

        A file that already ends there is not touched, so that its time of modification stays.
        """

    def sync(self) -> None:
        """Return once the file's bytes and its size would survive a power cut.

        Once it has failed it always fails: the kernel reports lost pages once, to one of the
        threads that sync the file.
        """

    def forget_cached(self) -> None:
        """Sync, and have later reads come from the disk where the platform can be told so.

        After a sync that failed, the page cache may hold bytes that it takes for written and that
        are not on the disk: no later sync would write them.
        """

    def modified_ms(self) -> int:
        """When the file's content last changed, in ms; a rename or removal does not matter."""

    def version(self) -> str:
        """Return what tells this file, as it is, from any other that has or had its name.

        Hexadecimal digits and dashes. A rename, for example, may change it though no byte changed.
        """


class MappedFile(Protocol):
    """A file of fixed size seen as memory: what is stored in the buffer survives the process.

    The owner sees to it that nobody uses the buffer while it calls `resize` or `close`.
    """

    path: Path
    """Where the file lies now. Whoever renames the file sets it."""

    is_new: bool
    """Whether opening created the file."""

    buffer: memoryview
    """The bytes. Ask for it anew after `resize`; never keep a slice of it; released by `close`."""

    size_bytes: int
    """The length of the file and of the buffer."""

    reserved_bytes: int
    """Up to here, storing into the buffer cannot fail for want of space on the disk."""

    def reserve(self, end: int) -> None:
        """Make the disk set space aside up to position `end`, exclusive, and some more.

        A store into a hole of a file on a full disk does not raise: it kills the process (SIGBUS).
        """

    def resize(self, size_bytes: int) -> None:
        """Make the file exactly that long, zero-filled or cut, and map it anew; 0 is allowed."""

    def sync(self) -> None:
        """Return once everything stored in the buffer would survive a power cut."""

    def close(self) -> None:
        """Let go of the map, without syncing. May be repeated."""


class OpenDirectory(Handle, Protocol):
    """A directory that was opened to be synced: no lack of files can keep its names from it.

    Whoever changes names first and syncs them at the end opens it before the first change.
    """

    def sync_all(self) -> None:
        """Return once the names in it would survive a power cut, whatever its own is by now."""


class OpenFileSystem(Handle, Protocol):
    """A file system that was opened to be synced as a whole."""

    def sync_all(self) -> None:
        """Return once all that was written in it before, names too, would survive a power cut.

        Raises OSError if any write in it failed since it was opened or last synced; the kernel
        reports that once. Not thread-safe: of two threads only one would hear of it.
        """


class HeldLock(Protocol):
    """A lock on a file that other processes respect."""

    def ensure_held(self) -> None:
        """Raise OSError if the lock's file is gone or another one: then others can get in."""

    def release(self) -> None:
        """Let the next owner in, and remove the lock's file if it still is it. May be repeated.

        A disk that fails does not stop it: a file that stays keeps nobody out.
        """


class NotRegularFile(OSError):
    """A name is that of a link or a FIFO: nothing is wrong with the disk."""


class DirectoryEntry(NamedTuple):
    """One name in a directory; a symbolic link or a FIFO, for example, is neither."""

    name: str
    is_directory: bool
    is_file: bool


class Space(NamedTuple):
    """How large a file system is, and how much of it an ordinary process may still write."""

    total_bytes: int
    free_bytes: int


class FileSystem(Protocol):
    """What the engine asks of an operating system. Thread-safe."""

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

        NotRegularFile or IsADirectoryError if the name is that of anything else. A FIFO is not
        waited for. A symbolic link is not followed unless `follow_links`, which is for files that
        are kept outside the data directories.

        A file that this call creates with `preallocate_bytes` is that long on disk and logically
        empty; one that existed is as long as it is found.
        """

    def open_map(
        self, path: Path, size_bytes: int | None = None, *, read_only: bool = False
    ) -> MappedFile:
        """Map a file at the length it has; a missing one is created with `size_bytes` zero bytes.

        As `open`, it must be a regular file.
        Missing, and read only or without a size: FileNotFoundError.
        """

    def exists(self, path: Path) -> bool:
        """Whether anything has this name."""

    def is_directory(self, path: Path) -> bool:
        """Whether a directory has this name, and not only a link to one."""

    def is_misplaced(self, path: Path) -> bool:
        """Whether something has this name that `open` refuses: it is not a regular file."""

    def size_bytes(self, path: Path) -> int:
        """Return the file's length on disk, preallocated tail included."""

    def space(self, path: Path) -> Space:
        """Return the size of the file system on which a file or directory lies."""

    def modified_ms(self, path: Path) -> int:
        """Return when the file was last modified, in ms since the epoch."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Pretend that the file was last modified then."""

    def read_bytes(self, path: Path, *, follow_links: bool = False) -> bytes:
        """Return a whole small file; as `open`. EFBIG above MAX_SMALL_FILE_BYTES."""

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def list_entries(self, path: Path) -> list[DirectoryEntry]:
        """Return the names in a directory, sorted, and which of them are directories."""

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Create a directory; one that exists is fine, a file of that name is not."""

    def open_directory(self, path: Path) -> OpenDirectory:
        """Open a directory, to sync it later."""

    def open_file_system(self, path: Path) -> OpenFileSystem | None:
        """Open the file system in which `path` is, to sync all of it later.

        None if the platform cannot sync it as a whole or does not report writes that failed.
        """

    def sync_directory(self, path: Path) -> None:
        """Return once the names in this directory would survive a power cut."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name, replacing a file, atomically.

        Until the directory is synced a power cut may undo it.
        """

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; whoever has it open can go on reading."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it."""

    def lock(self, path: Path) -> HeldLock:
        """Create `path` if missing and lock it, against other processes and within this one.

        BlockingIOError if it is locked. A crash releases the lock and leaves the file.
        """
