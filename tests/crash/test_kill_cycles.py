"""The service in its own process, under load from all sides, killed hundreds of times."""

import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.support.cycles import (
    TOPIC,
    Client,
    ConditionalWriter,
    IdempotentWriter,
    MortalService,
    Reader,
    Sent,
)
from tests.support.histories import Appended, contradiction
from tests.support.process import all_values, serving_process

CYCLES = 50
SEEDS = range(20261122, 20261128)
CONFIGURATION = {"segment.bytes": "20000", "index.interval.bytes": "500"}
SHARED, CONTENDED = 0, 1


def made(directory: Path) -> int:
    """Create the topic; return a producer id for each of three writers, the first of them."""
    with (
        serving_process(directory) as process,
        httpx.Client(base_url=process.url, timeout=60) as client,
    ):
        body = {"partitions": 2, "config": CONFIGURATION}
        assert client.put(TOPIC, json=body).status_code == 201
        ids = [client.post("/v1/producers").json()["producer_id"] for _ in range(3)]
        assert ids == list(range(ids[0], ids[0] + 3))
        return int(ids[0])


def everything(directory: Path, partition: int) -> list[str]:
    """Return the values of a partition in order, as a restarted service returns them."""
    with (
        serving_process(directory) as process,
        httpx.Client(base_url=process.url, timeout=60) as client,
    ):
        return all_values(client, f"{TOPIC}/partitions/{partition}/records")


def appends(sent: list[Sent], truth: list[str]) -> list[Appended]:
    """Return what took effect, wherever it is now; fail for an answer that was not true."""
    offsets = {value: offset for offset, value in enumerate(truth)}
    assert len(offsets) == len(truth), "a record is twice in the log"
    for one in sent:
        if one.offset is not None:
            assert offsets.get(one.value) == one.offset, f"{one} was answered"
    return [
        Appended(offsets[one.value], one.begin, one.end) for one in sent if one.value in offsets
    ]


class Lives:
    """The clients of a service that is killed repeatedly, and the responses they got."""

    def __init__(self, directory: Path, seed: int, cycles: int) -> None:
        first_id = made(directory)
        service = MortalService(directory, Random(seed))
        self.idempotent = [
            IdempotentWriter(service, SHARED, f"w{n}", producer_id=first_id + n) for n in range(3)
        ]
        self.conditional = [ConditionalWriter(service, CONTENDED, f"c{n}") for n in range(3)]
        self.readers = [
            Reader(service, partition, "r") for partition in (SHARED, CONTENDED, SHARED)
        ]
        self._failures: list[BaseException] = []
        clients: list[Client] = [*self.idempotent, *self.conditional, *self.readers]
        threads = [threading.Thread(target=self._run, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for _ in range(cycles):
                service.live_once()
                assert not self._failures, self._failures
        finally:
            service.end()
            for thread in threads:
                thread.join()
        assert not self._failures, self._failures

    def _run(self, client: Client) -> None:
        try:
            client()
        except BaseException as failure:  # noqa: BLE001 - the test must see every error
            self._failures.append(failure)

    def writers(self, partition: int) -> Sequence[IdempotentWriter | ConditionalWriter]:
        return self.idempotent if partition == SHARED else self.conditional

    def readers_of(self, partition: int) -> Sequence[Reader]:
        return [reader for reader in self.readers if reader.partition == partition]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_every_response_of_a_repeatedly_killed_service_is_true(tmp_path: Path, seed: int) -> None:
    """Every acknowledged record is present once and in order, and one log explains all reads."""
    lives = Lives(tmp_path, seed, CYCLES)
    for partition in (SHARED, CONTENDED):
        truth = everything(tmp_path, partition)
        writers = lives.writers(partition)
        history = appends([one for writer in writers for one in writer.sent], truth)
        assert len(history) == len(truth) > 0, "there are records that nobody sent"
        for writer in writers:
            mine = [value for value in truth if value.startswith(f"{writer.name} ")]
            present = set(mine)
            assert mine == [one.value for one in writer.sent if one.value in present]
        told = [one for writer in writers for one in writer.observed]
        assert contradiction(history, told) is None
        for reader in lives.readers_of(partition):
            assert reader.transcript == truth[: len(reader.transcript)]
            assert contradiction(history, reader.observed) is None
