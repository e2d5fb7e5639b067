"""Appends of several clients to one log, written at once.

Appends that arrive in one turn of the event loop are written at its end: one lock, one write and
one move of the log end for all. Small bodies of records share a batch, as in Kafka's producer;
batches that a client encoded stay as they are. Each request is answered as if it were alone.

Logs of one turn share the sync of their file system, which takes as long as reading tens of
requests. So while each turn brings appends to more logs, all wait for the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from app.operations.append.append import Append
from app.operations.service import Service
from app.store.port import Partition, RemotePartition
from engine.errors import EngineError, StorageError
from engine.log.results import Appended

TURN_BODIES: Final = 4
"""Bytes that are gathered of one kind for one log."""

GATHERED_LOGS: Final = 64
"""As soon as there are appends to so many logs, none waits for another turn."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Called once: with None when the append is in the log, or with the error. It must not raise.

WouldBlock means: run it on a worker, because the log has to roll or open a file.
"""


_Sharers: TypeAlias = Sequence[Append]
"""Appends whose bodies share a batch."""


class _Group:
    """The appends of one kind for one log at the end of a turn."""

    __slots__ = ("batches", "done", "partition", "room_bytes", "size_bytes")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.batches: list[list[Append]] = []
        self.done: list[Done] = []
        """One for each append, in their order."""
        self.size_bytes = 0
        self.room_bytes = 0
        """Remaining room of the last batch."""


class Batcher:
    """Gathers plain appends until the end of a turn of the event loop, to which it belongs."""

    def __init__(self, service: Service) -> None:
        self._limit_bytes = TURN_BODIES * service.settings.inline_append_bytes
        self._groups: dict[tuple[Hashable, bool, str], _Group] = {}

    def add(self, append: Append, size_bytes: int, done: Done) -> None:
        """Append at the end of this turn or of a later one, or earlier if the group is full.

        The append has taken its body of `size_bytes`.
        """
        groups = self._groups
        # The log checks clients' batches, not our own.
        key = (append.partition.identity, append.is_checked, append.call.acks)
        group = groups.get(key)
        if group is not None and group.size_bytes + size_bytes > self._limit_bytes:
            self._put()
            groups = self._groups
            group = groups.get(key)
        if group is None:
            if not groups:
                asyncio.get_running_loop().call_soon(self._put_when_calm, 1)
            group = groups[key] = _Group(append.partition)
        group.size_bytes += size_bytes
        if size_bytes <= group.room_bytes and append.room_bytes:
            group.room_bytes -= size_bytes
            group.batches[-1].append(append)
        else:
            group.room_bytes = append.room_bytes - size_bytes
            group.batches.append([append])
        group.done.append(done)

    def _put_when_calm(self, earlier_groups: int) -> None:
        """Put the groups, unless this turn has added some to `earlier_groups`.

        They are counted as logs: few logs have more than one.
        """
        groups = len(self._groups)
        if earlier_groups < groups < GATHERED_LOGS:
            asyncio.get_running_loop().call_soon(self._put_when_calm, groups)
        else:
            self._put()

    def _put(self) -> None:
        groups, self._groups = self._groups, {}
        appended: list[Done] = []
        for (_, checked, _), group in groups.items():
            partition = group.partition
            if not partition.is_local and isinstance(partition, RemotePartition):
                self._send(partition, group.batches, group.done, checked=checked)
            else:
                appended += self._append(partition, group.batches, group.done, checked=checked)
        for group in groups.values():
            group.partition.commit_soon()  # first: what is on disk on return needs no wait
        for callback in appended:
            callback(None)

    def _send(
        self,
        partition: RemotePartition,
        batches: Sequence[_Sharers],
        done: Sequence[Done],
        *,
        checked: bool,
    ) -> None:
        """Send each batch; if a shared one is refused, send its appends one by one."""
        callbacks = iter(done)
        for sharers in batches:
            of_batch = [next(callbacks) for _ in sharers]
            settle = partial(self._sent, partition, sharers, of_batch, checked)
            first, *others = sharers
            try:
                data = first.batch(others)
            except Exception as error:  # noqa: BLE001  # any error is reported
                settle(error)
            else:
                partition.send(data, acks=first.call.acks, checked=checked, settle=settle)

    def _sent(
        self,
        partition: RemotePartition,
        sharers: _Sharers,
        done: Sequence[Done],
        checked: bool,  # noqa: FBT001  # bound by `_send`
        result: Appended | Exception,
    ) -> None:
        if not isinstance(result, Exception):
            first, *others = sharers
            first.on_appended(result, others)
            for callback in done:
                callback(None)
        elif len(sharers) > 1 and _is_refusal(result):
            self._send(partition, [[append] for append in sharers], done, checked=checked)
        else:
            for callback in done:
                callback(result)

    def _append(
        self,
        partition: Partition,
        batches: Sequence[_Sharers],
        done: Sequence[Done],
        *,
        checked: bool,
    ) -> Sequence[Done]:
        """Append all of them; if the log refuses, append one by one, to find the refused ones.

        Before that, each in its own batch: a shared batch may be too large for the topic. Returns
        what to call for those that were appended.
        """
        appends = batches[0] if len(batches) == 1 else list(chain.from_iterable(batches))
        try:
            encoded = [first.batch(others) for first, *others in batches]
            appended = partition.append_now(
                # A single body is not copied.
                encoded[0] if len(encoded) == 1 else bytearray().join(encoded),
                acks=appends[0].call.acks,
                checked=checked,
            )
        except Exception as error:  # noqa: BLE001  # any error is reported
            is_refusal = _is_refusal(error)
            if is_refusal and len(batches) < len(appends):
                alone = [[append] for append in appends]
                return self._append(partition, alone, done, checked=checked)
            if is_refusal and len(appends) > 1:
                callbacks: list[Done] = []
                for append, callback in zip(appends, done, strict=True):
                    callbacks += self._append(partition, [[append]], [callback], checked=checked)
                return callbacks
            for callback in done:
                callback(error)
            return ()
        if len(appends) == 1:  # as nearly always if many logs are appended to
            appends[0].on_appended(appended)
            return done
        each = (appended,) if len(batches) == 1 else appended.one_by_one()
        for (first, *others), batch in zip(batches, each, strict=True):
            first.on_appended(batch, others)
        return done


def _is_refusal(error: Exception) -> bool:
    """Whether the log refuses what was to be appended, and nothing was written."""
    return isinstance(error, EngineError) and not isinstance(error, StorageError)
