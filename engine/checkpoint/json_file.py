"""The small JSON files of our own: one object with a version, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.checkpoint.lines import corrupt
from engine.fs.atomic import replace_atomically
from engine.fs.filesystem import FileSystem


def read_json(fs: FileSystem, path: Path, version: int) -> dict[str, object] | None:
    """Return the object in the file; None if there is no file.

    CorruptCheckpoint if it is not an object of exactly this version: a later program may have
    written something that we would lose.
    """
    try:
        content = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("version") != version:
        raise corrupt(path, f"it is not an object of version {version}")
    return found


def write_json(fs: FileSystem, path: Path, version: int, fields: Mapping[str, object]) -> None:
    """Replace the file, durably; the caller sees to it that only one thread at a time does."""
    # Indented for people, but not by json: thousands of topics would take it a tenth of a second.
    content = json.dumps({"version": version, **fields}, ensure_ascii=False)
    replace_atomically(fs, path, f"{msgspec.json.format(content, indent=2)}\n".encode())
