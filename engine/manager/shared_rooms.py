"""What all logs may hold together: sealed segments, and producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from engine.config import EngineConfig
from engine.log.log import Log
from engine.scheduler import Scheduler
from engine.state.shared_room import SharedRoom

RECOUNT_DELAY_MS: Final = 100
"""What the logs hold is counted so soon after it may have become too much."""

KEPT_PERCENT: Final = 90
"""How many of `max_producers` are kept when the oldest have to go."""

_LOG = logging.getLogger(__name__)


class SharedRooms:
    """The rooms that logs take from, and the work that counts what is held."""

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
        """Count what is held now."""
        self._count_segments()
        self._count_producers()

    def _count_segments(self) -> None:
        self.sealed.restock(sum(log.reader.segments_count - 1 for log in self._logs()))

    def _count_producers(self) -> None:
        """Count, and forget the producers that have been idle for longest if there are too many."""
        logs, room = self._logs(), self.producers
        excess = sum(log.producers.count for log in logs) - room.limit * KEPT_PERCENT // 100
        if excess > 0:
            idle = sorted(entry.idle for log in logs for entry in log.producers.active())
            for log in logs if idle else ():
                log.producers.forget_idle(idle[min(excess, len(idle)) - 1])
            _LOG.warning("%s: forgot the %d producers idle for longest", room.name, excess)
        room.restock(sum(log.producers.count for log in logs))
