"""Plays of leases: workers that crash, sleep and leave, two replicas of a service, one log.

The model knows nothing of how partitions are distributed. It notes what each worker was answered,
and judges what every worker may believe by that alone: two of them never hold a partition at the
same time of the log, a commit with a fence counts until somebody else was given the partition, and
once nobody comes or goes every partition is held and the numbers are as equal as can be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from app.operations.leases.claims import Claim, State
from app.operations.leases.group import GroupLeases, KnownTopic, Renewal
from app.operations.leases.leases import replayed
from engine.types import TopicPartition

STEPS: Final = 60
GROUP: Final = "g"
CALM_ROUNDS: Final = 4


@dataclass
class Believed:
    """A partition that a worker was told to hold."""

    fence: int
    until_ms: int
    topic_id: str


@dataclass(eq=False)
class Client:
    """A worker's process, which knows what it was answered."""

    name: str
    topics: tuple[str, ...]
    ttl_ms: int
    holds: dict[TopicPartition, Believed] = field(default_factory=dict)
    revoking: set[TopicPartition] = field(default_factory=set)
    asleep: int = 0
    """Steps until it goes on."""


@dataclass
class Replica:
    """A service's leases, as far as it has read the log."""

    leases: GroupLeases = field(default_factory=GroupLeases)
    applied: int = 0


class Wrong(AssertionError):
    """What the model does not allow."""


