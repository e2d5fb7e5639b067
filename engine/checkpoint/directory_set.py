"""Which data directories belong together: `tidelog-directories.json` in each of them.

Without it, a start that is given all directories but one would recreate that one's partitions,
empty. Each directory has an id, so that it is recognized under another path. A log that has only
ever had one directory has no such file. The format is tidelog's; Kafka ignores the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.checkpoint.json_file import read_json, write_json
from engine.checkpoint.lines import corrupt
from engine.fs.names import DIRECTORIES_FILE
from engine.fs.port import FileSystem

VERSION: Final = 1

_FIELDS: Final = ("id", "set", "generation", "directories")
_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class DirectorySet:
    """The id of one directory, and the ids and paths of all directories of its log."""

    own_id: str
    set_id: str
    """The id of the set: the same in all directories, even when some are added or removed."""
    generation: int
    """Incremented with each change; if copies differ, the highest generation wins."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Where each directory was last seen, by id, this one included."""


def read_directory_set(fs: FileSystem, directory: Path) -> DirectorySet | None:
    """Return the content of the file; None if it is missing. CorruptCheckpoint if it is damaged."""
    path = directory / DIRECTORIES_FILE
    content = read_json(fs, path, VERSION, _FIELDS)
    if content is None:
        return None
    own_id, set_id, generation, paths = map(content.get, _FIELDS)
    if not (
        _is_id(own_id)
        and _is_id(set_id)
        and isinstance(generation, int)
        and isinstance(paths, dict)
        and own_id in paths
        and all(_is_id(one) and isinstance(seen, str) for one, seen in paths.items())
    ):
        raise corrupt(path, "ids, generation or directories are malformed")
    return DirectorySet(str(own_id), str(set_id), generation, paths)


def write_directory_set(fs: FileSystem, directory: Path, known: DirectorySet) -> None:
    """Replace the file, durably."""
    fields = {
        "set": known.set_id,
        "generation": known.generation,
        "id": known.own_id,
        "directories": dict(sorted(known.paths.items())),
    }
    write_json(fs, directory / DIRECTORIES_FILE, VERSION, fields)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None
