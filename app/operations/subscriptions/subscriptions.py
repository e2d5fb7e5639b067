"""All subscriptions: what is set, what runs, and why something does not.

A subscription is a document, so every replica of the service has the same. On a local store this
service pushes all partitions; before a Kafka cluster replicas share them by leases, as workers of
the subscription's group.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from app.errors import LeaseLost, ServiceError
from app.limits.shares import EVERYBODY
from app.operations.leases.group import KnownTopic, Renewal
from app.operations.subscriptions.push import Paused, Push, Stopped
from app.operations.subscriptions.targets import Hosts
from app.store.port import Documents
from engine.errors import EngineError
from engine.types import TopicPartition
from schemas.subscriptions import PutSubscription

if TYPE_CHECKING:
    from app.operations.service import Service
    from app.operations.subscriptions.sender import Sender

_LOG = logging.getLogger(__name__)

_PREFIX: Final = "subscription:"

LOOK_S: Final = 10.0
"""How often partitions that were added are looked for, on a local store."""

AGAIN_S: Final = 1.0
"""After a fault of ours: a push begins again."""

TTL_MS: Final = 30_000
LEAVE_S: Final = 5.0
RENEW_S: Final = 8.0
"""How often leases are renewed, before a cluster."""


class Subscription:
    """One subscription, and its pushes if it runs here."""

    def __init__(self, name: str, options: PutSubscription, problem: str | None) -> None:
        self.name = name
        self.options = options
        self.problem = problem
        """Why it was paused or stopped by itself."""
        self.pushes: dict[TopicPartition, Push] = {}
        self.keeper: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        if self.options.paused:
            return "paused"
        return "stopped" if self.problem is not None else "running"


class Subscriptions:
    """Belongs to the event loop."""

    def __init__(self, service: Service, documents: Documents) -> None:
        self._service = service
        self._documents = documents
        self._by_name: dict[str, Subscription] = {}
        self._worker = f"tidelog-{secrets.token_hex(6)}"
        """The name of this service as a worker."""
        self.hosts = Hosts(service.settings.subscription_hosts)
        self._sender: Sender | None = None
        self._ending: dict[str, asyncio.Task[None]] = {}
        """What ran under a name until it was changed: its successor waits for it."""
        self.outcomes: Counter[str] = Counter()
        """Requests by outcome: `done`, `failed`, `dead_letter`."""

    def all(self) -> Mapping[str, Subscription]:
        return self._by_name

    def count(self, state: str) -> int:
        """Return how many are in a state."""
        return sum(one.state == state for one in self._by_name.values())

    @property
    def sender(self) -> Sender:
        """The connections to receivers, which are made when they are first needed."""
        if self._sender is None:
            from app.operations.subscriptions.sender import Sender  # noqa: PLC0415  # it loads httpcore

            settings = self._service.settings
            ca_file = settings.subscription_ca_file
            self._sender = Sender(self.hosts, ca_file=None if ca_file is None else str(ca_file))
        return self._sender

    def load(self) -> None:
        """Take the documents over; start, change and end what they have changed.

        Raises what `Documents.damaged` returns.
        """
        found: dict[str, Subscription] = {}
        for name, document in self._documents.named(_PREFIX).items():
            problem = document.get("problem")
            found[name] = Subscription(
                name,
                self._parsed(_PREFIX + name, document.get("options")),
                None if problem is None else str(problem),
            )
        for name, before in tuple(self._by_name.items()):
            after = found.get(name)
            if after is None or after.options != before.options or after.state != before.state:
                self._end(before)
                del self._by_name[name]
        for name, one in found.items():
            known = self._by_name.setdefault(name, one)
            known.problem = one.problem
            if known.state == "running" and known.keeper is None:
                keep = self._keep(known)
                known.keeper = asyncio.create_task(keep, name=f"subscription-{name}")

    def _parsed(self, name: str, options: object) -> PutSubscription:
        try:
            return PutSubscription.model_validate(options)
        except ValidationError as error:  # its text has the secrets
            fault = error.errors(include_input=False, include_context=False)[0]
            place = ".".join(map(str, fault["loc"]))
            raise self._documents.damaged(name, f"{place}: {fault['msg']}") from None

    async def put(self, name: str, options: PutSubscription) -> Subscription:
        """Store a subscription, durably, and start it."""
        await self._store(name, options, None)
        return self._by_name[name]

    async def _store(self, name: str, options: PutSubscription, problem: str | None) -> None:
        shown = options.model_dump(mode="json", exclude_none=True)
        document: dict[str, object] = {"options": shown}
        if problem is not None:
            document["problem"] = problem
        await self._documents.change({_PREFIX + name: document})
        self.load()

    async def delete(self, name: str) -> None:
        """Remove a subscription, durably; its group's offsets stay."""
        await self._documents.change({_PREFIX + name: None})
        self.load()

    async def close(self) -> None:
        """End all pushes; what was sent and not answered is sent again after the next start."""
        tasks = [one.keeper for one in self._by_name.values() if one.keeper is not None]
        for one in self._by_name.values():
            self._end(one)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._sender is not None:
            await self._sender.close()

    def _end(self, one: Subscription) -> None:
        if one.keeper is not None:
            one.keeper.cancel()
            self._ending[one.name] = one.keeper

    # -- one that runs -----------------------------------------------------------------------

    async def _keep(self, one: Subscription) -> None:
        """Push the partitions that are this service's, until it is cancelled."""
        before = self._ending.pop(one.name, None)
        if before is not None:
            await asyncio.wait({before})  # no two requests of a partition are under way
        try:
            while True:
                try:
                    held = await self._held(one)
                except Exception as error:  # noqa: BLE001  # the store may be back later
                    said = error if isinstance(error, EngineError | ServiceError) else repr(error)
                    _LOG.warning("subscription %s: %s", one.name, said)
                    held = {place: push.fence for place, push in one.pushes.items()}
                self._reconcile(one, held)
                await self._settle(one, LOOK_S if self._is_local else RENEW_S)
        finally:
            tasks = [push.task for push in one.pushes.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            one.pushes.clear()
            if not self._is_local:
                await self._leave(one)

    async def _leave(self, one: Subscription) -> None:
        """Let other replicas have the partitions at once; otherwise the lease ends by itself."""
        with suppress(EngineError, ServiceError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._service.leases.claim(
                    one.options.group or "", self._worker, None, EVERYBODY
                )

    @property
    def _is_local(self) -> bool:
        return self._service.store.backend == "local"

    async def _held(self, one: Subscription) -> Mapping[TopicPartition, int | None]:
        """Return the partitions to push, with the fences of their leases if they are shared."""
        service, topics = self._service, self._service.topics.all()
        known = {name: topics[name] for name in one.options.topics if name in topics}
        if self._is_local:
            return {
                TopicPartition(name, number): None
                for name, topic in known.items()
                for number in range(topic.partitions)
            }
        wanted = {name: KnownTopic(one.topic_id, one.partitions) for name, one in known.items()}
        group = one.options.group or ""
        leases = await service.leases.of_group(group)
        worker = leases.workers.get(self._worker)
        released = sorted(worker.held - worker.targets) if worker is not None else []
        for place in released:  # what is to move ends before it is let go
            push = one.pushes.pop(place, None)
            if push is not None:
                push.task.cancel()
                await asyncio.gather(push.task, return_exceptions=True)
        renewal = Renewal(wanted, TTL_MS, released)
        leases = await service.leases.claim(group, self._worker, renewal, EVERYBODY)
        worker = leases.workers[self._worker]
        return {place: leases.holds[place].fence for place in worker.held & worker.targets}

    def _reconcile(self, one: Subscription, held: Mapping[TopicPartition, int | None]) -> None:
        for place, push in tuple(one.pushes.items()):
            if held.get(place, -1) != push.fence or push.task.done():
                push.task.cancel()
                del one.pushes[place]
        for place, fence in held.items():
            if place not in one.pushes:
                one.pushes[place] = Push(
                    self._service,
                    self.sender,
                    one.name,
                    one.options,
                    place,
                    fence=fence,
                    count=partial(_count, self.outcomes),
                )

    async def _settle(self, one: Subscription, seconds: float) -> None:
        """Wait, or until a push ends; pause or stop the subscription if that is why."""
        tasks = [push.task for push in one.pushes.values()]
        if not tasks:
            await asyncio.sleep(seconds)
            return
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Paused):
                paused = one.options.model_copy(update={"paused": True})
                await self._note(one, paused, str(error))
            elif isinstance(error, Stopped):
                _LOG.error("subscription %s has stopped: %s", one.name, error)
                await self._note(one, one.options, str(error))
            elif error is not None and not isinstance(error, LeaseLost):
                _LOG.error("subscription %s", one.name, exc_info=error)
                await asyncio.sleep(AGAIN_S)

    async def _note(self, one: Subscription, options: PutSubscription, problem: str) -> None:
        """Store why a subscription ends here, unless it was changed meanwhile.

        That ends the task that calls this; the change is completed all the same.
        """

        async def store() -> None:
            async with self._service.changing_topics:
                if self._by_name.get(one.name) is one:
                    await self._store(one.name, options, problem)

        await asyncio.shield(store())


def _count(outcomes: Counter[str], outcome: str) -> None:
    outcomes[outcome] += 1
