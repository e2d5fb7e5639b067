"""Brokers and replicas of the service are killed in turn under load, and every response is true.

`KAFKA_CHAOS_SECONDS` in the environment is how long, if not a minute. A round has a topic of its
own, so that its histories stay small enough for Porcupine: it kills each broker and each replica
once.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import httpx
import pytest

from bench.peers.cluster import Cluster
from tests.support.broker import RealBroker
from tests.support.cluster import cluster_of
from tests.support.cycles import Client, IdempotentWriter, Sent, WorkIsOver
from tests.support.histories import Appended, Observed, contradiction
from tests.support.porcupine import Call, built, verdicts
from tests.support.replica_set import ReplicaSet

pytestmark = [pytest.mark.long, pytest.mark.needs("java", "mvn", "go")]

SECONDS = float(os.environ.get("KAFKA_CHAOS_SECONDS", "60"))
PATIENCE_S = 120.0
PROGRESS = 60
"""Appends that must be acknowledged between two kills, beside those in flight."""
LATEST = -1
RETRYABLE = frozenset({429, 503, 504})


class SendAgain(httpx.TransportError):
    """A response that asks the client to send its request again."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.text)
        self.problem = answer.json()


class Replicas:
    """Sends a client's request to any replica; shared by all clients of a round."""

    def __init__(self, urls: Sequence[str], topic: str, seed: int) -> None:
        self._urls = urls
        self._topic = topic
        self._random = Random(seed)
        self._acknowledged = threading.Condition()
        self._count = 0
        self.is_over = False

    def ask(self, client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        """Send one request; raises TransportError, SendAgain, WorkIsOver."""
        if self.is_over:
            raise WorkIsOver
        url = f"{self._random.choice(self._urls)}/v1/topics/{self._topic}{path}"
        answer = client.request(method, url, timeout=60, **more)
        if answer.status_code in RETRYABLE:
            raise SendAgain(answer)
        if method == "POST" and answer.is_success:
            with self._acknowledged:
                self._count += 1
                self._acknowledged.notify_all()
        return answer

    def wait_for_progress(self) -> None:
        """Return once so many more appends have been acknowledged."""
        with self._acknowledged:
            wanted = self._count + PROGRESS
            went_on = self._acknowledged.wait_for(
                lambda: self.is_over or self._count >= wanted, PATIENCE_S
            )
            assert went_on, f"{self._topic}: nothing is acknowledged any more"
            if self.is_over:
                raise WorkIsOver

    def end(self) -> None:
        """Have all clients end, and the kills."""
        with self._acknowledged:
            self.is_over = True
            self._acknowledged.notify_all()


@dataclass
class PlainWriter(Client):
    """No producer: repeats a record only if the problem says that nothing was written."""

    sent: list[Sent] = field(default_factory=list)

    def work(self) -> None:
        for number in itertools.count():
            one = Sent(f"{self.name} {number}", monotonic())
            self.sent.append(one)
            one.offset = self._offset_of(one.value)
            if one.offset is not None:
                one.end = monotonic()

    def _offset_of(self, value: str) -> int | None:
        """Return the acknowledged offset; None if the outcome stays unknown."""
        while True:
            try:
                answer = self.post(value, {})
            except httpx.ConnectError:
                continue  # the request was never sent
            except SendAgain as refusal:
                if refusal.problem["side_effects"] == "none":
                    continue
                return None
            except httpx.TransportError:
                return None
            assert answer.status_code == 201, answer.text
            return int(answer.json()["base_offset"])


@dataclass
class Follower(Client):
    """Reads on from where it was, at any replica, and asks for the length of the log."""

    transcript: list[str] = field(default_factory=list)

    def work(self) -> None:
        while True:
            self._look()
            self._read_on()

    def _look(self) -> None:
        begin = monotonic()
        answer = self._answer("/offsets")
        if answer is not None:
            self.observed.append(Observed(answer["high_watermark"], begin, monotonic()))

    def _read_on(self) -> None:
        page = self._answer(f"/records?offset={len(self.transcript)}&max_wait_ms=200")
        for record in page["records"] if page else ():
            assert record["offset"] == len(self.transcript)
            self.transcript.append(record["value"])

    def _answer(self, path: str) -> Any:
        try:
            answer = self.ask("GET", path)
        except httpx.TransportError:
            return None
        # The replica that was asked before may have seen more of the log.
        if answer.status_code == 416 and answer.json()["retryable"]:
            return None
        assert answer.status_code == 200, answer.text
        return answer.json()


class Round:
    """The clients of one topic while everything is killed once."""

    PARTITIONS = 2

    def __init__(self, urls: Sequence[str], topic: str, seed: int) -> None:
        self.topic = topic
        self.replicas = Replicas(urls, topic, seed)
        with httpx.Client(base_url=urls[0], timeout=PATIENCE_S) as client:
            body = {"partitions": self.PARTITIONS, "config": {"retention.ms": "-1"}}
            client.put(f"/v1/topics/{topic}", json=body).raise_for_status()
            partitions = range(self.PARTITIONS)
            ids = [client.post("/v1/producers").raise_for_status().json() for _ in partitions]
        self.idempotent = [
            IdempotentWriter(self.replicas, n, "once", producer_id=ids[n]["producer_id"])
            for n in partitions
        ]
        self.plain = [PlainWriter(self.replicas, n, "plain") for n in partitions]
        self.followers = [Follower(self.replicas, n, "r") for n in partitions]
        self._failures: list[BaseException] = []

    @contextmanager
    def under_load(self) -> Iterator[Replicas]:
        """Let all clients work while the block runs."""
        clients: list[Client] = [*self.idempotent, *self.plain, *self.followers]
        threads = [threading.Thread(target=self._run, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        try:
            yield self.replicas
        finally:
            self.replicas.end()
            for thread in threads:
                thread.join()
            assert not self._failures, self._failures

    def _run(self, client: Client) -> None:
        try:
            client()
        except BaseException as failure:  # noqa: BLE001 - the test must see every error
            self._failures.append(failure)
            self.replicas.end()

    def judge(self, partition: int, truth: Sequence[str], judge: Path) -> None:
        """Nothing acknowledged is lost, nothing is there twice, and one log explains it all."""
        once, plain = self.idempotent[partition], self.plain[partition]
        follower = self.followers[partition]
        sent = [*once.sent, *plain.sent]
        place = {value: offset for offset, value in enumerate(truth)}
        assert len(place) == len(truth), "a record is there twice"
        assert place.keys() <= {one.value for one in sent}
        for one in sent:
            assert one.offset is None or place.get(one.value) == one.offset, f"lost: {one}"
        # A producer's records are all there, in its order; only the last one has no answer.
        stored = [value for value in truth if value.startswith(once.name)]
        assert stored == [one.value for one in once.sent[: len(stored)]], "out of order"
        assert len(stored) >= len(once.sent) - 1
        # What was given up without an answer may still arrive, after later records.
        sure = [one.value for one in plain.sent if one.offset is not None]
        assert sure == sorted(sure, key=place.__getitem__), "out of order"
        assert follower.transcript == truth[: len(follower.transcript)]
        appends = [
            Appended(place[one.value], one.begin, one.end) for one in sent if one.value in place
        ]
        assert contradiction(appends, follower.observed) is None
        calls = [Call.append(number, one) for number, one in enumerate(sent)]
        looks = [
            Call.look(len(sent) + number, one, follower.transcript)
            for number, one in enumerate(follower.observed)
        ]
        assert verdicts(judge, [[*calls, *looks]]) == ["Ok"]


@dataclass
class World:
    """A cluster and two replicas."""

    cluster: Cluster[RealBroker]
    replicas: ReplicaSet

    def victims(self) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
        """Yield how each is killed and started again."""
        for broker in self.cluster.brokers:
            yield broker.kill, broker.start
        for replica in self.replicas.replicas:
            yield replica.kill, replica.start

    def kill_each(self, clients: Replicas) -> None:
        """Kill one after the other, each once the one before is whole again."""
        for kill, start in self.victims():
            clients.wait_for_progress()
            kill()
            clients.wait_for_progress()
            start()
            self.cluster.wait_until_in_sync()
        clients.wait_for_progress()

    def truth(self, topic: str, partitions: int) -> list[list[str]]:
        """Return the values of each partition as Kafka's own consumer reads them."""
        found: list[list[str]] = [[] for _ in range(partitions)]
        broker = self.cluster.brokers[0]
        count = sum(broker.offsets(topic, LATEST).values())
        records = broker.records(topic)
        while len(records) < count:
            records = broker.records(topic)  # a busy machine took it too long to begin
        for record in records:
            assert record.offset == len(found[record.partition])
            found[record.partition].append(record.value.strip('"'))
        return found


@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_or_there_twice(tmp_path: Path) -> None:
    """Every broker and every replica dies again and again; Porcupine and a count agree."""
    judge, until = built(tmp_path), monotonic() + SECONDS
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with ExitStack() as stack:
        named = {name.replace(".", "_"): value for name, value in settings.items()}
        cluster = stack.enter_context(cluster_of(tmp_path, **named))
        replicas = stack.enter_context(ReplicaSet(cluster.bootstrap, tmp_path))
        world, rounds = World(cluster, replicas), 0
        while rounds == 0 or monotonic() < until:
            round_ = Round(replicas.urls, f"round-{rounds}", rounds)
            with round_.under_load() as clients:
                world.kill_each(clients)
            for partition, truth in enumerate(world.truth(round_.topic, Round.PARTITIONS)):
                round_.judge(partition, truth, judge)
            rounds += 1
