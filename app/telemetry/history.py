"""What the service did in the last 15 minutes: for screens that open now, without a scraper.

A sample every five seconds is a difference of counters, so its cost does not depend on the load.
What is kept of single topics is bounded: those with most bytes of each minute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple

from app.telemetry.metrics import BUCKETS_SECONDS, Counts, Telemetry
from engine.clock import Clock

INTERVAL_MS: Final = 5_000
SPAN_MS: Final = 900_000
MINUTE_MS: Final = 60_000

MAX_TOPICS_OF_MINUTE: Final = 1_000
"""Topics whose records are kept for each minute; the others are in the sums only."""

Buckets = Sequence[tuple[float, float]]
"""Cumulative counts of a histogram by upper bound in seconds."""


@dataclass(frozen=True, slots=True)
class Point:
    """What happened between two samples."""

    timestamp: int
    """End of the interval, epoch milliseconds."""
    duration_ms: int
    requests: int
    append_requests: int
    records_in: int
    bytes_in: int
    bytes_out: int
    append_p50_ms: float | None
    append_p99_ms: float | None
    commit_p99_ms: float | None
    readers: int
    """Long polls and tails at the end of the interval."""


class Minute(NamedTuple):
    """What was appended to the topics within a minute."""

    timestamp: int
    """Its end, epoch milliseconds."""
    topics: Mapping[str, Sequence[int]]
    """Records and bytes by topic, of those with most bytes."""


class _Sample(NamedTuple):
    at_ms: float
    counts: Counts
    commits: Buckets


class History:
    """The points and minutes. Belongs to the event loop; `start` and `stop` once."""

    def __init__(
        self,
        telemetry: Telemetry,
        clock: Clock,
        *,
        readers: Callable[[], int],
        commits: Callable[[], Buckets | None],
    ) -> None:
        self.points: deque[Point] = deque(maxlen=SPAN_MS // INTERVAL_MS)
        self.minutes: deque[Minute] = deque(maxlen=SPAN_MS // MINUTE_MS)
        self._telemetry = telemetry
        self._clock = clock
        self._readers = readers
        self._commits = commits
        self._last = self._sample()
        self._minute_began_ms = self._last.at_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Sample from now on."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self.look()
            self._timer = loop.call_later(INTERVAL_MS / 1000, tick)

        self._timer = loop.call_later(INTERVAL_MS / 1000, tick)

    def stop(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Add the point since the last one, and the minute if one has passed."""
        before, now = self._last, self._sample()
        self._last = now
        counts = now.counts.since(before.counts)
        self.points.append(
            Point(
                timestamp=self._clock.now_ms(),
                duration_ms=max(1, round(now.at_ms - before.at_ms)),
                requests=counts.requests,
                append_requests=counts.append_requests,
                records_in=counts.records_in,
                bytes_in=counts.bytes_in,
                bytes_out=counts.bytes_out,
                append_p50_ms=quantile_ms(_cumulated(counts.append_seconds), 0.5),
                append_p99_ms=quantile_ms(_cumulated(counts.append_seconds), 0.99),
                commit_p99_ms=quantile_ms(_less(now.commits, before.commits), 0.99),
                readers=self._readers(),
            )
        )
        if now.at_ms - self._minute_began_ms >= MINUTE_MS:
            self._minute_began_ms = now.at_ms
            self._end_minute()

    def _end_minute(self) -> None:
        grown = self._telemetry.take_minute()
        busiest = nlargest(MAX_TOPICS_OF_MINUTE, grown.items(), key=lambda one: one[1][1])
        self.minutes.append(Minute(self._clock.now_ms(), dict(busiest)))

    def _sample(self) -> _Sample:
        counts = self._telemetry.counts()
        commits = self._commits() or _cumulated(counts.flush_seconds)
        return _Sample(self._clock.monotonic_ms(), counts, commits)


def _cumulated(counts: Sequence[int]) -> Buckets:
    total = 0
    buckets = []
    for bound, count in zip((*BUCKETS_SECONDS, float("inf")), counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _less(after: Buckets, before: Buckets) -> Buckets:
    known = dict(before)
    return [(bound, count - known.get(bound, 0.0)) for bound, count in after]


def quantile_ms(buckets: Buckets, share: float) -> float | None:
    """Return a quantile, interpolated within its bucket as Prometheus does; None without any."""
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    rank = share * total
    at = next(index for index, (_, count) in enumerate(buckets) if count >= rank)
    upper, count = buckets[at]
    lower, below = buckets[at - 1] if at else (0.0, 0.0)
    inside = 0.0 if upper == float("inf") else (upper - lower) * (rank - below) / (count - below)
    return round(1000 * (lower + inside), 3)
