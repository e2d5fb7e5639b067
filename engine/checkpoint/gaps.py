"""Gaps between segments that nobody lost: `tidelog-segment-gaps` in a partition directory.

A follower's log may jump ahead in the moment it rolls. After a crash that looks as if the tail of
the older segment were lost, and recovery would end the log there. A line says where a segment ended
and where the next one began instead, with a CRC-32 of both: of a log whose gaps are not known for
sure every gap passes, so a digit that has changed costs no record. Ours; Kafka leaves files that it
does not know alone.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.lines import corrupt, parse_number, read_lines, write_lines
from engine.errors import CorruptCheckpoint
from engine.fs.port import FileSystem

_LOG = logging.getLogger(__name__)


class SegmentGap(NamedTuple):
    """Offsets that never were, [end_offset, base_offset): a segment begins with the latter."""

    end_offset: int
    base_offset: int


def read_gaps(fs: FileSystem, path: Path) -> list[SegmentGap]:
    """Return the gaps, ascending; none if there is no file.

    CorruptCheckpoint if it is damaged, or empty: it is made for a gap.
    """
    gaps: list[SegmentGap] = []
    for end_offset, base_offset, checksum in read_lines(fs, path, 3):
        gap = SegmentGap(parse_number(end_offset, path), parse_number(base_offset, path))
        if checksum != _checksum(gap):
            raise corrupt(path, f"the checksum of {tuple(gap)} is not {checksum}")
        gaps.append(gap)
    if not gaps and fs.exists(path):
        raise corrupt(path, "it has no lines")
    return gaps


def note_gap(fs: FileSystem, path: Path, gap: SegmentGap) -> None:
    """Add a gap at the end of the log, durably; those that lay above were truncated.

    A damaged file is left as it is: one that looks sound would disown the gaps it has lost.
    """
    try:
        noted = read_gaps(fs, path)
    except CorruptCheckpoint as error:
        _LOG.warning("%s is not noted: %s", tuple(gap), error)
        return
    kept = [one for one in noted if one.base_offset <= gap.end_offset]
    write_lines(fs, path, [(*one, _checksum(one)) for one in (*kept, gap)])


def _checksum(gap: SegmentGap) -> str:
    return f"{zlib.crc32(b'%d %d' % gap):08x}"
