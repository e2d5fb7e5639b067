"""The producers of one log, as callers see them."""

from __future__ import annotations

from engine.log.core import LogCore
from engine.state.producer_entry import Idle, ProducerEntry
from engine.state.verification import VerificationGuard


class LogProducers:
    """What the log remembers of its producers. Thread-safe."""

    def __init__(self, core: LogCore) -> None:
        self._core = core

    @property
    def count(self) -> int:
        """The number of producers that the state remembers, expired ones included."""
        return len(self._core.state.producers)

    @property
    def highest_id(self) -> int:
        """The greatest id that ever wrote here, as far as the state remembers; -1 if none."""
        return self._core.state.producers.highest_producer_id

    def active(self) -> tuple[ProducerEntry, ...]:
        """Return the producers that are not expired, by id."""
        with self._core.lock:
            core = self._core
            return core.state.producers.active_producers(core.context.clock.now_ms())

    def expire(self) -> int:
        """Forget idle producers; return how many."""
        with self._core.lock:
            core = self._core
            return core.state.producers.expire(core.context.clock.now_ms())

    def forget_idle(self, last: Idle) -> None:
        """Forget the producers that have been idle for as long as this one, or longer."""
        with self._core.lock:
            self._core.state.producers.forget_idle(last)

    def start_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int
    ) -> VerificationGuard | None:
        """Return the guard for the first batch of a transaction; None if it is open already.

        A coordinator asks before it decides that this log takes part, and the append follows: a
        marker that came in between has cleared the guard. `sequence` is that of the batch; no
        other batch may overtake it. Kafka's `maybeStartTransactionVerification`.
        """
        with self._core.lock:
            self._core.ensure_open()
            return self._core.state.producers.start_verification(
                producer_id, sequence=sequence, producer_epoch=producer_epoch
            )
