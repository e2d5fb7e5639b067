"""What the reads of all logs share: requests, their connections, memory.

The bytes that reads on demand wait for are bounded: each broker has its share, in turn. What many
requests ask one broker in one turn of the loop is joined to one request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final, Generic, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13.response import FetchResponse, PartitionData
from kio.schema.list_offsets.v7.response import ListOffsetsPartitionResponse, ListOffsetsResponse

from app.settings import Settings
from app.store.kafka.cluster import Cluster
from app.store.kafka.errors import Moved, NoAnswer
from app.store.kafka.metrics import KafkaMetrics
from app.store.kafka.read.requests import (
    EARLIEST,
    LATEST,
    Position,
    fetch_request,
    fetched_logs,
    list_offsets_request,
    listed_logs,
)
from engine.types import FetchIsolation, TopicPartition


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


FETCH_LANES: Final = 4
"""Connections to each broker for reads on demand: it answers one request of each at a time."""

OFFSETS_LANE: Final = "offsets"


class LogOffsets(NamedTuple):
    """Where a log is, as its leader answers."""

    start: ListOffsetsPartitionResponse
    stable: ListOffsetsPartitionResponse
    high: ListOffsetsPartitionResponse

    @property
    def error_code(self) -> ErrorCode:
        """The first error of the three."""
        codes = (one.error_code for one in self)
        return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


class Reads:
    """Sends the requests of readers. Belongs to the event loop."""

    def __init__(self, settings: Settings, cluster: Cluster, metrics: KafkaMetrics) -> None:
        self.cluster = cluster
        self.commit_timeout_ms = settings.commit_timeout_ms
        self.timeout_ms = settings.kafka_read_timeout_ms
        self._metrics = metrics
        self.memory = FetchMemory(
            settings.max_kafka_fetch_bytes, lambda: len(cluster.metadata.brokers)
        )
        self.offsets: Questions[TopicPartition, int, LogOffsets] = Questions(self._offsets)
        """The offsets of a log in an epoch, as they are now."""
        self._lanes: dict[int, list[int]] = {}
        """By broker: the requests in flight on each of its connections."""

    async def fetch(
        self, node: int, position: Position, isolation: FetchIsolation
    ) -> PartitionData:
        """Return what a broker has at a position now; raises Moved if it does not say."""
        request = fetch_request((position,), isolation=isolation, max_bytes=position.max_bytes)
        lanes = self._lanes.setdefault(node, [0] * FETCH_LANES)
        lane = lanes.index(min(lanes))
        lanes[lane] += 1
        self._metrics.in_flight_bytes["fetch"] += position.max_bytes
        started = perf_counter()
        try:
            response = await self.cluster.send(node, request, FetchResponse, lane=f"fetch-{lane}")
        except NoAnswer:
            self._metrics.failed("fetch", "no_answer")
            raise
        finally:
            lanes[lane] -= 1
            self._metrics.in_flight_bytes["fetch"] -= position.max_bytes
        self._metrics.answered("fetch", node, perf_counter() - started)
        return self._counted(fetched_logs(response).get(position.log))

    def _counted(self, data: PartitionData | None) -> PartitionData:
        if data is None:  # so a broker answers that throttles
            raise Moved(ErrorCode.throttling_quota_exceeded)
        if data.error_code is not ErrorCode.none:
            self._metrics.failed("fetch", data.error_code.name)
        return data

    async def _offsets(
        self, node: int, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, LogOffsets]:
        """Ask in this order, so that no offset is above one that is asked for after it."""
        start, stable, high = await asyncio.gather(
            self._listed(node, epochs, EARLIEST),
            self._listed(node, epochs, LATEST, FetchIsolation.TXN_COMMITTED),
            self._listed(node, epochs, LATEST),
        )
        return {
            log: LogOffsets(start[log], stable[log], high[log])
            for log in start.keys() & stable.keys() & high.keys()
        }

    async def _listed(
        self,
        node: int,
        epochs: Mapping[TopicPartition, int],
        timestamp: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> Mapping[TopicPartition, ListOffsetsPartitionResponse]:
        request = list_offsets_request(epochs.items(), timestamp, isolation)
        response = await self.cluster.send(node, request, ListOffsetsResponse, lane=OFFSETS_LANE)
        return listed_logs(response)

    async def look_up(
        self, node: int, log: TopicPartition, leader_epoch: int, timestamp: int
    ) -> ListOffsetsPartitionResponse:
        """Return the record of a time; raises Moved without an answer."""
        listed = await self._listed(node, {log: leader_epoch}, timestamp)
        if log not in listed:
            raise Moved(ErrorCode.unknown_server_error)
        return listed[log]
