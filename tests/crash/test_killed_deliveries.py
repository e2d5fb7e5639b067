"""Deliveries that are repeated before, while and after the service is killed, each once in the log.

Some have records for one partition, some for several. Two senders send the same ones.
"""

import itertools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.support.cycles import JSON, TOPIC, Client, MortalService
from tests.support.process import all_values, serving_process

PARTITIONS = 3
KILLS = 2
MANY_KILLS = 50
SEEDS = range(20261123, 20261143)

REMEMBERED = 200
"""Deliveries that a sender may repeat after they were answered."""


@dataclass
class Sender(Client):
    """Sends numbered deliveries, each until it is answered, and repeats answered ones."""

    seed: int = 0
    answered: dict[int, Any] = field(default_factory=dict)
    repeated: int = 0

    def work(self) -> None:
        chance = Random(f"{self.name} {self.seed}")
        for number in itertools.count():
            self.answered[number] = self.deliver(number)
            while chance.random() < 0.5:
                again = chance.randrange(max(0, number - REMEMBERED), number + 1)
                assert self.deliver(again) == self.answered[again]
                self.repeated += 1

    def records(self, number: int) -> list[dict[str, str]]:
        values = [f"{self.name} {number} {index}" for index in range(number % 5 + 1)]
        return [{"key": value, "value": value} for value in values]

    def deliver(self, number: int) -> Any:
        """Return where the records of a delivery are."""
        headers = JSON | {"Idempotency-Key": f"{self.name}-{number}"}
        body = {"records": self.records(number)}
        path = "/records" if self.partition < 0 else f"/partitions/{self.partition}/records"
        while True:
            try:
                answer = self.service.ask(self._client, "POST", path, json=body, headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code == 503:
                assert answer.json()["code"] == "recovering", answer.text
                continue
            assert answer.status_code in (200, 201), answer.text
            receipt = answer.json()
            return receipt["records"] if "records" in receipt else receipt["base_offset"]


class Lives:
    """The senders, and what they were answered while the service was killed again and again."""

    def __init__(self, directory: Path, seed: int, kills: int) -> None:
        with (
            serving_process(directory) as process,
            httpx.Client(base_url=process.url, timeout=60) as client,
        ):
            config = {"segment.bytes": "20000", "index.interval.bytes": "500"}
            body = {"partitions": PARTITIONS, "config": config}
            assert client.put(TOPIC, json=body).status_code == 201
        service = MortalService(directory, Random(seed))
        self.senders = [
            Sender(service, partition, name, seed=seed + twin)
            for partition, name in ((0, "one"), (-1, "all"))
            for twin in range(2)
        ]
        self._failures: list[BaseException] = []
        threads = [threading.Thread(target=self._run, args=(one,)) for one in self.senders]
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                service.live_once()
                assert not self._failures, self._failures
        finally:
            service.end()
            for thread in threads:
                thread.join()
        assert not self._failures, self._failures

    def _run(self, sender: Sender) -> None:
        try:
            sender()
        except BaseException as failure:  # noqa: BLE001 - whatever it is, the test must see it
            self._failures.append(failure)


def assert_each_is_there_once(directory: Path, seed: int, kills: int) -> None:
    lives = Lives(directory, seed, kills)
    with (
        serving_process(directory) as process,
        httpx.Client(base_url=process.url, timeout=60) as client,
    ):
        logs = [
            all_values(client, f"{TOPIC}/partitions/{number}/records")
            for number in range(PARTITIONS)
        ]
    values = list(itertools.chain(*logs))
    assert len(set(values)) == len(values), "a record is twice in the log"
    present = set(values)
    for sender in lives.senders:
        assert sender.answered, "nothing was answered"
        assert sender.repeated, "nothing was repeated"
        for number, places in sender.answered.items():
            wanted = [record["value"] for record in sender.records(number)]
            assert present.issuperset(wanted)
            if sender.partition < 0:
                found = [logs[one["partition"]][one["offset"]] for one in places]
            else:
                found = logs[sender.partition][places : places + len(wanted)]
            assert found == wanted


def test_a_delivery_is_there_once_however_often_it_is_repeated(tmp_path: Path) -> None:
    """Every repetition is answered with the first offsets, and nothing is written twice."""
    assert_each_is_there_once(tmp_path, SEEDS[0], KILLS)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_thousand_kills_repeat_no_delivery(tmp_path: Path, seed: int) -> None:
    """The same at length: fifty kills for each seed."""
    assert_each_is_there_once(tmp_path, seed, MANY_KILLS)
