"""The damages that nothing tells, and what is served then; docs/durability.md names the three.

Kafka's formats have nothing that would tell a number of a checkpoint, or a whole sound batch, from
another, nor what a compaction took at the end of a segment from what was lost there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.kafka_files import parse_lines, parse_number
from engine.errors import CorruptBatch, CorruptCheckpoint
from engine.fs import names
from engine.index.offset import ENTRY
from engine.records.batch import BatchView
from engine.types import INT64_MAX, TopicPartition
from tests.support.logs import Records, values_in


class Believed(NamedTuple):
    """What a log holds if the bytes in the place of a file are believed."""

    own: Records
    """What it must still hold, or the loss must be reported."""
    strangers: Records
    """What else it may hold: these cannot be recognized as another log's."""


def believed(
    files: Mapping[Path, bytes], path: Path, content: bytes, log: TopicPartition, records: Records
) -> Believed:
    """Judge what the damage of one file, of those there were, may do to the records of a log."""
    if path.name == names.LOG_START_CHECKPOINT:
        start = _log_start(log, path, content)
        return Believed({at: value for at, value in records.items() if at >= start}, {})
    if path.suffix != names.LOG_SUFFIX or path.parent.name != str(log):
        return Believed(records, {})
    first, end = _reach(files, path)
    batches = list(_sound_batches(content, first, end))
    values = values_in(b"".join(batch.buffer for batch in batches))
    strangers = {at: value for at, value in values.items() if records.get(at, ...) != value}
    is_compacted = log.topic.startswith("compact")
    if is_compacted and (strangers or _holds_what_is_indexed(files, path, batches)):
        replaced = range(first, end)
    else:  # where it ended is known, and only strangers can be where something was
        replaced = range(first, max(strangers, default=-1) + 1)
    own = {
        at: value
        for at, value in records.items()
        if at not in replaced or values.get(at, ...) == value
    }
    return Believed(own, strangers)


def _log_start(log: TopicPartition, path: Path, content: bytes) -> int:
    try:
        rows = parse_lines(content, 3, path)
        starts = [parse_number(start, path) for *at, start in rows if "-".join(at) == str(log)]
    except CorruptCheckpoint:
        starts = []
    return max(starts, default=0)


def _reach(files: Mapping[Path, bytes], path: Path) -> tuple[int, int]:
    """Return the first offset that a segment may hold, and the first that it may not."""
    bases = [int(one.stem) for one in files if one.match(f"{path.parent}/*{names.LOG_SUFFIX}")]
    first = int(path.stem)
    return first, min((base for base in bases if base > first), default=INT64_MAX)


def _sound_batches(content: bytes, first: int, end: int) -> Iterator[BatchView]:
    """Yield the batches up to one that is not whole and right, or not of these offsets."""
    position = 0
    while position < len(content):
        try:
            batch = BatchView(content, position)
            batch.ensure_intact()
        except CorruptBatch:
            return
        if not first <= batch.header.base_offset <= batch.header.last_offset < end:
            return
        yield batch
        first = batch.header.next_offset
        position += batch.header.size_bytes


def _holds_what_is_indexed(
    files: Mapping[Path, bytes], path: Path, batches: list[BatchView]
) -> bool:
    """Whether the last entry of the segment's index leads into these batches."""
    index = files.get(path.with_suffix(names.INDEX_SUFFIX), b"")
    last = max((position for _, position in ENTRY.iter_unpack(index)), default=0)
    return last < sum(len(batch.buffer) for batch in batches)
