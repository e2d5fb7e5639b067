"""Open files and memory maps: the system's limits, and how many partitions they allow.

A log has files open and maps two indexes of its active segment. It refuses an append that cannot
open a file or map an index.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Final

from engine.errors import PolicyViolation
from engine.fs.port import MAX_SMALL_FILE_BYTES

FILES_OF_PARTITION: Final = 6
"""Open files of a new partition: those of the first segment, and one spare."""

SPARE_FILES: Final = 256
"""Reserved for rolls, checkpoints and connections when partitions are created."""

_OPEN_FILES: Final = Path("/proc/self/fd")
"""A directory with one entry per open file."""

MAPS_OF_PARTITION: Final = 3
"""Maps of the active segment, and one for readers of older segments."""

SPARE_MAPS: Final = 4_096
"""Reserved for the interpreter, its threads and its memory."""

MAP_LIMIT: Final = "vm.max_map_count"

_ALLOWED_MAPS: Final = Path("/proc/sys/vm/max_map_count")
_UNLIMITED: Final = 1 << 53
"""The largest integer that every JSON parser represents exactly."""


def system_limits() -> dict[str, int]:
    """Return the limits that are not settings, without those that the system does not have."""
    limits = {
        "open_files": allowed_files(),
        "memory_maps": allowed_maps(),
        "max_small_file_bytes": MAX_SMALL_FILE_BYTES,
    }
    return {name: limit for name, limit in limits.items() if limit < _UNLIMITED}


def spare_files(existing: int) -> int:
    """Return how many more files may be opened when all existing partitions are appended to.

    Negative if there are too few for these: an idle partition has a single file open. Not for the
    event loop: it may list the open files.
    """
    return allowed_files() - max(_open_files(), existing * FILES_OF_PARTITION) - SPARE_FILES


def _open_files() -> int:
    """Return how many files the process has open; a list of thousands takes milliseconds."""
    with contextlib.suppress(FileNotFoundError):  # not Linux
        count = _OPEN_FILES.stat().st_size
        if count:  # since Linux 6.2
            return count
    with os.scandir("/dev/fd") as found:
        return sum(1 for _ in found)


def allowed_files() -> int:
    """Return how many files the process may have open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return files % sys.maxsize  # -1: unlimited


def allowed_maps() -> int:
    """Return how many maps a process may have; a system that has no such limit sets none."""
    with contextlib.suppress(FileNotFoundError):
        return int(_ALLOWED_MAPS.read_text())
    return sys.maxsize


def spare_maps(partitions: int) -> int:
    """Return how many more maps there may be when all partitions are appended to."""
    return allowed_maps() - partitions * MAPS_OF_PARTITION - SPARE_MAPS


def ensure_partitions(more: int, existing: int) -> None:
    """Raise PolicyViolation unless files and maps remain after `more` partitions.

    Without them a log cannot create its next segment, and refuses appends. Not for the event loop:
    it may list the open files.
    """
    for needed, spare, limit, remedy in (
        (
            FILES_OF_PARTITION,
            spare_files(existing),
            "open_files",
            "the open file limit (ulimit -n)",
        ),
        (MAPS_OF_PARTITION, spare_maps(existing), "memory_maps", MAP_LIMIT),
    ):
        if more * needed > spare:
            raise PolicyViolation(
                f"{more} more partitions need {needed} {limit.replace('_', ' ')} each, and "
                f"{max(spare, 0)} are left; raise {remedy}",
                limit=limit,
            )
