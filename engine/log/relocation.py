"""What a log hands over when it goes on in another data directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.log.results import Fetched
from engine.types import EpochOffset


class Standstill(NamedTuple):
    """A log at a moment in which nobody can change it."""

    log_start_offset: int
    end_offset: int
    epochs: Sequence[EpochOffset]
    snapshot: bytes
    """The producer state at the end, as in a file."""
    windows: bytes
    """The last batches of the producers, as in a file; empty if no producer has several."""
    read: Callable[[int, int], Fetched]
    """Return whole batches from an offset on, up to so many bytes, to the end of the log."""
