"""A service that is killed repeatedly, and clients that remember all responses."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Protocol

import httpx

from tests.support.histories import Observed
from tests.support.process import launched, serving_process

PATIENCE_S = 120.0
TOPIC = "/v1/topics/t"
JSON = {"Content-Type": "application/json"}


class WorkIsOver(Exception):
    """There will be no service any more."""


class MortalService:
    """A service on one data directory that dies after so many requests; shared by all clients."""

    def __init__(self, directory: Path, random: Random) -> None:
        self._directory = directory
        self._random = random
        self._lock = threading.Lock()
        self._is_up = threading.Event()
        self._is_due = threading.Event()
        self._requests_left = 0
        self._url = ""
        self._is_over = False

    def live_once(self) -> None:
        """Serve for a number of requests that only the seed knows, then die without warning."""
        if self._random.random() < 0.1:
            with launched(self._directory):
                pass  # killed while it opens its logs
        with serving_process(self._directory) as process:
            self._requests_left = self._random.randrange(30, 150)
            self._url = process.url
            self._is_up.set()
            assert self._is_due.wait(PATIENCE_S), "the clients send nothing"
            self._is_up.clear()
            self._is_due.clear()

    def end(self) -> None:
        """Have all clients end that wait for the service."""
        self._is_over = True
        self._is_up.set()

    def ask(self, client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        """Send one request to the one that lives now; raises TransportError, WorkIsOver."""
        assert self._is_up.wait(PATIENCE_S), "the service does not come back"
        if self._is_over:
            raise WorkIsOver
        with self._lock:
            self._requests_left -= 1
            if self._requests_left == 0:
                self._is_due.set()
        return client.request(method, f"{self._url}{TOPIC}{path}", timeout=PATIENCE_S, **more)


class Asked(Protocol):
    """What clients send their requests to."""

    def ask(self, client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        """Send one request; raises TransportError, WorkIsOver."""


@dataclass
class Sent:
    """One record that was sent: from when to when, and the offset that was answered, if any."""

    value: str
    begin: float
    end: float = inf
    offset: int | None = None
    expected: int | None = None
    """The end of the log at which alone it was to be appended."""


@dataclass
class Client:
    """What the writers and readers have in common."""

    service: Asked
    partition: int
    name: str
    observed: list[Observed] = field(default_factory=list)
    """Lengths of the log, as clients got them."""

    def __post_init__(self) -> None:
        self._client = httpx.Client()
        self._partition_path = f"/partitions/{self.partition}"

    def __call__(self) -> None:
        """Work until there is no service any more."""
        try:
            self.work()
        except WorkIsOver:
            pass
        finally:
            self._client.close()

    def work(self) -> None:
        raise AssertionError("what a client does is its own")

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.service.ask(self._client, method, self._partition_path + path, **more)

    def post(self, value: str, headers: dict[str, str]) -> httpx.Response:
        body = json.dumps({"records": [{"value": value}]}).encode()
        return self.ask("POST", "/records", content=body, headers=JSON | headers)


@dataclass
class IdempotentWriter(Client):
    """Sends numbered records, each until it is answered: a repetition must change nothing."""

    producer_id: int = -1
    sent: list[Sent] = field(default_factory=list)

    def work(self) -> None:
        for number in itertools.count():
            one = Sent(f"{self.name} {number}", monotonic())
            self.sent.append(one)
            one.offset = self._answered(one.value, number)
            one.end = monotonic()

    def _answered(self, value: str, number: int) -> int:
        headers = {
            "Producer-Id": str(self.producer_id),
            "Producer-Epoch": "0",
            "Producer-Sequence": str(number),
        }
        while True:
            try:
                answer = self.post(value, headers)
            except httpx.TransportError:
                continue
            assert answer.status_code in (200, 201), answer.text
            return int(answer.json()["base_offset"])


@dataclass
class ConditionalWriter(Client):
    """Appends only where it believes the end to be, and never twice: a lost answer stays lost."""

    sent: list[Sent] = field(default_factory=list)

    def work(self) -> None:
        expected = 0
        for number in itertools.count():
            one = Sent(f"{self.name} {number}", monotonic(), expected=expected)
            try:
                answer = self.post(one.value, {"Expected-Offset": str(expected)})
            except httpx.TransportError:
                self.sent.append(one)
                continue
            end = monotonic()
            if answer.status_code == 412:
                expected = int(answer.json()["log_end_offset"])
                self.observed.append(Observed(expected, one.begin, end))
                continue
            assert answer.status_code == 201, answer.text
            one.offset, one.end = int(answer.json()["base_offset"]), end
            assert one.offset == expected
            self.sent.append(one)
            expected += 1


@dataclass
class Reader(Client):
    """Reads on from where it was, whatever happens; keeps all that it ever saw, in order."""

    transcript: list[str] = field(default_factory=list)

    def work(self) -> None:
        while True:
            begin = monotonic()
            try:
                answer = self.ask("GET", f"/records?offset={len(self.transcript)}&max_wait_ms=50")
            except httpx.TransportError:
                continue
            assert answer.status_code == 200, answer.text
            page = answer.json()
            for record in page["records"]:
                assert record["offset"] == len(self.transcript)
                self.transcript.append(record["value"])
            self.observed.append(Observed(page["high_watermark"], begin, monotonic()))
