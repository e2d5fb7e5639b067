"""The files in a partition directory, listed and classified once when it is opened.

A start opens thousands of partitions, so a second listing of each would be expensive.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from engine.fs import names
from engine.fs.places import misplaced
from engine.fs.port import FileSystem


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files in a partition directory, tidelog's and others'; offsets and names ascend."""

    names: frozenset[str]
    base_offsets: tuple[int, ...]
    """The base offsets of the segments, which have a `.log` file."""
    snapshots: tuple[int, ...]
    """The offsets in the names of the producer snapshots."""
    orphans: tuple[str, ...]
    """Index files without a `.log` file."""
    leftovers: tuple[str, ...]
    """The leftovers of interrupted deletions and replacements; see `engine.log.open.leftovers`."""

    @classmethod
    def of(cls, fs: FileSystem, directory: Path) -> Self:
        """List a directory; InvalidDataDirectory if a file of ours is not a regular file."""
        files: list[str] = []
        base_offsets: list[int] = []
        snapshots: list[int] = []
        indexes: list[tuple[int, str]] = []
        leftovers: list[str] = []
        for name, _, is_file in fs.list_entries(directory):
            if not is_file:
                if names.is_of_a_log(name):
                    raise misplaced(directory / name)
                continue
            files.append(name)
            offset = names.base_offset_of(name)
            suffix = name[names.OFFSET_DIGITS :]
            if offset is None:
                continue
            if suffix == names.LOG_SUFFIX:
                base_offsets.append(offset)
            elif suffix == names.SNAPSHOT_SUFFIX:
                snapshots.append(offset)
            elif suffix in names.INDEX_SUFFIXES:
                indexes.append((offset, name))
            elif names.is_leftover(name):
                leftovers.append(name)
        segments = set(base_offsets)
        return cls(
            frozenset(files),
            tuple(base_offsets),
            tuple(snapshots),
            tuple(name for offset, name in indexes if offset not in segments),
            tuple(leftovers),
        )
