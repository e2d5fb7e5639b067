"""Appends of several clients to one log, put into it at once.

What comes in one turn of the event loop is appended at its end: one lock, one write and one move of
the log's end for all of it. Each stays a batch of its own and is answered as if it were alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from app.operations.append import Append
from app.operations.service import Service
from engine.errors import EngineError, StorageError
from engine.log.log import Log

Done: TypeAlias = Callable[[Exception | None], None]
"""Told once: with None when the append is in the log, or with why it is not. It may not raise."""


class _Member(NamedTuple):
    append: Append
    batch: bytearray
    done: Done


class Together:
    """Gathers plain appends until the end of the loop's turn. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limit_bytes = service.settings.inline_append_bytes
        self._gathered: dict[Log, list[_Member]] = {}
        self._bytes = 0

    def add(self, append: Append, batch: bytearray, done: Done) -> None:
        """Have a plain append in its log at the end of this turn, or before it is too much."""
        if self._bytes + len(batch) > self._limit_bytes:
            self._put()
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._put)
        self._bytes += len(batch)
        self._gathered.setdefault(append.place.log, []).append(_Member(append, batch, done))

    def _put(self) -> None:
        gathered, self._gathered = self._gathered, {}
        self._bytes = 0
        for log, members in gathered.items():
            self._append(log, members)

    def _append(self, log: Log, members: Sequence[_Member]) -> None:
        """Append all of them; if the log refuses that, one by one, to see which of them it is."""
        try:
            appended = self._service.runtime.committer.append(
                log,
                bytearray().join([member.batch for member in members]),
                acks_all=any(member.append.call.acks == "all" for member in members),
                wakes=False,
                checked=True,
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            is_refusal = isinstance(error, EngineError) and not isinstance(error, StorageError)
            if is_refusal and len(members) > 1:
                for member in members:
                    self._append(log, [member])
            else:
                for member in members:
                    member.done(error)
            return
        for member, alone in zip(members, appended.one_by_one(), strict=True):
            member.append.took(alone)
            member.done(None)
