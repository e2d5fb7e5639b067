"""Twice what the service can do, of everything at once: it does what it can and refuses the rest.

`LOAD_SECONDS` in the environment is how long, if not half an hour. What each part of the time was
like is printed (`pytest -s`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import httpx
import pytest

from bench.memory import processor_seconds
from engine.config import EngineConfig
from engine.fs.names import CLEAN_SHUTDOWN_FILE, DELETED_SUFFIX
from engine.fs.posix import PosixFileSystem
from engine.tools.verify import DirectoryCheck
from tests.load.crowd import MIX, PARTITIONS, WRITES, Crowd, Tally, Window
from tests.support.process import Process, all_values, serving_process
from tests.support.server import Served, serving
from tests.support.service import local

SECONDS = float(os.environ.get("LOAD_SECONDS", "1800"))
PARTS = 6
SAMPLE_S = 1.0
MIB = 1 << 20
LIMITS = {
    "max_in_flight_requests": 48,
    "max_in_flight_bytes": 16 * MIB,
    "max_in_flight_answer_bytes": 16 * MIB,
    "max_waiting_readers": 10,
    "max_tails": 10,
    "retention_check_interval_ms": 2_000,
}
CLIENTS = 256
WRITERS = 4
AS_MANY_AS_FIT = 24
AS_SOON_AS_IT_CAN = 1e6
SLOWEST_S = 20.0
"""For what was let in, on a machine that may be busy; no more wait than limits and rate explain."""
BULK = {"segment.bytes": 4 * MIB, "retention.bytes": 32 * MIB, "file.delete.delay.ms": 1_000}


class Watch:
    """What a process has used since it was asked last."""

    def __init__(self, process: Process) -> None:
        self._pid = process.popen.pid
        self._cpu_s = processor_seconds(self._pid)

    def cpu_s(self) -> float:
        before, self._cpu_s = self._cpu_s, processor_seconds(self._pid)
        return self._cpu_s - before

    def memory_bytes(self) -> int:
        """What it holds for itself; files that are mapped belong to the page cache."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


def prepared(url: str) -> list[int]:
    """Create the topics; return a producer id for each numbered writer."""
    with httpx.Client(base_url=url) as client:
        for topic, partitions, config in (
            ("bulk", PARTITIONS, BULK),
            ("kept", 1, {}),
            ("quiet", 1, {}),
        ):
            body = {"partitions": partitions, "config": config}
            client.put(f"/v1/topics/{topic}", json=body).raise_for_status()
        return [client.post("/v1/producers").json()["producer_id"] for _ in range(WRITERS)]


async def watched(crowd: Crowd, watch: Watch, seconds: float) -> Window:
    """Let the crowd work for so long; return what that time was like."""
    window = crowd.tally.window = Window()
    watch.cpu_s()
    end = monotonic() + seconds
    while monotonic() < end:
        await crowd.let_work(min(SAMPLE_S, seconds))
        window.memory_bytes.append(watch.memory_bytes())
    window.cpu_s, window.seconds = watch.cpu_s(), seconds
    return window


def sum_of(windows: list[Window]) -> Window:
    """Return what all of this time was like."""
    total = Window()
    for one in windows:
        total += one
    return total


@dataclass
class Life:
    """The measurements of a service's phases, and the final responses to its clients."""

    tally: Tally
    able: list[Window]
    """Where it was asked for as much as it can do,"""
    asked_twice: list[Window]
    """and the requests of the doubled demand, one right after the other."""


async def lived(process: Process, seconds: float) -> Life:
    """Find out again and again what the service can do, and ask for twice as much; then stop it."""
    crowd = Crowd(process.url, await asyncio.to_thread(prepared, process.url))
    life = Life(crowd.tally, [], [])
    watch = Watch(process)
    crowd.come(pollers=2 * LIMITS["max_waiting_readers"], tails=2 * LIMITS["max_tails"])
    part_s = seconds / PARTS
    await crowd.pace(AS_MANY_AS_FIT, per_second=AS_SOON_AS_IT_CAN)
    await watched(crowd, watch, part_s / 4)  # caches, pools, the first segments
    for number in range(PARTS):
        await crowd.pace(AS_MANY_AS_FIT, per_second=AS_SOON_AS_IT_CAN)
        life.able.append(await watched(crowd, watch, part_s / 4))
        tell("as much as it can", life.able[-1])
        await crowd.pace(CLIENTS, per_second=2 * life.able[-1].per_second)
        life.asked_twice.append(await watched(crowd, watch, part_s * 3 / 4))
        tell(f"twice as much, {number + 1} of {PARTS}", life.asked_twice[-1])
    crowd.tally.is_over.set()
    process.stop()
    await crowd.leave()
    assert await asyncio.to_thread(process.exit_code) == 0
    return life


