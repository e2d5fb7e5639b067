"""Thousands of topics at once, all of them written to, in a process of its own that is killed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.load.test_overload import Watch
from tests.support.process import serving_process

pytestmark = pytest.mark.long

TOPICS = 2_000
ROUNDS = 3
CLIENTS = 8
FETCHED_AT_ONCE = 500
MOST_BYTES_EACH = 32 * 1024
"""Of memory for a topic with one partition, whatever is in it."""


class Owner:
    """A client with its own topics; `acknowledged` holds all its responses."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self._client = httpx.Client(base_url=f"{url}/v1", timeout=60)
        self._names = names
        self.acknowledged: dict[str, list[str]] = {name: [] for name in names}

    def make(self) -> None:
        for name in self._names:
            assert self._client.put(f"/topics/{name}", json={}).status_code == 201

    def write(self) -> None:
        """A round: one record to each topic."""
        for name in self._names:
            written = self.acknowledged[name]
            value = f"{name} {len(written)}"
            path = f"/topics/{name}/partitions/0/records"
            answer = self._client.post(path, json={"records": [{"value": value}]})
            assert answer.status_code == 201, answer.text
            written.append(value)

    def close(self) -> None:
        self._client.close()


def everything(url: str, names: Sequence[str]) -> dict[str, list[str]]:
    """What all topics hold, as one reader of all gets it."""
    found: dict[str, list[str]] = {}
    with httpx.Client(base_url=url, timeout=60) as client:
        for first in range(0, len(names), FETCHED_AT_ONCE):
            wanted = [
                {"topic": name, "partition": 0, "offset": 0}
                for name in names[first : first + FETCHED_AT_ONCE]
            ]
            for one in client.post("/v1/fetch", json={"partitions": wanted}).json()["partitions"]:
                found[one["topic"]] = [record["value"] for record in one["records"]]
    return found


def test_thousands_of_topics_are_written_to_and_survive_a_kill(tmp_path: Path) -> None:
    """Each takes little memory, none is refused, and nothing that was acknowledged is missing."""
    names = [f"topic-{number:04d}" for number in range(TOPICS)]
    with (
        serving_process(tmp_path) as process,
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        watch = Watch(process)
        before = watch.memory_bytes()
        owners = [Owner(process.url, names[number::CLIENTS]) for number in range(CLIENTS)]
        list(threads.map(Owner.make, owners))
        for _ in range(ROUNDS):
            list(threads.map(Owner.write, owners))
        assert watch.memory_bytes() - before < TOPICS * MOST_BYTES_EACH
        for owner in owners:
            owner.close()
    acknowledged = {name: values for one in owners for name, values in one.acknowledged.items()}
    assert all(len(values) == ROUNDS for values in acknowledged.values())
    with serving_process(tmp_path) as process:  # that one was killed
        assert everything(process.url, names) == acknowledged
