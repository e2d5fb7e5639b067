"""Thread pools: separate limits for appends, reads, the archive, administration, compaction."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from app.settings import Settings
from engine.errors import Overloaded

T = TypeVar("T")


ADMIN_THREADS: Final = 2
"""Threads for administrative work: creating, deleting, flushing, listing."""

ARCHIVE_THREADS: Final = 16
"""Threads for reads of what only the archive has; each waits for the object store most of the
time."""

_Job: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class FairThreads:
    """Threads that serve holders in turn: one holder's queue delays others by one task at most.

    A holder is a principal or an address, as in `app.limits.shares`.
    """

    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, name)
        self._lock = Lock()
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        """Queued work by holder; the first holder is served next."""

    def run(self, work: Callable[[], T], holder: str) -> asyncio.Future[T]:
        """Return a future for the work's result.

        This is not a coroutine: its frame would refer to an error that refers to the frame, a
        cycle.
        """
        job: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(holder, deque()).append((job, work))
        self._executor.submit(self._run_next)
        return asyncio.wrap_future(job)

    def _run_next(self) -> None:
        """Run the next task, whichever holder it belongs to; called once for each queued task."""
        with self._lock:
            holder, jobs = self._waiting.popitem(last=False)
            job, work = jobs.popleft()
            if jobs:
                self._waiting[holder] = jobs
        if not job.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # it is raised where the work was handed in
            job.set_exception(error)
            del job  # a reference would keep the error, whose traceback keeps this frame
        else:
            job.set_result(result)

    def close(self) -> None:
        """Let running tasks finish, and cancel the queued ones."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        for jobs in self._waiting.values():
            for job, _ in jobs:
                job.cancel()


class Workers:
    """Five pools, so that slow readers never block writers and neither blocks an operator.

    Reads of the archive wait for an object store, which may not answer: other reads go on.

    Compactions take minutes and the cleaner runs one at a time: they have a thread of their own.

    Admission bounds the queues. A running task finishes even if its request is gone: an append is
    never half done.
    """

    def __init__(self, settings: Settings) -> None:
        self._writers = FairThreads(settings.write_threads, "tidelog-write")
        self._readers = FairThreads(settings.read_threads, "tidelog-read")
        self._archive_readers = FairThreads(ARCHIVE_THREADS, "tidelog-archive-read")
        self._admins = ThreadPoolExecutor(ADMIN_THREADS, "tidelog-admin")
        self._compactor = ThreadPoolExecutor(1, "tidelog-compact")
        self._max_compactions = settings.max_compactions
        self._compactions = 0

    async def write(self, work: Callable[[], T], holder: str = "") -> T:
        """Run an append that is too large for the event loop, in the holder's turn."""
        return await self._writers.run(work, holder)

    async def read(self, work: Callable[[], T], holder: str = "", *, in_archive: bool = False) -> T:
        """Run a read that touches the disk, or renders much, in the holder's turn.

        `in_archive`: it may wait for the object store.
        """
        threads = self._archive_readers if in_archive else self._readers
        return await threads.run(work, holder)

    async def administer(self, work: Callable[[], T]) -> T:
        """Run administrative work: it may sync, list directories, or wait for a lock."""
        return await asyncio.get_running_loop().run_in_executor(self._admins, work)

    async def compact(self, work: Callable[[], T]) -> T:
        """Run a compaction after the queued ones; raises Overloaded if there are too many."""
        limit = self._max_compactions
        if self._compactions >= limit:
            raise Overloaded(
                f"max_compactions ({limit}) is reached", limit="max_compactions", limit_value=limit
            )
        self._compactions += 1
        running = asyncio.get_running_loop().run_in_executor(self._compactor, work)
        running.add_done_callback(self._end_compaction)
        return await running

    def _end_compaction(self, _: object) -> None:
        self._compactions -= 1

    def close(self) -> None:
        """Let running tasks finish; start no others."""
        for pool in (self._writers, self._readers, self._archive_readers):
            pool.close()
        for executor in (self._admins, self._compactor):
            executor.shutdown(wait=True, cancel_futures=True)