def tell(what: str, window: Window) -> None:
    others = {
        f"{kind} {status}": n for (kind, status), n in window.answers.items() if kind not in MIX
    }
    median, p99, worst = (window.slowest(share) * 1e3 for share in (0.5, 0.01, 0))
    sys.stdout.write(
        f"{what}: {window.per_second:,.0f} done and {window.refused / window.seconds:,.0f} refused "
        f"a second, {window.done_per_cpu_s:,.0f} done a CPU second, {median:,.0f} / {p99:,.0f} / "
        f"{worst:,.0f} ms (median, p99, worst), {max(window.memory_bytes) >> 20} MiB, {others}\n"
    )
    sys.stdout.flush()


def ends(url: str) -> dict[int, int]:
    """Return where each partition of the bulk ends."""
    listed = json.loads(httpx.get(f"{url}/v1/topics/bulk/partitions").content)
    return {one["partition"]: one["log_end_offset"] for one in listed["partitions"]}


def ensure_all_there(url: str, tally: Tally) -> None:
    """What was acknowledged is there once and in order, and of what was refused nothing."""
    with httpx.Client(base_url=url) as client:
        found = all_values(client, "/v1/topics/kept/partitions/0/records")
    for name, count in tally.numbered.items():
        mine = [value for value in found if value.startswith(f"{name} ")]
        assert mine[:count] == [f"{name} {number}" for number in range(count)]
        assert len(mine) <= count + 1
    for partition, end in ends(url).items():
        acknowledged = tally.acknowledged[partition]
        assert acknowledged <= end <= acknowledged + tally.unanswered[partition]


def test_a_crowd_that_asks_for_too_much_leaves_nothing_behind(tmp_path: Path) -> None:
    """Stopped in the middle of its work and refusals, the service holds nothing for any client."""
    with serving(tmp_path, max_in_flight_requests=4, max_waiting_readers=2, max_tails=2) as served:
        tally = asyncio.run(pressed(served))
    admission = served.service.admission
    held = (admission.requests, admission.waiting_readers, admission.tails)
    assert held == (0, 0, 0)
    assert (admission.body_bytes, admission.answer_bytes) == (0, 0)
    assert local(served.service).commits.waiting == 0
    with serving(tmp_path) as served:
        ensure_all_there(served.url, tally)


async def pressed(served: Served) -> Tally:
    """Ask for too much of everything until all of it was done and refused; stop it meanwhile."""
    crowd = Crowd(served.url, await asyncio.to_thread(prepared, served.url))
    crowd.come(pollers=4, tails=4)
    await crowd.pace(16, per_second=AS_SOON_AS_IT_CAN)
    answers = crowd.tally.window.answers
    wanted = {(kind, status) for kind in ("poll", "tail") for status in (200, 503)}
    wanted |= {(kind, 201 if kind in WRITES else 200) for kind in MIX}
    while not (wanted <= answers.keys() and any((kind, 503) in answers for kind in MIX)):
        await crowd.let_work(SAMPLE_S / 10)
    crowd.tally.is_over.set()
    served.server.handle_exit(signal.SIGTERM, None)
    await crowd.leave()
    return crowd.tally


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
def test_twice_what_it_can_do_slows_nothing_down_and_loses_nothing(tmp_path: Path) -> None:
    """What can be done is done, the rest is refused at once, memory stays, and a stop is clean."""
    with serving_process(tmp_path, **LIMITS) as process:
        life = asyncio.run(lived(process, SECONDS))
    asked = life.asked_twice
    early, late = sum_of(asked[: PARTS // 2]), sum_of(asked[PARTS // 2 :])
    assert early.refused + late.refused > (early.done + late.done) / 4, "that was not too much"
    assert early.done_per_cpu_s > sum_of(life.able).done_per_cpu_s / 3
    assert late.done_per_cpu_s > early.done_per_cpu_s * 0.7
    assert max(late.memory_bytes) < max(early.memory_bytes) * 1.1 + 8 * MIB
    for window in asked:
        assert window.done
        assert window.slowest(0) < SLOWEST_S
        assert window.answers["poll", 200]
        assert window.answers["poll", 503]
        assert window.answers["tail", 200]
        assert window.answers["tail", 503]
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    findings = DirectoryCheck(PosixFileSystem(), [tmp_path], EngineConfig()).findings()
    # What retention gave up in the last minute still waits for its delay.
    assert [one for one in findings if one.file.suffix != DELETED_SUFFIX] == []
    with serving_process(tmp_path) as process:
        ensure_all_there(process.url, life.tally)
