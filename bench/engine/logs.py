"""A log without the service around it, and batches to fill it with."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from engine.clock import SystemClock
from engine.config import EngineConfig, LogConfig
from engine.fs.health import DirectoryHealth
from engine.fs.posix import PosixFileSystem
from engine.log.damage import KnownDamage
from engine.log.files import LogContext
from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.metrics import NullRecorder
from engine.records.builder import build_batch
from engine.scheduler import ThreadScheduler
from engine.segment.indexes import SealedFiles
from engine.types import TopicPartition

MB = 1_000_000
GIB = 1 << 30


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of one run, and the folder on the disk to be measured."""

    folder: Path
    segments: int = 1_000
    """Appends are compared between the first segment and this one."""
    large_bytes: int = 2 * GIB
    """The log that look-ups are made in; a release is measured with 10 GB."""
    small_bytes: int = 10 * MB
    """The log they are compared with."""
    tail_bytes: int = GIB
    """What recovery has to scan."""
    partitions: int = 1_000
    """How many are opened after a clean stop."""
    compacted_megabytes: int = 200
    """What is compacted, each time."""


_LOG: Final = TopicPartition("bench", 0)
_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_HOUR_MS: Final = 3_600_000
RECORD_BYTES: Final = 1024


def open_log(folder: Path, config: LogConfig) -> Log:
    """Open the log of this folder, or make it; what is there is scanned as after a crash.

    Nothing runs in the background: what a roll wants flushed waits for the next commit, so that the
    disk does not work while something else is timed.
    """
    clock = SystemClock()
    context = LogContext(
        PosixFileSystem(),
        clock,
        ThreadScheduler(clock),  # not started
        NullRecorder(),
        DirectoryHealth(folder),
        EngineConfig(),
        SealedFiles(1_000),
        KnownDamage(PosixFileSystem(), folder, clock),
    )
    directory = folder / f"{_LOG.topic}-{_LOG.partition}"
    directory.mkdir(parents=True, exist_ok=True)
    request = LoadRequest(directory, config, 0, 0, was_clean=False, is_gapless=True)
    return Log.open(context, _LOG, _TOPIC_ID, request)


def batches(batch_bytes: int) -> Iterator[bytearray]:
    """Yield batches of 1 KiB records without end, each batch a millisecond later than the last."""
    value = random.Random(1).randbytes(RECORD_BYTES)
    count = max(1, batch_bytes // RECORD_BYTES)
    timestamp = time.time_ns() // 1_000_000 - _HOUR_MS
    while True:
        yield build_batch([(timestamp, None, value, ())] * count)
        timestamp += 1


def fill(log: Log, size_bytes: int, batch_bytes: int) -> int:
    """Append at least so many bytes and make them readable; return the timestamp of the first."""
    source = batches(batch_bytes)
    first_ms = log.append(next(source), checked=True).timestamp
    while log.reader.size_bytes < size_bytes:
        log.append(next(source), checked=True)
    log.durability.commit()
    return first_ms
