"""Who may write to an archive: one data directory, and of its processes the latest.

A writer has a number: that of its claim under `writers/`, a numbered document. The claim has a
random token, which the data directory keeps too, in `tidelog-archive.json`; it is written there
first, so that a crash between the two cannot lock a directory out of its own archive. A directory
that does not know the latest token is another one: a restored one, an old copy, or a stranger.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.archive.documents import Documents, Overtaken
from engine.archive.store import ArchiveFenced, ObjectStore
from engine.checkpoint.kafka_files import corrupt
from engine.checkpoint.tidelog_files import read_json, write_json
from engine.fs.names import ARCHIVE_FILE
from engine.fs.port import FileSystem

_VERSION: Final = 1
_FIELD: Final = "tokens"
WRITERS: Final = "writers/"


def read_tokens(fs: FileSystem, directory: Path) -> tuple[str, ...]:
    """Return the tokens by which a data directory knows its archive; CorruptCheckpoint."""
    path = directory / ARCHIVE_FILE
    content = read_json(fs, path, _VERSION, (_FIELD,))
    tokens = [] if content is None else content.get(_FIELD)
    if not isinstance(tokens, list) or not all(isinstance(one, str) for one in tokens):
        raise corrupt(path, "its tokens are not texts")
    return tuple(tokens)


def write_tokens(fs: FileSystem, directory: Path, tokens: Sequence[str]) -> None:
    """Replace the tokens, durably."""
    write_json(fs, directory / ARCHIVE_FILE, _VERSION, {_FIELD: list(tokens)})


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write: the number of the writer."""

    writer: int
    is_new_owner: bool
    """Whether another data directory had the archive before, so that it must be told."""


def claim(
    store: ObjectStore, fs: FileSystem, directories: Sequence[Path], *, take_over: bool, now_ms: int
) -> Claim:
    """Become the writer of an archive; an empty one is for everybody.

    Raises ArchiveFenced if it belongs to another data directory, unless `take_over`,
    StoreUnavailable, ArchiveDamaged, OSError, CorruptCheckpoint.
    """
    known = {token for directory in directories for token in read_tokens(fs, directory)}
    claims = Documents(store, WRITERS)
    while True:
        newest = claims.load()
        previous = "" if newest is None else str(newest.fields.get("token"))
        is_ours = newest is None or previous in known
        if not is_ours and not take_over:
            raise ArchiveFenced(
                f"{store.url} is the archive of another data directory. To keep it, choose another "
                "URL or folder for this one. If this directory was restored from it, or replaces "
                "the other one, start once with --archive-take-over: the other one can then write "
                "no more"
            )
        token = uuid.uuid4().hex
        for directory in directories:
            write_tokens(fs, directory, [previous, token] if is_ours and previous else [token])
        writer = claims.next_number
        try:
            claims.write(writer, {"token": token, "claimed_ms": now_ms})
        except Overtaken:
            continue  # by a process that no longer lives, or a copy of this directory
        return Claim(writer, is_new_owner=not is_ours)
