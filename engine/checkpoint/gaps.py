"""Gaps between segments that nobody lost: `tidelog-segment-gaps` in a partition directory.

A follower's log may jump ahead in the moment it rolls. After a crash that looks as if the tail of
the older segment were lost, and recovery would end the log there. A line says where a segment ended
and where the next one began instead. Ours; Kafka leaves files that it does not know alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.lines import parse_number, read_lines, write_lines
from engine.fs.port import FileSystem


class SegmentGap(NamedTuple):
    """Offsets that never were, [end_offset, base_offset): a segment begins with the latter."""

    end_offset: int
    base_offset: int


def read_gaps(fs: FileSystem, path: Path) -> list[SegmentGap]:
    """Return the gaps, ascending; none if there is no file. CorruptCheckpoint if it is damaged."""
    return [
        SegmentGap(parse_number(end_offset, path), parse_number(base_offset, path))
        for end_offset, base_offset in read_lines(fs, path, 2)
    ]


def note_gap(fs: FileSystem, path: Path, gap: SegmentGap) -> None:
    """Add a gap at the end of the log, durably; those that lay above were truncated."""
    earlier = [one for one in read_gaps(fs, path) if one.base_offset <= gap.end_offset]
    write_lines(fs, path, [*earlier, gap])
