"""What a disk in memory is made of: files and directories that forget, and open handles."""

from __future__ import annotations

import enum
import errno
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Self, TypeAlias

from engine.types import Buffer
from tests.support.machine import Machine, PowerCut, TornWrite, os_error

SECTOR_BYTES = 512
PAGE_BYTES = 4_096
UNLIMITED = 1 << 50


class Rules(enum.Enum):
    """What file systems do differently, as far as the engine can notice."""

    EXT4 = "a sync of the whole file system reaches every file"
    XFS = "it may reach only the files whose metadata changed"
    BTRFS = "a write inside a file takes space too"
    TMPFS = "nothing is lost while the machine runs, and a hole takes space when it is filled"

    @property
    def copies_on_write(self) -> bool:
        return self in {Rules.BTRFS, Rules.TMPFS}


class Storage(Machine):
    """A machine with a disk of limited size, and a limit of open files."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cached = True
        """Whether `read_cached` finds everything in memory, or nothing."""
        self.remaining_bytes = UNLIMITED
        """How much appends may still take."""
        self.remaining_files = UNLIMITED
        """How many may still be opened; those that are closed are not given back."""
        self.lack = errno.EMFILE
        """What is met beyond that; ENOMEM if memory is short."""
        self.opened_files = 0
        """How many were opened so far."""
        self.rules = Rules.XFS
        """As which file system it behaves: by default the one that promises least."""
        self.mounts: list[Path] = []
        """Folders that are file systems of their own, once they are made there. What is renamed to
        such a place stays in the file system that it is in."""
        self.now_ms = 0
        """What files get as their time of modification."""

    def take_space(self, path: Path, size_bytes: int) -> None:
        """Count written bytes; raise ENOSPC if they do not fit."""
        if size_bytes > self.remaining_bytes:
            raise os_error(errno.ENOSPC, path)
        self.remaining_bytes -= size_bytes

    def take_file(self, path: Path) -> None:
        """Count a file that is opened; raise `lack` if there are too many."""
        if self._is_looked_at:
            return
        if self.remaining_files == 0:
            raise os_error(self.lack, path)
        self.remaining_files -= 1
        self.opened_files += 1


@dataclass(eq=False)
class Inode:
    """A file without its names: the content that reads return, and what of it would survive."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    clean: bytes | None = None
    """What the kernel takes for being on the disk, where that is not `durable`: a sync failed."""
    rewritten: set[int] = field(default_factory=set)
    """Pages written since then: dirty again, even if with the same bytes."""
    owes_error_in: int | None = None
    """The disk's generation in which the next sync reports pages that another one has lost."""
    has_grown: bool = False
    """Whether it was made longer since the last sync: its metadata changed."""
    is_unreadable: bool = False
    """Whether the disk cannot read it: whatever is loaded from it is EIO, until it is written."""
    shortest: int = UNLIMITED
    """The smallest length since the last sync: everything after it may be lost too."""
    modified_ms: int = 0
    device: int = 0
    """The number of its file system."""
    number: int = field(default_factory=itertools.count().__next__)
    changes: int = 0  # how often it was written or cut

    def sync(self) -> None:
        self.durable, self.clean = self._written(), None if self.clean is None else self._now()
        self.rewritten.clear()
        self.has_grown = False
        self.shortest = UNLIMITED

    def write(self, position: int, data: bytes) -> None:
        """Change the page cache."""
        self.is_unreadable = False
        end = position + len(data)
        self.has_grown = self.has_grown or end > len(self.content)
        self.content[position:end] = data
        if self.clean is not None:
            self.rewritten.update(range(position // PAGE_BYTES, -(-end // PAGE_BYTES)))

    def cut(self, size_bytes: int) -> None:
        self.is_unreadable = False
        del self.content[size_bytes:]
        self.shortest = min(self.shortest, size_bytes)

    def fail_to_sync(self) -> None:
        """The kernel tells of the failure once, and drops what it could not write."""
        self.clean = self._now()
        self.rewritten.clear()

    @property
    def is_dirty(self) -> bool:
        """Whether a sync would write something."""
        return bool(self.rewritten) if self.clean is not None else self.durable != self.content

    def drop_cache(self) -> None:
        """Have what the kernel takes for clean read from the disk again."""
        if self.clean is not None and self._now() == self.clean and not self.rewritten:
            found = self.durable[: len(self.content)]
            self.content[:] = found + bytes(len(self.content) - len(found))
            self.clean = self._now()

    def write_back(self, random: Random) -> None:
        """Write some pages without being asked to, as kernels do after a while."""
        if self.clean is None and self.durable != self.content:
            self.durable = self._mixed(self._now(), PAGE_BYTES, random)

    def lose_power(self, random: Random | None) -> None:
        """Keep what was synced or, with `random`, newer bytes in some blocks."""
        written = self.durable if random is None else self._written()
        if random is not None and self.durable != written:
            block_bytes = random.choice((SECTOR_BYTES, PAGE_BYTES))
            self.durable = self._mixed(written, block_bytes, random)
        self.content, self.clean = bytearray(self.durable), None
        self.shortest = UNLIMITED

    def _mixed(self, new: bytes, block_bytes: int, random: Random) -> bytes:
        """Take each block from before or from `new`, and any length that it had meanwhile.

        Where it was cut and written again, neither may be there: zeros, as in a hole.
        """
        old = self.durable
        size = random.randint(min(len(old), len(new), self.shortest), max(len(old), len(new)))
        found = bytearray(size)
        for start in range(0, size, block_bytes):
            may_be_hole = start >= self.shortest
            block = random.choice((old, new, b"") if may_be_hole else (old, new))
            piece = block[start : min(start + block_bytes, size)]
            found[start : start + len(piece)] = piece
        return bytes(found)

    def _now(self) -> bytes:
        return bytes(self.content)

    def _written(self) -> bytes:
        """What a sync would leave on the disk: every page that is not clean is written."""
        now, clean = self._now(), self.clean
        if clean is None:
            return now
        if now == clean and not self.rewritten:
            return self.durable[: len(now)]  # its length is the file system's own, not a page
        found = bytearray(self.durable[: len(now)])
        found.extend(bytes(len(now) - len(found)))
        for start in range(0, len(now), PAGE_BYTES):
            page = slice(start, start + PAGE_BYTES)
            if now[page] != clean[page] or start // PAGE_BYTES in self.rewritten:
                found[page] = now[page]
        return bytes(found)


Entry: TypeAlias = "Inode | Directory"


@dataclass(eq=False)
class Directory:
    """Names and what they lead to, and each change of them since the last sync."""

    names: dict[str, Entry] = field(default_factory=dict)
    durable: dict[str, Entry] = field(default_factory=dict)
    changes: list[dict[str, Entry | None]] = field(default_factory=list)
    device: int = 0
    """The number of its file system."""

    def change(self, **names: Entry | None) -> None:
        """Set names, or remove those that are None, in one step: all of it or nothing."""
        self.changes.append(names)
        _apply(self.names, names)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def write_back(self, random: Random) -> None:
        """Write the first so many changes without being asked to, as a journal does."""
        count = random.randint(0, len(self.changes))
        for change in self.changes[:count]:
            _apply(self.durable, change)
        del self.changes[:count]

    def lose_power(self, random: Random | None) -> None:
        """Keep what was synced and, with `random`, some of the changes since.

        The first so many, as with a journal; or any of them, as POSIX allows.
        """
        kept: list[dict[str, Entry | None]] = []
        if random is not None and self.changes:
            kept = self.changes[: random.randint(0, len(self.changes))]
            if random.random() < 0.5:
                kept = [change for change in self.changes if random.random() < 0.5]
        for change in kept:
            _apply(self.durable, change)
        self.names = dict(self.durable)
        self.changes.clear()


def _apply(names: dict[str, Entry], change: dict[str, Entry | None]) -> None:
    for name, entry in change.items():
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry


class Handle:
    """What all that can be open share: they die with their process."""

    def __init__(self, disk: Storage, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._generation = disk.generation
        self._is_open = True

    def _enter(self, name: str) -> None:
        if self._generation != self._disk.generation:
            raise PowerCut  # a thread of the process that is gone
        if not self._is_open:
            raise ValueError(f"{self.path} is closed")
        self._disk.enter(name, self.path)

    def close(self) -> None:
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ForgetfulDirectory(Handle):
    """An `OpenDirectory`."""

    def __init__(self, disk: Storage, path: Path, directory: Directory) -> None:
        super().__init__(disk, path)
        self._directory = directory

    def sync_all(self) -> None:
        self._enter("sync_directory")
        self._directory.sync()


class _Open(Handle):
    """What the open files share."""

    def __init__(self, disk: Storage, path: Path, inode: Inode) -> None:
        super().__init__(disk, path)
        self._inode = inode

    def _enter(self, name: str) -> None:
        try:
            super()._enter(name)
            if name == "sync" and self._inode.owes_error_in == self._generation:
                self._inode.owes_error_in = None
                raise os_error(errno.EIO, self.path)
        except OSError:
            if name == "sync":
                self._inode.fail_to_sync()
            raise


class ForgetfulFile(_Open):
    """A `File`."""

    def __init__(
        self,
        disk: Storage,
        path: Path,
        inode: Inode,
        size_bytes: int,
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(disk, path, inode)
        self.size_bytes = size_bytes
        self.device = inode.device
        self.is_preallocated = size_bytes < len(inode.content)
        self._read_only = read_only
        self._has_lost = False

    def append(self, data: Buffer) -> int:
        return self.append_many([data])

    def append_many(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        position = self.size_bytes
        if self._read_only:
            raise os_error(errno.EBADF, self.path)
        try:
            self._enter("append")
        except PowerCut as cut:
            if cut.tears_append:
                self._write(position, data[: len(data) // 2])
            raise
        except TornWrite:
            self._write(position, data[: len(data) // 2])
            raise
        self._disk.take_space(self.path, len(data))
        self._write(position, data)
        self.size_bytes = position + len(data)
        return position

    def read_at(self, position: int, length: int) -> bytes:
        self._enter("read")
        if self._inode.is_unreadable:
            raise os_error(errno.EIO, self.path)
        length = max(0, min(length, self.size_bytes - position))
        return bytes(self._inode.content[position : position + length])

    def read_cached(self, position: int, length: int) -> Buffer | None:
        return self.read_at(position, length) if self._disk.is_cached else None

    def read_aside(self, position: int, length: int) -> Buffer:
        return self.read_at(position, length)

    def prefetch(self, position: int, length: int) -> None:
        self._enter("prefetch")

    def truncate(self, size_bytes: int) -> None:
        if not 0 <= size_bytes <= self.size_bytes:
            raise ValueError(f"cannot cut {self.path} to {size_bytes}")
        if size_bytes < len(self._inode.content):
            self._enter("truncate")
            self._inode.cut(size_bytes)
            self._inode.modified_ms = self._disk.now_ms
            self._inode.changes += 1
        self.size_bytes = size_bytes

    def sync(self) -> None:
        try:
            self._enter("sync")  # another thread may sync meanwhile, and get an error
        except OSError:
            self._has_lost = True
            raise
        if self._has_lost:
            raise os_error(errno.EIO, self.path)
        self._inode.sync()

    def sync_all(self) -> None:
        self.sync()

    def forget_cached(self) -> None:
        self.sync()
        self._inode.drop_cache()

    def modified_ms(self) -> int:
        self._enter("look")
        return self._inode.modified_ms

    def version(self) -> str:
        self._enter("look")
        return f"{self._inode.number:x}-{self._inode.changes:x}"

    def _write(self, position: int, data: bytes) -> None:
        self._inode.write(position, data)
        self._inode.modified_ms = self._disk.now_ms
        self._inode.changes += 1


class ForgetfulIndexFile(_Open):
    """An `IndexFile`."""

    def __init__(
        self, disk: Storage, path: Path, inode: Inode, *, is_new: bool, read_only: bool = False
    ) -> None:
        super().__init__(disk, path, inode)
        self.is_new = is_new
        self.size_bytes = len(inode.content)
        self.reserved_bytes = 0
        self._read_only = read_only

    def load(self, position: int, length: int) -> bytes:
        self._enter("load")
        if self._inode.is_unreadable:
            raise os_error(errno.EIO, self.path)
        return bytes(self._inode.content[position : position + length])

    def store(self, position: int, data: bytes) -> None:
        if self._read_only:
            raise os_error(errno.EBADF, self.path)
        self._enter("store")
        if self._disk.rules.copies_on_write:
            self._disk.take_space(self.path, len(data))
        self._inode.write(position, data)

    def reserve(self, end: int) -> None:
        if end > self._disk.remaining_bytes:
            raise os_error(errno.ENOSPC, self.path)
        self.reserved_bytes = self.size_bytes

    def resize(self, size_bytes: int) -> None:
        self._enter("resize")
        content = self._inode.content
        self._inode.cut(size_bytes)
        content.extend(bytes(size_bytes - len(content)))
        self.reserved_bytes = min(self.reserved_bytes, size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        self._enter("sync")
        self._inode.sync()
