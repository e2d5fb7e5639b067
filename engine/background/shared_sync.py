"""Syncs all logs of a round in one data directory with one call of syncfs(2).

syncfs(2) writes back everything that is dirty in the file system. For many logs that is faster than
a sync of each file; if another program writes a lot, it is much slower. `SyncChoice` compares the
recent cost of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final, TypeAlias

from engine.errors import StorageError
from engine.fs.health import DirectoryHealth
from engine.log.durability import Commit
from engine.log.log import Log

LOOK_AGAIN: Final = 64
"""After this many rounds with several logs the slower way is tried again."""

LOOK_AGAIN_AT_MOST: Final = 4_096
"""The interval doubles up to this while the other way stays slower."""

WEIGHT: Final = 0.25
"""The weight of the latest round in the average cost."""

Outcome: TypeAlias = int | Exception
"""A log's new high watermark, or why its commit failed."""


class SyncChoice:
    """Whether a round syncs the file system once, or each log; for one data directory.

    Only the flusher thread uses it.
    """

    def __init__(self) -> None:
        self._each_seconds: float | None = None
        """The average cost per log in rounds that synced each log."""
        self._shared_seconds: float | None = None
        """The average cost of a round that synced the file system."""
        self._interval = LOOK_AGAIN
        self._rounds = 0
        """The rounds since the slower way was tried."""

    def is_shared(self, logs_count: int) -> bool:
        """Return whether a round of `logs_count` logs syncs the file system.

        The first round syncs each, the second the file system, for comparison.
        """
        if self._each_seconds is None:
            return False
        if self._shared_seconds is None:
            return True
        is_cheaper = self.is_shared_cheaper(logs_count)
        self._rounds += 1
        if self._rounds < self._interval:
            return is_cheaper
        self._rounds = 0
        self._interval = min(2 * self._interval, LOOK_AGAIN_AT_MOST)
        return not is_cheaper

    def is_shared_cheaper(self, logs_count: int) -> bool:
        """Whether a sync of the file system was cheaper lately, if both ways were tried."""
        if self._each_seconds is None or self._shared_seconds is None:
            return False
        return self._shared_seconds <= self._each_seconds * logs_count

    def note_each(self, logs_count: int, seconds: float) -> None:
        """Record the cost of a round that synced each log."""
        self._each_seconds = _average(self._each_seconds, seconds / logs_count)

    def note_shared(self, seconds: float) -> None:
        """Record the cost of a sync of the file system."""
        self._shared_seconds = _average(self._shared_seconds, seconds)


def _average(before: float | None, latest: float) -> float:
    return latest if before is None else before + WEIGHT * (latest - before)


def commit_together(
    health: DirectoryHealth, logs: Sequence[Log], *, nonblocking: bool = False
) -> tuple[list[tuple[Log, Outcome]], float]:
    """Commit logs of one data directory with one sync of its file system.

    What that sync does not cover, a log whose segment is preallocated or that is a mount of its
    own, is committed by itself. Returns each outcome, and how many seconds the sync took.
    `nonblocking` as for a log's commit.
    """
    file_system = health.file_system
    assert file_system is not None
    outcomes: list[tuple[Log, Outcome]] = []
    begun: list[tuple[Log, Commit]] = []
    for log in logs:
        try:
            commit = log.durability.begin_commit(nonblocking=nonblocking)
            # It may have moved to another directory meanwhile.
            if commit.health is health and commit.order.is_covered_by(file_system):
                begun.append((log, commit))
            else:
                outcomes.append((log, log.durability.commit(nonblocking=nonblocking)))
        except Exception as error:  # noqa: BLE001 - it is that log's outcome
            outcomes.append((log, error))
    started = perf_counter()
    try:
        if begun:
            with health.syncing:
                file_system.sync_all()
    except StorageError as error:
        return [*outcomes, *((log, error) for log, _ in begun)], perf_counter() - started
    seconds = perf_counter() - started
    duration_ms: float | None = seconds * 1000
    for log, commit in begun:
        try:
            high_watermark = log.durability.end_commit(
                commit, duration_ms=duration_ms, nonblocking=nonblocking
            )
            outcomes.append((log, high_watermark))
            duration_ms = None
        except Exception as error:  # noqa: BLE001 - it is that log's outcome
            outcomes.append((log, error))
    return outcomes, seconds
