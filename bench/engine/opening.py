"""Many partitions after a clean stop, in a process of their own: seconds, and memory of each.

`python -m bench.engine.opening FOLDER` opens the data directory and tells what it took, as JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.engine.logs import Sizes, batches
from bench.figures import Figure
from engine.runtime import Runtime
from engine.types import TopicPartition

_TOPIC: Final = "many"
_BATCHES_A_PARTITION: Final = 4
_BATCH_BYTES: Final = 4 * 1024
_MS_EACH: Final = 2.0
_KIB_EACH: Final = 100


class Opened(msgspec.Struct, frozen=True):
    """What it took to open a data directory, and to open and close its files one by one."""

    partitions: int
    seconds: float
    busy_seconds: float
    files_seconds: float
    resident_bytes: int


def measure_opening(sizes: Sizes) -> list[Figure]:
    """Fill the partitions, stop, and open them in another process."""
    folder = sizes.folder / "opening"
    _fill(folder, sizes.partitions)
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine.opening", str(folder)],
        stdout=subprocess.PIPE,
        check=True,
    )
    opened = msgspec.json.decode(done.stdout, type=Opened)
    return [
        Figure(
            f"{opened.partitions:,} partitions opened",
            opened.seconds * 1000,
            "ms",
            _MS_EACH * sizes.partitions,
            "opening their files one by one",
            opened.files_seconds * 1000,
            is_ceiling=True,
            note=f"{opened.busy_seconds:.2f} s on a processor, all threads together",
        ),
        Figure(
            "memory of an open partition",
            opened.resident_bytes / 1024 / opened.partitions,
            "KiB",
            _KIB_EACH,
            is_ceiling=True,
        ),
    ]


def _fill(folder: Path, partitions: int) -> None:
    """Make a topic with some records in each partition, and stop cleanly."""
    folder.mkdir()
    runtime = Runtime(folder)
    runtime.open()
    try:
        runtime.manager.create_topic(_TOPIC, partitions, {})
        source = batches(_BATCH_BYTES)
        for partition in range(partitions):
            log = runtime.manager.log(TopicPartition(_TOPIC, partition))
            for _ in range(_BATCHES_A_PARTITION):
                log.append(next(source), checked=True)
    finally:
        runtime.close()


def open_and_tell(folder: Path) -> Opened:
    """Open the data directory once and return what it took; memory counts from before it."""
    files_seconds = _open_files(folder)
    runtime = Runtime(folder)
    before = _resident_bytes()
    busy = time.process_time()
    started = time.perf_counter()
    runtime.open()
    seconds = time.perf_counter() - started
    busy = time.process_time() - busy
    grown = _resident_bytes() - before
    count = len(runtime.manager.logs())
    runtime.close()
    return Opened(count, seconds, busy, files_seconds, grown)


def _open_files(folder: Path) -> float:
    """Return the seconds to open and close every file below the folder."""
    started = time.perf_counter()
    for directory, _, names in os.walk(folder):
        for name in names:
            with Path(directory, name).open("rb", buffering=0):
                pass
    return time.perf_counter() - started


def _resident_bytes() -> int:
    """Return what this process takes now, not at its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return int(told.stdout) * 1024


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(open_and_tell(Path(sys.argv[1]))))
