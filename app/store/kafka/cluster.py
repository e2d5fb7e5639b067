"""The cluster: its metadata, kept current, and a connection to each broker for each purpose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.metadata.v12.response import MetadataResponse
from kio.serial import entity_reader
from kio.static.primitive import i8
from kio.static.protocol import RequestPayload, ResponsePayload

from app.errors import BackendUnavailable
from app.settings import Settings
from app.store.kafka.connection import (
    ALL_TOPICS,
    EMPTY,
    NO_NODE,
    Address,
    Connection,
    Connector,
    Leader,
    Metadata,
)
from app.store.kafka.errors import Moved, NoAnswer, NotTrusted, ensure_done
from engine.errors import EngineError, TopicNotFound

_LOG = logging.getLogger(__name__)

R = TypeVar("R", bound=ResponsePayload)
T = TypeVar("T")

RETRY_SECONDS: Final = 0.1
"""Between two attempts; Kafka's retry.backoff.ms."""
LOST_SECONDS: Final = 3.0
"""Without an answer of any broker for this long, requests do not wait for one any more."""
CLOSE_SECONDS: Final = 1.0
"""Longest wait for the end of all connections when the service stops."""
RECONNECT_SECONDS: Final = 0.25
"""After a failed attempt to connect, others fail at once for this long."""

MAX_COORDINATORS: Final = 10_000
"""Groups whose coordinators are remembered; beyond it all of them are forgotten."""
_GROUP: Final = i8(0)

CONTROL: Final = "control"
"""The purposes of connections; appends and reads have their own."""


class _Lane:
    """One connection to one address for one purpose, opened when it is used."""

    def __init__(self, connector: Connector, address: Address) -> None:
        self.address = address
        self._connector = connector
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._refused_until = 0.0
        self._refused = NoAnswer("", was_sent=False)

    async def send(self, request: RequestPayload, *, has_response: bool = True) -> memoryview:
        """Return the response after its size; raises NoAnswer, InvalidConfig."""
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._connect()
        return await connection.send(request, has_response=has_response)

    async def _connect(self) -> Connection:
        async with self._connecting:
            connection = self._connection
            if connection is not None and connection.is_open:
                return connection
            loop = asyncio.get_running_loop()
            if loop.time() < self._refused_until:
                raise type(self._refused)(str(self._refused), was_sent=False)
            try:
                connection = await self._connector.connect(self.address)
            except NoAnswer as error:
                self._refused_until = loop.time() + RECONNECT_SECONDS
                self._refused = error
                raise
            if self._is_closed:  # meanwhile
                connection.close()
            self._connection = connection
            return connection

    def close(self) -> asyncio.Future[None] | None:
        """Close the connection; return a future for its end, None if there was none."""
        self._is_closed = True
        if self._connection is None:
            return None
        self._connection.close()
        return self._connection.closed


def decoded(frame: memoryview, response: type[R]) -> R:
    """Return a response without its header."""
    _, position = entity_reader(response.__header_schema__)(frame, 0)
    decoded, _ = entity_reader(response)(frame, position)
    return decoded


