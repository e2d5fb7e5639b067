"""A disk with a volatile cache, as a file of a FUSE file system: what is not flushed can be lost.

Run as a program: `volatile_disk.py MOUNT SIZE_BYTES OUT`. At SIGUSR1 the power is cut: of what was
written after the last flush each block survives or not, as a seed decides; the result goes to OUT.
Later writes go nowhere.
"""

import errno
import os
import signal
import stat
import sys
import threading
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

BLOCK_BYTES = 4096


class VolatileDisk:
    """The content of the disk, and what its blocks held at the last flush."""

    def __init__(self, size_bytes: int) -> None:
        self.content = bytearray(size_bytes)
        self._unflushed: dict[int, bytes] = {}
        self._is_cut = False
        self._lock = threading.Lock()

    def read(self, position: int, length: int) -> bytes:
        with self._lock:
            return bytes(self.content[position : position + length])

    def write(self, position: int, data: bytes) -> None:
        with self._lock:
            if self._is_cut:
                return
            for block in range(
                position // BLOCK_BYTES, (position + len(data) - 1) // BLOCK_BYTES + 1
            ):
                start = block * BLOCK_BYTES
                self._unflushed.setdefault(block, bytes(self.content[start : start + BLOCK_BYTES]))
            self.content[position : position + len(data)] = data

    def flush(self) -> None:
        with self._lock:
            self._unflushed.clear()

    def cut(self, random: Random) -> None:
        """Cut the power: each block that was not flushed is lost or not."""
        with self._lock:
            self._is_cut = True
            chance = random.choice((0.5, 1))
            for block, before in self._unflushed.items():
                if random.random() < chance:
                    start = block * BLOCK_BYTES
                    self.content[start : start + BLOCK_BYTES] = before


def folder_of(disk: VolatileDisk) -> Any:
    """Return the operations of a file system that has the disk as its only file."""
    from mfusepy import (  # type: ignore[import-not-found]  # noqa: PLC0415  # fetched for this
        FuseOSError,
        Operations,
    )

    class Folder(Operations):  # type: ignore[misc]  # without types
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path == "/disk":
                size_bytes = len(disk.content)
                return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size_bytes}
            raise FuseOSError(errno.ENOENT)

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", "disk"]

        def open(self, path: str, flags: int) -> int:
            return 3

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return disk.read(offset, size)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            disk.write(offset, data)
            return len(data)

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            disk.flush()
            return 0

        def flush(self, path: str, fh: int) -> int:
            return 0

    return Folder()


def serve(mount: Path, size_bytes: int, out: Path) -> None:
    """Serve the disk as the file `disk` below the mount until it is unmounted."""
    from mfusepy import FUSE  # noqa: PLC0415 - fetched for this alone

    disk = VolatileDisk(size_bytes)

    def cut() -> None:
        disk.cut(Random(os.getpid()))
        part = out.with_suffix(".part")
        part.write_bytes(disk.content)
        part.rename(out)

    def begin_cut(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=cut).start()

    signal.signal(signal.SIGUSR1, begin_cut)
    FUSE(folder_of(disk), str(mount), foreground=True, nothreads=True, allow_other=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
