"""An offset and a time looked up in a large log, beside the same in a small one.

Places are spread over the whole large log, and the worst of them counts. Each is visited once
before it is timed: what is compared are searches, not the disk.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.engine.logs import MB, RECORD_BYTES, Sizes, fill, open_log
from bench.figures import Figure
from engine.config import LogConfig
from engine.log.log import Log

_BATCH_BYTES: Final = 16 * 1024
_RECORDS_A_BATCH: Final = _BATCH_BYTES // RECORD_BYTES
_PLACES: Final = 16
_LOOKUPS_A_PLACE: Final = 100
_REPEATS: Final = 5
_CEILING_PERCENT: Final = 150
_US: Final = 1e6


class _Filled:
    """A log of one size, in which everything can be looked up by the number of its batch."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.log: Log = open_log(folder, LogConfig())
        self._first_ms = fill(self.log, size_bytes, _BATCH_BYTES)
        self.batches_count = self.log.watermarks.log_end_offset // _RECORDS_A_BATCH

    def by_offset(self, batch: int) -> None:
        """Read the batch, from an offset in its middle."""
        offset = batch * _RECORDS_A_BATCH + _RECORDS_A_BATCH // 2
        assert self.log.reader.read(offset, max_bytes=1) is not None, "it may touch the disk"

    def by_time(self, batch: int) -> None:
        """Find the first record of the batch by its time."""
        found = self.log.reader.offset_for_time(self._first_ms + batch)
        assert found is not None, "every batch has a time of its own"
        assert found.offset == batch * _RECORDS_A_BATCH, "and a millisecond each"


def measure_lookups(sizes: Sizes) -> list[Figure]:
    """Build both logs and compare look-ups in them, by offset and by time."""
    large = _Filled(sizes.folder / "large", sizes.large_bytes)
    small = _Filled(sizes.folder / "small", sizes.small_bytes)
    size = (
        f"{large.log.reader.size_bytes / MB:,.0f} MB ÷ {small.log.reader.size_bytes / MB:,.0f} MB"
    )
    figures = [
        _compare(f"look-up by offset, {size}", large, small, _Filled.by_offset),
        _compare(f"look-up by time, {size}", large, small, _Filled.by_time),
    ]
    large.log.maintenance.close_handles()
    small.log.maintenance.close_handles()
    return figures


def _compare(
    name: str, large: _Filled, small: _Filled, look_up: Callable[[_Filled, int], None]
) -> Figure:
    """Return the worst ratio of all places; the small log is timed anew beside each."""
    chance = random.Random(1)
    ratios: list[tuple[float, float, int]] = []
    for place in range(_PLACES):
        start = large.batches_count * place // _PLACES
        stop = max(start + 1, large.batches_count * (place + 1) // _PLACES)
        there = [chance.randrange(start, stop) for _ in range(_LOOKUPS_A_PLACE)]
        here = [chance.randrange(small.batches_count) for _ in range(_LOOKUPS_A_PLACE)]
        large_seconds, small_seconds = _costs(large, there, small, here, look_up)
        ratios.append((large_seconds / small_seconds, large_seconds, place))
    worst, seconds, place = max(ratios)
    middle = statistics.median(ratio for ratio, _, _ in ratios)
    note = (
        f"{seconds * _US:.1f} µs at place {place + 1} of {_PLACES}, the worst; "
        f"the median of the places is {100 * middle:.0f} %"
    )
    return Figure(name, 100 * worst, "%", _CEILING_PERCENT, is_ceiling=True, note=note)


def _costs(
    large: _Filled,
    there: list[int],
    small: _Filled,
    here: list[int],
    look_up: Callable[[_Filled, int], None],
) -> tuple[float, float]:
    """Return the CPU seconds of the median look-up in each log.

    They take turns, look-up by look-up: whatever slows the machine down meanwhile meets both.
    """
    pairs = [
        (_best(large, far, look_up), _best(small, near, look_up))
        for far, near in zip(there, here, strict=True)
    ]
    return statistics.median(far for far, _ in pairs), statistics.median(near for _, near in pairs)


def _best(filled: _Filled, number: int, look_up: Callable[[_Filled, int], None]) -> float:
    """Return the least that one look-up took of some, all but the first of which count."""
    look_up(filled, number)
    best = float("inf")
    for _ in range(_REPEATS):
        started = time.thread_time()
        look_up(filled, number)
        best = min(best, time.thread_time() - started)
    return best
