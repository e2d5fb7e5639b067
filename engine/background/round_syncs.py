"""Commits the logs of one round: each with its own sync, or all of a data directory with one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Final

from engine.background.inline_rounds import InlineChoice
from engine.background.shared_sync import Outcome, SyncChoice, commit_together
from engine.fs.health import DirectoryHealth
from engine.log.log import Log

SYNCERS: Final = 8
"""How many logs are synced in parallel, if each is synced on its own."""


class RoundSyncs:
    """Chooses how a round is synced, and does it. One round at a time."""

    def __init__(self, *, max_inline_round_ms: int) -> None:
        self._choices: defaultdict[DirectoryHealth, SyncChoice] = defaultdict(SyncChoice)
        self._inline = InlineChoice(max_inline_round_ms)
        self._syncers = ThreadPoolExecutor(SYNCERS, thread_name_prefix="tidelog-sync")

    def close(self) -> None:
        """End the threads, after the last round."""
        self._syncers.shutdown()

    def can_run_inline(self, logs: Collection[Log]) -> bool:
        """Whether a thread that must not wait may commit these logs, because one sync is quick."""
        if not self._inline.is_inline or not all(log.durability.is_commit_small for log in logs):
            return False
        if len(logs) <= 1:
            return True
        first, *others = {log.durability.health for log in logs}
        return not others and self._choices[first].is_shared_cheaper(len(logs))

    def commit_inline(self, logs: Sequence[Log]) -> list[tuple[Log, Outcome]]:
        """Commit logs of one data directory with one sync; WouldBlock for a log that is busy."""
        started = perf_counter()
        if len(logs) == 1:
            commit = partial(logs[0].durability.commit, nonblocking=True)
            outcomes = [(logs[0], _outcome(commit))]
            seconds = perf_counter() - started
        else:
            health = logs[0].durability.health
            outcomes, seconds = commit_together(health, logs, nonblocking=True)
            self._choices[health].note_shared(perf_counter() - started)
        self._inline.note(seconds, was_inline=True)
        return outcomes

    def commit(self, logs: Sequence[Log]) -> list[tuple[Log, Outcome]]:
        """Commit the logs of each data directory with one sync, or each log with its own."""
        directories: dict[DirectoryHealth, list[Log]] = {}
        for log in logs:
            directories.setdefault(log.durability.health, []).append(log)
        outcomes: list[tuple[Log, Outcome]] = []
        waited = 0.0
        for health, members in directories.items():
            choice = self._choices[health]
            count = len(members)
            can_share = health.file_system is not None and count > 1
            started = perf_counter()
            if can_share and choice.is_shared(count):
                shared, seconds = commit_together(health, members)
                outcomes += shared
                choice.note_shared(perf_counter() - started)
            else:
                outcomes += self._commit_each(members)
                seconds = perf_counter() - started
                if can_share:
                    choice.note_each(count, seconds)
            waited += seconds
        self._inline.note(waited, was_inline=False)
        return outcomes

    def _commit_each(self, logs: Sequence[Log]) -> list[tuple[Log, Outcome]]:
        """Commit the logs in parallel, the first one on this thread."""
        first, *others = logs
        syncs = [(log, self._syncers.submit(log.durability.commit)) for log in others]
        outcomes = [(first, _outcome(first.durability.commit))]
        return outcomes + [(log, _outcome(sync.result)) for log, sync in syncs]


def _outcome(commit: Callable[[], int]) -> Outcome:
    try:
        return commit()
    except Exception as error:  # noqa: BLE001 - returned as the log's outcome
        return error
