"""What a batch costs in the first segments of a log, and when there are a thousand of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Final

from bench.engine.logs import Sizes, batches, open_log
from bench.figures import Figure
from engine.config import LogConfig
from engine.log.log import Log

_BATCH_BYTES: Final = 4 * 1024
_SEGMENT_BYTES: Final = 256 * 1024
_LONGEST_WINDOW: Final = 100
_CEILING_PERCENT: Final = 120
_US: Final = 1e6


def measure_appends(sizes: Sizes) -> list[Figure]:
    """Fill segments of a new log and of one with many in turn; compare the medians.

    In turn, so that both meet the machine in the same mood; medians, since a roll makes files, and
    the system takes its time for that now and then.
    """
    config = LogConfig(segment_bytes=_SEGMENT_BYTES)
    source = batches(_BATCH_BYTES)
    new, old = (open_log(sizes.folder / name, config) for name in ("new", "old"))
    window = max(1, min(_LONGEST_WINDOW, sizes.segments // 2))
    while old.reader.segments_count < sizes.segments - window // 2:
        old.append(next(source))
    pairs = [(_fill_segment(new, source), _fill_segment(old, source)) for _ in range(window)]
    new.maintenance.close_handles()
    old.maintenance.close_handles()
    first, last = (statistics.median(costs) for costs in zip(*pairs, strict=True))
    figure = Figure(
        f"append in segment {sizes.segments:,} ÷ in the first",
        100 * last / first,
        "%",
        _CEILING_PERCENT,
        is_ceiling=True,
        note=(
            f"{first * _US:.1f} µs and {last * _US:.1f} µs for a batch of {_BATCH_BYTES:,} bytes, "
            f"its share of the roll included; medians of {window} segments"
        ),
    )
    return [figure]


def _fill_segment(log: Log, source: Iterator[bytearray]) -> float:
    """Append until the log rolls; return the mean seconds of an append."""
    count = log.reader.segments_count
    appended = 0
    spent = 0.0
    while log.reader.segments_count == count:
        batch = next(source)
        started = time.perf_counter()
        log.append(batch)
        spent += time.perf_counter() - started
        appended += 1
    return spent / appended
