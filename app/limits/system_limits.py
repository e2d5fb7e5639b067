"""What the system allows the process to have, and how many partitions that is enough for.

A log maps two indexes of the segment that it appends to. An append that cannot map its index is
refused, as one that can open no file is.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

from app.limits.admission import allowed_files
from engine.errors import PolicyViolation
from engine.fs.port import MAX_SMALL_FILE_BYTES

MAPS_OF_PARTITION: Final = 3
"""Those of the active segment, and one for the readers of older ones."""

SPARE_MAPS: Final = 4_096
"""Left to the interpreter, its threads and its memory."""

MAP_LIMIT: Final = "vm.max_map_count"

_ALLOWED_MAPS: Final = Path("/proc/sys/vm/max_map_count")
_UNLIMITED: Final = 1 << 53
"""JSON has no larger integers that every reader understands."""


def system_limits() -> dict[str, int]:
    """Return the limits that are not settings, without those that the system does not set."""
    limits = {
        "open_files": allowed_files(),
        "memory_maps": allowed_maps(),
        "max_small_file_bytes": MAX_SMALL_FILE_BYTES,
    }
    return {name: limit for name, limit in limits.items() if limit < _UNLIMITED}


def allowed_maps() -> int:
    """Return how many maps a process may have; a system that has no such limit sets none."""
    with contextlib.suppress(FileNotFoundError):
        return int(_ALLOWED_MAPS.read_text())
    return sys.maxsize


def spare_maps(partitions: int) -> int:
    """Return how many more maps there may be when all partitions are appended to."""
    return allowed_maps() - partitions * MAPS_OF_PARTITION - SPARE_MAPS


def ensure_maps(partitions: int, existing: int) -> None:
    """Raise PolicyViolation unless so many more partitions can map the indexes they append to."""
    spare = spare_maps(existing)
    if partitions * MAPS_OF_PARTITION > spare:
        raise PolicyViolation(
            f"{partitions} partitions more need {MAPS_OF_PARTITION} memory maps each, and "
            f"{max(spare, 0)} can still be made; raise {MAP_LIMIT}",
            limit="memory_maps",
        )
