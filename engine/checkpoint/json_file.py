"""tidelog's small JSON files: one object with a version and a checksum, replaced atomically.

The checksum covers the values, not the spacing. Without it, a digit that changed on the disk could
pass for another retention time or topic id. A file without a checksum is accepted: it was edited by
hand, or written by a version that had none.
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
    """Return the object in the file, which has only these fields; None if the file is missing.

    CorruptCheckpoint if its checksum is wrong, its version is another one, or it has other fields:
    a later version may have written something that the next write would lose.
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
        hint = f"after an edit by hand, remove {CHECKSUM_FIELD!r}"
        raise corrupt(path, f"the checksum of its content is not {stored!r}; {hint}")
    unknown = sorted(found.keys() - {VERSION_FIELD, *fields})
    if unknown:
        raise corrupt(path, f"the field {unknown[0]!r} is not known")
    return found


def write_json(fs: FileSystem, path: Path, version: int, fields: Mapping[str, object]) -> None:
    """Replace the file durably; the caller allows only one thread at a time."""
    stored = {VERSION_FIELD: version, **fields}
    _replace(
        fs, path, json.dumps({**stored, CHECKSUM_FIELD: _checksum(stored)}, ensure_ascii=False)
    )


def write_texts(fs: FileSystem, path: Path, version: int, texts: Mapping[str, str]) -> None:
    """As `write_json`, with values that are `canonical` text already.

    For callers that keep the texts of thousands of values, of which one has changed.
    """
    fields = sorted({**texts, VERSION_FIELD: canonical(version)}.items())
    stored = ", ".join(f'"{name}": {text}' for name, text in fields)
    checksum = _checksum_of(f"{{{stored}}}")
    _replace(fs, path, f'{{{stored}, "{CHECKSUM_FIELD}": "{checksum}"}}')


def canonical(value: object) -> str:
    """Return the canonical JSON text of a value, which checksums cover."""
    return json.dumps(value, sort_keys=True)


def _replace(fs: FileSystem, path: Path, content: str) -> None:
    # Indented for people by msgspec: `json` would take 100 ms for thousands of topics.
    replace_atomically(fs, path, f"{msgspec.json.format(content, indent=2)}\n".encode())


def _checksum(stored: Mapping[str, object]) -> str:
    return _checksum_of(canonical(stored))


def _checksum_of(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
