"""The text files that Kafka keeps in a data directory and in its partitions.

All checkpoints have one format, Kafka's `CheckpointFile`: a version, a count, and that many lines.

    0
    2
    flights 0 1523
    flights 1 980

Offsets (`OffsetCheckpointFile`) have one line for each partition; four files differ in name only.
Leader epochs (`LeaderEpochCheckpointFile`) have one for each epoch of one log, with its first
offset; `engine.state.epochs` interprets them. Reading is strict: recovery relies on checkpoints,
and a file with one wrong line cannot be trusted in the others. docs/formats/checkpoints.md.

The marker `.kafka_cleanshutdown` (`CleanShutdownFileHandler`) allows the next start to skip
recovery. It exists only between a clean stop and the next start, which deletes it before it opens
the first log: a crash while loading must count as unclean.

`partition.metadata` (`PartitionMetadataFile`) says which topic a partition directory belongs to:

    version: 0
    topic_id: S6g8ZPZuQWap3C72_08X5Q

A topic id is a UUID in base64url, 22 characters without padding. A topic that is deleted and
created again gets another id.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from engine.errors import CorruptCheckpoint
from engine.fs.directories import replace_atomically
from engine.fs.names import CLEAN_SHUTDOWN_FILE
from engine.fs.port import FileSystem
from engine.types import INT32_MAX, INT64_MAX, EpochOffset, TopicPartition

VERSION: Final = 0

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def read_lines(fs: FileSystem, path: Path, field_count: int) -> list[list[str]]:
    """Return the fields of every line; none if the file is missing, empty or only has a version.

    CorruptCheckpoint if it differs, except in spacing, from what `write_lines` writes.
    """
    try:
        content = fs.read_bytes(path)
    except FileNotFoundError:
        return []
    return parse_lines(content, field_count, path)


def write_lines(fs: FileSystem, path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Replace the file; the caller allows only one thread at a time."""
    replace_atomically(fs, path, format_lines(rows))


def format_lines(rows: Iterable[Iterable[object]]) -> bytes:
    """Return the bytes of a file with these rows."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def parse_lines(content: bytes, field_count: int, path: Path) -> list[list[str]]:
    """Parse the bytes of a file; `path` is for the message of CorruptCheckpoint."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise corrupt(path, "it is not UTF-8 text") from error
    if not lines:
        return []
    if parse_number(lines[0], path) != VERSION:
        raise corrupt(path, f"its version is {lines[0]!r}, not {VERSION}")
    if len(lines) == 1:
        return []
    expected = parse_number(lines[1], path)
    if expected != len(lines) - 2:
        raise corrupt(path, f"it declares {expected} entries and has {len(lines) - 2}")
    rows = [line.split() for line in lines[2:]]
    for line, row in zip(lines[2:], rows, strict=True):
        if len(row) != field_count:
            raise corrupt(path, f"malformed line {line!r}")
    return rows


def parse_number(text: str, path: Path) -> int:
    """Read a decimal number of at most 64 bits; `path` is for the message of CorruptCheckpoint."""
    number = text.strip()  # `int` alone accepts fewer kinds of space
    if _NUMBER.fullmatch(number) is None:
        raise corrupt(path, f"{text!r} is not a number")
    return int(number)


def corrupt(path: Path, what: str) -> CorruptCheckpoint:
    """Return the error that every reader of this package raises."""
    return CorruptCheckpoint(f"{path} is corrupt: {what}", file=str(path))


