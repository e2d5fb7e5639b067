"""Dumps the files of a log, like Kafka's `kafka-dump-log --deep-iteration`.

It is read-only and does not depend on other files being valid: a fault becomes an entry, and the
dump continues after it if possible. Entries of offset and time indexes are compared with the `.log`
file they were derived from. `render` formats an entry like Kafka's tool; programs use its names and
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Final, Literal, TypeAlias

from engine.errors import CorruptBatch, CorruptIndex, CorruptSnapshot, InvalidRequest
from engine.fs import names
from engine.fs.port import File, FileSystem
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.index.transaction import TransactionIndex
from engine.records.batch import BatchView
from engine.records.compression import DEFAULT_DECOMPRESSED_LIMIT_BYTES
from engine.records.control import ControlType, parse_control_type, parse_coordinator_epoch
from engine.records.header import (
    MAGIC_2,
    UP_TO_MAGIC_BYTES,
    BatchHeader,
    TimestampType,
    frame_size,
    increment_sequence,
)
from engine.records.legacy import message_checksums
from engine.records.record import Record
from engine.state.producer_entry import ProducerEntry
from engine.state.producer_snapshots import decode_snapshot
from engine.types import NO_SEQUENCE, NO_TIMESTAMP, UNKNOWN_OFFSET, TimestampOffset

Value: TypeAlias = int | str | bool | tuple[str, ...] | None
Kind: TypeAlias = Literal[
    "file",  # a new file begins
    "log_start",  # the base offset of a .log file
    "batch",
    "record",
    "index",  # an entry of .index or .timeindex
    "producer",  # an entry of .snapshot
    "transaction",  # an entry of .txnindex
    "empty",  # an index without entries
    "invalid_bytes",  # a .log file goes on after its last batch
    "gap",  # missing offsets: compacted or lost
    "problem",  # damage or disagreement: belongs on the error stream
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a dump: its kind, and Kafka's names with their values, in order."""

    kind: Kind
    fields: Mapping[str, Value] = field(default_factory=dict)


Dump: TypeAlias = Iterator[Entry]

_OPTIONAL: Final = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
_SENTENCES: Final[Mapping[Kind, str]] = {
    "file": "Dumping {path}",
    "log_start": "Log starting offset: {offset}",
    "empty": "{path} is empty.",
    "invalid_bytes": "Found {count} invalid bytes at the end of {file}",
    "gap": "{file}: {offset} is followed by {nextOffset}",
    "problem": "{detail}",
}


def problem(detail: str, **facts: Value) -> Entry:
    """Return the entry for a fault: a sentence and, for programs, its facts."""
    return Entry("problem", {"detail": detail, **facts})


def render(entry: Entry) -> str:
    """Format an entry like Kafka's tool."""
    sentence = _SENTENCES.get(entry.kind)
    if sentence is not None:
        return sentence.format_map(entry.fields)
    line = " ".join(f"{name}: {_spell(name, value)}" for name, value in entry.fields.items())
    return f"| {line}" if entry.kind == "record" else line


def _spell(name: str, value: Value) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{','.join(value)}]"
    return str(value)


_TIME_NAMES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_NO_TIME_NAME: Final = "NoTimestampType"  # magic 0


def dump_log(
    fs: FileSystem, path: Path, base_offset: int, *, deep: bool, max_bytes: int | None = None
) -> Dump:
    """Yield each batch, with `deep` its records too, and the faults at the end.

    With `max_bytes`, only the whole batches within that many bytes of the file.
    """
    yield Entry("log_start", {"offset": base_offset})
    seen = _OffsetsSeen(path)
    end = 0
    with fs.open(path, read_only=True) as file:
        try:
            for position, data in framed_batches(file, end=max_bytes):
                end = position + len(data)
                batch = BatchView(data)
                yield Entry("batch", _batch_fields(position, batch))
                if deep:
                    yield from _dump_records(path, position, batch, seen)
        except CorruptBatch as error:
            yield _wrong(path, end, str(error))
        if end < file.size_bytes and max_bytes is None:
            yield Entry("invalid_bytes", {"count": file.size_bytes - end, "file": path.name})
    yield from seen.gaps


def framed_batches(
    file: File, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield position and bytes of each complete batch from `position` on; checks only framing.

    Raises CorruptBatch at an impossible frame; ignores a batch that ends after the file or `end`.
    """
    end = file.size_bytes if end is None else min(end, file.size_bytes)
    while position < end:
        size = frame_size(file.read_at(position, UP_TO_MAGIC_BYTES))
        if size is None or position + size > end:
            return
        yield position, file.read_at(position, size)
        position += size


class _OffsetsSeen:
    """Records gaps between the offsets of records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._previous: int | None = None
        self.gaps: list[Entry] = []

    def note(self, offset: int) -> None:
        previous = self._previous
        if previous is not None and offset != previous + 1:
            self.gaps.append(
                Entry("gap", {"file": str(self._path), "offset": previous, "nextOffset": offset})
            )
        self._previous = offset


def _batch_fields(position: int, batch: BatchView) -> dict[str, Value]:
    header = batch.header
    own_fields: dict[str, Value] = {"offset": header.last_offset}
    if header.magic == MAGIC_2:
        own_fields = _fields_of_magic_2(header)
    return {
        **own_fields,
        "position": position,
        _time_name(header): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": _codec_label(header),
        "crc": header.crc,
        "isvalid": _is_intact(batch),
    }


def _fields_of_magic_2(header: BatchHeader) -> dict[str, Value]:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
    }


