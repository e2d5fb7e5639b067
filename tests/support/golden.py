"""The data directories that a real broker wrote: unpacked once, copied where a test writes."""

from __future__ import annotations

import atexit
import json
import tarfile
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.config import LogConfig

ARCHIVES = Path(__file__).parent.parent / "interop" / "golden"

_INDEX_INTERVALS = {"codec": 512, "segments": 1024, "out-of-order-times": 256, "txn": 512}
_SMALL_SEGMENTS = ("segments", "trimmed", "compact")


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """A record as a Kafka consumer got it; `timestamp_type` is 1 for create, 2 for append time."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


@cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    directory = tempfile.TemporaryDirectory(prefix="tidelog-golden-")
    atexit.register(directory.cleanup)  # left to the end of the process it is a warning, an error
    return directory


@cache
def golden_archive(name: str) -> Path:
    """Return the unpacked data directory `clean`, `killed`, `compacted` or `rebuilt`: read only."""
    target = Path(_unpacked().name) / name
    with tarfile.open(ARCHIVES / f"kafka-4.3.0-{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target


def golden_partitions(name: str) -> Sequence[Path]:
    """Return the partition folders of an archive, by name."""
    return sorted(path for path in golden_archive(name).iterdir() if path.is_dir())


def golden_config(partition: str) -> LogConfig:
    """Return the configuration under which the broker wrote a partition, `txn-0` for example."""
    topic = partition.rpartition("-")[0]
    interval = _INDEX_INTERVALS.get(topic, _INDEX_INTERVALS.get(topic.split("-")[0], 4096))
    if topic == "txn-open":
        interval = 4096
    return LogConfig(
        segment_index_bytes=131_072,
        index_interval_bytes=interval,
        segment_bytes=1_048_576 if topic.startswith(_SMALL_SEGMENTS) else 1_073_741_824,
        retention_ms=-1,
        compression_type="zstd" if topic == "broker-zstd" else "producer",
        message_timestamp_type="LogAppendTime" if topic == "append-time" else "CreateTime",
        cleanup_policy=("compact",) if topic.startswith("compact") else ("delete",),
    )


@cache
def golden_expected(directory: Path, isolation: str = "read_uncommitted") -> dict[str, Any]:
    """Return what the partition's `expected.json` says for one isolation level."""
    expected: dict[str, Any] = json.loads((directory / "expected.json").read_bytes())[isolation]
    return expected


def golden_records(directory: Path, isolation: str = "read_uncommitted") -> list[ExpectedRecord]:
    """Return the records that a consumer of the partition got."""
    return [
        ExpectedRecord(
            offset,
            timestamp,
            timestamp_type,
            _decoded(key),
            _decoded(value),
            tuple((name, _decoded(content)) for name, content in headers),
            leader_epoch,
        )
        for offset, timestamp, timestamp_type, key, value, headers, leader_epoch in golden_expected(
            directory, isolation
        )["records"]
    ]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
