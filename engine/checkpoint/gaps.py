"""Intended gaps between segments: `tidelog-segment-gaps` in a partition directory.

When a follower's log rolls, its next offset may jump ahead. After a crash that would look as if the
tail of the older segment were lost, and recovery would end the log there. Each line holds the end
of a segment, the base offset of the next one, and a CRC-32 of both. If the file is damaged, every
gap in the log is accepted, so that a flipped digit never removes records. The format is tidelog's;
Kafka ignores files that it does not know.
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
    """Offsets that were never assigned: [end_offset, base_offset)."""

    end_offset: int
    base_offset: int


def read_gaps(fs: FileSystem, path: Path) -> list[SegmentGap]:
    """Return the gaps, ascending; none if the file is missing.

    CorruptCheckpoint if it is damaged or empty: it is only ever written with a gap in it.
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
    """Add a gap at the end of the log, durably; drop the gaps above it, which were truncated.

    A damaged file is left as it is: a valid file without the lost gaps would deny them.
    """
    try:
        noted = read_gaps(fs, path)
    except CorruptCheckpoint as error:
        _LOG.warning("gap %s is not recorded: %s", tuple(gap), error)
        return
    kept = [one for one in noted if one.base_offset <= gap.end_offset]
    write_lines(fs, path, [(*one, _checksum(one)) for one in (*kept, gap)])


def _checksum(gap: SegmentGap) -> str:
    return f"{zlib.crc32(b'%d %d' % gap):08x}"
