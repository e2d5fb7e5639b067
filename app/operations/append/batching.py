"""Appends of several clients to one log, put into it at once.

What comes in one turn of the event loop is appended at its end: one lock, one write and one move of
the log's end for all of it. Small bodies of records share a batch, as records in Kafka's producer
do; what a client encoded stays the batch it is. Each is answered as if it were alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from app.operations.append.append import Append
from app.operations.service import Service
from engine.errors import EngineError, StorageError
from engine.log.log import Log
from engine.types import Buffer

TURN_BODIES: Final = 4
"""What is gathered of one kind for one log: so many of the largest bodies at most."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Told once: with None when the append is in the log, or with why it is not. It may not raise.

WouldWait says that it belongs on a worker: the log rolls, for example, or opens a file.
"""


_Member: TypeAlias = tuple[Append, Done]

_Sharers: TypeAlias = list[_Member]
"""Those whose bodies become one batch."""


class _Group:
    """What one log is given at the end of a turn, all of one kind."""

    __slots__ = ("batches", "room_bytes", "size_bytes")

    def __init__(self) -> None:
        self.batches: list[_Sharers] = []
        self.size_bytes = 0
        self.room_bytes = 0
        """How much more the last batch takes."""


class Batcher:
    """Gathers plain appends until the end of the loop's turn. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limit_bytes = TURN_BODIES * service.settings.inline_append_bytes
        self._groups: dict[tuple[Log, bool], _Group] = {}

    def add(self, append: Append, size_bytes: int, done: Done) -> None:
        """Have a plain append in its log at the end of this turn, or before that is too much.

        It has taken its body, of so many bytes.
        """
        groups = self._groups
        key = (
            append.partition.log,
            append.is_checked,
        )  # the foreign is looked into, what is ours not
        group = groups.get(key)
        if group is not None and group.size_bytes + size_bytes > self._limit_bytes:
            self._put()
            groups = self._groups
            group = groups.get(key)
        if group is None:
            if not groups:
                asyncio.get_running_loop().call_soon(self._put)
            group = groups[key] = _Group()
        group.size_bytes += size_bytes
        if size_bytes <= group.room_bytes:
            group.room_bytes -= size_bytes
            group.batches[-1].append((append, done))
        else:
            group.room_bytes = append.room_bytes - size_bytes
            group.batches.append([(append, done)])

    def _put(self) -> None:
        groups, self._groups = self._groups, {}
        for (log, checked), group in groups.items():
            self._append(log, group.batches, checked=checked)
        self._service.commits.ask()

    def _append(self, log: Log, batches: Sequence[_Sharers], *, checked: bool) -> None:
        """Append all of them; if the log refuses that, one by one, to see which of them it is.

        Before that, each in a batch of its own: one that is shared may be too large for the topic.
        """
        members = [member for sharers in batches for member in sharers]
        try:
            appended = self._service.runtime.committer.append(
                log,
                _encoded(batches),
                acks_all=any(append.call.acks == "all" for append, _ in members),
                wakes=False,
                at_once=True,
                checked=checked,
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            is_refusal = isinstance(error, EngineError) and not isinstance(error, StorageError)
            if is_refusal and len(batches) < len(members):
                self._append(log, [[member] for member in members], checked=checked)
            elif is_refusal and len(members) > 1:
                for member in members:
                    self._append(log, [[member]], checked=checked)
            else:
                for _, done in members:
                    done(error)
            return
        for sharers, batch in zip(batches, appended.one_by_one(), strict=True):
            first, *others = [append for append, _ in sharers]
            first.on_appended(batch, others)
        for _, done in members:
            done(None)


def _encoded(batches: Sequence[_Sharers]) -> Buffer:
    """Return the batches as one buffer; that of one body alone is written from where it is."""
    encoded = []
    for sharers in batches:
        first, *others = [append for append, _ in sharers]
        encoded.append(first.batch(others))
    return encoded[0] if len(encoded) == 1 else bytearray().join(encoded)
