"""How much is measured: the defaults take minutes, tests take less."""

from __future__ import annotations

from pathlib import Path

import msgspec

MB = 1_000_000
GIB = 1 << 30


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of one run, and the folder on the disk to be measured."""

    folder: Path
    segments: int = 1_000
    """Appends are compared between the first segment and this one."""
    large_bytes: int = 2 * GIB
    """The log that look-ups are made in; a release is measured with 10 GB."""
    small_bytes: int = 10 * MB
    """The log they are compared with."""
    tail_bytes: int = GIB
    """What recovery has to scan."""
    partitions: int = 1_000
    """How many are opened after a clean stop."""
    compacted_megabytes: int = 200
    """What is compacted, each time."""
