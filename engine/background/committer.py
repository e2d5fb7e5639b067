"""Group commit: appends run on their callers' threads, and one round syncs them all.

An append is a write into the page cache under its log's lock, which takes about a microsecond. The
next round syncs each such log once, however many appends wait for it. Only one round runs at a
time; while it is syncing, all new appends share the next one. An append costs no queue entry and no
hand-over between threads: its log is noted in a dictionary.

The flusher thread runs the rounds. While rounds are shorter than a hand-over to it and back, the
thread that asks for a round runs it itself: see `RoundSyncs` and `InlineChoice`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeAlias, TypedDict, Unpack

from engine.background.flusher import FlushQueue, flush_deadline_ms
from engine.background.round_syncs import RoundSyncs
from engine.background.shared_sync import Outcome
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import EngineError, Overloaded, StorageError, StorageOffline, WouldBlock
from engine.log.log import Log
from engine.log.results import Appended, LogTag
from engine.records.budget import DecodeBudget
from engine.state.verification import VerificationGuard
from engine.types import AppendOrigin, Buffer

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")

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

    `on_commit` and `on_failure` are called by the thread that runs a round, and must neither block
    nor raise. The committer's own lock guards the queue. No other lock is taken under it, and it is
    never held during a write or a sync.
    """

    def __init__(
        self, config: EngineConfig, clock: Clock, on_commit: OnCommit, on_failure: OnFailure
    ) -> None:
        self._commit_interval_ms = config.commit_interval_ms
        self._clock = clock
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._queue: FlushQueue[Log] = FlushQueue()
        self._syncs = RoundSyncs(max_inline_round_ms=config.max_inline_round_ms)
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
        self._syncs.close()

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
        """Have committed what was appended with `wakes=False`.

        If one quick sync is enough, it is committed on return, and the listener was called on this
        thread. Otherwise the flusher starts a round.
        """
        with self._lock:
            is_free = not self._is_in_round and not self._stopping
            if not (is_free and self._syncs.can_run_inline(self._queue.urgent)):
                self._changed.notify()
                return
            logs = self._queue.take_urgent()
            self._is_in_round = bool(logs)
        if logs:
            self._run_round(logs, is_inline=True)

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

    def _note(self, log: Log, appended: Appended, *, acks_all: bool, wakes: bool) -> None:
        """Queue the log for a flush, unless what was appended is on disk already (a duplicate)."""
        marks = appended.watermarks
        if appended.last_offset < marks.high_watermark:
            return
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
        """Commit the logs of a round that has begun, report it, and end it."""
        syncs = self._syncs
        try:
            self._report(syncs.commit_inline(logs) if is_inline else syncs.commit(logs))
        finally:
            with self._lock:
                self._is_in_round = False
                if self._queue or self._stopping:
                    self._changed.notify()

    def _report(self, outcomes: Sequence[tuple[Log, Outcome]]) -> None:
        """Call the listener once for all logs that were committed, and for each that failed."""
        committed: list[tuple[Log, int]] = []
        refused: list[tuple[Log, Overloaded]] = []
        for log, outcome in outcomes:
            if isinstance(outcome, int):
                committed.append((log, outcome))
            elif isinstance(outcome, Overloaded):
                refused.append((log, outcome))
            elif isinstance(outcome, WouldBlock):
                self._leave_to_flusher(log)
            else:  # one log's failure must not end the thread
                self._fail(log, outcome)
        if committed:
            self._tell(self._on_commit, committed)
        if refused:
            self._postpone(refused)

    def _leave_to_flusher(self, log: Log) -> None:
        """Queue a log again that another thread holds; the end of this round starts the next."""
        with self._lock:
            self._queue.add_urgent(log)

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
