"""The text format of all checkpoint files: a version, a count, and that many lines.

    0
    2
    flights 0 1523
    flights 1 980

Kafka's `CheckpointFile`; docs/formats/checkpoints.md. Reading is strict: recovery relies on
checkpoints, and a file with one wrong line cannot be trusted in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine.errors import CorruptCheckpoint
from engine.fs.atomic import replace_atomically
from engine.fs.filesystem import FileSystem

VERSION: Final = 0

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def read_lines(fs: FileSystem, path: Path, field_count: int) -> list[list[str]]:
    """Return the fields of every line; none if the file is missing, empty or only has a version.

    CorruptCheckpoint if it differs, except in spacing, from what `write_lines` writes.
    """
    try:
        content = fs.read_bytes(path)
    except FileNotFoundError:
        return []
    return parse_lines(content, field_count, path)


def write_lines(fs: FileSystem, path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Replace the file; the caller allows only one thread at a time."""
    replace_atomically(fs, path, format_lines(rows))


def format_lines(rows: Iterable[Iterable[object]]) -> bytes:
    """Return the bytes of a file with these rows."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def parse_lines(content: bytes, field_count: int, path: Path) -> list[list[str]]:
    """Parse the bytes of a file; `path` is for the message of CorruptCheckpoint."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise corrupt(path, "it is not UTF-8 text") from error
    if not lines:
        return []
    if parse_number(lines[0], path) != VERSION:
        raise corrupt(path, f"its version is {lines[0]!r}, not {VERSION}")
    if len(lines) == 1:
        return []
    expected = parse_number(lines[1], path)
    if expected != len(lines) - 2:
        raise corrupt(path, f"it declares {expected} entries and has {len(lines) - 2}")
    rows = [line.split() for line in lines[2:]]
    for line, row in zip(lines[2:], rows, strict=True):
        if len(row) != field_count:
            raise corrupt(path, f"malformed line {line!r}")
    return rows


def parse_number(text: str, path: Path) -> int:
    """Read a decimal number of at most 64 bits; `path` is for the message of CorruptCheckpoint."""
    number = text.strip()  # `int` alone accepts fewer kinds of space
    if _NUMBER.fullmatch(number) is None:
        raise corrupt(path, f"{text!r} is not a number")
    return int(number)


def corrupt(path: Path, what: str) -> CorruptCheckpoint:
    """Return the error that every reader of this package raises."""
    return CorruptCheckpoint(f"{path} is corrupt: {what}", file=str(path))