def _time_name(header: BatchHeader) -> str:
    return _TIME_NAMES[header.timestamp_type] if header.magic else _NO_TIME_NAME


def _codec_label(header: BatchHeader) -> str:
    try:
        return header.codec.label
    except InvalidRequest as error:
        return str(error)


def _is_intact(batch: BatchView) -> bool:
    try:
        batch.ensure_intact()
    except CorruptBatch:
        return False
    return True


def _dump_records(path: Path, position: int, batch: BatchView, seen: _OffsetsSeen) -> Dump:
    header = batch.header
    checksums: Iterable[dict[str, Value]] = repeat({})
    try:
        if header.magic < MAGIC_2:  # each old message has its own checksum
            found = message_checksums(batch.buffer, header, DEFAULT_DECOMPRESSED_LIMIT_BYTES)
            checksums = [{"isValid": is_right, "crc": crc} for crc, is_right in found]
        for record, checksum in zip(batch.records(), checksums, strict=False):
            seen.note(record.offset)
            yield Entry("record", _record_fields(header, record) | checksum)
    except InvalidRequest as error:
        yield _wrong(path, position, str(error))


def _record_fields(header: BatchHeader, record: Record) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "offset": record.offset,
        _time_name(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.magic == MAGIC_2:
        fields["sequence"] = _sequence(header, record.offset)
        fields["headerKeys"] = tuple(name for name, _ in record.headers)
    if header.is_control:
        fields |= _control_fields(record)
    return fields


def _sequence(header: BatchHeader, offset: int) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return increment_sequence(header.base_sequence, offset - header.base_offset)


def _wrong(path: Path, position: int, what: str) -> Entry:
    return problem(f"{path}: byte {position}: {what}", file=str(path), position=position)


def _control_fields(record: Record) -> dict[str, Value]:
    control_type = parse_control_type(record.key)
    match control_type:
        case ControlType.ABORT | ControlType.COMMIT:
            return {
                "endTxnMarker": control_type.name,
                "coordinatorEpoch": parse_coordinator_epoch(record.value),
            }
        case _:
            return {"controlType": f"{control_type.name}({int(control_type)})"}


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


def dump_file(
    fs: FileSystem, path: Path, *, deep: bool = True, max_bytes: int | None = None
) -> Dump:
    """Yield the entries of one file, by its suffix; `deep` adds the records of batches.

    With `max_bytes`, only the whole batches within that many bytes of a `.log` file. Indexes are
    compared with their `.log` file, which must exist. An unknown file is a problem entry; an
    unreadable file is an OSError.
    """
    base_offset = names.base_offset_of(path.name)
    if base_offset is None or path.suffix not in _KNOWN_SUFFIXES:
        yield problem(f"Ignoring unknown file {path}", file=str(path))
        return
    yield Entry("file", {"path": str(path)})
    match path.suffix:
        case names.LOG_SUFFIX:
            yield from dump_log(fs, path, base_offset, deep=deep, max_bytes=max_bytes)
        case names.INDEX_SUFFIX:
            yield from dump_offset_index(fs, path, base_offset)
        case names.TIME_INDEX_SUFFIX:
            yield from dump_time_index(fs, path, base_offset)
        case names.TXN_INDEX_SUFFIX:
            yield from _dump_transaction_index(fs, path, base_offset)
        case _:
            yield from _dump_snapshot(fs, path)


_KNOWN_SUFFIXES = frozenset({names.LOG_SUFFIX, *names.INDEX_SUFFIXES, names.SNAPSHOT_SUFFIX})


def _dump_transaction_index(fs: FileSystem, path: Path, base_offset: int) -> Dump:
    index = TransactionIndex(fs, path, base_offset, read_only=True)
    try:
        for aborted in index.entries():
            yield Entry(
                "transaction",
                {
                    "version": 0,
                    "producerId": aborted.producer_id,
                    "firstOffset": aborted.first_offset,
                    "lastOffset": aborted.last_offset,
                    "lastStableOffset": aborted.last_stable_offset,
                },
            )
    except CorruptIndex as error:
        yield problem(f"{path}: {error}", file=str(path))
    finally:
        index.close()


def _dump_snapshot(fs: FileSystem, path: Path) -> Dump:
    try:
        producers = decode_snapshot(fs.read_bytes(path), loaded_ms=0)
    except CorruptSnapshot as error:
        yield problem(f"{path}: {error}", file=str(path))
        return
    for producer in producers:
        yield Entry("producer", _producer_fields(producer))


def _producer_fields(producer: ProducerEntry) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "currentTxnFirstOffset": producer.transaction_first_offset,
        "lastTimestamp": producer.last_timestamp,
    }
    for batch in producer.batches:  # a snapshot has at most one
        fields |= {
            "firstSequence": batch.first_sequence,
            "lastSequence": batch.last_sequence,
            "lastOffset": batch.last_offset,
            "offsetDelta": batch.offset_delta,
            "timestamp": batch.timestamp,
        }
    return fields
