"""The files in a partition directory, listed and classified once when it is opened.

A start opens thousands of partitions, so a second listing of each would be expensive.

Deletions and replacements that a crash interrupted are finished or undone. `.deleted` files are
removed; if one has an end offset in its name, all segments below that offset are removed too.
`.cleaned` files are incomplete outputs: they are removed, together with the `.swap` files at or
above the lowest of them. Every other `.swap` file is complete and replaces its sources. These are
the first three passes of Kafka's `LogLoader`. "At or above" is correct because a replacement
renames its outputs in descending order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from engine.config import LogConfig
from engine.fs import names
from engine.fs.directories import misplaced
from engine.fs.port import FileSystem
from engine.log.files import LogContext
from engine.segment.segment import Segment

_LOG = logging.getLogger(__name__)


def finish_replacements(
    context: LogContext, directory: Path, config: LogConfig, leftovers: Iterable[str]
) -> None:
    """Leave only live files in the directory; `leftovers` are the others that were found."""
    fs = context.fs
    swaps: list[str] = []
    cleaned: list[str] = []
    leftovers = tuple(leftovers)
    _finish_removal(context, directory, leftovers)
    for name in leftovers:
        if name.endswith(names.DELETED_SUFFIX):
            fs.remove(directory / name)
        elif name.endswith(names.CLEANED_SUFFIX):
            cleaned.append(name)
        else:
            swaps.append(name)
    if not swaps and not cleaned:
        return
    incomplete_from = min(map(_offset, cleaned), default=None)
    valid = [name for name in swaps if incomplete_from is None or _offset(name) < incomplete_from]
    for name in (*(set(swaps) - set(valid)), *cleaned):
        _LOG.warning("%s: removing %s, left by an interrupted replacement", directory, name)
        fs.remove(directory / name)
    fs.sync_directory(directory)  # or a power cut could remove the outputs too
    _drop_replaced(context, directory, config, valid)
    fs.sync_directory(directory)  # or a replaced segment could come back beside its replacement
    for name in valid:
        target = names.without_suffix(name, names.SWAP_SUFFIX)
        fs.rename(directory / name, directory / target)
    fs.sync_directory(directory)


def _finish_removal(context: LogContext, directory: Path, leftovers: Iterable[str]) -> None:
    """Remove the segments of an interrupted removal; see `Maintenance.run_retention`.

    They are removed durably before the file whose name records the removal.
    """
    ends = (end for name in leftovers if (end := names.removal_end(name)) is not None)
    end_offset = max(ends, default=0)
    found = context.fs.list_directory(directory)
    left = [
        name
        for name in found
        if (offset := names.base_offset_of(name)) is not None
        and offset < end_offset
        and name[names.OFFSET_DIGITS :] in {names.LOG_SUFFIX, *names.INDEX_SUFFIXES}
    ]
    if left and names.log_name(end_offset) in found:
        for name in left:
            _LOG.warning("%s: removing %s, to finish an interrupted removal", directory, name)
            context.fs.remove(directory / name)
        context.fs.sync_directory(directory)


def _offset(name: str) -> int:
    offset = names.base_offset_of(name)
    assert offset is not None, name
    return offset


def _drop_replaced(
    context: LogContext, directory: Path, config: LogConfig, valid: list[str]
) -> None:
    """Remove the live files, snapshots included, in the offset range of the outputs."""
    log_swap = names.LOG_SUFFIX + names.SWAP_SUFFIX
    first, end = None, 0
    for name in valid:
        if name.endswith(log_swap):
            base_offset = _offset(name)
            segment = Segment(
                context.fs,
                directory,
                base_offset,
                config,
                now_ms=context.clock.now_ms(),
                suffix=names.SWAP_SUFFIX,
            )
            first = base_offset if first is None else min(first, base_offset)
            for _, header in segment.headers():  # without the index, which may be missing
                end = max(end, header.next_offset)
            segment.close_handles()
    if first is None:
        return
    for name in context.fs.list_directory(directory):
        offset = names.base_offset_of(name)
        if offset is None or name.endswith(names.SWAP_SUFFIX) or not first <= offset < end:
            continue
        context.fs.remove(directory / name)


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
    """The leftovers of interrupted deletions and replacements; see `finish_replacements`."""

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
