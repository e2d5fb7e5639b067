"""Group commit: appends run on their callers' threads, and one round syncs them all.

An append is a write into the page cache under its log's lock, which takes about a microsecond. The
next round syncs each such log once, however many appends wait for it. Only one round runs at a
time; while it is syncing, all new appends share the next one. An append costs no queue entry and no
hand-over between threads: its log is noted in a dictionary.

Two choices are made from what rounds have cost lately. Who runs a round: the flusher thread, or,
while a round is shorter than a hand-over to that thread and back, the thread that asks for it
(`InlineChoice`). And how many logs of one data directory are synced: each on its own, or all with
one syncfs(2), which writes back everything that is dirty in the file system (`SyncChoice`).

What is durable of one log is in `engine.log.durability`. LevelDB's `DBImpl::Write`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Final, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

from engine.clock import Clock
from engine.config import EngineConfig, LogConfig
from engine.errors import EngineError, Overloaded, StorageError, StorageOffline, WouldBlock
from engine.fs.health import DirectoryHealth
from engine.log.durability import Commit
from engine.log.log import Log
from engine.log.results import Appended, LogTag
from engine.records.budget import DecodeBudget
from engine.types import AppendOrigin, Buffer

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
LogT = TypeVar("LogT", bound=Hashable)

AGAIN_MS: Final = 500
"""How long a log waits whose commit was refused because too many files are open."""

SYNCERS: Final = 8
"""How many logs are synced in parallel, if each is synced on its own."""

URGENT_PER_ROUND: Final = 64
"""Most urgent logs in one round: with more, the first of them would wait for too many syncs."""

OVERDUE_PER_ROUND: Final = 16
"""Most logs without waiters in one round: urgent ones go first again in the next round."""

LOOK_AFTER: Final = 4
"""The rounds of the flusher after which a round may be inline again."""

LOOK_AFTER_AT_MOST: Final = 4_096
"""The interval doubles up to this while fewer than `LASTING` inline rounds are quick in a row."""

LASTING: Final = 16
"""After so many quick inline rounds, a slow one is an exception."""

LOOK_AGAIN: Final = 64
"""After this many rounds with several logs the slower way is tried again."""

LOOK_AGAIN_AT_MOST: Final = 4_096
"""The interval doubles up to this while the other way stays slower."""

WEIGHT: Final = 0.25
"""The weight of the latest round in the average cost."""

Outcome: TypeAlias = int | Exception
"""A log's new high watermark, or why its commit failed."""

OnCommit: TypeAlias = Callable[[Sequence[tuple[Log, int]]], None]
"""Called once a round with the logs that were synced and their new high watermarks."""

OnFailure: TypeAlias = Callable[[Sequence[Log], StorageError], None]
"""Called for logs whose sync failed: their high watermark will not move again before a restart."""


class AppendOptions(TypedDict, total=False):
    """The options of `Log.append`."""

    origin: AppendOrigin
    checked: bool
    expected_end_offset: int | None
    expected_tag: LogTag | None
    nonblocking: bool
    budget: DecodeBudget | None


