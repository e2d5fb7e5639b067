"""Joins what many requests ask one broker in one turn of the loop to one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, TypeVar

from kio.schema.errors import ErrorCode

from app.store.kafka.errors import Moved

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q")
A = TypeVar("A")


def retrieve_error(task: asyncio.Task[A]) -> None:
    """Have asyncio not log the error of a task that every caller has given up waiting for."""
    _ = task.cancelled() or task.exception()


class Questions(Generic[K, Q, A]):
    """Collects the questions to each broker until the end of the turn. Belongs to the loop.

    A question is sent after it was asked, so the answer is not older than the question.
    """

    def __init__(self, ask: Callable[[int, Mapping[K, Q]], Awaitable[Mapping[K, A]]]) -> None:
        """`ask` sends one request to a broker."""
        self._ask = ask
        self._collected: dict[int, dict[K, Q]] = {}
        self._asking: dict[int, asyncio.Task[Mapping[K, A]]] = {}

    async def answer(self, node: int, key: K, question: Q) -> A:
        """Return a broker's answer for one log; raises what `ask` raises, Moved without one."""
        collected = self._collected.get(node)
        if collected is None:
            collected = self._collected[node] = {}
            asking = asyncio.create_task(self._send(node, collected))
            asking.add_done_callback(retrieve_error)
            self._asking[node] = asking
        collected[key] = question
        answers = await asyncio.shield(self._asking[node])
        found = answers.get(key)
        if found is None:
            raise Moved(ErrorCode.unknown_server_error)
        return found

    async def _send(self, node: int, collected: dict[K, Q]) -> Mapping[K, A]:
        del self._collected[node], self._asking[node]
        return await self._ask(node, collected)
