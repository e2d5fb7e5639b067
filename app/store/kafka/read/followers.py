"""Follows the logs that readers wait for: one long-lived fetch feeds all of them.

All logs of one broker that are followed share its next fetch. A log that joins while a fetch waits
gets one of its own until that fetch has returned. Nothing is asked for a log that no reader waits
for, and what a fetch brings is offered for one turn of the event loop: then readers that are not at
the end read on demand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from typing import Final

from kio.schema.fetch.v13.response import FetchResponse, PartitionData

from app.errors import ServiceError
from app.store.kafka.cluster import RETRY_SECONDS, Cluster
from app.store.kafka.errors import Moved, NoAnswer
from app.store.kafka.read.log_reader import LogReader
from app.store.kafka.read.requests import (
    LogKey,
    Position,
    ensure_read,
    fetch_request,
    fetched_logs,
)
from engine.errors import EngineError
from engine.types import FetchIsolation

FOLLOW_LANES: Final = 4
"""Fetches that wait at one broker at the same time."""

FOLLOW_WAIT_MS: Final = 500
"""How long a broker holds a fetch without data; Kafka's fetch.max.wait.ms."""

FOLLOW_BYTES: Final = 1024 * 1024
"""Bytes of one fetch; a batch that is larger comes whole."""


class _Broker:
    """The fetches of one broker."""

    def __init__(self) -> None:
        self.waiting: dict[LogReader, None] = {}
        """The logs of the next fetch."""
        self.free_lanes = list(range(FOLLOW_LANES))


class Followers:
    """The logs that are followed. Belongs to the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        wake: Callable[[Hashable], None],
        has_readers: Callable[[Hashable], bool],
    ) -> None:
        """`wake` wakes the readers of a log, `has_readers` says whether any waits for it."""
        self._cluster = cluster
        self._wake = wake
        self._has_readers = has_readers
        self._brokers: dict[int, _Broker] = {}
        self._followed: set[LogReader] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, log: LogReader) -> None:
        """Follow a log as long as readers wait for it."""
        if log not in self._followed:
            self._followed.add(log)
            self._enlist(log)

    def moved(self, log: LogReader) -> None:
        """Learn that a response has moved the offsets of a log."""
        if not log.is_fetched:  # otherwise the fetch returns now, with the records
            self._wake(log.identity)

    def abandon(self, log: LogReader) -> None:
        """Wake the readers of a log that is gone."""
        self._wake(log.identity)

    def close(self) -> None:
        """End all fetches."""
        for task in self._tasks:
            task.cancel()

    # -- the logs ----------------------------------------------------------------------------

    def _enlist(self, log: LogReader) -> None:
        """Put a log into the next fetch from its leader, once there is one."""
        try:
            leader = log.leader()
        except (EngineError, NoAnswer):  # readers of a deleted topic are woken by `abandon`
            self._begin(self._enlist_later((log,)))
        else:
            if log.is_verified(leader):
                self._join(leader.node, log)
            else:
                self._begin(self._verify(log))

    def _enlist_read(self, logs: Iterable[LogReader]) -> None:
        """Go on with the logs that readers wait for."""
        for log in logs:
            if self._has_readers(log.identity):
                self._enlist(log)
            else:
                self._followed.discard(log)

    async def _enlist_later(self, logs: Iterable[LogReader]) -> None:
        """Go on when the metadata has been read again."""
        await asyncio.sleep(RETRY_SECONDS)
        await self._cluster.refresh()
        self._enlist_read(logs)

    async def _verify(self, log: LogReader) -> None:
        try:
            await log.verified_leader()
        except _FAILURES:
            await self._enlist_later((log,))
        else:
            self._enlist_read((log,))

    # -- the fetches -------------------------------------------------------------------------

    def _join(self, node: int, log: LogReader) -> None:
        broker = self._brokers.setdefault(node, _Broker())
        broker.waiting[log] = None
        if len(broker.waiting) == 1:
            asyncio.get_running_loop().call_soon(self._fetch_next, node, broker)

    def _fetch_next(self, node: int, broker: _Broker) -> None:
        if broker.waiting and broker.free_lanes:
            logs = tuple(broker.waiting)
            broker.waiting.clear()
            self._begin(self._fetch(node, broker, broker.free_lanes.pop(), logs))

    async def _fetch(
        self, node: int, broker: _Broker, lane: int, logs: Sequence[LogReader]
    ) -> None:
        positions = {log: log.end_position(FOLLOW_BYTES) for log in logs}
        before = {log: log.marks.watermarks for log in logs}
        for log in logs:
            log.is_fetched = True
        try:
            answers = await self._ask(node, lane, positions.values())
        except _FAILURES:
            answers = {}
        finally:
            broker.free_lanes.append(lane)
            asyncio.get_running_loop().call_soon(self._fetch_next, node, broker)
        # What the answers move is woken for here, once.
        failed = [log for log in logs if not _take(log, positions[log], answers.get(log.key))]
        for log in logs:
            log.is_fetched = False
            if log.has_news or log.marks.watermarks is not before[log]:
                self._wake(log.identity)
        await asyncio.sleep(0)  # readers that were woken read now
        for log in logs:
            log.forget()
        self._enlist_read(log for log in logs if log not in failed)
        if failed:
            await self._enlist_later(failed)

    async def _ask(
        self, node: int, lane: int, positions: Iterable[Position]
    ) -> Mapping[LogKey, PartitionData]:
        request = fetch_request(
            positions,
            isolation=FetchIsolation.HIGH_WATERMARK,
            max_bytes=FOLLOW_BYTES,
            max_wait_ms=FOLLOW_WAIT_MS,
        )
        response = await self._cluster.send(node, request, FetchResponse, lane=f"follow-{lane}")
        return fetched_logs(response)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_FAILURES: Final = (EngineError, Moved, NoAnswer, ServiceError)
"""After which a fetch is tried again, with new metadata."""


def _take(log: LogReader, position: Position, data: PartitionData | None) -> bool:
    """Take what a fetch has brought for a log; False if the broker does not say."""
    try:
        if data is None:
            return False
        ensure_read(data.error_code)
    except _FAILURES:
        log.doubt()
        return False
    log.bring(position.offset, data)
    return True
