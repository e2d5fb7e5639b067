"""Replacing a whole file: one of the two verbs of durability; the other is append and sync."""

from __future__ import annotations

from pathlib import Path

from engine.fs.filesystem import FileSystem
from engine.fs.names import TEMPORARY_SUFFIX


def replace_atomically(fs: FileSystem, target: Path, content: bytes) -> None:
    """Make `target` hold `content`: a reader sees the old file or the new one.

    Whenever the power fails; Kafka's `CheckpointFile.write`. Only one thread at a time may
    replace one target. A crash can leave `<target>.tmp` behind; the next call overwrites it.
    """
    staging = target.with_name(target.name + TEMPORARY_SUFFIX)
    with fs.open_directory(target.parent) as directory:  # for want of files nothing has happened
        with fs.open(staging, create=True) as file:
            file.truncate(0)  # what a crash may have left
            file.append(content)
            file.sync()
        fs.rename(staging, target)  # synced, or a power cut could leave the name on no content
        directory.sync_all()  # until this returns, a power cut may undo the rename
