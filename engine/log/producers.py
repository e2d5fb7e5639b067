"""The producers of one log, for callers."""

from __future__ import annotations

from engine.log.core import LogCore
from engine.state.producer_entry import Idle, ProducerEntry


class LogProducers:
    """The log's producer state. Thread-safe."""

    def __init__(self, core: LogCore) -> None:
        self._core = core

    @property
    def count(self) -> int:
        """The number of producers in the state, expired ones included."""
        return len(self._core.state.producers)

    @property
    def highest_id(self) -> int:
        """The greatest producer id that the state has seen; -1 if none."""
        return self._core.state.producers.highest_producer_id

    def active(self) -> tuple[ProducerEntry, ...]:
        """Return the producers that are not expired, by id."""
        with self._core.lock:
            core = self._core
            return core.state.producers.active_producers(core.context.clock.now_ms())

    def expire(self) -> int:
        """Remove expired producers; return how many."""
        with self._core.lock:
            core = self._core
            return core.state.producers.expire(core.context.clock.now_ms())

    def forget_idle(self, last: Idle) -> None:
        """Remove the producers that have been idle for at least as long as `last`."""
        with self._core.lock:
            self._core.state.producers.forget_idle(last)
