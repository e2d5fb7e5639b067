"""Readers at the end of a log: woken when its readable end moves, or their client disconnects.

They look, then ask whether the log has moved since, and only then wait. Otherwise a commit between
the look and the wait would be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from app.http.answers import Receive
from app.limits.admission import Phase

if TYPE_CHECKING:
    from app.operations.exchange import Exchange


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ClientGone(Exception):
    """The client has disconnected."""


class Sleeper(Protocol):
    """Called whenever a log moves, until it leaves; it may leave in the call."""

    def wake(self) -> None: ...


class Watch:
    """A reader that waits repeatedly for a commit, its time, or its client.

    A wake-up while it does not wait is not lost: its next wait ends at once.
    """

    __slots__ = ("_logs", "_see_to", "_tail", "_timer", "_waiter", "_woken", "is_late")

    def __init__(self, tail: Tail, logs: Sequence[Hashable]) -> None:
        self.is_late = False
        """Whether the time of `wake_by` has come. Timers are rounded, so the loop's clock may still
        be before it: a reader that compared the two could sleep again without a timer."""
        self._tail = tail
        self._logs = logs
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._see_to: Callable[[], bool] = _no_callback
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, see_to: Callable[[], bool] | None = None) -> None:
        """Return when it is woken, or was since its last wait.

        `see_to` is called instead of waking the reader; it must not raise, and returns whether that
        was enough.
        """
        if not self._woken:
            self._see_to = see_to or _no_callback
            self._waiter = asyncio.get_running_loop().create_future()
            self._tail.begin_wait(self._logs)
            try:
                await self._waiter
            finally:
                self._tail.end_wait(self._logs)
                self._waiter = None
        self._woken = False

    def wake(self) -> None:
        """Wake the reader."""
        if self._waiter is not None and self._see_to():
            return
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake_by(self, time: float) -> None:
        """Wake the reader at this time of the loop at the latest, perhaps earlier."""
        if self._timer is None or self._timer.when() > time:
            self.close()
            self.is_late = False
            self._timer = asyncio.get_running_loop().call_at(time, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.is_late = True
        self.wake()

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()


def _no_callback() -> bool:
    """Do nothing: the woken reader reads again itself."""
    return False


class DisconnectWatcher:
    """Watches for a disconnect: `with DisconnectWatcher(receive) as watcher`."""

    __slots__ = ("_receive", "_task", "_watch", "is_gone")

    def __init__(self, receive: Receive) -> None:
        self.is_gone = False
        self._receive = receive
        self._watch: Watch | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.ensure_future(self._until_disconnect())
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()  # not awaited: a thousand readers may be answered in this turn

    def wakes(self, watch: Watch) -> None:
        """Wake this reader when the client disconnects, or now if it has."""
        self._watch = watch
        if self.is_gone:
            watch.wake()

    async def _until_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        if self._watch is not None:
            self._watch.wake()


class Tail:
    """The readers that wait at the end of each log. Belongs to the event loop."""

    def __init__(self) -> None:
        self.waiting = 0
        """The number of waiting readers."""
        self.on_waiting: Callable[[Hashable], None] | None = None
        """Called when the first reader begins to wait for a log, unless its moves come unasked."""
        self._sleepers: dict[Hashable, dict[Sleeper, None]] = {}
        self._waiting: dict[Hashable, int] = {}
        """How many readers wait for each log; counted only for `on_waiting`."""

    def begin_wait(self, logs: Sequence[Hashable]) -> None:
        """Count a reader that waits for these logs."""
        self.waiting += 1
        if self.on_waiting is not None:
            for log in logs:
                count = self._waiting[log] = self._waiting.get(log, 0) + 1
                if count == 1:
                    self.on_waiting(log)

    def end_wait(self, logs: Sequence[Hashable]) -> None:
        """Count a reader that waits no more."""
        self.waiting -= 1
        if self.on_waiting is not None:
            for log in logs:
                self._waiting[log] -= 1
                if not self._waiting[log]:
                    del self._waiting[log]

    def has_readers(self, log: Hashable) -> bool:
        """Whether a reader waits for this log; needs `on_waiting`."""
        return log in self._waiting

    def wake(self, log: Hashable) -> None:
        """Wake every reader of this log, in the order of their arrival."""
        for sleeper in tuple(self._sleepers.get(log, ())):  # some of them leave at once
            sleeper.wake()

    def wake_all(self) -> None:
        """Wake every reader: the service drains."""
        for log in tuple(self._sleepers):
            self.wake(log)

    def park(self, log: Hashable, sleeper: Sleeper) -> None:
        """Call a reader when this log moves, until it leaves."""
        self._sleepers.setdefault(log, {})[sleeper] = None
        self.begin_wait((log,))

    def leave(self, log: Hashable, sleeper: Sleeper) -> None:
        """Stop calling this reader."""
        self.end_wait((log,))
        self._forget(log, sleeper)

    @contextmanager
    def watch(
        self, logs: Sequence[Hashable], departure: DisconnectWatcher | None = None
    ) -> Iterator[Watch]:
        """Yield a watch that wakes when one of the logs moves, or the client disconnects."""
        watch = Watch(self, logs)
        if departure is not None:
            departure.wakes(watch)
        for log in logs:
            self._sleepers.setdefault(log, {})[watch] = None
        try:
            yield watch
        finally:
            watch.close()
            for log in logs:
                self._forget(log, watch)

    def _forget(self, log: Hashable, sleeper: Sleeper) -> None:
        sleepers = self._sleepers.get(log, {})
        sleepers.pop(sleeper, None)
        if not sleepers:
            self._sleepers.pop(log, None)


class Question(Protocol):
    """What a long poll waits for."""

    @property
    def logs(self) -> Sequence[Hashable]:
        """The logs whose moves may answer it."""

    def is_answered(self) -> bool: ...

    def may_wait(self) -> bool:
        """Whether a move can answer it; False answers as it is. Raises if a log is gone."""

    def has_moved(self) -> bool:
        """Whether a log has moved since the last look, perhaps on another thread."""

    async def look(self) -> None:
        """Read again."""


async def long_poll(exchange: Exchange, question: Question, max_wait_ms: int) -> None:
    """Look again when a log moves, until there is enough, the time is over or the service stops.

    Raises ClientGone, and once the credentials do not hold any more.
    """
    service, ticket = exchange.service, exchange.ticket
    wait_ms = min(max_wait_ms, service.settings.max_wait_ms)
    if not wait_ms or question.is_answered():
        return  # as most reads: nothing is watched for them
    with (
        DisconnectWatcher(exchange.receive) as departure,
        service.tail.watch(question.logs, departure) as watch,
        service.security.lasting.during(exchange.caller, watch.wake),
    ):
        watch.wake_by(asyncio.get_running_loop().time() + wait_ms / 1000)
        while not (question.is_answered() or watch.is_late):
            # Nothing will wake this reader if a topic was deleted before `watch` began.
            if service.admission.phase is not Phase.READY or not question.may_wait():
                break
            ticket.park()
            if not question.has_moved():
                await watch.wait()
            ticket.resume()
            if departure.is_gone:
                raise ClientGone
            exchange.caller.ensure_held(service.clock)
            await question.look()


class Shared(Generic[K, V]):
    """Results that many readers of one turn need are computed once.

    Readers that are woken together at the same offset share the result of the first one, or its
    computation. Nothing is kept after the turn.
    """

    def __init__(self) -> None:
        self._made: dict[K, V] = {}
        self._latest: tuple[K, V] | None = None
        """The result that most readers of this turn want; it needs no hash."""
        self._making: dict[K, asyncio.Task[V]] = {}

    def get(self, key: K) -> V | None:
        """Return this turn's result for a key."""
        latest = self._latest
        if latest is not None and latest[0] == key:
            return latest[1]
        return self._made.get(key)

    def put(self, key: K, made: V) -> None:
        """Share a result with the readers of this turn."""
        if not self._made:
            asyncio.get_running_loop().call_soon(self._forget)
        self._made[key] = made
        self._latest = (key, made)

    def _forget(self) -> None:
        self._made.clear()
        self._latest = None

    def is_making(self, key: K) -> bool:
        """Whether this is being computed."""
        return key in self._making

    def begin(self, key: K, make: Coroutine[None, None, V]) -> None:
        """Begin a computation that takes longer than a turn; `join` returns its result.

        It finishes even if the first reader disconnects: others may wait for it.
        """
        making = self._making[key] = asyncio.create_task(make)
        making.add_done_callback(lambda _: self._making.pop(key))

    async def join(self, key: K) -> V:
        """Return the result of the running computation for this key."""
        return await asyncio.shield(self._making[key])