class OffsetCheckpoint:
    """One offset checkpoint file. One thread writes at a time; readers see the old or new file."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self._fs = fs

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; empty if the file is missing. CorruptCheckpoint if it is damaged."""
        offsets = {}
        for topic, partition, offset in read_lines(self._fs, self.path, 3):
            log = TopicPartition(topic, self._bounded(partition, INT32_MAX))
            offsets[log] = self._bounded(offset, INT64_MAX)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the whole content, durably."""
        rows = [(log.topic, log.partition, offset) for log, offset in offsets.items()]
        write_lines(self._fs, self.path, rows)

    def _bounded(self, text: str, highest: int) -> int:
        number = parse_number(text, self.path)
        if not 0 <= number <= highest:
            raise corrupt(self.path, f"{number} is out of range")
        return number


def read_epochs(fs: FileSystem, path: Path) -> list[EpochOffset]:
    """Return the entries, ascending; none if the file is missing.

    CorruptCheckpoint if the file is damaged or its epochs or offsets do not strictly ascend.
    """
    entries = [
        EpochOffset(parse_number(epoch, path), parse_number(start_offset, path))
        for epoch, start_offset in read_lines(fs, path, 2)
    ]
    for entry in entries:
        if not (0 <= entry.epoch <= INT32_MAX and 0 <= entry.start_offset <= INT64_MAX):
            raise corrupt(path, f"{tuple(entry)} is out of range")
    for earlier, later in pairwise(entries):
        if earlier.epoch >= later.epoch or earlier.start_offset >= later.start_offset:
            raise corrupt(path, f"{tuple(later)} does not follow {tuple(earlier)}")
    return entries


def write_epochs(fs: FileSystem, path: Path, entries: Iterable[EpochOffset]) -> None:
    """Replace the file durably; the caller allows only one thread at a time.

    FileNotFoundError if the partition's directory was renamed meanwhile.
    """
    write_lines(fs, path, entries)


NO_BROKER_EPOCH: Final = -1


class CleanShutdownMarker:
    """The marker of one data directory. Only its existence matters; its content is Kafka's."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self.path = directory / CLEAN_SHUTDOWN_FILE
        self._fs = fs

    def exists(self) -> bool:
        """Whether the directory was stopped cleanly; read it once, before `delete`."""
        return self._fs.exists(self.path)

    def write(self) -> None:
        """Record durably that every log was flushed and closed without an error."""
        content = {"version": VERSION, "brokerEpoch": NO_BROKER_EPOCH}
        replace_atomically(self._fs, self.path, json.dumps(content, separators=(",", ":")).encode())

    def delete(self) -> None:
        """Remove it durably: a power cut must not restore it in a directory in use."""
        self._fs.remove(self.path, missing_ok=True)
        self._fs.sync_directory(self.path.parent)


TOPIC_ID_BYTES: Final = 16

_FIELDS: Final = re.compile(r"([^:]+):\s+(\S+)")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def format_topic_id(raw: bytes) -> str:
    """Format the 16 bytes of a UUID as Kafka does."""
    assert len(raw) == TOPIC_ID_BYTES, raw
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def is_topic_id(text: str) -> bool:
    """Whether the text is a valid topic id; all zeros means "no id"."""
    return _TOPIC_ID.fullmatch(text) is not None and any(base64.urlsafe_b64decode(text + "=="))


def read_topic_id(fs: FileSystem, path: Path) -> str | None:
    """Return the topic id in the file; None if it is missing. CorruptCheckpoint if damaged."""
    try:
        content = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise corrupt(path, "it is not UTF-8 text") from error
    matches = [_FIELDS.fullmatch(line) for line in lines]
    fields = {match[1]: match[2] for match in matches if match is not None}
    if len(lines) != 2 or fields.keys() != {"version", "topic_id"}:
        raise corrupt(path, "it does not have a version and a topic_id")
    if parse_number(fields["version"], path) < VERSION:
        raise corrupt(path, f"its version is {fields['version']}")
    topic_id = fields["topic_id"]
    if not is_topic_id(topic_id):
        raise corrupt(path, f"{topic_id!r} is not a topic id")
    return topic_id


def write_topic_id(fs: FileSystem, path: Path, topic_id: str) -> None:
    """Replace the file durably with Kafka's bytes, which have no newline at the end."""
    assert is_topic_id(topic_id), topic_id
    replace_atomically(fs, path, f"version: {VERSION}\ntopic_id: {topic_id}".encode())
