"""Follows logs to which other services write: their deliveries are remembered here too.

A repetition that reaches another service than the first request is recognised as soon as the first
one was read from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

from app.errors import ServiceError
from app.operations.deliveries.memory import TopicMemory
from app.operations.deliveries.rebuild import HOLDER, READ_BYTES, Run
from app.operations.deliveries.scan import Scanned, entries_in
from app.operations.deliveries.table import Entry
from app.operations.read.wait import Watch
from app.store.port import Partition
from engine.errors import (
    LogReplaced,
    NotFound,
    OffsetError,
    StorageError,
    StoredDataCorrupt,
)
from engine.types import Buffer

_LOG = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Longest time until partitions that were added are followed."""

RETRY_SECONDS: Final = 1.0
"""After a read that failed."""


class WatchLogs(Protocol):
    """Yields what wakes when one of the logs moves."""

    def __call__(self, logs: Sequence[Hashable], /) -> AbstractContextManager[Watch]: ...


class Partitions(Protocol):
    """The partitions of topics."""

    def open_partitions(self, topic: str) -> Sequence[Partition]:
        """Return those that can be used; raises TopicNotFound."""


class LogFollower:
    """Reads the logs of one topic from the memory's positions on, as they grow. Used once."""

    def __init__(
        self,
        memory: TopicMemory,
        *,
        partitions: Partitions,
        watch: WatchLogs,
        run: Run,
        max_batch_bytes: int,
        secret: bytes,
        on_found: Callable[[], None],
    ) -> None:
        """`on_found` follows each entry.

        `max_batch_bytes` limits one decompressed batch; `secret` authenticates what is found.
        """
        self._memory = memory
        self._partitions = partitions
        self._watch = watch
        self._run = run
        self._max_batch_bytes = max_batch_bytes
        self._secret = secret
        self._on_found = on_found

    async def run(self) -> None:
        """Follow until the topic is gone, or the task is cancelled."""
        memory = self._memory
        try:
            while True:
                partitions = self._partitions.open_partitions(memory.topic)
                if any(partition.topic_id != memory.topic_id for partition in partitions):
                    return
                with self._watch([partition.identity for partition in partitions]) as watch:
                    watch.wake_by(asyncio.get_running_loop().time() + LOOK_SECONDS)
                    while not watch.is_late:
                        await self._read_all(partitions)
                        if not any(map(self._has_more, partitions)):
                            await watch.wait()
                            await asyncio.sleep(0)  # a reader that is woken at once blocks no one
                            self._partitions.open_partitions(memory.topic)
        except (NotFound, LogReplaced):
            return  # the memory of a topic that is gone is forgotten

    async def _read_all(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            try:
                while self._has_more(partition):
                    await self._read(partition)
            except (ServiceError, StorageError) as error:
                _LOG.warning("deliveries to %s: %s", partition.topic_partition, error)
                await asyncio.sleep(RETRY_SECONDS)

    def _has_more(self, partition: Partition) -> bool:
        return self._position(partition) < partition.watermarks.high_watermark

    def _position(self, partition: Partition) -> int:
        return self._memory.positions.setdefault(partition.number, 0)

    async def _read(self, partition: Partition) -> None:
        positions, number = self._memory.positions, partition.number
        offset = self._position(partition)
        try:
            fetched = partition.read_now(offset, max_bytes=READ_BYTES) or await partition.read(
                offset, max_bytes=READ_BYTES, holder=HOLDER
            )
        except OffsetError:  # retention has removed some meanwhile
            positions[number] = max(offset + 1, partition.watermarks.log_start_offset)
            return
        except StoredDataCorrupt as error:
            positions[number] = end = partition.watermarks.high_watermark
            _LOG.warning(
                "deliveries of %s from offset %d to %d may be forgotten: %s",
                partition.topic_partition,
                offset,
                end,
                error,
            )
            return
        log = Scanned.of(partition, self._secret, self._max_batch_bytes)
        look = partial(_found_in, fetched.data, offset, log)
        for entry in await self._run(look, HOLDER):
            self._memory.found(entry)
            self._on_found()
        positions[number] = max(offset, fetched.next_offset)


def _found_in(data: Buffer, start_offset: int, log: Scanned) -> Sequence[Entry]:
    return list(entries_in(data, start_offset, log))
