"""The only door to threads: separate limits for large appends, cold reads and administration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.settings import Settings

T = TypeVar("T")


class Workers:
    """Three pools, so that slow readers never stop writers and neither stops an operator.

    What waits for a thread is bounded by admission. A piece of work that has begun ends even if its
    request is gone: an append is never half done.
    """

    def __init__(self, settings: Settings) -> None:
        self._writers = ThreadPoolExecutor(settings.write_threads, "tidelog-write")
        self._readers = ThreadPoolExecutor(settings.read_threads, "tidelog-read")
        self._admins = ThreadPoolExecutor(settings.admin_threads, "tidelog-admin")

    async def write(self, work: Callable[[], T]) -> T:
        """Run an append that is too large for the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, work)

    async def read(self, work: Callable[[], T]) -> T:
        """Run a read that touches the disk, or renders much."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def administer(self, work: Callable[[], T]) -> T:
        """Run administrative work: it may sync, list directories, or wait for a lock."""
        return await asyncio.get_running_loop().run_in_executor(self._admins, work)

    def close(self) -> None:
        """Let what runs end; start nothing more."""
        for pool in (self._writers, self._readers, self._admins):
            pool.shutdown(wait=True, cancel_futures=True)