class Committer:
    """Appends to logs and commits what was appended. Thread-safe.

    `on_commit` and `on_failure` are called by the thread that runs a round, and must neither block
    nor raise. The committer's own lock guards the queue. No other lock is taken under it, and it is
    never held during a write or a sync. What rounds cost is recorded by the thread that runs one.
    """

    def __init__(
        self, config: EngineConfig, clock: Clock, on_commit: OnCommit, on_failure: OnFailure
    ) -> None:
        self._commit_interval_ms = config.commit_interval_ms
        self._clock = clock
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._queue: FlushQueue[Log] = FlushQueue()
        self._inline = InlineChoice(config.max_inline_round_ms)
        self._choices: defaultdict[DirectoryHealth, SyncChoice] = defaultdict(SyncChoice)
        self._syncers = ThreadPoolExecutor(SYNCERS, thread_name_prefix="tidelog-sync")
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """Of that lock, which is taken directly where nothing waits."""
        self._is_in_round = False
        self._stopping = False
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="tidelog-flusher", daemon=True)

    def start(self) -> None:
        """Start the flusher thread."""
        self._thread.start()

    def stop(self) -> None:
        """Flush everything that is pending, then end the thread. May be called again.

        Appends are refused from now on; those under way on other threads are still committed. If
        the thread was never started, the flush runs on the calling thread.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        elif not self._finished:
            self._run()
        self._syncers.shutdown()

    def append(
        self,
        log: Log,
        data: Buffer,
        *,
        acks_all: bool,
        wakes: bool = True,
        **options: Unpack[AppendOptions],
    ) -> Appended:
        """Append batches on the calling thread and have them committed.

        With `acks_all` the next round commits it; otherwise it is committed within the commit
        interval. Returns before the commit: to wait for it, compare the high watermark that
        `on_commit` passes with the end of what was appended. Without `wakes` the caller must call
        `wake` soon, once for many appends. Raises what `Log.append` raises, and Overloaded once
        stopped.
        """
        if self._stopping:
            raise Overloaded("the log is being closed and takes no more appends")
        appended = log.append(data, **options)
        marks = appended.watermarks
        if appended.last_offset < marks.high_watermark:
            return appended  # a duplicate that is on disk
        unflushed = marks.log_end_offset - marks.high_watermark
        is_urgent = acks_all or unflushed >= log.config.flush_messages
        with self._lock:
            if self._finished:  # this append lost the race against `stop`
                raise StorageOffline(
                    "the log was closed before the append could be committed", has_begun=True
                )
            if is_urgent:
                self._queue.add_urgent(log)
            elif self._queue.is_waiting(log):
                return appended
            else:
                deadline_ms = flush_deadline_ms(
                    log.config,
                    commit_interval_ms=self._commit_interval_ms,
                    now_ms=self._clock.monotonic_ms(),
                )
                self._queue.add(log, deadline_ms)
            if wakes or not acks_all:
                self._changed.notify()
        return appended

    def wake(self) -> None:
        """Have committed what was appended with `wakes=False`.

        If one quick sync is enough, it is committed on return, and the listener was called on this
        thread. Otherwise the flusher starts a round.
        """
        with self._lock:
            is_free = not self._is_in_round and not self._stopping
            if not (is_free and self._is_quick()):
                self._changed.notify()
                return
            logs = self._queue.take_urgent()
            self._is_in_round = bool(logs)
        if logs:
            self._run_round(logs, is_inline=True)

    def _is_quick(self) -> bool:
        """Whether a thread that must not wait may commit the urgent logs: one sync is quick."""
        logs = self._queue.urgent
        if not self._inline.is_inline:
            return False
        for log in logs:
            if not log.durability.is_commit_small:
                return False
        if len(logs) <= 1:
            return True
        first, *others = {log.durability.health for log in logs}
        return not others and self._choices[first].is_shared_cheaper(len(logs))

    def run_round(self) -> bool:
        """Commit what is due on the calling thread, as one round of the flusher; False if nothing.

        For callers that have not started the thread and drive the committer themselves.
        """
        with self._lock:
            logs = self._queue.take_round(self._clock.monotonic_ms())
            self._is_in_round = bool(logs)
        if logs:
            self._run_round(logs)
        return bool(logs)

    def _run(self) -> None:
        while (logs := self._next_round()) is not None:
            self._run_round(logs)

    def _next_round(self) -> list[Log] | None:
        """Wait until logs are due and take them; None when stopping and nothing is left."""
        with self._changed:
            while not self._stopping:
                wait_ms: int | None = None
                if not self._is_in_round:  # else its end wakes this thread
                    now_ms = self._clock.monotonic_ms()
                    if logs := self._queue.take_round(now_ms):
                        self._is_in_round = True
                        return logs
                    wait_ms = self._queue.wait_ms(now_ms)
                self._changed.wait(None if wait_ms is None else wait_ms / 1000)
            while self._is_in_round:
                self._changed.wait()
            logs = self._queue.take_all()
            self._finished = not logs
            self._is_in_round = bool(logs)
            return logs or None

    def _run_round(self, logs: Sequence[Log], *, is_inline: bool = False) -> None:
        """Commit the logs of a round that has begun, report each outcome, and end it."""
        committed: list[tuple[Log, int]] = []
        refused: list[tuple[Log, Overloaded]] = []
        try:
            for log, outcome in self._commit_inline(logs) if is_inline else self._commit(logs):
                if isinstance(outcome, int):
                    committed.append((log, outcome))
                elif isinstance(outcome, Overloaded):
                    refused.append((log, outcome))
                elif isinstance(outcome, WouldBlock):
                    # Another thread holds it: the end of this round starts the flusher's.
                    with self._lock:
                        self._queue.add_urgent(log)
                else:  # one log's failure must not end the thread
                    self._fail(log, outcome)
            if committed:
                self._tell(self._on_commit, committed)
            if refused:
                self._postpone(refused)
        finally:
            with self._lock:
                self._is_in_round = False
                if self._queue.urgent or self._queue.deadlines or self._stopping:
                    self._changed.notify()

    def _commit_inline(self, logs: Sequence[Log]) -> Sequence[tuple[Log, Outcome]]:
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

    def _commit(self, logs: Sequence[Log]) -> Sequence[tuple[Log, Outcome]]:
        """Commit the logs of each data directory with one sync, or each log with its own."""
        directories: defaultdict[DirectoryHealth, list[Log]] = defaultdict(list)
        for log in logs:
            directories[log.durability.health].append(log)
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

    def _commit_each(self, logs: Sequence[Log]) -> Sequence[tuple[Log, Outcome]]:
        """Commit the logs in parallel, the first one on this thread."""
        first, *others = logs
        syncs = [(log, self._syncers.submit(log.durability.commit)) for log in others]
        outcomes = [(first, _outcome(first.durability.commit))]
        return outcomes + [(log, _outcome(sync.result)) for log, sync in syncs]

    def _postpone(self, refused: Sequence[tuple[Log, Overloaded]]) -> None:
        """Queue the logs again whose commit was refused; nothing of them was synced."""
        if self._stopping:
            for log, error in refused:
                self._fail(
                    log, StorageOffline(f"{log.topic_partition} is closed uncommitted: {error}")
                )
            return
        _LOG.warning("%d logs are committed later: %s", len(refused), refused[0][1])
        with self._lock:
            deadline_ms = self._clock.monotonic_ms() + AGAIN_MS
            for log, _ in refused:
                self._queue.add(log, deadline_ms)

    def _fail(self, log: Log, error: Exception) -> None:
        """Report the failure. The log is not queued again: a failed sync is final."""
        if not isinstance(error, EngineError):
            _LOG.error("committing %s failed", log.topic_partition, exc_info=error)
        if not isinstance(error, StorageError):
            error = StorageOffline(f"{log.topic_partition} could not be committed: {error}")
        self._tell(self._on_failure, (log,), error)

    def _tell(self, listener: Callable[P, None], *args: P.args, **options: P.kwargs) -> None:
        try:
            listener(*args, **options)
        except Exception:  # noqa: BLE001 - a listener's failure must not end the thread
            _LOG.exception("a listener of the committer failed")


def _outcome(commit: Callable[[], int]) -> Outcome:
    try:
        return commit()
    except Exception as error:  # noqa: BLE001 - it is that log's outcome
        return error


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


def flush_deadline_ms(config: LogConfig, *, commit_interval_ms: int, now_ms: int) -> int:
    """Return when bytes appended at `now_ms` must be on disk if no caller waits for them.

    Kafka flushes on `flush.messages` and `flush.ms` alone and leaves the rest to the operating
    system. Here only synced records are visible, so every log is flushed within the commit
    interval; Kafka's two settings can only shorten that.
    """
    return now_ms + min(commit_interval_ms, config.flush_ms)


class FlushQueue(Generic[LogT]):
    """The logs with bytes that are not on disk yet; guarded by the committer's lock.

    Each log is queued once: as urgent if a caller waits, otherwise with the deadline of its oldest
    unsynced byte.
    """

    def __init__(self) -> None:
        self.urgent: dict[LogT, None] = {}
        """The logs that a caller waits for; a dict for its order: first come, first served."""
        self.deadlines: dict[LogT, int] = {}
        """The other logs, and when they are due."""

    def is_waiting(self, log: LogT) -> bool:
        """Whether the log is already queued."""
        return log in self.deadlines or log in self.urgent

    def add_urgent(self, log: LogT) -> None:
        """Queue the log for the next round."""
        self.deadlines.pop(log, None)
        self.urgent[log] = None

    def add(self, log: LogT, deadline_ms: int) -> None:
        """Queue the log for a flush by `deadline_ms`; an earlier deadline stays."""
        if log not in self.urgent and deadline_ms < self.deadlines.get(log, deadline_ms + 1):
            self.deadlines[log] = deadline_ms

    def take_round(self, now_ms: int) -> list[LogT]:
        """Take the logs of the next round: the urgent ones, then those past their deadline."""
        if not self.deadlines and len(self.urgent) <= URGENT_PER_ROUND:
            return self.take_all()
        overdue = [log for log, deadline in self.deadlines.items() if deadline <= now_ms]
        overdue.sort(key=self.deadlines.__getitem__)
        del overdue[OVERDUE_PER_ROUND:]
        for log in overdue:
            del self.deadlines[log]
        return self.take_urgent() + overdue

    def take_urgent(self) -> list[LogT]:
        """Take the logs that a caller waits for, as many as one round takes."""
        chosen = list(self.urgent)[:URGENT_PER_ROUND]
        for log in chosen:
            del self.urgent[log]
        return chosen

    def take_all(self) -> list[LogT]:
        """Take every log, due or not."""
        chosen = [*self.urgent, *self.deadlines]
        self.urgent.clear()
        self.deadlines.clear()
        return chosen

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the ms until the next log is due; None if no log is queued."""
        if self.urgent:
            return 0
        if not self.deadlines:
            return None
        return max(0, min(self.deadlines.values()) - now_ms)


