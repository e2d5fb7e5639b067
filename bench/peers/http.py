"""Appends of JSON over HTTP, flushed before the answer: ours beside other logs that speak it."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Final

from app.client.connection import topic_path
from bench.appends import json_value
from bench.figures import Figure
from bench.load import post
from bench.measures import Bench
from bench.memory import resident_bytes
from bench.peers.http_logs import HttpLog, durable_streams, s2_lite

_JSON: Final = "application/json"
_SHAPES: Final = ((1, 1), (1, 64), (1_000, 8))
"""Records in a request, and connections."""
_MIB: Final = 1 << 20


def http(bench: Bench, records: int) -> list[Figure]:  # noqa: ARG001 - loads last a time
    """Append in three shapes, everybody in turn, and look at what each takes of memory."""
    bench.create_topic("http", partitions=1)
    figures: list[Figure] = []
    with ExitStack() as stack:
        logs = [stack.enter_context(start(bench.folder)) for start in (s2_lite, durable_streams)]
        for count, connections in _SHAPES:
            figures += _shape(bench, logs, count, connections)
        own_bytes = resident_bytes(bench.service.pid)
        figures += [_memory(own_bytes, log) for log in logs]
    return figures


def _shape(bench: Bench, logs: list[HttpLog], count: int, connections: int) -> list[Figure]:
    chance = random.Random(count)
    values = [json_value(chance) for _ in range(count)]
    body = b'{"records":[%s]}' % b",".join(b'{"value":%s}' % value for value in values)
    own = bench.load([post(topic_path("http", 0, "records"), _JSON, body)], connections)
    name = f"JSON, {count:,} a request, {connections} connection{'s' * (connections > 1)}, flushed"
    figures = []
    for log in logs:
        theirs = bench.load([log.append(values)], connections, log.program)
        figures.append(
            Figure(
                f"{name}; {log.name.split()[0]}",
                own.per_second * count,
                "records/s",
                target=theirs.per_second * count,
                yardstick=log.name,
                yardstick_value=theirs.per_second * count,
                note=f"{own.note}; {log.name} {theirs.note}",
            )
        )
    return figures


def _memory(own_bytes: int, log: HttpLog) -> Figure:
    theirs = resident_bytes(log.program.pid) / _MIB
    return Figure(
        f"memory after all that, at its peak; {log.name.split()[0]}",
        own_bytes / _MIB,
        "MiB",
        target=theirs,
        yardstick=log.name,
        yardstick_value=theirs,
        is_ceiling=True,
    )
