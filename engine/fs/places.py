"""Files where files belong: a directory in the place of one is nobody's to remove or to guess."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.errors import InvalidDataDirectory
from engine.fs.port import FileSystem


def ensure_files(fs: FileSystem, directory: Path, names: Iterable[str]) -> None:
    """Raise InvalidDataDirectory if one of the names, which are of files, is of a directory."""
    for name in names:
        path = directory / name
        if fs.is_directory(path):
            raise misplaced(path)


def misplaced(path: Path) -> InvalidDataDirectory:
    """Return the error for a directory that has the name of a file."""
    return InvalidDataDirectory(
        f"{path} is a directory where a file belongs; move it out of the data directory",
        name=path.name,
        file=str(path),
    )
