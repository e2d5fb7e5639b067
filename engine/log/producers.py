"""The producers of one log, for callers."""

from __future__ import annotations

from engine.log.core import LogCore
from engine.state.producer_entry import Idle, ProducerEntry
from engine.state.verification import VerificationGuard


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

    def start_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int
    ) -> VerificationGuard | None:
        """Return the guard for the first batch of a transaction; None if one is open already.

        A coordinator calls it before it adds this log to the transaction; the append follows. A
        marker in between clears the guard. `sequence` is that of the batch, which no later batch
        may overtake. Kafka's `maybeStartTransactionVerification`.
        """
        with self._core.lock:
            self._core.ensure_open()
            return self._core.state.producers.start_verification(
                producer_id, sequence=sequence, producer_epoch=producer_epoch
            )
