"""Which worker of a group holds which partition: a pure function of the claims, in their order.

A claim is what a worker asks for: to join, to renew its lease, to leave. `GroupLeases` applies the
claims of one group in the order of their log. Nothing else changes it: no timer, no call. So a
restart and every replica of the service come to the same result.

Each partition has a *target*, the worker that is to have it, and a *hold*, the worker that has it.
Targets change at once when workers come and go; holds follow. A hold begins at a claim of its
target, and only if the hold before has ended: its worker released the partition, left, or let the
time pass. So no two workers hold a partition at the same time, whatever their clocks say.

Time is the log's: that of the last claim, and it never goes back.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec

from engine.types import Buffer, TopicPartition


class KnownTopic(NamedTuple):
    """A topic as the service that wrote a claim knew it."""

    topic_id: str
    partitions: int


class Renewal(NamedTuple):
    """A worker joins, or goes on."""

    topics: Mapping[str, KnownTopic]
    ttl_ms: int
    """Its lease ends so long after the claim."""
    released: Sequence[TopicPartition] = ()
    """Partitions that the worker has finished with."""


@dataclass(slots=True)
class Hold:
    """A partition in the hands of a worker."""

    worker: str
    fence: int
    """The offset of the claim with which the hold began: no two holds have the same."""
    until_ms: int | None = None
    """When it ends, if it does not go on with the worker's lease: the partition is to move, or the
    lease is over."""


@dataclass(slots=True)
class Worker:
    """A worker whose lease has not ended."""

    name: str
    topics: frozenset[str]
    ttl_ms: int
    deadline_ms: int
    """The lease ends at this time, exclusive."""
    targets: set[TopicPartition] = field(default_factory=set)
    """What it is to have."""
    held: set[TopicPartition] = field(default_factory=set)
    """What it holds, what is to move included."""

    @property
    def waiting(self) -> set[TopicPartition]:
        """What it is to have and does not hold: others have not let go of it yet."""
        return self.targets - self.held


class GroupLeases:
    """The leases of one group. `apply` alone changes them."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.holds: dict[TopicPartition, Hold] = {}
        """The last hold of each partition. One that has ended stays until the next begins: its
        worker may commit until somebody else has the partition."""
        self.generation = -1
        """The offset of the claim that last changed what anybody is to have."""
        self.time_ms = -1
        self._topics: dict[str, KnownTopic] = {}
        self._targets: dict[TopicPartition, str] = {}
        self._orphans: set[TopicPartition] = set()
        """Partitions of `_topics` without a target."""
        self._next_end_ms = 0
        """No lease ends before this time."""
        self._ending: list[tuple[int, TopicPartition]] = []
        """When holds end that are to move: a heap. Some have ended before, or are to stay again."""

    def is_over(self, time_ms: int) -> bool:
        """Whether every lease has ended by this time of the log.

        A later claim then has the same effect on a new object, but for holds that it does not
        begin.
        """
        return all(one.deadline_ms <= time_ms for one in self.workers.values())

    @property
    def partitions_count(self) -> int:
        """The partitions that are shared out: what its memory depends on."""
        return sum(known.partitions for known in self._topics.values())

    def adds(self, topics: Mapping[str, KnownTopic]) -> int:
        """Return how many partitions these topics have that are not shared out yet."""
        return sum(
            max(0, known.partitions - self._topics.get(name, KnownTopic("", 0)).partitions)
            for name, known in topics.items()
        )

    def has_given(self, place: TopicPartition, fence: int) -> bool:
        """Whether the hold with this fence is the last that began."""
        hold = self.holds.get(place)
        return hold is not None and hold.fence == fence

    # -- what changes it ---------------------------------------------------------------------

    def apply(self, worker: str, claim: Renewal | None, *, offset: int, time_ms: int) -> None:
        """Apply the claim of a worker, or (None) that it leaves, at this offset of the log."""
        self.time_ms = max(self.time_ms, time_ms)
        self._end_holds()
        is_changed = self._end_leases()
        if claim is None:
            is_changed |= self._remove(worker)
        else:
            is_changed |= self._renew(worker, claim)
        if is_changed:
            self.generation = offset
            self._balance()
        if claim is not None:
            self._grant(self.workers[worker], offset)

    def _end_holds(self) -> None:
        """End the holds whose time has passed."""
        while self._ending and self._ending[0][0] <= self.time_ms:
            until_ms, place = heapq.heappop(self._ending)
            hold = self.holds.get(place)
            if hold is not None and hold.until_ms == until_ms and hold.worker in self.workers:
                self.workers[hold.worker].held.discard(place)

    def _end_leases(self) -> bool:
        """Remove the workers whose time has passed; return whether there were any."""
        if self.time_ms < self._next_end_ms:
            return False
        over = [one.name for one in self.workers.values() if one.deadline_ms <= self.time_ms]
        for name in over:
            self._remove(name)
        if not self.workers:
            self._topics.clear()  # as for a group that is not known: see `is_over`
            self._orphans.clear()
        ends = (one.deadline_ms for one in self.workers.values())
        self._next_end_ms = min(ends, default=self.time_ms)
        return bool(over)

    def _remove(self, name: str) -> bool:
        worker = self.workers.pop(name, None)
        if worker is None:
            return False
        for place in worker.held:
            self.holds[place].until_ms = self.time_ms
        for place in worker.targets:
            del self._targets[place]
            self._orphans.add(place)
        return True

    def _renew(self, name: str, claim: Renewal) -> bool:
        """Extend the lease; return whether targets have to change."""
        topics = frozenset(claim.topics)
        deadline_ms = self.time_ms + claim.ttl_ms
        self._next_end_ms = min(self._next_end_ms, deadline_ms)
        is_changed = False
        worker = self.workers.get(name)
        if worker is None:
            worker = self.workers[name] = Worker(name, topics, claim.ttl_ms, deadline_ms)
            is_changed = True
        elif worker.topics != topics:
            worker.topics = topics
            for place in [one for one in worker.targets if one.topic not in topics]:
                self._take_from(worker, place)
                self._orphans.add(place)
            is_changed = True
        for place in claim.released:
            self._release(worker, place)
        worker.ttl_ms, worker.deadline_ms = claim.ttl_ms, deadline_ms
        for topic, known in claim.topics.items():
            if self._topics.get(topic) != known:
                is_changed |= self._learn(topic, known)
        return is_changed

    def _release(self, worker: Worker, place: TopicPartition) -> None:
        if place in worker.held:
            worker.held.discard(place)
            self.holds[place].until_ms = self.time_ms

    def _learn(self, topic: str, known: KnownTopic) -> bool:
        """Take what a claim knows of a topic; return whether that is news."""
        before = self._topics.get(topic, KnownTopic(known.topic_id, 0))
        if before.topic_id != known.topic_id:
            self._drop(topic)  # it was deleted and created again: nothing of it is held
            before = KnownTopic(known.topic_id, 0)
        if known.partitions <= before.partitions:
            return False  # another replica has seen partitions that this one has not
        self._topics[topic] = known
        self._orphans.update(
            TopicPartition(topic, number) for number in range(before.partitions, known.partitions)
        )
        return True

    def _drop(self, topic: str) -> None:
        """Forget a topic and every hold of it."""
        for number in range(self._topics.pop(topic).partitions):
            place = TopicPartition(topic, number)
            self._orphans.discard(place)
            target = self._targets.pop(place, None)
            if target is not None:
                self.workers[target].targets.discard(place)
            self._forget_hold(place)

    def _take_from(self, worker: Worker, place: TopicPartition) -> None:
        """Take a target away; its hold ends when the lease does that the worker has now."""
        worker.targets.discard(place)
        del self._targets[place]
        if place in worker.held:
            self.holds[place].until_ms = worker.deadline_ms
            heapq.heappush(self._ending, (worker.deadline_ms, place))

    def _give_to(self, worker: Worker, place: TopicPartition) -> None:
        worker.targets.add(place)
        self._targets[place] = worker.name
        if place in worker.held:
            self.holds[place].until_ms = None  # it was to move, and stays

    def _grant(self, worker: Worker, offset: int) -> None:
        """Begin the worker's holds that can begin."""
        for place in sorted(worker.waiting):
            if place not in self.holds or self._is_over(place):
                self.holds[place] = Hold(worker.name, offset)
                worker.held.add(place)

    def _is_over(self, place: TopicPartition) -> bool:
        until_ms = self.holds[place].until_ms
        return until_ms is not None and until_ms <= self.time_ms

    # -- who is to have what -----------------------------------------------------------------

    def _balance(self) -> None:
        """Give every partition a target, moving as few as possible.

        Afterwards no move of one partition would make the numbers of two workers more equal.
        """
        self._forget_unwanted()
        self._place_orphans()
        self._keep_held()
        while self._level():
            pass

    def _forget_unwanted(self) -> None:
        """Forget topics that no worker wants any more."""
        wanted: set[str] = set().union(*(one.topics for one in self.workers.values()))
        for topic in self._topics.keys() - wanted:
            del self._topics[topic]
        self._orphans = {one for one in self._orphans if one.topic in wanted}
        if len(self.holds) > sum(known.partitions for known in self._topics.values()):
            # Some are of topics that are forgotten: those that are over can go.
            for place in [one for one in self.holds if one.topic not in wanted]:
                if self._is_over(place):
                    self._forget_hold(place)

    def _forget_hold(self, place: TopicPartition) -> None:
        hold = self.holds.pop(place, None)
        if hold is not None and hold.worker in self.workers:
            self.workers[hold.worker].held.discard(place)

    def _place_orphans(self) -> None:
        """Give orphans back to their holders, and the others to those who have least."""
        queues: dict[str, list[tuple[int, str]]] = {}
        for place in sorted(self._orphans):
            hold = self.holds.get(place)
            worker = None if hold is None else self.workers.get(hold.worker)
            if worker is None or place not in worker.held or place.topic not in worker.topics:
                if place.topic not in queues:
                    queues[place.topic] = self._queue(place.topic)
                worker = self._least(queues[place.topic])
            self._give_to(worker, place)
        self._orphans.clear()

    def _queue(self, topic: str) -> list[tuple[int, str]]:
        some = [
            (len(one.targets), one.name) for one in self.workers.values() if topic in one.topics
        ]
        heapq.heapify(some)
        return some

    def _least(self, queue: list[tuple[int, str]]) -> Worker:
        """Return the worker of a queue that has least, counted with one more from now on."""
        while True:
            load, name = queue[0]
            worker = self.workers[name]
            if load == len(worker.targets):
                heapq.heapreplace(queue, (load + 1, name))
                return worker
            heapq.heapreplace(queue, (len(worker.targets), name))  # it got some meanwhile

    def _keep_held(self) -> None:
        """Have workers that have too little keep what they still hold, rather than get others."""
        most = max((len(one.targets) for one in self.workers.values()), default=0)
        for name in sorted(self.workers):
            taker = self.workers[name]
            if most <= len(taker.targets) + 1:
                continue
            for place in sorted(taker.held - taker.targets):
                target = self._targets.get(place)
                if target is None or place.topic not in taker.topics:
                    continue
                giver = self.workers[target]
                if len(giver.targets) > len(taker.targets) + 1:
                    self._move(place, giver, taker)

    def _level(self) -> bool:
        """Move partitions from workers that have most to those that have least.

        Returns whether any was moved. Each move makes the sum of the squares of all numbers
        smaller, so that this ends.
        """
        is_moved = False
        takers = self._by_load(1)
        givers = self._by_load(-1)
        spare: dict[str, list[TopicPartition]] = {}
        while takers:
            load, name = heapq.heappop(takers)
            taker = self.workers[name]
            if load != len(taker.targets):
                continue  # it gave some: the next pass looks at it again
            passed: list[tuple[int, str]] = []
            while givers and -givers[0][0] > load + 1:
                entry = heapq.heappop(givers)
                giver = self.workers[entry[1]]
                if giver.name not in spare:
                    # What it does not hold yet moves at no cost: last, where it is taken from.
                    spare[giver.name] = [
                        *sorted(giver.targets & giver.held),
                        *sorted(giver.waiting),
                    ]
                place = _pop_one(spare[giver.name], taker.topics)
                if place is None:
                    passed.append(entry)
                    continue
                self._move(place, giver, taker)
                is_moved = True
                heapq.heappush(givers, (-len(giver.targets), giver.name))
                heapq.heappush(takers, (load + 1, name))
                break
            for entry in passed:
                heapq.heappush(givers, entry)
        return is_moved

    def _by_load(self, sign: int) -> list[tuple[int, str]]:
        queue = [(sign * len(one.targets), one.name) for one in self.workers.values()]
        heapq.heapify(queue)
        return queue

    def _move(self, place: TopicPartition, giver: Worker, taker: Worker) -> None:
        self._take_from(giver, place)
        self._give_to(taker, place)

    # -- as one value ------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Return all of it as JSON, for `load`."""
        names = sorted({*self.workers, *(one.worker for one in self.holds.values())})
        number = {name: index for index, name in enumerate(names)}
        holds: dict[str, list[tuple[int, int, int, int | None]]] = {}
        for (topic, partition), hold in self.holds.items():
            entry = (partition, number[hold.worker], hold.fence, hold.until_ms)
            holds.setdefault(topic, []).append(entry)
        targets: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), name in self._targets.items():
            targets.setdefault(topic, []).append((partition, number[name]))
        workers = [
            (number[one.name], sorted(one.topics), one.ttl_ms, one.deadline_ms)
            for one in self.workers.values()
        ]
        return msgspec.json.encode(
            _Dumped(self.time_ms, self.generation, self._topics, names, workers, targets, holds)
        )

    @classmethod
    def load(cls, data: Buffer) -> Self:
        """Return what was dumped; raises msgspec.MsgspecError, LookupError."""
        dumped = msgspec.json.decode(data, type=_Dumped)
        group = cls()
        group.time_ms, group.generation = dumped.time_ms, dumped.generation
        group._topics = dict(dumped.topics)
        names = dumped.names
        for index, topics, ttl_ms, deadline_ms in dumped.workers:
            name = names[index]
            group.workers[name] = Worker(name, frozenset(topics), ttl_ms, deadline_ms)
        for topic, targets in dumped.targets.items():
            for partition, index in targets:
                place = TopicPartition(topic, partition)
                group._targets[place] = names[index]
                group.workers[names[index]].targets.add(place)
        for topic, holds in dumped.holds.items():
            for partition, index, fence, until_ms in holds:
                place = TopicPartition(topic, partition)
                group.holds[place] = Hold(names[index], fence, until_ms)
                worker = group.workers.get(names[index])
                if worker is not None and not group._is_over(place):
                    worker.held.add(place)
                    if until_ms is not None:
                        group._ending.append((until_ms, place))
        heapq.heapify(group._ending)
        return group


class _Dumped(msgspec.Struct, array_like=True, frozen=True):
    """All of a group's leases; workers are numbers of `names`."""

    time_ms: int
    generation: int
    topics: Mapping[str, KnownTopic]
    names: list[str]
    workers: list[tuple[int, list[str], int, int]]
    targets: dict[str, list[tuple[int, int]]]
    holds: dict[str, list[tuple[int, int, int, int | None]]]


def _pop_one(places: list[TopicPartition], topics: AbstractSet[str]) -> TopicPartition | None:
    """Remove and return the last place in one of the topics."""
    for index in range(len(places) - 1, -1, -1):
        if places[index].topic in topics:
            return places.pop(index)
    return None
