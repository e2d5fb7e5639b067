"""Open files: the system's limit, and how many partitions it allows.

A log refuses an append that cannot open a file.
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

_UNLIMITED: Final = 1 << 53
"""The largest integer that every JSON parser represents exactly."""


def system_limits() -> dict[str, int]:
    """Return the limits that are not settings, without those that the system does not have."""
    limits = {
        "open_files": allowed_files(),
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


def ensure_partitions(more: int, existing: int) -> None:
    """Raise PolicyViolation unless files remain after `more` partitions.

    Without them a log cannot create its next segment, and refuses appends. Not for the event loop:
    it may list the open files.
    """
    spare = spare_files(existing)
    if more * FILES_OF_PARTITION > spare:
        raise PolicyViolation(
            f"{more} more partitions need {FILES_OF_PARTITION} open files each, and "
            f"{max(spare, 0)} are left; raise the open file limit (ulimit -n)",
            limit="open_files",
        )
