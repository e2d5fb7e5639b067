"""Where a test of the file system's port works."""

from dataclasses import dataclass
from pathlib import Path

from engine.fs.port import FileSystem


@dataclass(frozen=True)
class Place:
    """A file system and an empty directory on it."""

    fs: FileSystem
    directory: Path

    def __truediv__(self, name: str) -> Path:
        return self.directory / name

    def write(self, name: str, content: bytes) -> Path:
        with self.fs.open(self / name, create=True) as file:
            file.append(content)
        return self / name
