"""Records read back by one connection, as JSON and as Arrow, beside the same records as stored."""

from __future__ import annotations

import random
from typing import Final
from urllib.parse import urlsplit

from app.client.connection import Connection, topic_path
from bench.download import Download, DownloadResult, run_download
from bench.figures import Figure
from bench.memory import MemoryWatch, processor_seconds
from bench.target import Bench
from demo.children import Server, serve_arguments

_RECORDS: Final = 1_000
_SHARED: Final = 50
"""Requests of records whose JSON the service keeps in memory for the next reader."""
_UNSHARED: Final = 150
"""Of more records than that: the JSON of each is made anew."""
_VALUE_BYTES: Final = 150
_FETCH_BYTES: Final = 4 << 20
_JSON: Final = "application/json"
_ARROW: Final = "application/vnd.apache.arrow.stream"
_MIB: Final = 1 << 20


def reads(bench: Bench) -> list[Figure]:
    """Read records of 150-byte values again and again: more than are kept as JSON, and fewer.

    Arrow has a service of its own: its memory is not that of all the other measures.
    """
    from_json = _figure(bench, "JSON", _JSON, _UNSHARED, target=1_500_000)
    shared = _figure(bench, "JSON that others have read", _JSON, _SHARED, target=1_500_000)
    with (
        Server(serve_arguments(bench.folder / "arrow"), bench.folder / "arrow.txt") as service,
        Connection(service.url) as connection,
        MemoryWatch(service.pid) as memory,
    ):
        other = type(bench)(service, connection, bench.folder, bench.seconds)
        from_arrow = _figure(other, "Arrow", _ARROW, _SHARED, target=1_000_000, memory=memory)
    return [from_json, shared, from_arrow]


def _figure(
    bench: Bench,
    name: str,
    accept: str,
    requests: int,
    *,
    target: float,
    memory: MemoryWatch | None = None,
) -> Figure:
    records, batches = (topic_path(f"reads-{requests}", 0, kind) for kind in ("records", "batches"))
    _fill(bench, requests)
    _download(bench, records, accept, seconds=min(1.0, bench.seconds))  # warm, imports included
    as_stored = _download(bench, batches, "*/*", seconds=bench.seconds)
    before_s = processor_seconds(bench.service.pid)
    read = _download(bench, records, accept, seconds=bench.seconds)
    cost_us = (processor_seconds(bench.service.pid) - before_s) / read.offsets * 1e6
    note = f"{read.per_second / 1e6:,.0f} MB/s; {cost_us:.2f} µs of processor a record"
    if memory is not None:
        note += f"; {memory.peak_bytes / _MIB:,.0f} MiB of memory"
    return Figure(
        f"records read as {name}, one connection",
        read.offsets / read.seconds,
        "records/s",
        target=target,
        yardstick="the same as raw batches",
        yardstick_value=as_stored.offsets / as_stored.seconds,
        note=note,
    )


def _download(bench: Bench, path: str, accept: str, *, seconds: float) -> DownloadResult:
    address = urlsplit(bench.service.url)
    return run_download(
        Download(
            host=address.hostname or "",
            port=address.port or 0,
            path=path,
            seconds=seconds,
            accept=accept,
            fetch_bytes=_FETCH_BYTES,
        )
    )


def _fill(bench: Bench, requests: int) -> None:
    topic = f"reads-{requests}"
    bench.create_topic(topic, partitions=1)
    chance = random.Random(5)
    lines = [b'{"key":"key-%d","value":%s}' % (n % 97, _value(chance)) for n in range(_RECORDS)]
    path, body = topic_path(topic, 0, "records"), b"\n".join(lines)
    for _ in range(requests):
        bench.ask("POST", path, "application/x-ndjson", body)


def _value(chance: random.Random) -> bytes:
    """Return a JSON object of 150 bytes."""
    shell = b'{"flight":%d,"delay":%d,"text":"%s"}'
    numbers = (chance.randrange(1_000, 10_000), chance.randrange(10, 100))
    text = chance.randbytes(_VALUE_BYTES).hex()[: _VALUE_BYTES - len(shell % (*numbers, b""))]
    return shell % (*numbers, text.encode())