class InlineChoice:
    """Whether the next round may be inline; changed only by the thread that runs a round.

    After an inline round that waited for the disk longer than the limit, the flusher takes over. A
    new attempt needs a round of the flusher that waited less than that.
    """

    def __init__(self, limit_ms: int) -> None:
        """`limit_ms`: the longest wait of an inline round; 0: none is inline."""
        self._limit_seconds = limit_ms / 1000
        self._interval = LOOK_AFTER
        self._rounds = 0
        """Since the last change between inline rounds and rounds of the flusher."""
        self._shortest_seconds = math.inf
        """Of the flusher's waits in this interval: a lack of processor time makes some longer."""
        self.is_inline = False

    def note(self, seconds: float, *, was_inline: bool) -> None:
        """Record how long a round waited for the disk."""
        self._rounds += 1
        if was_inline:
            if seconds > self._limit_seconds:
                has_lasted = self._rounds > LASTING
                doubled = min(2 * self._interval, LOOK_AFTER_AT_MOST)
                self._restart(LOOK_AFTER if has_lasted else doubled, is_inline=False)
            return
        self._shortest_seconds = min(self._shortest_seconds, seconds)
        if self._rounds >= self._interval:
            is_quick = self._shortest_seconds < self._limit_seconds
            self._restart(self._interval, is_inline=is_quick)

    def _restart(self, interval: int, *, is_inline: bool) -> None:
        self._interval, self._rounds = interval, 0
        self._shortest_seconds = math.inf
        self.is_inline = is_inline


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
