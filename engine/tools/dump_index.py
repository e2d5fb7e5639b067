"""The entries of offset and time indexes, compared with the `.log` file they were derived from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.errors import InvalidRequest
from engine.fs import names
from engine.fs.port import File, FileSystem
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.records.batch import BatchView
from engine.tools.dump_log import framed_batches
from engine.tools.entries import Dump, Entry, problem
from engine.types import NO_TIMESTAMP, UNKNOWN_OFFSET, TimestampOffset

_ANY_SIZE = 0
"""The size for opening an index read-only, where it is not used."""


def dump_offset_index(fs: FileSystem, path: Path, base_offset: int) -> Dump:
    """Yield the entries and, at the end, those that do not point at the batch they name."""
    mismatches: list[Entry] = []
    index = OffsetIndex(fs, path, base_offset, _ANY_SIZE, read_only=True)
    try:
        with fs.open(path.with_name(names.log_name(base_offset)), read_only=True) as log:
            for slot, entry in enumerate(index.entries()):
                if slot and entry.offset == base_offset:
                    break  # zeros: the file was never trimmed
                found = next(_batches(log, entry.position), None)
                if found is None or found.header.last_offset != entry.offset:
                    mismatches.append(_mismatch(path, entry.offset, found))
                yield Entry("index", {"offset": entry.offset, "position": entry.position})
        if index.count == 0:
            yield Entry("empty", {"path": str(path)})
    finally:
        index.close_handles()
    yield from mismatches


def dump_time_index(fs: FileSystem, path: Path, base_offset: int) -> Dump:
    """Yield the entries and, at the end, those that contradict the log."""
    wrong: list[Entry] = []
    index = TimeIndex(fs, path, base_offset, _ANY_SIZE, read_only=True)
    offsets = OffsetIndex(
        fs, path.with_name(names.index_name(base_offset)), base_offset, _ANY_SIZE, read_only=True
    )
    try:
        with fs.open(path.with_name(names.log_name(base_offset)), read_only=True) as log:
            previous: TimestampOffset | None = None
            for entry in index.entries():
                if previous is not None and entry.offset == base_offset:
                    break  # zeros: the file was never trimmed
                start = offsets.lookup(entry.offset).position
                wrong += _judge(path, entry, previous, _batches(log, start))
                yield Entry("index", {"timestamp": entry.timestamp, "offset": entry.offset})
                previous = entry
    finally:
        index.close_handles()
        offsets.close_handles()
    yield from wrong


def _batches(log: File, position: int) -> Iterator[BatchView]:
    """Yield the batches from a position in an index, if there are any."""
    try:
        for _, data in framed_batches(log, position):
            yield BatchView(data)
    except InvalidRequest:
        return


def _judge(
    path: Path, entry: TimestampOffset, previous: TimestampOffset | None, log: Iterator[BatchView]
) -> Iterator[Entry]:
    """Yield the faults of one time index entry, given the batches from its position on."""
    batch = next((batch for batch in log if batch.header.last_offset >= entry.offset), None)
    if batch is None or batch.header.last_offset != entry.offset:
        yield _mismatch(path, entry.offset, batch)
    elif (largest := _largest_timestamp(batch)) != entry.timestamp:
        yield problem(
            f"{path}: Indexed timestamp: {entry.timestamp}, log timestamp: {largest}",
            file=str(path),
            timestamp=entry.timestamp,
            logTimestamp=largest,
        )
    if previous is not None and previous.timestamp >= entry.timestamp:
        yield problem(
            f"{path}: Index timestamp: {previous.timestamp}, then: {entry.timestamp}",
            file=str(path),
            timestamp=previous.timestamp,
            nextTimestamp=entry.timestamp,
        )


def _largest_timestamp(batch: BatchView) -> int:
    """Return the largest timestamp of the batch's records; -1 if they cannot be read.

    The header of a batch that compaction emptied keeps its timestamp.
    """
    times = (record.timestamp for record in batch.records())
    try:
        return max(times, default=batch.header.max_timestamp)
    except InvalidRequest:
        return NO_TIMESTAMP


def _mismatch(path: Path, offset: int, found: BatchView | None) -> Entry:
    log_offset = UNKNOWN_OFFSET if found is None else found.header.last_offset
    return problem(
        f"{path}: Index offset: {offset}, log offset: {log_offset}",
        file=str(path),
        offset=offset,
        logOffset=log_offset,
    )
