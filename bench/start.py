"""From the command to the first request that is served, after a clean stop."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import httpx

from app.client.connection import Connection
from bench.figures import Figure
from demo.children import Server, serve_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from bench.measures import Bench

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
            _yardstick_s(bench),
            _ready_s(bench, bench.folder / f"started-{number}"),
            _ready_s(bench, full),
        )
        for number in range(_ROUNDS)
    ]
    idle_s, empty_s, full_s = map(statistics.median, zip(*rounds, strict=True))
    return [
        Figure(
            name,
            value,
            "s",
            target=target,
            yardstick="an application with an empty route",
            yardstick_value=idle_s,
            is_ceiling=True,
            note=f"median of {_ROUNDS}",
        )
        for name, value, target in (
            ("start to ready, empty", empty_s, _EMPTY_S),
            (f"start to ready, {_PARTITIONS:,} partitions", full_s, _FULL_S),
        )
    ]


def _ready_s(bench: Bench, data: Path) -> float:
    started = time.perf_counter()
    with Server(serve_arguments(data), bench.folder / "start.txt") as service:
        while httpx.get(f"{service.url}/readyz").is_error:
            time.sleep(_LOOK_EVERY_S)
        return time.perf_counter() - started


def _yardstick_s(bench: Bench) -> float:
    started = time.perf_counter()
    with Server(["bench.yardstick"], bench.folder / "start.txt"):
        return time.perf_counter() - started
