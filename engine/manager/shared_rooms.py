"""The limits that all logs share: sealed segments and producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from engine.config import EngineConfig
from engine.log.log import Log
from engine.scheduler import Scheduler
from engine.state.producer_table import SharedRoom

RECOUNT_DELAY_MS: Final = 100
"""How soon the logs are counted after a limit may have been reached."""

KEPT_PERCENT: Final = 90
"""How many of `max_producers` are kept when the longest idle ones expire."""

_LOG = logging.getLogger(__name__)


class SharedRooms:
    """The shared limits, and the task that counts their use."""

    def __init__(
        self, config: EngineConfig, scheduler: Scheduler, logs: Callable[[], Sequence[Log]]
    ) -> None:
        self._logs = logs
        later = partial(scheduler.once, delay_ms=RECOUNT_DELAY_MS)
        self.sealed = SharedRoom(
            "max_sealed_segments",
            config.max_sealed_segments,
            lambda: later("count-segments", work=self._count_segments),
        )
        self.producers = SharedRoom(
            "max_producers",
            config.max_producers,
            lambda: later("count-producers", work=self._count_producers),
        )

    def count(self) -> None:
        """Count the present use."""
        self._count_segments()
        self._count_producers()

    def _count_segments(self) -> None:
        self.sealed.restock(sum(log.reader.segments_count - 1 for log in self._logs()))

    def _count_producers(self) -> None:
        """Count the producers; expire the longest idle ones if there are too many."""
        logs, room = self._logs(), self.producers
        excess = sum(log.producers.count for log in logs) - room.limit * KEPT_PERCENT // 100
        if excess > 0:
            idle = sorted(entry.idle for log in logs for entry in log.producers.active())
            for log in logs if idle else ():
                log.producers.forget_idle(idle[min(excess, len(idle)) - 1])
            _LOG.warning("%s: expired the %d longest idle producers", room.name, excess)
        room.restock(sum(log.producers.count for log in logs))
