"""Group commit: appends run on their callers' threads, and one flusher thread syncs them all.

An append is a write into the page cache under its log's lock, which takes about a microsecond. The
next round syncs each such log once, however many appends wait for it. When the flusher is idle, a
round starts at once; while a round is syncing, all new appends share the next one. An append costs
no queue entry and no hand-over between threads: its log is noted in a dictionary.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final, ParamSpec, TypeAlias, TypedDict, Unpack

from engine.background.flusher import FlushQueue, flush_deadline_ms
from engine.background.shared_sync import Outcome, SyncChoice, commit_together
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import EngineError, Overloaded, StorageError, StorageOffline
from engine.fs.health import DirectoryHealth
from engine.log.log import Log
from engine.log.results import Appended, LogTag
from engine.records.budget import DecodeBudget
from engine.state.verification import VerificationGuard
from engine.types import AppendOrigin, Buffer

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")

SYNCERS: Final = 8
"""How many logs are synced in parallel, if each is synced on its own."""

AGAIN_MS: Final = 500
"""How long a log waits whose commit was refused because too many files are open."""

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
    guard: VerificationGuard | None
    nonblocking: bool
    budget: DecodeBudget | None


class Committer:
    """Appends to logs and commits what was appended. Thread-safe.

    `on_commit` and `on_failure` are called on the flusher thread and must neither block nor raise.
    The committer's own lock guards the queue. No other lock is taken under it, and it is never held
    during a write or a sync.
    """

    def __init__(
        self, config: EngineConfig, clock: Clock, on_commit: OnCommit, on_failure: OnFailure
    ) -> None:
        self._commit_interval_ms = config.commit_interval_ms
        self._clock = clock
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._queue: FlushQueue[Log] = FlushQueue()
        self._choices: dict[DirectoryHealth, SyncChoice] = {}
        self._changed = threading.Condition(threading.Lock())
        self._stopping = False
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="tidelog-flusher", daemon=True)
        self._syncers = ThreadPoolExecutor(SYNCERS, thread_name_prefix="tidelog-sync")

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
        self._note(log, appended, acks_all=acks_all, wakes=wakes)
        return appended

    def wake(self) -> None:
        """Start a round for what was appended with `wakes=False`."""
        with self._changed:
            self._changed.notify()

    def run_round(self) -> bool:
        """Commit what is due on the calling thread, as one round of the flusher; False if nothing.

        For callers that have not started the thread and drive the committer themselves.
        """
        with self._changed:
            logs = self._queue.take_round(self._clock.monotonic_ms())
        if logs:
            self._flush(logs)
        return bool(logs)

    def _note(self, log: Log, appended: Appended, *, acks_all: bool, wakes: bool) -> None:
        """Queue the log for a flush, unless what was appended is on disk already (a duplicate)."""
        marks = appended.watermarks
        if appended.last_offset < marks.high_watermark:
            return
        unflushed = marks.log_end_offset - marks.high_watermark
        is_urgent = acks_all or unflushed >= log.config.flush_messages
        with self._changed:
            if self._finished:  # this append lost the race against `stop`
                raise StorageOffline(
                    "the log was closed before the append could be committed", has_begun=True
                )
            if is_urgent:
                self._queue.add_urgent(log)
            elif self._queue.is_waiting(log):
                return
            else:
                deadline_ms = flush_deadline_ms(
                    log.config,
                    commit_interval_ms=self._commit_interval_ms,
                    now_ms=self._clock.monotonic_ms(),
                )
                self._queue.add(log, deadline_ms)
            if wakes or not acks_all:
                self._changed.notify()

    def _run(self) -> None:
        while (logs := self._next_round()) is not None:
            self._flush(logs)

    def _next_round(self) -> list[Log] | None:
        """Wait until logs are due and take them; None when stopping and nothing is left."""
        with self._changed:
            while not self._stopping:
                now_ms = self._clock.monotonic_ms()
                if logs := self._queue.take_round(now_ms):
                    return logs
                wait_ms = self._queue.wait_ms(now_ms)
                self._changed.wait(None if wait_ms is None else wait_ms / 1000)
            logs = self._queue.take_all()
            self._finished = not logs
            return logs or None

    def _flush(self, logs: Sequence[Log]) -> None:
        """Commit the logs, then call the listener once for all of them."""
        committed: list[tuple[Log, int]] = []
        refused: list[tuple[Log, Overloaded]] = []
        for log, outcome in self._commit(logs):
            if isinstance(outcome, int):
                committed.append((log, outcome))
            elif isinstance(outcome, Overloaded):
                refused.append((log, outcome))
            else:  # one log's failure must not end the thread
                self._fail(log, outcome)
        if committed:
            self._tell(self._on_commit, committed)
        if refused:
            self._postpone(refused)

    def _commit(self, logs: Sequence[Log]) -> list[tuple[Log, Outcome]]:
        """Commit the logs of each data directory with one sync, or each log with its own."""
        if len(logs) == 1:
            return [(logs[0], _outcome(logs[0].durability.commit))]
        directories: dict[DirectoryHealth, list[Log]] = {}
        for log in logs:
            directories.setdefault(log.durability.health, []).append(log)
        outcomes: list[tuple[Log, Outcome]] = []
        for health, members in directories.items():
            choice = self._choices.setdefault(health, SyncChoice())
            count = len(members)
            can_share = health.file_system is not None and count > 1
            started = perf_counter()
            if can_share and choice.is_shared(count):
                outcomes += commit_together(health, members)
                choice.note_shared(perf_counter() - started)
            else:
                outcomes += self._commit_each(members)
                if can_share:
                    choice.note_each(count, perf_counter() - started)
        return outcomes

    def _commit_each(self, logs: Sequence[Log]) -> list[tuple[Log, Outcome]]:
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
        with self._changed:
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
    except Exception as error:  # noqa: BLE001 - returned as the log's outcome
        return error
