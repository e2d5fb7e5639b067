"""Makes a run of the engine depend on its seed only: one thread, and ids from the seed.

The work of engine threads runs when the simulation says: see `Simulation`.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import accumulate, count
from random import Random
from typing import Any, Self
from unittest import mock

from engine.background import committer, mover
from engine.background.committer import InlineChoice, SyncChoice
from engine.manager import opening


class InlineExecutor:
    """A pool without threads: submitted work runs at once."""

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args))
        except BaseException as error:  # noqa: BLE001 - as a pool does; a power cut is one
            future.set_exception(error)
        return future

    def shutdown(self, **options: object) -> None:
        pass

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return iter([work(item) for item in items])


class WaitingExecutor:
    """A pool whose threads wait for `run_next`: the test decides when submitted work runs."""

    def __init__(self, *args: object, **options: object) -> None:
        self.waiting: deque[partial[Any]] = deque()

    def submit(self, work: Callable[..., Any], *args: Any) -> None:
        self.waiting.append(partial(work, *args))

    def run_next(self) -> None:
        """Run the work that was submitted first."""
        self.waiting.popleft()()

    def shutdown(self, *, cancel_futures: bool) -> None:
        assert cancel_futures
        self.waiting.clear()


class InlineFromTheStart(InlineChoice):
    """Runs rounds inline until one is slow: lives are too short to find out that they are quick."""

    def __init__(self, limit_ms: int) -> None:
        super().__init__(limit_ms)
        self.is_inline = True


class TriedSyncChoice(SyncChoice):
    """Has tried both ways to sync several logs: lives are too short to try them first."""

    def __init__(self) -> None:
        super().__init__()
        self.note_each(1, 0.0001)
        self.note_shared(0.0001)


def sync_clock(random: Random) -> Callable[[], float]:
    """Return a clock that makes most syncs quick and some slow."""
    seconds = accumulate(random.choice((0.0001, 0.0001, 0.002)) for _ in count())
    return lambda: next(seconds)


@contextlib.contextmanager
def deterministic(seed: object) -> Iterator[None]:
    """Have all that the engine does here follow from the seed, and nothing of it logged."""
    random = Random(str(seed))
    clock = sync_clock(Random(str(seed)))

    def next_id() -> uuid.UUID:
        return uuid.UUID(int=random.getrandbits(128), version=4)

    logging.disable()
    try:
        with (
            mock.patch.object(uuid, "uuid4", next_id),
            mock.patch.object(opening, "ThreadPoolExecutor", InlineExecutor),
            mock.patch.object(committer, "ThreadPoolExecutor", InlineExecutor),
            mock.patch.object(committer.Committer, "start"),
            mock.patch.object(committer, "perf_counter", clock),
            mock.patch.object(committer, "InlineChoice", InlineFromTheStart),
            mock.patch.object(committer, "SyncChoice", TriedSyncChoice),
            mock.patch.object(mover, "ThreadPoolExecutor", WaitingExecutor),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)
