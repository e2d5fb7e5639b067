"""Finish or abandon what a crash interrupted: deletions and replacements of segments.

`.deleted` files go; one with an end offset in its name says that all segments below it were to go
as well, and those that are left do. `.cleaned` files are outputs that were never complete, and with
them go the `.swap` files at or above the lowest of them; every other `.swap` file is complete and
takes the place of what it replaces. The first three passes of Kafka's `LogLoader`; the descending
order in which a replacement renames its outputs is what makes "at or above" right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from engine.config import LogConfig
from engine.fs import names
from engine.log.context import LogContext
from engine.segment.segment import Segment

_LOG = logging.getLogger(__name__)


def finish_replacements(
    context: LogContext, directory: Path, config: LogConfig, leftovers: Iterable[str]
) -> None:
    """Leave a directory of live files only; `leftovers` are all that were found in it."""
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
    fs.sync_directory(directory)  # or a power cut could take the outputs' names as well
    _drop_replaced(context, directory, config, valid)
    fs.sync_directory(directory)  # or what was dropped could come back beside what replaces it
    for name in valid:
        target = names.without_suffix(name, names.SWAP_SUFFIX)
        fs.rename(directory / name, directory / target)
    fs.sync_directory(directory)


def _finish_removal(context: LogContext, directory: Path, leftovers: Iterable[str]) -> None:
    """Remove the segments that were to go with an older one; see `Maintenance.run_retention`.

    They are gone durably before the file that says so.
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
            _LOG.warning("%s: removing %s, which was to go with older ones", directory, name)
            context.fs.remove(directory / name)
        context.fs.sync_directory(directory)


def _offset(name: str) -> int:
    offset = names.base_offset_of(name)
    assert offset is not None, name
    return offset


def _drop_replaced(
    context: LogContext, directory: Path, config: LogConfig, valid: list[str]
) -> None:
    """Remove the live files, snapshots too, in the range of offsets that the outputs cover."""
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
