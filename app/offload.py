"""The only door to threads: limits of their own for appends, reads, administration, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.settings import Settings
from engine.errors import Overloaded

T = TypeVar("T")


class Workers:
    """Four pools, so that slow readers never stop writers and neither stops an operator.

    Compactions take minutes and the cleaner takes one at a time: they queue for a thread of their
    own, and keep nobody else waiting.

    What waits for a thread is bounded by admission. A piece of work that has begun ends even if its
    request is gone: an append is never half done.
    """

    def __init__(self, settings: Settings) -> None:
        self._writers = ThreadPoolExecutor(settings.write_threads, "tidelog-write")
        self._readers = ThreadPoolExecutor(settings.read_threads, "tidelog-read")
        self._admins = ThreadPoolExecutor(settings.admin_threads, "tidelog-admin")
        self._compactor = ThreadPoolExecutor(1, "tidelog-compact")
        self._max_compactions = settings.max_compactions
        self._compactions = 0

    async def write(self, work: Callable[[], T]) -> T:
        """Run an append that is too large for the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, work)

    async def read(self, work: Callable[[], T]) -> T:
        """Run a read that touches the disk, or renders much."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def administer(self, work: Callable[[], T]) -> T:
        """Run administrative work: it may sync, list directories, or wait for a lock."""
        return await asyncio.get_running_loop().run_in_executor(self._admins, work)

    async def compact(self, work: Callable[[], T]) -> T:
        """Run a compaction after those that wait; raises Overloaded if too many do."""
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
        """Let what runs end; start nothing more."""
        for pool in (self._writers, self._readers, self._admins, self._compactor):
            pool.shutdown(wait=True, cancel_futures=True)
