"""Which syncs, renames and removals of folders this process asks the system for, in their order.

The engine's own tests count them on a disk in memory. The Spark job has only the real one, where
no test can cut the power: what it asks for, and when, is all that can be seen.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.fs import posix


class DiskCalls:
    """The calls of a block. A file is identified by its inode, because its name may change."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, int | str, str]] = []

    def note_sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        size = f" of {status.st_size} bytes" if stat.S_ISREG(status.st_mode) else ""
        self._calls.append(("sync", status.st_ino, size))

    def note_advice(self, descriptor: int, *_: int) -> None:
        """It is not passed on: advice changes nothing that can be seen."""
        self._calls.append(("advise", os.fstat(descriptor).st_ino, ""))

    def note(self, what: str, path: str) -> None:
        self._calls.append((what, path, ""))

    def below(self, folder: Path) -> list[str]:
        """Return the calls in their order, with paths below `folder` as they are now."""
        now = {path.stat().st_ino: path for path in (folder, *folder.rglob("*"))}
        return [f"{what} {_name(where, folder, now)}{size}" for what, where, size in self._calls]


def _name(where: int | str, folder: Path, now: Mapping[int, Path]) -> str:
    path = now.get(where, Path("gone")) if isinstance(where, int) else Path(where)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


@contextmanager
def disk_calls() -> Iterator[DiskCalls]:
    """Note the calls of the block, and make them."""
    calls = DiskCalls()

    def synced(call: Callable[[int], None]) -> Callable[[Any], None]:
        def sync(file: Any) -> None:
            descriptor = file if isinstance(file, int) else file.fileno()
            calls.note_sync(descriptor)
            call(descriptor)

        return sync

    def renamed(call: Callable[..., None]) -> Callable[..., None]:
        def rename(source: Any, target: Any, **options: Any) -> None:
            call(source, target, **options)
            calls.note("rename", os.fspath(target))

        return rename

    def removed(path: Any, **options: Any) -> None:
        rmdir(path, **options)
        if Path(path).is_absolute():  # else one on the way down, relative to an open folder
            calls.note("remove", os.fspath(path))

    rmdir = os.rmdir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posix, "_sync_data", synced(vars(posix)["_sync_data"]))
        patch.setattr(os, "fsync", synced(os.fsync))
        patch.setattr(posix, "_advise", calls.note_advice)
        for name in ("rename", "replace"):
            patch.setattr(os, name, renamed(getattr(os, name)))
        patch.setattr(os, "rmdir", removed)
        yield calls
