"""Where to measure, and what a load of the service brought."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from app.client.connection import Connection, JsonObject, Request, topic_path
from bench.load import Load, LoadResult, run_load
from bench.memory import processor_seconds
from demo.children import Server

_JSON: Final = "application/json"
_PARTITIONS: Final = 4
_WARM_UP_S: Final = 2.0


class Target(Protocol):
    """What can be loaded: a process that listens."""

    url: str

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """Where to measure: the service, a folder on the disk it writes to, and for how long."""

    service: Server
    connection: Connection
    folder: Path
    seconds: float

    def ask(self, method: str, path: str, content_type: str, body: bytes) -> JsonObject:
        """Make one request, and return what a success says."""
        headers = {"Content-Type": content_type}
        return self.connection.json(Request(method, path, headers=headers, content=body))

    def create_topic(self, topic: str, partitions: int = _PARTITIONS, **config: str) -> None:
        """Create a topic that keeps everything; in the names of its settings `_` stands for `.`."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        wanted = {"partitions": partitions, "config": {"retention.ms": "-1", **settings}}
        self.ask("PUT", topic_path(topic), _JSON, msgspec.json.encode(wanted))

    def load(
        self,
        requests: list[bytes],
        connections: int,
        target: Target | None = None,
        *,
        rate_per_s: float | None = None,
    ) -> Loaded:
        """Load the service, or another target, and return what came of it."""
        server: Target = target or self.service
        address = urlsplit(server.url)
        assert address.hostname is not None
        assert address.port is not None
        os.sync()  # what an earlier measure left in the page cache is not this one's to write
        before_s = processor_seconds(server.pid)
        result = run_load(
            Load(
                host=address.hostname,
                port=address.port,
                requests=requests,
                connections=connections,
                seconds=self.seconds,
                warm_up_s=min(_WARM_UP_S, self.seconds),
                rate_per_s=rate_per_s,
            )
        )
        return Loaded(result, processor_seconds(server.pid) - before_s)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load brought, and how long the server was on a processor for all of it."""

    result: LoadResult
    processor_s: float

    @property
    def per_second(self) -> float:
        return self.result.per_second

    @property
    def note(self) -> str:
        """Return what one request took, from either side."""
        cost_us = self.processor_s / self.result.sent * 1e6
        return (
            f"p50 {self.result.p50_ms:.1f} ms, p99 {self.result.p99_ms:.1f} ms at saturation; "
            f"{cost_us:,.0f} µs of processor a request"
        )
