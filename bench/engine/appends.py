"""What a batch costs in the first segments of a log, and when there are a thousand of them."""

from __future__ import annotations

import statistics
import time
from typing import Final

from bench.engine.logs import batches, open_log
from bench.engine.sizes import Sizes
from bench.figures import Figure
from engine.config import LogConfig

_BATCH_BYTES: Final = 4 * 1024
_SEGMENT_BYTES: Final = 256 * 1024
_LONGEST_WINDOW: Final = 100
_CEILING_PERCENT: Final = 120
_US: Final = 1e6


def measure_appends(sizes: Sizes) -> list[Figure]:
    """Fill segment after segment; compare the median cost of a batch at either end, rolls included.

    A roll makes a file, and the system takes its time for that now and then: hence the median over
    segments.
    """
    log = open_log(sizes.folder / "appends", LogConfig(segment_bytes=_SEGMENT_BYTES))
    source = batches(_BATCH_BYTES)
    costs: list[float] = []
    window = max(1, min(_LONGEST_WINDOW, sizes.segments // 2))
    while len(costs) < sizes.segments:
        count = log.segments_count
        appended = 0
        spent = 0.0
        while log.segments_count == count:
            batch = next(source)
            started = time.perf_counter()
            log.append(batch)
            spent += time.perf_counter() - started
            appended += 1
        costs.append(spent / appended)
    log.close_handles()
    first = statistics.median(costs[:window])
    last = statistics.median(costs[-window:])
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
