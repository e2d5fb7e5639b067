"""Appends of several clients to one log, written at once.

Appends that arrive in one turn of the event loop are written at its end: one lock, one write and
one move of the log end for all. Small bodies of records share a batch, as in Kafka's producer;
batches that a client encoded stay as they are. Each request is answered as if it were alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Final, TypeAlias

from app.operations.append.append import Append
from app.operations.service import Service
from app.store.port import Partition
from engine.errors import EngineError, StorageError
from engine.types import Buffer

TURN_BODIES: Final = 4
"""Bytes that are gathered of one kind for one log."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Called once: with None when the append is in the log, or with the error. It must not raise.

WouldBlock means: run it on a worker, because the log has to roll or open a file.
"""


_Member: TypeAlias = tuple[Append, Done]

_Sharers: TypeAlias = list[_Member]
"""Appends whose bodies share a batch."""


class _Group:
    """The appends of one kind for one log at the end of a turn."""

    __slots__ = ("batches", "partition", "room_bytes", "size_bytes")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.batches: list[_Sharers] = []
        self.size_bytes = 0
        self.room_bytes = 0
        """Remaining room of the last batch."""


class Batcher:
    """Gathers plain appends until the end of the loop's turn. Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._limit_bytes = TURN_BODIES * service.settings.inline_append_bytes
        self._groups: dict[tuple[Hashable, bool], _Group] = {}

    def add(self, append: Append, size_bytes: int, done: Done) -> None:
        """Append at the end of this turn, or earlier if the group is full.

        The append has taken its body of `size_bytes`.
        """
        groups = self._groups
        # The log checks clients' batches, not our own.
        key = (append.partition.identity, append.is_checked)
        group = groups.get(key)
        if group is not None and group.size_bytes + size_bytes > self._limit_bytes:
            self._put()
            groups = self._groups
            group = groups.get(key)
        if group is None:
            if not groups:
                asyncio.get_running_loop().call_soon(self._put)
            group = groups[key] = _Group(append.partition)
        group.size_bytes += size_bytes
        if size_bytes <= group.room_bytes:
            group.room_bytes -= size_bytes
            group.batches[-1].append((append, done))
        else:
            group.room_bytes = append.room_bytes - size_bytes
            group.batches.append([(append, done)])

    def _put(self) -> None:
        groups, self._groups = self._groups, {}
        for (_, checked), group in groups.items():
            self._append(group.partition, group.batches, checked=checked)
        for group in groups.values():
            group.partition.commit_soon()

    def _append(self, partition: Partition, batches: Sequence[_Sharers], *, checked: bool) -> None:
        """Append all of them; if the log refuses, append one by one, to find the refused ones.

        Before that, each in its own batch: a shared batch may be too large for the topic.
        """
        members = list(chain.from_iterable(batches))
        try:
            appended = partition.append_now(
                _encoded(batches),
                acks_all=any(append.call.acks == "all" for append, _ in members),
                checked=checked,
            )
        except Exception as error:  # noqa: BLE001  # any error is reported
            is_refusal = isinstance(error, EngineError) and not isinstance(error, StorageError)
            if is_refusal and len(batches) < len(members):
                self._append(partition, [[member] for member in members], checked=checked)
            elif is_refusal and len(members) > 1:
                for member in members:
                    self._append(partition, [[member]], checked=checked)
            else:
                for _, done in members:
                    done(error)
            return
        each = (appended,) if len(batches) == 1 else appended.one_by_one()
        for sharers, batch in zip(batches, each, strict=True):
            first, *others = [append for append, _ in sharers]
            first.on_appended(batch, others)
        for _, done in members:
            done(None)


def _encoded(batches: Sequence[_Sharers]) -> Buffer:
    """Return the batches as one buffer; a single body is not copied."""
    encoded = []
    for sharers in batches:
        first, *others = [append for append, _ in sharers]
        encoded.append(first.batch(others))
    return encoded[0] if len(encoded) == 1 else bytearray().join(encoded)
