"""Dumps the batches and records of one `.log` file, damaged or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Final

from engine.errors import CorruptBatch, InvalidRequest
from engine.fs.port import File, FileSystem
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
from engine.tools.entries import Dump, Entry, Value, problem
from engine.types import NO_SEQUENCE

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
