"""The service: one object that holds the runtime and everything around it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Final

from app.codecs.calls import ReadCall
from app.codecs.events import Look, Page
from app.codecs.stored import LogTexts, RenderedBatches
from app.errors import NotSupportedByBackend
from app.http.slow_clients import SlowClients
from app.limits.admission import Admission, Phase
from app.limits.executors import Workers
from app.limits.shares import Makers
from app.operations.deliveries.deliveries import Deliveries, delivery_secret
from app.operations.ingest.profiles import Profiles
from app.operations.ingest.senders import IngestTokens, Senders
from app.operations.leases.leases import Leases
from app.operations.read.render_memory import Found, RenderMemory
from app.operations.subscriptions.subscriptions import Subscriptions
from app.operations.value_schemas import ValueSchemas
from app.operations.wait import Shared, Tail
from app.security.authority import Security
from app.security.sites import Sites
from app.settings import Settings
from app.store.choice import make_store
from app.store.local.partition import LocalPartition
from app.store.local.store import LocalStore
from app.store.port import GroupOffsets, Partition, Store, Topics
from app.telemetry.history import History
from app.telemetry.metrics import CERTIFICATE_EXPIRY, Telemetry
from app.telemetry.refusals import Refusals
from app.telemetry.request_log import RequestLog, log_access
from app.telemetry.tracing import Tracing
from engine.clock import Clock, SystemClock
from engine.errors import LogOffline, PartitionNotFound, StorageOffline, TopicNotFound
from engine.fs.names import is_valid_topic_name
from engine.fs.port import FileSystem
from engine.fs.posix import PosixFileSystem
from engine.log.results import Fetched
from engine.manager.topics import Topic


def local_store(store: Store) -> LocalStore:
    """Return the store as the local one; raises NotSupportedByBackend if it is another."""
    if not isinstance(store, LocalStore):
        raise _not_supported()
    return store


def local_partition(partition: Partition) -> LocalPartition:
    """Return the partition as a local one; raises NotSupportedByBackend if it is another."""
    if not isinstance(partition, LocalPartition):
        raise _not_supported()
    return partition


def _not_supported() -> NotSupportedByBackend:
    return NotSupportedByBackend(
        "this operation needs a service that stores the logs in its own data directories"
    )


_LOG = logging.getLogger(__name__)

MAX_PARTITIONS: Final = 65_536
"""Handles kept in memory; beyond it all of them are dropped."""


class Service:
    """The store and what HTTP needs around it; one per application. Belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.admission = Admission(settings)
        self.telemetry = Telemetry()
        self.journal = RequestLog(self.telemetry)
        self.tail = Tail()
        self.reads: Shared[tuple[Hashable, int, int, ReadCall], Found] = Shared()
        self.tail_pages: Shared[tuple[Hashable, int, int, ReadCall], Page] = Shared()
        self.tail_look: Look | None = None
        """Pages that tails have read in the current turn of the loop."""
        self.slow_clients = SlowClients(stall_timeout_ms=settings.tail_stall_timeout_ms)
        self.workers = Workers(settings)
        self.append_memory = RenderMemory(settings)
        """For bodies, apart from that of answers, so that slow reads do not stop appends."""
        self.render_memory = RenderMemory(settings)
        self.rendered_batches = RenderedBatches(settings.max_rendered_batches_bytes)
        """Batches as JSON, for readers that want them again."""
        self.changing_topics = asyncio.Lock()
        """Held from reading a topic's ETag to the change that depends on it."""
        self.stopping = asyncio.Event()
        """Set when the service drains: long requests end."""
        fs = fs or PosixFileSystem()
        self.security = Security(settings, clock=self.clock, fs=fs)
        self.sites = Sites(settings, self.security)
        self.store: Store = self._make_store(fs)
        self.topics: Topics = self.store.topics
        self.groups: GroupOffsets = self.store.groups
        self.profiles = Profiles(self.store.documents)
        self.ingest_tokens = IngestTokens(self.store.documents, self.security)
        self.senders = Senders(
            settings,
            profiles=self.profiles,
            tokens=self.ingest_tokens,
            security=self.security,
            clock=self.clock,
        )
        self.deliveries = Deliveries(
            settings,
            self.clock,
            partitions=self,
            profile_of=self.profiles.of,
            secret=partial(delivery_secret, self.store.documents, self.changing_topics),
            run=self.workers.read,
            watch=self.tail.watch,
        )
        self.value_schemas = ValueSchemas(self.store.documents)
        self.leases = Leases(settings, self.clock, store=self.store, run=self.workers.read)
        self.subscriptions = Subscriptions(self, self.store.documents)
        self.refusals = Refusals(
            self.telemetry,
            is_topic=lambda name: name in self.topics.all(),
            now_ms=self.clock.now_ms,
        )
        """Why the last requests to ingest URLs were refused."""
        self.history = History(
            self.telemetry,
            self.clock,
            readers=lambda: self.admission.waiting_readers + self.admission.tails,
            commits=self.store.commit_buckets,
        )
        self.topic_makers = Makers[str](
            "max_topics", settings.max_topics, settings.max_share_percent
        )
        self.failure: BaseException | None = None
        """Why the data directory could not be opened; the process ends with it."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sticky: dict[str, int] = {}
        self._gauges()
        if settings.access_log:
            self.journal.observe(log_access)
        self._tracing = Tracing.from_environment() if settings.tracing else None
        if self._tracing is not None:
            self.journal.observe(self._tracing.record)

    def _make_store(self, fs: FileSystem) -> Store:
        return make_store(
            self.settings,
            workers=self.workers,
            clock=self.clock,
            fs=fs,
            recorder=self.telemetry,
            on_moved=self.tail.wake,
            has_readers=self.tail.has_readers,
            on_gone=self.forget,
        )

    async def open(self) -> None:
        """Open the store; until then requests are 503."""
        self._loop = asyncio.get_running_loop()
        await self.security.open()
        self.tail.on_waiting = self.store.follow
        await self.store.open()
        self.history.start()
        self._load_documents()
        self.store.documents.on_changed = self._load_documents
        if self.admission.phase is Phase.RECOVERING:
            self.admission.phase = Phase.READY
            _LOG.info("ready", extra={"topics": len(self.topics.all())})

    def _load_documents(self) -> None:
        topic_ids = {name: topic.topic_id for name, topic in self.topics.all().items()}
        self.senders.load(topic_ids)
        self.value_schemas.load(topic_ids)
        self.subscriptions.load()

    def drain_soon(self) -> None:
        """Drain in the next turn of the loop; safe in signal handlers."""
        if self._loop is None:
            self.drain()
        else:
            self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Refuse new requests, answer long polls and end tails; running requests finish."""
        self.admission.phase = Phase.DRAINING
        self.tail.wake_all()
        self.slow_clients.hurry()
        self.stopping.set()

    async def close(self) -> None:
        """Drain, close the store, and end all threads."""
        self.drain()
        self.history.stop()
        await self.security.close()
        self.deliveries.close()
        await self.subscriptions.close()
        await self.store.close()
        self.workers.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    @property
    def is_ready(self) -> bool:
        """Whether `/readyz` is 200, without its report."""
        return self.admission.phase is Phase.READY and self.store.failure() is None

    def readiness(self) -> dict[str, object]:
        """Return whether requests are served; if not, why."""
        phase = self.admission.phase
        if phase is Phase.RECOVERING:
            report = {"status": phase.value, "recovery": self.store.progress()}
            failure = self.store.failure()
            return report if failure is None else {**report, "detail": failure}
        failure = self.store.failure()
        if phase is Phase.READY and failure is not None:
            return {"status": "offline", "detail": failure}
        return {"status": phase.value, **self.store.report()}

    def texts_of(self, partition: Partition, fetched: Fetched) -> LogTexts:
        """Return where the texts of a partition's batches are kept, for what was read of it."""
        return LogTexts(self.rendered_batches, partition.log_id_at(fetched.leader_epoch))

    async def look_for(self, topic: str, number: int) -> None:
        """Bring a topic or partition that is not known up to date: it may be new elsewhere."""
        known = self.topics.all().get(topic)
        if known is None or number >= known.partitions:
            await self.topics.look_for(topic)

    def topic(self, name: str) -> Topic:
        """Return one topic that clients may name; raises TopicNotFound, for internal ones too."""
        try:
            topic = self.topics.topic(name)
        except TopicNotFound as error:
            if not is_valid_topic_name(name):
                raise TopicNotFound(
                    f"no topic can have the name {name!r}: names are 1 to 249 of the characters "
                    "a-z, A-Z, 0-9, '.', '_' and '-'",
                    topic=name,
                ) from None
            advice = (
                f"create it: PUT {self.url_of(name)}, Content-Type: application/json, body {{}}"
            )
            raise TopicNotFound(f"{error}; {advice}", topic=name) from None
        if topic.is_internal:
            raise TopicNotFound(f"topic {name!r} is internal and not served by name", topic=name)
        return topic

    def url_of(self, topic: str) -> str:
        """Return the path of a topic as clients know it, below the prefix of a proxy."""
        return f"{self.settings.url_prefix}/v1/topics/{topic}"

    def partition(self, topic: str, number: int) -> Partition:
        """Return one partition; raises as `topic` and `Topics.partition`."""
        key = (topic, number)
        partition = self._partitions.get(key)
        if partition is None:
            self.topic(topic)
            if len(self._partitions) >= MAX_PARTITIONS:
                self._partitions.clear()
            partition = self._partitions[key] = self.topics.partition(topic, number)
        return partition

    def partitions(self, topic: str) -> list[Partition]:
        """Return the topic's partitions in this service; raises TopicNotFound, LogOffline."""
        found = []
        for number in range(self.topic(topic).partitions):
            try:
                found.append(self.partition(topic, number))
            except PartitionNotFound:
                continue  # an adopted directory may have only some of them
        return found

    def open_partitions(self, topic: str) -> list[Partition]:
        """Return those of the topic's partitions that can be used; raises TopicNotFound."""
        found = []
        for number in range(self.topic(topic).partitions):
            with suppress(PartitionNotFound, LogOffline, StorageOffline):
                found.append(self.partition(topic, number))
        return found

    def any_partition(self, topic: str) -> Partition:
        """Return the topic's first open partition.

        Raises TopicNotFound, or the last partition's error if none can be used.
        """
        last = self.topic(topic).partitions - 1
        for number in range(last):
            with suppress(PartitionNotFound, LogOffline):
                return self.partition(topic, number)
        return self.partition(topic, last)

    def sticky_partition(self, topic: str, partitions: int) -> int:
        """Return the partition for records without a key: one per request, in turn."""
        partition = (self._sticky.get(topic, -1) + 1) % partitions
        self._sticky[topic] = partition
        return partition

    def forget(self, topic: str) -> None:
        """Clear the caches of a deleted topic, and notify its waiters."""
        self._sticky.pop(topic, None)
        self.refusals.forget(topic)
        self.deliveries.forget(topic)
        gone = [key for key in self._partitions if key[0] == topic]
        for partition in [self._partitions.pop(key) for key in gone]:
            partition.abandon(TopicNotFound(f"topic {topic} was deleted", topic=topic))

    async def forget_documents(self, topic: str) -> None:
        """Remove the ingest profile, the tokens and the value schema of a topic, durably."""
        names = [*self.senders.forget(topic), *self.value_schemas.forget(topic)]
        if names:
            await self.store.documents.change(dict.fromkeys(names))

    def _gauges(self) -> None:
        self.telemetry.include(self.store)
        self.telemetry.info("build", "The release that runs", {"version": version("tidelog")})
        gauge = self.telemetry.gauge
        gauge(*CERTIFICATE_EXPIRY, lambda: math.nan)  # a server with TLS knows it
        admission = self.admission
        gauge("in_flight_requests", "Requests in progress", lambda: admission.requests)
        gauge("in_flight_body_bytes", "Bytes of bodies held", lambda: admission.body_bytes)
        gauge("in_flight_answer_bytes", "Bytes of responses held", lambda: admission.answer_bytes)
        gauge("waiting_readers", "Waiting long polls", lambda: admission.waiting_readers)
        gauge("tail_clients", "Clients that tail a partition", lambda: admission.tails)
        gauge("slow_tails", "Tails whose clients do not receive", lambda: self.slow_clients.slow)
        kept = self.rendered_batches
        gauge("rendered_batches_bytes", "Memory of batches kept as JSON", lambda: kept.size_bytes)
        deliveries = self.deliveries
        gauge("deliveries_remembered", "Delivery ids in memory", lambda: deliveries.remembered)
        gauge("deliveries_bytes", "Memory of those ids", lambda: deliveries.size_bytes)
        for state in ("running", "paused", "stopped"):
            count = partial(self.subscriptions.count, state)
            gauge(f"subscriptions_{state}", f"Subscriptions that are {state}", count)
        leases = self.leases
        gauge("lease_workers", "Workers with a lease", lambda: leases.workers_count)
        counter = self.telemetry.counter
        counter("deliveries_repeated", "Repetitions of deliveries", lambda: deliveries.repeated)
        counter("deliveries_evicted", "Ids forgotten early", lambda: deliveries.evicted)
        outcomes = self.subscriptions.outcomes
        counter("subscription_requests_done", "Pushes that arrived", lambda: outcomes["done"])
        counter("subscription_requests_failed", "Pushes that did not", lambda: outcomes["failed"])
        counter("subscription_dead_letters", "Batches given up", lambda: outcomes["dead_letter"])
