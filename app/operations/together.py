"""Appends of several clients to one log, put into it at once.

What comes in one turn of the event loop is appended at its end: one lock, one write and one move of
the log's end for all of it. Each stays a batch of its own and is answered as if it were alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from app.operations.append import Append
from app.operations.service import Service
from engine.errors import EngineError, StorageError
from engine.log.log import Log
from engine.types import Buffer

TURN_BODIES: Final = 4
"""What one turn of the loop puts into a log at once: so many of the largest bodies at most."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Told once: with None when the append is in the log, or with why it is not. It may not raise.

WouldWait says that it belongs on a worker: the log rolls, for example, or opens a file.
"""


class _Member(NamedTuple):
    append: Append
    batch: Buffer
    done: Done


class Together:
    """Gathers plain appends until the end of the loop's turn. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limit_bytes = service.settings.inline_append_bytes
        self._gathered: dict[tuple[Log, bool], list[_Member]] = {}
        self._bytes: dict[Log, int] = {}

    def add(self, append: Append, batch: Buffer, done: Done) -> None:
        """Have a plain append in its log at the end of this turn, or before that is too much."""
        log = append.place.log
        if self._bytes.get(log, 0) + len(batch) > TURN_BODIES * self._limit_bytes:
            self._put()
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._put)
        self._bytes[log] = self._bytes.get(log, 0) + len(batch)
        key = (log, append.is_checked)  # what is foreign is looked into, what is ours is not
        self._gathered.setdefault(key, []).append(_Member(append, batch, done))

    def _put(self) -> None:
        gathered, self._gathered = self._gathered, {}
        self._bytes.clear()
        for (log, checked), members in gathered.items():
            self._append(log, members, checked=checked)
        self._service.commits.ask()

    def _append(self, log: Log, members: Sequence[_Member], *, checked: bool) -> None:
        """Append all of them; if the log refuses that, one by one, to see which of them it is."""
        try:
            appended = self._service.runtime.committer.append(
                log,
                _joined(members),
                acks_all=any(member.append.call.acks == "all" for member in members),
                wakes=False,
                at_once=True,
                checked=checked,
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            is_refusal = isinstance(error, EngineError) and not isinstance(error, StorageError)
            if is_refusal and len(members) > 1:
                for member in members:
                    self._append(log, [member], checked=checked)
            else:
                for member in members:
                    member.done(error)
            return
        for member, alone in zip(members, appended.one_by_one(), strict=True):
            member.append.took(alone)
            member.done(None)


def _joined(members: Sequence[_Member]) -> Buffer:
    """Return the batches as one buffer; that of one alone is written from where it is."""
    if len(members) == 1:
        return members[0].batch
    return bytearray().join([member.batch for member in members])
