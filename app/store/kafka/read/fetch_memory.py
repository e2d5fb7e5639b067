"""Bounds the bytes that reads on demand wait for: each broker has its share, in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class _Share:
    """What is asked of one broker."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()


class FetchMemory:
    """The bytes of fetches in flight. A slow broker uses up its own share only."""

    def __init__(self, max_bytes: int, brokers: Callable[[], int]) -> None:
        """Share `max_bytes` between the `brokers` of the cluster."""
        self._max_bytes = max_bytes
        self._brokers = brokers
        self._shares: dict[int, _Share] = {}

    @asynccontextmanager
    async def hold(self, node: int, size_bytes: int) -> AsyncIterator[None]:
        """Wait in turn until so much more may be asked of a broker; one fetch always may be."""
        share = self._shares.setdefault(node, _Share())
        if share.waiting or not self._fits(share, size_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            share.waiting.append((size_bytes, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it had its turn already
                    share.held_bytes -= size_bytes
                self._admit(share)
                raise
        else:
            share.held_bytes += size_bytes
        try:
            yield
        finally:
            share.held_bytes -= size_bytes
            self._admit(share)

    def _fits(self, share: _Share, size_bytes: int) -> bool:
        limit = self._max_bytes // max(1, self._brokers())
        return not share.held_bytes or share.held_bytes + size_bytes <= limit

    def _admit(self, share: _Share) -> None:
        while share.waiting:
            size_bytes, turn = share.waiting[0]
            if not turn.cancelled():
                if not self._fits(share, size_bytes):
                    return
                share.held_bytes += size_bytes
                turn.set_result(None)
            share.waiting.popleft()
