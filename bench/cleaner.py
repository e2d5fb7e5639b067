"""`python -m bench.cleaner [--megabytes N]`: how fast a log is compacted, without the service.

What is counted are the bytes of the segments that go in; each is read twice, once for its keys and
once to copy what stays.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.figures import Figure, show
from engine.cleaner.offset_map import SLOT_BYTES
from engine.config import CleanerConfig, EngineConfig
from engine.records.builder import build_batch
from engine.records.header import Codec
from engine.runtime import Runtime
from engine.types import TopicPartition

_MB = 1_000_000
_BATCH_BYTES = 64 * 1024
_LOG = TopicPartition("compacted", 0)
_OVERRIDES: dict[str, str | int] = {
    "cleanup.policy": "compact",
    "segment.bytes": 64 << 20,
    "min.cleanable.dirty.ratio": 0,
}


def main() -> None:
    """Compact a few logs, each made for it, and show how fast that was."""
    parser = argparse.ArgumentParser(prog="python -m bench.cleaner", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="records to compact, each time")
    megabytes = parser.parse_args().megabytes
    figures = [
        measure("1 KB records, few keys", 1024, 5_000, megabytes),
        measure("1 KB records, most of them stay", 1024, 200_000, megabytes),
        measure("1 KB records in lz4", 1024, 5_000, megabytes, Codec.LZ4),
        Figure("offset map", SLOT_BYTES, "bytes a key", 24, is_ceiling=True),
    ]
    show(figures, Console())


def measure(
    name: str, value_bytes: int, keys_count: int, megabytes: int, codec: Codec = Codec.NONE
) -> Figure:
    """Fill a log, compact it once, and return uncompressed bytes of records a second."""
    config = EngineConfig(cleaner=CleanerConfig(enable=False))
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        runtime = Runtime(Path(folder), config)
        runtime.open()
        try:
            runtime.manager.create_topic(_LOG.topic, 1, _OVERRIDES)
            record_bytes = _fill(runtime, value_bytes, keys_count, megabytes * _MB, codec)
            busy = time.process_time()
            started = time.perf_counter()
            report = runtime.cleaner.run_pass()
            seconds = time.perf_counter() - started
            busy = time.process_time() - busy
        finally:
            runtime.close()
    assert report is not None, "the log is dirty"
    note = (
        f"{report.records_kept:,} of {report.records_read:,} records stay; {busy:.2f} s of the "
        f"{seconds:.2f} s on a processor"
    )
    return Figure(name, record_bytes / _MB / seconds, "MB/s", 100, note=note)


def _fill(
    runtime: Runtime, value_bytes: int, keys_count: int, size_bytes: int, codec: Codec
) -> int:
    """Append so many bytes of records under random keys and seal them; return how many it was."""
    log = runtime.manager.log(_LOG)
    source = random.Random(1)
    value = source.randbytes(value_bytes)
    now_ms = time.time_ns() // _MB
    per_batch = _BATCH_BYTES // value_bytes
    written = 0
    while written < size_bytes:
        records = [
            (now_ms, b"key-%d" % source.randrange(keys_count), value, ()) for _ in range(per_batch)
        ]
        log.append(build_batch(records, codec=codec), checked=True)
        written += per_batch * value_bytes
    log.roll()
    log.durability.flush()
    return written


if __name__ == "__main__":
    main()
