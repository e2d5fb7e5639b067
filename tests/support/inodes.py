"""What a disk in memory is made of: files and directories that forget, and open handles."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from engine.types import Buffer
from tests.support.machine import Machine, PowerCut, os_error

SECTOR_BYTES = 512
UNLIMITED = 1 << 50


class Storage(Machine):
    """A machine with a disk of limited size."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cached = True
        """Whether `read_cached` finds everything in memory, or nothing."""
        self.remaining_bytes = UNLIMITED
        """How much appends may still take."""
        self.now_ms = 0
        """What files get as their time of modification."""


@dataclass(eq=False)
class Inode:
    """A file without its names: what is written, and what of it would survive."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0
    number: int = field(default_factory=itertools.count().__next__)
    changes: int = 0  # how often it was written or cut
    lost_writes: bool = False  # a sync failed: the kernel believes that nothing is left to write

    def sync(self) -> None:
        if not self.lost_writes:
            self.durable = bytes(self.content)

    def after_power_cut(self, random: Random | None) -> bytes:
        """What is found: what was synced or, with `random`, in some sectors newer bytes."""
        if random is None or self.durable == self.content:
            return self.durable
        size = random.randint(
            min(len(self.durable), len(self.content)), max(len(self.durable), len(self.content))
        )
        found = bytearray(size)
        for start in range(0, size, SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, size)
            source = random.choice((self.durable, self.content))[start:end]
            found[start : start + len(source)] = source
        return bytes(found)


@dataclass(eq=False)
class Directory:
    """Names and what they lead to: every state since the last sync, the durable one first."""

    history: list[dict[str, Inode | Directory]] = field(default_factory=lambda: [{}])

    @property
    def names(self) -> dict[str, Inode | Directory]:
        return self.history[-1]

    def change(self, **names: Inode | Directory | None) -> None:
        """Set names, or remove those that are None, in one step: all of it or nothing."""
        after = {**self.names, **names}
        self.history.append({name: node for name, node in after.items() if node is not None})

    def sync(self) -> None:
        del self.history[:-1]


class _Open:
    """What an open file and a map share: they die with their process."""

    def __init__(self, disk: Storage, path: Path, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._generation = disk.generation
        self._is_open = True

    def _enter(self, name: str) -> None:
        if self._generation != self._disk.generation:
            raise PowerCut  # a thread of the process that is gone
        if not self._is_open:
            raise ValueError(f"{self.path} is closed")
        try:
            self._disk.enter(name, self.path)
        except OSError:
            self._inode.lost_writes |= name == "sync"
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
        self._read_only = read_only

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
        if len(data) > self._disk.remaining_bytes:
            raise os_error(errno.ENOSPC, self.path)
        self._disk.remaining_bytes -= len(data)
        self._write(position, data)
        self.size_bytes = position + len(data)
        return position

    def read_at(self, position: int, length: int) -> bytes:
        self._enter("read")
        length = max(0, min(length, self.size_bytes - position))
        return bytes(self._inode.content[position : position + length])

    def read_cached(self, position: int, length: int) -> Buffer | None:
        return self.read_at(position, length) if self._disk.is_cached else None

    def truncate(self, size_bytes: int) -> None:
        if not 0 <= size_bytes <= self.size_bytes:
            raise ValueError(f"cannot cut {self.path} to {size_bytes}")
        if size_bytes < len(self._inode.content):
            self._enter("truncate")
            del self._inode.content[size_bytes:]
            self._inode.modified_ms = self._disk.now_ms
            self._inode.changes += 1
        self.size_bytes = size_bytes

    def sync(self) -> None:
        self._enter("sync")
        self._inode.sync()

    def sync_all(self) -> None:
        self.sync()

    def modified_ms(self) -> int:
        return self._inode.modified_ms

    def version(self) -> str:
        return f"{self._inode.number:x}-{self._inode.changes:x}"

    def close(self) -> None:
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, position: int, data: bytes) -> None:
        self._inode.content[position : position + len(data)] = data
        self._inode.modified_ms = self._disk.now_ms
        self._inode.changes += 1


class ForgetfulMap(_Open):
    """A `MappedFile`: its buffer is the content of the file, as memory is."""

    def __init__(
        self,
        disk: Storage,
        path: Path,
        inode: Inode,
        *,
        is_new: bool,
        read_only: bool = False,
    ) -> None:
        super().__init__(disk, path, inode)
        self.is_new = is_new
        self.reserved_bytes = 0
        self._read_only = read_only
        self._map()

    def reserve(self, end: int) -> None:
        if end > self._disk.remaining_bytes:
            raise os_error(errno.ENOSPC, self.path)
        self.reserved_bytes = self.size_bytes

    def resize(self, size_bytes: int) -> None:
        self._enter("resize")
        self.buffer.release()
        content = self._inode.content
        del content[size_bytes:]
        content.extend(bytes(size_bytes - len(content)))
        self.reserved_bytes = min(self.reserved_bytes, size_bytes)
        self._map()

    def sync(self) -> None:
        self._enter("sync")
        self._inode.sync()

    def close(self) -> None:
        self._is_open = False
        self.buffer.release()

    def _map(self) -> None:
        view = memoryview(self._inode.content)
        self.buffer = view.toreadonly() if self._read_only else view
        self.size_bytes = len(view)
