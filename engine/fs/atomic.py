"""Changes that are durable as a whole: a file that is replaced, a directory with its parents."""

from __future__ import annotations

from pathlib import Path

from engine.fs.filesystem import FileSystem
from engine.fs.names import TEMPORARY_SUFFIX


def replace_atomically(fs: FileSystem, target: Path, content: bytes) -> None:
    """Make `target` hold `content`; readers see the old file or the new one.

    That holds after a power cut too; Kafka's `CheckpointFile.write`. Only one thread at a time may
    replace a target. A crash can leave `<target>.tmp`, which the next call overwrites.
    """
    staging = target.with_name(target.name + TEMPORARY_SUFFIX)
    with fs.open_directory(target.parent) as directory:  # first, before any change
        with fs.open(staging, create=True) as file:
            file.truncate(0)  # a crash may have left content
            file.append(content)
            file.sync()
        fs.rename(staging, target)  # after the sync, or a power cut could leave an empty file
        directory.sync_all()  # until this returns, a power cut may undo the rename


def ensure_directory(fs: FileSystem, path: Path) -> None:
    """Create a directory and the parents that it lacks; a power cut removes none of them."""
    missing = [one for one in (path, *path.parents) if not fs.exists(one)]
    if missing:
        fs.make_directory(path, parents=True)
        for one in missing:
            fs.sync_directory(one.parent)
