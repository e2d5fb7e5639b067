"""A dumb service: a list for each partition, and the last sequence of each producer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import msgspec

from app.client.connection import Connection

_APPEND = re.compile(r"/v1/topics/t/partitions/(\d+)/records")
NEVER: Callable[[], bool] = bool


@dataclass
class ServiceModel:
    """Answers appends to topic `t` as the contract says; answers may get lost on the way.

    `is_lost` decides before and after each request is served, so a lost answer may or may not have
    had its effect.
    """

    partitions: int = 4
    is_lost: Callable[[], bool] = NEVER
    most_bytes: int = 1 << 20
    logs: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    sequences: dict[tuple[int, str], int] = field(default_factory=dict)

    def connect(self) -> Connection:
        return Connection(
            "http://127.0.0.1", transport=httpx.MockTransport(self), pause=lambda _: None
        )

    def __call__(self, request: httpx.Request) -> httpx.Response:
        append = _APPEND.fullmatch(request.url.path)
        if append is None:
            return self._other(request)
        if self.is_lost():
            raise httpx.ConnectError("refused")
        response = self._append(int(append[1]), request)
        if self.is_lost():
            raise httpx.ReadError("reset")
        return response

    def _other(self, request: httpx.Request) -> httpx.Response:
        match request.method, request.url.path:
            case "GET", "/v1/topics/t":
                return answer(200, topic="t", partitions=self.partitions)
            case "POST", "/v1/producers":
                return answer(200, producer_id=7, producer_epoch=0)
            case _:
                return answer(404, code="topic_not_found", detail="no such topic")

    def _append(self, partition: int, request: httpx.Request) -> httpx.Response:
        assert request.headers["producer-id"] == "7"
        body = request.read()
        if len(body) > self.most_bytes:
            limit = {"limit": "max.message.bytes", "limit_bytes": self.most_bytes}
            return answer(413, code="too_large", detail="the batch is too large", **limit)
        lines = body.split(b"\n")
        sequence = int(request.headers["producer-sequence"])
        expected = self.sequences.get((partition, "next"), sequence)
        if sequence == self.sequences.get((partition, "last"), -1):
            return answer(200, duplicate=True)
        if sequence != expected:
            return answer(409, code="sequence_gap", detail=f"{sequence} instead of {expected}")
        self.sequences[partition, "last"] = sequence
        self.sequences[partition, "next"] = (sequence + len(lines)) % 2**31
        self.logs.setdefault(partition, []).extend(lines)
        self.sizes.append(len(lines))
        return answer(201, duplicate=False)

    @property
    def records(self) -> list[bytes]:
        return [line for log in self.logs.values() for line in log]


def answer(status: int, **fields: object) -> httpx.Response:
    return httpx.Response(status, content=msgspec.json.encode(fields))


def losing(seed: int, chance: float) -> Callable[[], bool]:
    """Return a coin that loses a request with this chance, the same for the same seed."""
    coin = random.Random(seed)
    return lambda: coin.random() < chance
