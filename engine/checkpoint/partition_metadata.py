"""Which topic a partition directory belongs to; Kafka's `PartitionMetadataFile`.

    version: 0
    topic_id: S6g8ZPZuQWap3C72_08X5Q

`partition.metadata` holds a topic id: a UUID in base64url, 22 characters without padding. A topic
that is deleted and created again gets another id.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Final

from engine.checkpoint.lines import corrupt, parse_number
from engine.fs.atomic import replace_atomically
from engine.fs.filesystem import FileSystem

VERSION: Final = 0
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
