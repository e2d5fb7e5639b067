"""Guards between the verification of a transaction and the append of its first batch.

A coordinator adds a partition to a transaction before the append; the guard proves that the append
comes after that and before the end of the transaction. Mirrors Kafka's `VerificationStateEntry` and
`VerificationGuard`. Not thread-safe: the log's lock guards it.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import InvalidTransactionState
from engine.records.header import BatchHeader
from engine.state.producer_entry import ProducerEntry


class VerificationGuard:
    """An opaque value that proves one verification; it is compared by identity."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Pending:
    guard: VerificationGuard
    created_ms: int
    lowest_sequence: int
    producer_epoch: int


class Verifications:
    """The pending verifications, by producer id."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}

    def start(
        self, producer_id: int, *, sequence: int, producer_epoch: int, now_ms: int
    ) -> VerificationGuard:
        """Return the guard of this producer, created if necessary.

        A lower sequence of the same epoch lowers the stored one; a higher epoch replaces it, a
        lower one is ignored. The guard and its age stay.
        """
        known = self._pending.get(producer_id)
        if known is None:
            guard = VerificationGuard()
            self._pending[producer_id] = _Pending(guard, now_ms, sequence, producer_epoch)
            return guard
        newer = producer_epoch > known.producer_epoch
        earlier = producer_epoch == known.producer_epoch and sequence < known.lowest_sequence
        if newer or earlier:
            self._pending[producer_id] = _Pending(
                known.guard, known.created_ms, sequence, producer_epoch
            )
        return known.guard

    def is_proved_by(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether `guard` is the one issued for this producer."""
        known = self._pending.get(producer_id)
        return known is not None and known.guard is guard

    def ensure_proved(
        self, entry: ProducerEntry, header: BatchHeader, guard: VerificationGuard | None
    ) -> None:
        """Raise InvalidTransactionState if a transaction's first batch comes without its guard."""
        if (
            header.is_transactional
            and entry.transaction_first_offset is None
            and not self.is_proved_by(entry.producer_id, guard)
        ):
            raise InvalidTransactionState(
                f"producer {entry.producer_id} begins a transaction that was not verified",
                producer_id=entry.producer_id,
            )

    def lowest_sequence(self, producer_id: int) -> int | None:
        """Return the lowest stored sequence, or None if nothing is pending."""
        known = self._pending.get(producer_id)
        return known.lowest_sequence if known else None

    def clear(self, producer_id: int) -> None:
        """Drop the producer's verification: its transaction has a first batch, or ended."""
        self._pending.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drop verifications that were started at least `expiration_ms` ago, even if used since."""
        self._pending = {
            producer_id: pending
            for producer_id, pending in self._pending.items()
            if now_ms - pending.created_ms < expiration_ms
        }
