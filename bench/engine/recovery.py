"""The scan of an unclean tail, beside what nobody can save: reading it, and its checksum."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.engine.logs import Sizes, fill, open_log
from bench.figures import Figure
from engine.config import LogConfig
from engine.fs.posix import PosixFileSystem
from engine.records.checksum import crc32c

_BATCH_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 1 << 20
_GB: Final = 1e9
_TARGET: Final = 1.0


def measure_recovery(sizes: Sizes) -> list[Figure]:
    """Leave a log behind without a word, and open it; both read the disk and not the cache."""
    folder = sizes.folder / "recovery"
    log = open_log(folder, LogConfig())
    fill(log, sizes.tail_bytes, _BATCH_BYTES)
    size, end_offset = log.reader.size_bytes, log.watermarks.log_end_offset
    log.maintenance.close_handles()
    files = sorted(folder.rglob("*.log"))
    read_seconds, checksum_seconds = _read(files)
    busy = time.process_time()
    started = time.perf_counter()
    log = open_log(folder, LogConfig())
    seconds = time.perf_counter() - started
    busy = time.process_time() - busy
    assert log.watermarks.log_end_offset == end_offset, "everything was found again"
    log.maintenance.close_handles()
    note = (
        f"{size / _GB:.2f} GB of 64 KiB batches in {seconds:.2f} s, {busy:.2f} s of them on a "
        f"processor; reading alone {size / _GB / read_seconds:.1f} GB/s, the checksum alone "
        f"{size / _GB / checksum_seconds:.1f} GB/s"
    )
    figure = Figure(
        "recovery of an unclean tail",
        size / _GB / seconds,
        "GB/s",
        _TARGET,
        "reading the disk and CRC-32C",
        size / _GB / (read_seconds + checksum_seconds),
        note=note,
    )
    return [figure]


def _read(files: list[Path]) -> tuple[float, float]:
    """Return the seconds it takes to read the files, and those of the checksum over the bytes."""
    reading = checking = 0.0
    for path in files:
        with PosixFileSystem().open(path) as stored:
            stored.forget_cached()  # as recovery does
        with path.open("rb", buffering=0) as file:
            chunk = b"not read yet"
            while chunk:
                started = time.perf_counter()
                chunk = file.read(_CHUNK_BYTES)
                read = time.perf_counter()
                crc32c(chunk)
                reading += read - started
                checking += time.perf_counter() - read
    return reading, checking
