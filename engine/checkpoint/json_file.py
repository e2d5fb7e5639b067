"""The small JSON files of our own: one object with a version and a checksum, replaced atomically.

The checksum is that of what the object says, whatever the spacing. Without one a digit that changed
on the disk would be a retention time, or another log's id. A file that has none is believed: from
before there was one, or changed by hand.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from engine.checkpoint.lines import corrupt
from engine.fs.atomic import replace_atomically
from engine.fs.filesystem import FileSystem

VERSION_FIELD: Final = "version"
CHECKSUM_FIELD: Final = "checksum"


def read_json(
    fs: FileSystem, path: Path, version: int, fields: Collection[str]
) -> dict[str, object] | None:
    """Return the object in the file, of some of these fields; None if there is no file.

    CorruptCheckpoint if its checksum is wrong, or it is not an object of exactly this version and
    of nothing but these fields: a later program may have written something that we would lose.
    """
    try:
        content = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        found = json.loads(content)
        stored = found.pop(CHECKSUM_FIELD, None) if isinstance(found, dict) else None
        is_intact = stored is None or stored == _checksum(found)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get(VERSION_FIELD) != version:
        raise corrupt(path, f"it is not an object of version {version}")
    if not is_intact:
        hint = f"after a change by hand leave {CHECKSUM_FIELD!r} out"
        raise corrupt(path, f"the checksum of what it says is not {stored!r}; {hint}")
    unknown = sorted(found.keys() - {VERSION_FIELD, *fields})
    if unknown:
        raise corrupt(path, f"{unknown[0]!r} is nothing that it could say")
    return found


def write_json(fs: FileSystem, path: Path, version: int, fields: Mapping[str, object]) -> None:
    """Replace the file, durably; the caller sees to it that only one thread at a time does."""
    stored = {VERSION_FIELD: version, **fields}
    _replace(
        fs, path, json.dumps({**stored, CHECKSUM_FIELD: _checksum(stored)}, ensure_ascii=False)
    )


def write_texts(fs: FileSystem, path: Path, version: int, texts: Mapping[str, str]) -> None:
    """As `write_json`, of fields whose values are `canonical` already.

    For whoever keeps the texts of thousands of values of which one has changed.
    """
    fields = sorted({**texts, VERSION_FIELD: canonical(version)}.items())
    stored = ", ".join(f'"{name}": {text}' for name, text in fields)
    checksum = _checksum_of(f"{{{stored}}}")
    _replace(fs, path, f'{{{stored}, "{CHECKSUM_FIELD}": "{checksum}"}}')


def canonical(value: object) -> str:
    """Return the one spelling of a value that checksums are of."""
    return json.dumps(value, sort_keys=True)


def _replace(fs: FileSystem, path: Path, content: str) -> None:
    # Indented for people, but not by json: thousands of topics would take it a tenth of a second.
    replace_atomically(fs, path, f"{msgspec.json.format(content, indent=2)}\n".encode())


def _checksum(stored: Mapping[str, object]) -> str:
    return _checksum_of(canonical(stored))


def _checksum_of(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
