"""From the command to the first request that is served, after a clean stop."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx

from app.client.connection import Connection
from bench.figures import Figure
from bench.memory import processor_seconds
from bench.target import Bench
from demo.children import Server, serve_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


_ROUNDS: Final = 3
_PARTITIONS: Final = 1_000
_EMPTY_S: Final = 1.0
_FULL_S: Final = 3.0
_LOOK_EVERY_S: Final = 0.01


def start(bench: Bench) -> list[Figure]:
    """Start on nothing and on a thousand partitions, beside an application with one empty route."""
    full = bench.folder / "started-full"
    with (
        Server(serve_arguments(full), bench.folder / "start.txt") as service,
        Connection(service.url) as connection,
    ):
        replace(bench, service=service, connection=connection).create_topic("start", _PARTITIONS)
    rounds = [
        (
            _yardstick(bench),
            _ready(bench, bench.folder / f"started-{number}"),
            _ready(bench, full),
        )
        for number in range(_ROUNDS)
    ]
    idle, empty, filled = map(_Start.median, zip(*rounds, strict=True))
    return [
        Figure(
            name,
            start.passed_s,
            "s",
            target=target,
            yardstick="an application with an empty route",
            yardstick_value=idle.passed_s,
            is_ceiling=True,
            note=f"median of {_ROUNDS}; {start.processor_s:.2f} s of a processor, "
            f"the yardstick {idle.processor_s:.2f} s",
        )
        for name, start, target in (
            ("start to ready, empty", empty, _EMPTY_S),
            (f"start to ready, {_PARTITIONS:,} partitions", filled, _FULL_S),
        )
    ]


def wait_until_ready(service: Server, client: httpx.Client) -> None:
    """Return once the service has opened its logs."""
    while client.get(f"{service.url}/readyz").is_error:
        time.sleep(_LOOK_EVERY_S)


class _Start(NamedTuple):
    passed_s: float
    processor_s: float

    @staticmethod
    def median(starts: Iterable[_Start]) -> _Start:
        return _Start(*map(statistics.median, zip(*starts, strict=True)))


def _ready(bench: Bench, data: Path) -> _Start:
    with httpx.Client() as client:  # it takes a while to make, which is none of the service's
        started = time.perf_counter()
        with Server(serve_arguments(data), bench.folder / "start.txt") as service:
            wait_until_ready(service, client)
            return _Start(time.perf_counter() - started, processor_seconds(service.pid))


def _yardstick(bench: Bench) -> _Start:
    started = time.perf_counter()
    with Server(["bench.yardstick"], bench.folder / "start.txt") as server:
        return _Start(time.perf_counter() - started, processor_seconds(server.pid))