class Play:
    """One schedule, chosen from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.log: list[Claim | State] = []
        self.replicas = [Replica(), Replica()]
        self.truth = GroupLeases()
        """After the whole log; what it gives is judged by what the workers believe."""
        self.clients: list[Client] = []
        self.ghosts: list[Client] = []
        """Those that crashed: they hold what they were told for as long as they were told."""
        self.born = 0
        self.last_fence: dict[TopicPartition, int] = {}
        self.counts = {"t": self.random.randrange(1, 12), "u": self.random.randrange(1, 5)}
        self.ids = dict.fromkeys(self.counts, 0)
        self.in_flight: list[tuple[Client, Replica, int]] = []

    def run(self) -> None:
        for _ in range(STEPS):
            self.now_ms += self.random.choice((0, 1, 200, 900, 5_000))
            step = self.random.choices(
                [
                    self._renew,
                    self._join,
                    self._leave,
                    self._crash,
                    self._sleep,
                    self._answer,
                    self._commit,
                    self._grow,
                    self._recreate,
                    self._restart,
                    self._write_state,
                ],
                [30, 8, 3, 3, 5, 12, 8, 2, 1, 4, 3],
            )[0]
            step()
            for client in self.clients:
                client.asleep = max(0, client.asleep - 1)
        self._calm()

    # -- what happens ------------------------------------------------------------------------

    def _awake(self) -> Client | None:
        awake = [one for one in self.clients if not one.asleep]
        return self.random.choice(awake) if awake else None

    def _renew(self) -> None:
        client = self._awake()
        if client is not None:
            self._claim(client)
            if self.random.random() < 0.8:
                self._answer()

    def _join(self) -> None:
        again = self.random.random() < 0.2 and self.born
        name = f"w{self.random.randrange(self.born) if again else self.born}"
        self.born += not again
        if any(one.name == name for one in self.clients):
            return  # names are unique, among those that live
        # A process that is started again under its name goes on with the lease.
        self.ghosts = [one for one in self.ghosts if one.name != name]
        topics = self.random.choice((("t",), ("t",), ("u",), ("t", "u")))
        self.clients.append(Client(name, topics, self.random.choice((2_000, 6_000, 20_000))))
        self._claim(self.clients[-1])

    def _leave(self) -> None:
        client = self._awake()
        if client is not None:
            self._gone(client)
            self._append(client.name, None)

    def _crash(self) -> None:
        client = self._awake()
        if client is not None:
            # What it holds stays believed: nobody may take it before its time has passed.
            self.clients.remove(client)
            self.ghosts.append(client)

    def _sleep(self) -> None:
        client = self._awake()
        if client is not None:
            client.asleep = self.random.randrange(1, 30)

    def _grow(self) -> None:
        topic = self.random.choice(sorted(self.counts))
        self.counts[topic] += self.random.randrange(1, 4)

    def _recreate(self) -> None:
        topic = self.random.choice(sorted(self.counts))
        self.ids[topic] += 1
        self.counts[topic] = self.random.randrange(1, 8)

    def _restart(self) -> None:
        replica = self.random.choice(self.replicas)
        position = self.random.randrange(replica.applied, len(self.log) + 1)
        before = GroupLeases()
        for one in self.log[:position]:
            _apply(before, one)
        replica.leases = self._reread(position)
        replica.applied = position
        if _content(before) != _content(replica.leases):
            raise Wrong(f"a start reads {_content(replica.leases)}, not {_content(before)}")

    def _reread(self, position: int) -> GroupLeases:
        """Read the log as a start does, after a compaction as bad as can be."""
        states = [one for one in self.log[:position] if isinstance(one, State)]
        claims = [one for one in self.log[:position] if isinstance(one, Claim)]
        last = states[-1] if states else State(GROUP, 0, b"")
        kept = [
            one for one in claims if one.offset >= last.before_offset or self.random.random() < 0.3
        ]
        return replayed({GROUP: last} if states else {}, kept).get(GROUP, GroupLeases())

    def _write_state(self) -> None:
        replica = self.random.choice(self.replicas)
        if replica.applied:
            self.log.append(State(GROUP, replica.applied, replica.leases.dump()))

    def _claim(self, client: Client) -> None:
        replica = self.random.choice(self.replicas)
        if self.random.random() < 0.05:
            client.topics = self.random.choice((("t",), ("u",), ("t", "u")))
        known = {topic: self._known(topic) for topic in client.topics}
        released = [one for one in client.revoking if self.random.random() < 0.7]
        released = sorted(released)
        for place in released:
            client.revoking.discard(place)
            client.holds.pop(place, None)
        offset = self._append(client.name, Renewal(known, client.ttl_ms, released))
        # A worker waits for the answer to its last request, and for no other.
        self.in_flight = [one for one in self.in_flight if one[0] is not client]
        self.in_flight.append((client, replica, offset))

    def _known(self, topic: str) -> KnownTopic:
        late = self.random.random() < 0.1 and self.counts[topic] > 1
        return KnownTopic(f"{topic}{self.ids[topic]}", self.counts[topic] - late)

    def _append(self, worker: str, renewal: Renewal | None) -> int:
        skew_ms = self.random.choice((0, 0, 0, -700, 400))  # each broker has a clock of its own
        offset = len(self.log)
        claim = Claim(offset, self.now_ms + skew_ms, GROUP, worker, renewal)
        self.log.append(claim)
        _apply(self.truth, claim)
        self._judge(claim)
        return offset

    def _answer(self) -> None:
        if self.in_flight:
            index = self.random.randrange(len(self.in_flight))
            self._answered(*self.in_flight.pop(index))

    def _answered(self, client: Client, replica: Replica, offset: int) -> None:
        self._read(replica, self.random.randrange(offset + 1, len(self.log) + 1))
        worker = replica.leases.workers.get(client.name)
        if client not in self.clients or worker is None:
            return
        holds = {place: replica.leases.holds[place] for place in worker.held}
        client.holds = {
            place: Believed(
                hold.fence,
                min(worker.deadline_ms, hold.until_ms or 1 << 62),
                self._claimed_id(place.topic, replica.applied),
            )
            for place, hold in holds.items()
        }
        client.revoking = {place for place, hold in holds.items() if hold.until_ms is not None}
        for place, believed in client.holds.items():
            if self._counts(place, believed) and not self.truth.has_given(place, believed.fence):
                raise Wrong(f"{client.name} is told that it has {place}, which another has")

    def _gone(self, client: Client) -> None:
        self.clients.remove(client)
        client.holds.clear()

    def _read(self, replica: Replica, position: int) -> None:
        while replica.applied < position:
            _apply(replica.leases, self.log[replica.applied])
            replica.applied += 1

    # -- what must hold ----------------------------------------------------------------------

    def _judge(self, claim: Claim) -> None:
        """Judge what a claim has given."""
        for place, hold in self.truth.holds.items():
            if hold.fence != claim.offset:
                continue
            if hold.worker != claim.worker:
                raise Wrong(f"{hold.worker} was given {place} by a claim of {claim.worker}")
            self.last_fence[place] = hold.fence
            for other in [*self.clients, *self.ghosts]:
                believed = other.holds.get(place)
                if (
                    believed is not None
                    and other.name != claim.worker
                    and self._counts(place, believed)
                ):
                    raise Wrong(
                        f"at {self.truth.time_ms} {claim.worker} is given {place}, which "
                        f"{other.name} has until {believed.until_ms}"
                    )

    def _counts(self, place: TopicPartition, believed: Believed) -> bool:
        """Whether what was believed still counts: in time, and the topic is the same."""
        return self.truth.time_ms < believed.until_ms and believed.topic_id == self._claimed_id(
            place.topic, len(self.log)
        )

    def _claimed_id(self, topic: str, position: int) -> str:
        """Return the topic's id in the last claim below a position that names it."""
        for one in reversed(self.log[:position]):
            if isinstance(one, Claim) and one.renewal is not None and topic in one.renewal.topics:
                return one.renewal.topics[topic].topic_id
        raise Wrong(f"{topic} is held, and no claim has named it")

    def _commit(self) -> None:
        """A worker commits with its fence, at a replica that has read everything."""
        client = self._awake()
        if client is None or not client.holds:
            return
        replica = self.random.choice(self.replicas)
        self._read(replica, len(self.log))
        place = self.random.choice(sorted(client.holds))
        believed = client.holds[place]
        is_accepted = replica.leases.has_given(place, believed.fence)
        if is_accepted and self.last_fence.get(place) != believed.fence:
            raise Wrong(f"{client.name} commits {place}, which was given to another")
        if not is_accepted and self._counts(place, believed):
            raise Wrong(f"{client.name} cannot commit {place}, which it has")

    def _calm(self) -> None:
        """Nobody comes or goes: soon everything is held, by as equal numbers as can be."""
        for client in self.clients:
            client.asleep, client.ttl_ms = 0, 1_000_000
        self.in_flight = []
        replica = self.replicas[0]
        self.now_ms += 25_000  # the leases of those that are gone end
        for _ in range(CALM_ROUNDS):
            for client in self.clients:
                known = {
                    one: KnownTopic(f"{one}{self.ids[one]}", self.counts[one])
                    for one in client.topics
                }
                released = sorted(client.revoking)
                for place in released:
                    client.holds.pop(place, None)
                offset = self._append(client.name, Renewal(known, client.ttl_ms, released))
                self._read(replica, offset + 1)
                self._answered(client, replica, offset)
        self._ensure_shared_out(replica.leases)

    def _ensure_shared_out(self, leases: GroupLeases) -> None:
        wanted = {topic for one in self.clients for topic in one.topics}
        held: dict[TopicPartition, str] = {}
        for client in self.clients:
            for place in client.holds:
                if place in held:
                    raise Wrong(f"{place} is held by {held[place]} and {client.name}")
                held[place] = client.name
        for topic in wanted:
            for number in range(self.counts[topic]):
                if TopicPartition(topic, number) not in held:
                    raise Wrong(f"{topic}-{number} is held by none of {sorted(leases.workers)}")
        for low in self.clients:
            for high in self.clients:
                if len(high.holds) > len(low.holds) + 1 and any(
                    place.topic in low.topics for place in high.holds
                ):
                    raise Wrong(f"{high.name} holds {len(high.holds)}, {low.name} {len(low.holds)}")


def _apply(leases: GroupLeases, one: Claim | State) -> None:
    if isinstance(one, Claim):
        leases.apply(one.worker, one.renewal, offset=one.offset, time_ms=one.time_ms)


def _content(leases: GroupLeases) -> object:
    """What two replicas must agree on; a hold that is over is nobody's."""
    return (
        leases.time_ms,
        leases.generation,
        {
            name: (one.topics, one.ttl_ms, one.deadline_ms, one.targets)
            for name, one in leases.workers.items()
        },
        {place: (hold.worker, hold.fence, hold.until_ms) for place, hold in leases.holds.items()},
    )


def play(seed: int) -> str | None:
    """Play a schedule; return what was wrong, or None."""
    one = Play(seed)
    try:
        one.run()
    except Wrong as wrong:
        return f"seed {seed}: {wrong}"
    return None