class Cluster:
    """The brokers of one cluster. Belongs to the event loop."""

    def __init__(
        self, settings: Settings, on_metadata: Callable[[Metadata], Awaitable[None]]
    ) -> None:
        """`on_metadata` is called with new metadata, once it is published."""
        self._connector = Connector(settings)
        self._bootstrap = [Address(*one) for one in settings.kafka_addresses]
        self._settings = settings
        self.request_timeout_ms = settings.kafka_request_timeout_ms
        self._on_metadata = on_metadata
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._first: dict[Address, _Lane] = {}
        self._coordinators: dict[str, int] = {}
        self._wanted = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._asked = NO_NODE
        """The broker that answered last; one broker's answers do not go back in time."""
        self.metadata: Metadata = EMPTY
        self.problem: str | None = None
        """Why no broker answers; None if one does."""
        self._is_refused = False
        """Whether that is for want of trust."""
        self._lost_since: float | None = None

    @property
    def is_lost(self) -> bool:
        """Whether no broker has answered for so long that requests are refused at once."""
        return self._lost_since is not None and self._time() - self._lost_since > LOST_SECONDS

    async def open(self) -> None:
        """Wait for the first metadata; raises BackendUnavailable if no broker answers in time.

        Credentials that are refused are an error at once.
        """
        deadline = self._time() + self._settings.kafka_start_timeout_ms / 1000
        told: str | None = None
        while True:
            await self.refresh()
            if self.problem is None:
                break
            if self._is_refused:
                raise BackendUnavailable(self.problem)
            if self.problem != told:
                told = self.problem
                _LOG.warning("no broker answers yet: %s", told)
            if self._time() >= deadline:
                raise BackendUnavailable(f"no broker of the Kafka cluster answers: {told}")
            await asyncio.sleep(RETRY_SECONDS)
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        tasks = [task for task in (self._following, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._connector.close()
        lanes = (*self._lanes.values(), *self._first.values())
        closing = [closed for closed in map(_Lane.close, lanes) if closed is not None]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_SECONDS)

    # -- metadata ----------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the metadata, from now on; `problem` says afterwards whether that was possible.

        Callers of the same moment share one request.
        """
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing})  # it began before this call
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    def refresh_soon(self) -> None:
        """Have the metadata read before its interval is over."""
        self._wanted.set()

    async def _follow(self) -> None:
        interval = self._settings.kafka_metadata_interval_ms / 1000
        while True:
            try:
                async with asyncio.timeout(RETRY_SECONDS if self.problem else interval):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self.refresh()

    async def _refresh(self) -> None:
        try:
            response = await self._ask_anyone()
            self.metadata = Metadata.of(response)
            await self._on_metadata(self.metadata)
            self.problem = None
            self._lost_since = None
        except (NoAnswer, EngineError) as error:
            self.problem = str(error)
            self._is_refused = isinstance(error, NotTrusted)
        except Exception as error:  # noqa: BLE001  # the next attempt may succeed
            self.problem = f"the metadata cannot be used: {error!r}"
            _LOG.exception("the metadata of the Kafka cluster cannot be used")
        finally:
            self._refreshing = None
            if self.problem is not None and self._lost_since is None:
                self._lost_since = self._time()

    async def _ask_anyone(self) -> MetadataResponse:
        nodes = sorted(self.metadata.brokers, key=lambda node: node != self._asked)
        problem = NoAnswer("no address is known", was_sent=False)
        for node in nodes:
            try:
                response = await self.send(node, ALL_TOPICS, MetadataResponse)
            except NoAnswer as error:
                problem = error
            else:
                self._asked = node
                return response
        for address in self._bootstrap:
            lane = self._first.get(address)
            if lane is None:
                lane = self._first[address] = _Lane(self._connector, address)
            try:
                return decoded(await lane.send(ALL_TOPICS), MetadataResponse)
            except NoAnswer as error:
                problem = error
        raise problem

    def leader(self, topic: str, number: int) -> Leader:
        """Return the leader of a partition; raises TopicNotFound, and NoAnswer if there is none."""
        known = self.metadata.topics.get(topic)
        if known is None or number >= len(known.leaders):
            raise TopicNotFound(f"no topic {topic!r} with a partition {number}", topic=topic)
        leader = known.leaders[number]
        if leader.node not in self.metadata.brokers:
            raise NoAnswer(f"{topic}-{number} has no leader at present", was_sent=False)
        return leader

    def any_node(self) -> int:
        """Return a broker for requests that any broker answers; raises NoAnswer."""
        brokers = self.metadata.brokers
        if self._asked in brokers:
            return self._asked
        if not brokers:
            raise NoAnswer("no broker is known", was_sent=False)
        return next(iter(brokers))

    # -- requests ----------------------------------------------------------------------------

    async def send(
        self, node: int, request: RequestPayload, response: type[R], *, lane: str = CONTROL
    ) -> R:
        """Return a broker's response; raises NoAnswer. Requests of one lane are sent in order."""
        return decoded(await self._lane(node, lane).send(request), response)

    async def send_only(self, node: int, request: RequestPayload, *, lane: str) -> None:
        """Send a request that has no response."""
        await self._lane(node, lane).send(request, has_response=False)

    async def coordinator(self, group: str) -> int:
        """Return the broker that keeps a group's offsets; raises Moved while there is none."""
        node = self._coordinators.get(group)
        if node is not None:
            return node
        request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=(group,))
        response = await self.send(self.any_node(), request, FindCoordinatorResponse)
        (found,) = response.coordinators
        ensure_done(found.error_code, found.error_message)
        if len(self._coordinators) >= MAX_COORDINATORS:
            self._coordinators.clear()
        node = self._coordinators[group] = int(found.node_id)
        return node

    def forget_coordinator(self, group: str) -> None:
        """Ask for the group's coordinator again, the next time."""
        self._coordinators.pop(group, None)

    def _lane(self, node: int, lane: str) -> _Lane:
        address = self.metadata.brokers.get(node)
        if address is None:
            raise NoAnswer(f"broker {node} is not in the cluster", was_sent=False)
        found = self._lanes.get((node, lane))
        if found is None or found.address != address:
            if found is not None:
                found.close()
            found = self._lanes[node, lane] = _Lane(self._connector, address)
        return found

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
        """Repeat an attempt that may be repeated, with new metadata, until it succeeds.

        Raises what else it raises, and BackendUnavailable when the time is over.
        """
        deadline = self._time() + timeout_ms / 1000
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except (Moved, NoAnswer, TimeoutError) as error:
                if self.is_lost or self._time() + RETRY_SECONDS >= deadline:
                    raise BackendUnavailable(
                        f"the Kafka cluster does not answer: {error}"
                    ) from error
            await asyncio.sleep(RETRY_SECONDS)
            await self.refresh()

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
