"""Refuses data directories in which something else has the name of a regular file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.errors import InvalidDataDirectory
from engine.fs.port import FileSystem


def ensure_files(fs: FileSystem, directory: Path, names: Iterable[str]) -> None:
    """Raise InvalidDataDirectory if one of the names exists and is not a regular file."""
    for name in names:
        path = directory / name
        if fs.is_misplaced(path):
            raise misplaced(path)


def misplaced(path: Path) -> InvalidDataDirectory:
    """Return the error for a path that should be a regular file and is not."""
    return InvalidDataDirectory(
        f"{path} is not a regular file; move it out of the data directory",
        name=path.name,
        file=str(path),
    )
