"""Leader epochs of one log and the first offset of each: `leader-epoch-checkpoint`.

Kafka's `LeaderEpochCheckpointFile`. `engine.state.epochs` interprets the entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from engine.checkpoint.lines import corrupt, parse_number, read_lines, write_lines
from engine.fs.filesystem import FileSystem
from engine.types import INT32_MAX, INT64_MAX, EpochOffset


def read_epochs(fs: FileSystem, path: Path) -> list[EpochOffset]:
    """Return the entries, ascending; none if the file is missing.

    CorruptCheckpoint if the file is damaged or its epochs or offsets do not strictly ascend.
    """
    entries = [
        EpochOffset(parse_number(epoch, path), parse_number(start_offset, path))
        for epoch, start_offset in read_lines(fs, path, 2)
    ]
    for entry in entries:
        if not (0 <= entry.epoch <= INT32_MAX and 0 <= entry.start_offset <= INT64_MAX):
            raise corrupt(path, f"{tuple(entry)} is out of range")
    for earlier, later in pairwise(entries):
        if earlier.epoch >= later.epoch or earlier.start_offset >= later.start_offset:
            raise corrupt(path, f"{tuple(later)} does not follow {tuple(earlier)}")
    return entries


def write_epochs(fs: FileSystem, path: Path, entries: Iterable[EpochOffset]) -> None:
    """Replace the file durably; the caller allows only one thread at a time.

    FileNotFoundError if the partition's directory was renamed meanwhile.
    """
    write_lines(fs, path, entries)
