"""An index whose file was resized and could not be mapped again.

Before Python 3.13 a map has its own descriptor. It is released before the file is resized, and
another thread may take it. Such an index raised ValueErrors from then on: an append got one after
its write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.fs.filesystem import PosixFileSystem
from engine.index.offset import OffsetIndex
from engine.types import OffsetPosition
from tests.support.filesystem import ForgetfulDisk
from tests.support.inodes import UNLIMITED
from tests.support.machine import os_error

BASE = 100
MAX_BYTES = 80
ENTRIES = [OffsetPosition(BASE + number, 10 * number) for number in range(1, 4)]

Resize = Callable[[OffsetIndex], object]


def trimmed(index: OffsetIndex) -> None:
    index.trim()


def emptied(index: OffsetIndex) -> None:
    index.trim()
    index.restore_max_size()


@pytest.mark.parametrize("resize", [trimmed, emptied], ids=["shorter", "longer"])
def test_a_lost_map_is_made_again(
    resize: Resize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the next look; no entry is missing, and more can be appended, synced and trimmed."""
    index = OffsetIndex(PosixFileSystem(), tmp_path / "index", BASE, MAX_BYTES)
    for entry in ENTRIES[:2]:
        index.append(*entry)
    if resize is emptied:
        index.trim()

    def too_many(*_: object, **__: object) -> None:
        raise os_error(errno.EMFILE, index.path)

    with monkeypatch.context() as patched:
        patched.setattr("engine.fs.posix_files.mmap", too_many)
        with pytest.raises(OSError, match="Too many open files"):
            resize(index)
        with pytest.raises(OSError, match="Too many open files"):
            index.lookup(BASE + 2)
    assert index.lookup(BASE + 2) == ENTRIES[1]
    index.restore_max_size()
    index.append(*ENTRIES[2])
    index.sync()
    assert list(index.entries()) == ENTRIES
    index.close()
    assert index.path.stat().st_size == len(ENTRIES) * 8


def test_what_was_stored_in_a_lost_map_is_synced() -> None:
    """An index without a map could be a resting one, with nothing to sync."""
    disk = ForgetfulDisk()
    path = Path("/index")
    index = OffsetIndex(disk, path, BASE, MAX_BYTES)
    disk.sync_directory(path.parent)
    index.append(*ENTRIES[0])
    disk.remaining_files = 0
    with pytest.raises(OSError, match="Too many open files"):
        index.trim()
    assert index.is_resting
    with pytest.raises(OSError, match="Too many open files"):
        index.open_to_sync()
    disk.remaining_files = UNLIMITED
    index.open_to_sync()
    disk.remaining_files = 0
    index.sync()
    index.open_to_sync()
    disk.restart()
    assert next(iter(OffsetIndex(disk, path, BASE, MAX_BYTES).entries())) == ENTRIES[0]


def test_a_file_that_grew_and_could_not_be_mapped_is_opened_with_its_new_length() -> None:
    """The index of the active segment grows with the first entry after a start.

    It was corrupt from then on: its file was not as long as the index remembered.
    """
    disk = ForgetfulDisk()
    index = OffsetIndex(disk, Path("/index"), BASE, MAX_BYTES)
    index.append(*ENTRIES[0])
    index.trim()
    index.sync()
    index.rest()
    index.restore_max_size()
    disk.remaining_files, disk.lack = 1, errno.ENOMEM
    with pytest.raises(OSError, match="Cannot allocate memory"):
        index.reserve_next()
    disk.remaining_files = UNLIMITED
    index.append(*ENTRIES[1])
    assert list(index.entries()) == ENTRIES[:2]
