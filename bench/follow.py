"""A lake that follows a log: how soon a record is in it, and what it costs while none comes."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import Final

import msgspec

from app.client.connection import topic_path
from bench.figures import Figure
from bench.memory import processor_seconds, tree_times
from bench.target import Bench
from demo.children import Child

_TOPIC: Final = "follow"
_TRIGGER_S: Final = 1.0
_WARM_UP: Final = 5
_RECORDS: Final = 20
_IDLE_S: Final = 30.0
_SETTLE_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.005
_PATIENCE_S: Final = 300.0


def follow(bench: Bench) -> list[Figure]:
    """Have `tidelog ingest --follow` look once a second, and append a record now and then."""
    bench.create_topic(_TOPIC, partitions=1)
    lake = bench.folder / "followed"
    job = ["app.cli", "ingest", "--server", bench.service.url, "--topic", _TOPIC, "--follow"]
    places = ["--to", f"parquet:{lake}", "--checkpoint", str(bench.folder / "follow-checkpoint")]
    every = ["--every", str(_TRIGGER_S)]
    with Child([*job, *places, *every], bench.folder / "ingest.txt") as ingest:
        for number in range(_WARM_UP):
            _append(bench, number)
            _seen_after_s(lake, number)
        chance = random.Random(1)
        delays_s = []
        for number in range(_WARM_UP, _WARM_UP + _RECORDS):
            time.sleep(chance.uniform(0, _TRIGGER_S))  # at any time between two looks
            _append(bench, number)
            delays_s.append(_seen_after_s(lake, number))
        time.sleep(_SETTLE_S)  # Java still compiles what the micro-batches made hot
        before, service_s = tree_times(ingest.pid), processor_seconds(bench.service.pid)
        time.sleep(_IDLE_S)
        service_s = processor_seconds(bench.service.pid) - service_s
        # Spark ends workers that have been idle for long: what they took is not of these seconds.
        job_s = sum(s - before.get(pid, 0) for pid, s in tree_times(ingest.pid).items())
    return [
        Figure(
            "from an append to the lake, a look a second, median",
            statistics.median(delays_s),
            "s",
            target=2,
            is_ceiling=True,
            note=f"{min(delays_s):.2f} to {max(delays_s):.2f} s for {_RECORDS} records",
        ),
        Figure(
            "the same job while nothing comes",
            (job_s + service_s) / _IDLE_S * 100,
            "% of a core",
            target=1,
            is_ceiling=True,
            note=f"the service's share is {service_s / _IDLE_S * 100:.1f} %",
        ),
    ]


def _append(bench: Bench, number: int) -> None:
    body = msgspec.json.encode({"records": [{"value": number}]})
    bench.ask("POST", topic_path(_TOPIC, 0, "records"), "application/json", body)


def _seen_after_s(lake: Path, number: int) -> float:
    """Return how long it takes until the lake has one micro-batch more than `number`."""
    started = time.perf_counter()
    while len(list(lake.glob("batches=*/batch_id=*"))) <= number:
        if time.perf_counter() - started > _PATIENCE_S:
            raise SystemExit(f"record {number} is not in {lake} after {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)
    return time.perf_counter() - started
