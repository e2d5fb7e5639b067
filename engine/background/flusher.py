"""Which logs are due for a flush: decisions over plain numbers, without I/O or a clock.

Kafka flushes on `flush.messages` and `flush.ms` alone and leaves the rest to the operating system.
In tidelog only synced records are visible, so every log is flushed within the commit interval;
Kafka's two settings can only shorten that.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Final, Generic, TypeVar

from engine.config import LogConfig

LogT = TypeVar("LogT", bound=Hashable)

URGENT_PER_ROUND: Final = 64
"""Most urgent logs in one round: with more, the first of them would wait for too many syncs."""

OVERDUE_PER_ROUND: Final = 16
"""Most logs without waiters in one round: urgent ones go first again in the next round."""


def flush_deadline_ms(config: LogConfig, *, commit_interval_ms: int, now_ms: int) -> int:
    """Return when bytes appended at `now_ms` must be on disk if no caller waits for them."""
    return now_ms + min(commit_interval_ms, config.flush_ms)


class FlushQueue(Generic[LogT]):
    """The logs with bytes that are not on disk yet; guarded by the committer's lock.

    Each log is queued once: as urgent if a caller waits, otherwise with the deadline of its oldest
    unsynced byte.
    """

    def __init__(self) -> None:
        self._urgent: dict[LogT, None] = {}  # a dict for its order: first come, first served
        self._deadlines: dict[LogT, int] = {}

    def __len__(self) -> int:
        return len(self._urgent) + len(self._deadlines)

    @property
    def urgent(self) -> Collection[LogT]:
        """The logs that a caller waits for."""
        return self._urgent.keys()

    def is_waiting(self, log: LogT) -> bool:
        """Whether the log is already queued."""
        return log in self._deadlines or log in self._urgent

    def add_urgent(self, log: LogT) -> None:
        """Queue the log for the next round."""
        self._deadlines.pop(log, None)
        self._urgent[log] = None

    def add(self, log: LogT, deadline_ms: int) -> None:
        """Queue the log for a flush by `deadline_ms`; an earlier deadline stays."""
        if log not in self._urgent and deadline_ms < self._deadlines.get(log, deadline_ms + 1):
            self._deadlines[log] = deadline_ms

    def take_round(self, now_ms: int) -> list[LogT]:
        """Take the logs of the next round: the urgent ones, then those past their deadline."""
        if not self._deadlines and len(self._urgent) <= URGENT_PER_ROUND:
            return self.take_all()
        overdue = [log for log, deadline in self._deadlines.items() if deadline <= now_ms]
        overdue.sort(key=self._deadlines.__getitem__)
        del overdue[OVERDUE_PER_ROUND:]
        for log in overdue:
            del self._deadlines[log]
        return self.take_urgent() + overdue

    def take_urgent(self) -> list[LogT]:
        """Take the logs that a caller waits for, as many as one round takes."""
        chosen = list(self._urgent)[:URGENT_PER_ROUND]
        for log in chosen:
            del self._urgent[log]
        return chosen

    def take_all(self) -> list[LogT]:
        """Take every log, due or not."""
        chosen = [*self._urgent, *self._deadlines]
        self._urgent.clear()
        self._deadlines.clear()
        return chosen

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the ms until the next log is due; None if no log is queued."""
        if self._urgent:
            return 0
        if not self._deadlines:
            return None
        return max(0, min(self._deadlines.values()) - now_ms)
