"""Readers at the end of a log: woken when its readable end moves, or when their client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from app.http.answers import Receive

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


class Sleeper(Protocol):
    """Who is called when a log moves, every time until it leaves; it may do so there and then."""

    def wake(self) -> None: ...


class Watch:
    """A reader that waits, again and again, until somebody wakes it: a commit, time, its client.

    What happens while it does not wait is not lost: its next wait ends at once.
    """

    __slots__ = ("_see_to", "_tail", "_timer", "_waiter", "_woken", "is_late")

    def __init__(self, tail: Tail) -> None:
        self.is_late = False
        """Whether the time of `wake_by` has come. The loop's clock need not have reached it: timers
        are rounded, and who compared the two could go back to sleep with nothing to wake it."""
        self._tail = tail
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._see_to: Callable[[], bool] = _look_oneself
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, see_to: Callable[[], bool] | None = None) -> None:
        """Return when it is woken, or has been since it last waited.

        Not for what `see_to` sees to while it waits: it is called where the reader would be woken,
        may not raise, and returns whether that was all.
        """
        if not self._woken:
            self._see_to = see_to or _look_oneself
            self._waiter = asyncio.get_running_loop().create_future()
            self._tail.waiting += 1
            try:
                await self._waiter
            finally:
                self._tail.waiting -= 1
                self._waiter = None
        self._woken = False

    def wake(self) -> None:
        """Have it look again."""
        if self._waiter is not None and self._see_to():
            return
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake_by(self, time: float) -> None:
        """Have it woken at this time of the loop at the latest, and perhaps earlier."""
        if self._timer is None or self._timer.when() > time:
            self.close()
            self.is_late = False
            self._timer = asyncio.get_running_loop().call_at(time, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.is_late = True
        self.wake()

    def close(self) -> None:
        """Forget the time."""
        if self._timer is not None:
            self._timer.cancel()


def _look_oneself() -> bool:
    """See to nothing: the reader is to look itself."""
    return False


class DisconnectWatcher:
    """Knows when the client hangs up: `with DisconnectWatcher(receive) as departure`."""

    __slots__ = ("_receive", "_task", "_watch", "is_gone")

    def __init__(self, receive: Receive) -> None:
        self.is_gone = False
        self._receive = receive
        self._watch: Watch | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.ensure_future(self._until_disconnect())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()  # not waited for: a thousand readers may be answered in this turn

    def wakes(self, watch: Watch) -> None:
        """Have this reader woken when the client hangs up, or now if it has."""
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
    """Who waits at the end of which log, by `Partition.identity`. Belongs to the event loop."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many readers wait."""
        self._sleepers: dict[Hashable, dict[Sleeper, None]] = {}

    def wake(self, log: Hashable) -> None:
        """Wake every reader of this log to look again, in the order in which they came."""
        for sleeper in tuple(self._sleepers.get(log, ())):  # some of them leave at once
            sleeper.wake()

    def wake_all(self) -> None:
        """Wake everybody: the service drains."""
        for log in tuple(self._sleepers):
            self.wake(log)

    def park(self, log: Hashable, sleeper: Sleeper) -> None:
        """Have a reader called when this log moves, until it leaves."""
        self.waiting += 1
        self._sleepers.setdefault(log, {})[sleeper] = None

    def leave(self, log: Hashable, sleeper: Sleeper) -> None:
        """Call this reader no more."""
        self.waiting -= 1
        self._forget(log, sleeper)

    @contextmanager
    def watch(self, logs: Sequence[Hashable], departure: DisconnectWatcher) -> Iterator[Watch]:
        """Yield what is woken when one of the logs moves, or the client goes."""
        watch = Watch(self)
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


class Shared(Generic[K, V]):
    """What many readers want in one turn of the loop is made once for all of them.

    Readers who are woken together and stand at the same place share what the first one makes, or
    what is being made. Nothing is kept beyond that.
    """

    def __init__(self) -> None:
        self._made: dict[K, V] = {}
        self._latest: tuple[K, V] | None = None
        """Of what was made in this turn; most who look want this, and it needs no hash."""
        self._making: dict[K, asyncio.Task[V]] = {}

    def get(self, key: K) -> V | None:
        """Return what was made of this key in the present turn."""
        latest = self._latest
        if latest is not None and latest[0] == key:
            return latest[1]
        return self._made.get(key)

    def put(self, key: K, made: V) -> None:
        """Share this with the readers who look in the present turn."""
        if not self._made:
            asyncio.get_running_loop().call_soon(self._forget)
        self._made[key] = made
        self._latest = (key, made)

    def _forget(self) -> None:
        self._made.clear()
        self._latest = None

    def is_making(self, key: K) -> bool:
        """Whether this is being made."""
        return key in self._making

    def begin(self, key: K, make: Coroutine[None, None, V]) -> None:
        """Begin to make what takes longer than a turn; `join` has it.

        It is finished even if the reader who began goes: others may wait for it.
        """
        making = self._making[key] = asyncio.create_task(make)
        making.add_done_callback(lambda _: self._making.pop(key))

    async def join(self, key: K) -> V:
        """Return what is being made of this key, when it is done."""
        return await asyncio.shield(self._making[key])
