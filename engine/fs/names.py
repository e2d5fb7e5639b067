"""The grammar of file and directory names; formatter and parser are inverses.

Segment files are named by the segment's base offset in 20 decimal digits (Kafka's `LogFileUtils`);
partition directories `<topic>-<partition>`, followed by `.<32 hex digits>-<purpose>` while they are
being deleted, moved or set aside (Kafka's `LocalLog`). See docs/formats/directory.md.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from engine.errors import InvalidDataDirectory
from engine.types import INT32_MAX, INT64_MAX, TopicPartition

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

# Appended to any of the above.
DELETED_SUFFIX: Final = ".deleted"
"""Will be removed after a delay; readers that had it open still use it."""
CLEANED_SUFFIX: Final = ".cleaned"
"""A replacement segment that is being written; worthless after a crash."""
SWAP_SUFFIX: Final = ".swap"
"""A complete replacement segment; a start after a crash finishes the replacement."""
LEFTOVER_SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
"""Left by an interrupted operation, which opening the partition completes."""
CHECKPOINT_DELETED_SUFFIX: Final = ".checkpoint.deleted"
"""Belongs to Kafka's metadata log: not ours to remove."""
TEMPORARY_SUFFIX: Final = ".tmp"
"""A new version of the file without this suffix, not yet complete."""

# In a partition directory.
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
SEGMENT_GAPS: Final = "tidelog-segment-gaps"
PRODUCER_WINDOWS: Final = "tidelog-producer-windows"

# In a data directory.
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
TOPICS_FILE: Final = "tidelog-topics.json"
DIRECTORIES_FILE: Final = "tidelog-directories.json"
PRODUCER_ID_FILE: Final = "tidelog-producer-ids.json"
API_KEYS_FILE: Final = "tidelog-api-keys.json"
API_KEYS_LOCK: Final = "tidelog-api-keys.lock"
"""The lock that commands take to change the file of API keys; the service only reads that file."""
INGEST_FILE: Final = "tidelog-ingest.json"
"""Ingest profiles with their secrets, and ingest tokens; the engine only knows its name."""
ARCHIVE_FILE: Final = "tidelog-archive.json"
"""The proof that an archive belongs to this data directory."""
DAMAGE_FILE: Final = "tidelog-damage.json"
"""Damaged places that were found; nothing depends on it."""
RESTORE_FILE: Final = "tidelog-restore.json"
"""Present while a restore fills the data directory: it cannot be opened until that has ended."""
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
"""A directory of Kafka's tiered storage; not a partition."""
NOT_PARTITIONS: Final = frozenset(
    {
        REMOTE_INDEX_CACHE,
        "lost+found",  # the root of a fresh ext4 volume
        ".snapshot",  # of a NetApp volume
        ".snapshots",
        ".Trashes",
        "System Volume Information",
        "$RECYCLE.BIN",
    }
)
"""Directories that file systems and Kafka's tiered storage have beside partitions."""
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's own log of metadata; not a topic."""

MAX_TOPIC_LENGTH: Final = 249
OFFSET_DIGITS: Final = 20
"""The number of digits at the start of a segment file's name."""
MAX_NAME_LENGTH: Final = 255
"""The longest file name that file systems allow."""

_SMALL_FILES: Final = frozenset(
    name + suffix
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SEGMENT_GAPS, PRODUCER_WINDOWS)
    for suffix in ("", TEMPORARY_SUFFIX)
)
_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX, *LEFTOVER_SUFFIXES)
_REMOVAL: Final = re.compile(
    rf"[0-9]{{{OFFSET_DIGITS}}}\..+\.([0-9]{{{OFFSET_DIGITS}}}){re.escape(DELETED_SUFFIX)}"
)
_OFFSET_FILE: Final = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})\..+", re.DOTALL)
_TOPIC: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TOPIC_LENGTH}}}")
_DIRECTORY: Final = re.compile(
    r"(?P<topic>\S+)-(?P<partition>[0-9]{1,10})(\.[^\s.]+-(?P<kind>delete|future|stray))?"
)


class DirectoryKind(enum.Enum):
    """The purpose of a partition directory."""

    LIVE = ""
    DELETED = "delete"
    """Will be removed after a delay; the topic in its name may be shortened to fit."""
    FUTURE = "future"
    """A partition that is being moved to this data directory."""
    STRAY = "stray"
    """Does not belong to this directory; kept, not served. Its topic may be shortened to fit."""

    @property
    def may_be_link(self) -> bool:
        """Whether such a directory may lie elsewhere, with a link in its place."""
        return self in {DirectoryKind.LIVE, DirectoryKind.DELETED}


class ParsedDirectory(NamedTuple):
    """The parts of a partition directory's name."""

    topic: str
    partition: int
    kind: DirectoryKind

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def log_name(base_offset: int) -> str:
    """The name of the segment's record batches."""
    return _segment_name(base_offset, LOG_SUFFIX)


def index_name(base_offset: int) -> str:
    """The name of the segment's offset index."""
    return _segment_name(base_offset, INDEX_SUFFIX)


def time_index_name(base_offset: int) -> str:
    """The name of the segment's time index."""
    return _segment_name(base_offset, TIME_INDEX_SUFFIX)


def txn_index_name(base_offset: int) -> str:
    """The name of the segment's index of aborted transactions."""
    return _segment_name(base_offset, TXN_INDEX_SUFFIX)


def snapshot_name(end_offset: int) -> str:
    """The name of the snapshot of the producer state below `end_offset`."""
    return _segment_name(end_offset, SNAPSHOT_SUFFIX)


def base_offset_of(name: str) -> int | None:
    """Return the offset in the name of a segment file with any suffix; None for other files.

    Stricter than Kafka, which accepts any number before the first dot: only names that tidelog
    would write are read.
    """
    match = _OFFSET_FILE.fullmatch(name)
    if match is None:
        return None
    base_offset = int(match[1])
    return base_offset if base_offset <= INT64_MAX else None


def is_of_a_log(name: str) -> bool:
    """Whether opening a partition reads, completes, replaces or removes a file of this name."""
    if name in _SMALL_FILES:
        return True
    if name.endswith(CHECKPOINT_DELETED_SUFFIX):
        return False
    return base_offset_of(name) is not None and name.endswith(_SUFFIXES)


def is_leftover(name: str) -> bool:
    """Whether the name is that of a leftover of an interrupted deletion or replacement."""
    return name.endswith(LEFTOVER_SUFFIXES) and is_of_a_log(name)


def removal_suffix(end_offset: int) -> str:
    """The suffix of the oldest segment's files while all segments below `end_offset` are removed.

    A start that finds it removes the rest of those segments; Kafka removes only this file.
    """
    return f".{end_offset:0{OFFSET_DIGITS}d}{DELETED_SUFFIX}"


def removal_end(name: str) -> int | None:
    """Return the end offset in a name with a removal suffix; None for other names."""
    match = _REMOVAL.fullmatch(name)
    return None if match is None else int(match[1])


def without_suffix(name: str, suffix: str) -> str:
    """Return the name without the suffix, which it must have."""
    assert name.endswith(suffix), (name, suffix)
    return name[: -len(suffix)]


def is_valid_topic_name(topic: str) -> bool:
    """Whether Kafka accepts the name; a valid name is also safe in a path."""
    return _TOPIC.fullmatch(topic) is not None and topic not in {".", ".."}


def partition_directory_name(log: TopicPartition) -> str:
    """The name of the directory in which the partition is served."""
    assert log.partition >= 0, log
    return f"{log.topic}-{log.partition}"


def delete_directory_name(log: TopicPartition, unique_id: str) -> str:
    """The name of a partition directory that waits for removal; the topic is shortened to fit."""
    ending = f"-{log.partition}.{unique_id}-{DirectoryKind.DELETED.value}"
    return log.topic[: MAX_NAME_LENGTH - len(ending)] + ending


def future_directory_name(log: TopicPartition, unique_id: str) -> str:
    """The name of a copy while the partition is moved to this data directory; never shortened."""
    return f"{partition_directory_name(log)}.{unique_id}-{DirectoryKind.FUTURE.value}"


def parse_partition_directory(name: str) -> ParsedDirectory:
    """Parse the name of a partition directory; InvalidDataDirectory if it is not one.

    Kafka refuses to start on other names too: guessing could serve or delete unrelated files.
    """
    match = _DIRECTORY.fullmatch(name)
    if match is None:
        raise InvalidDataDirectory(
            f"{name!r} is not the name of a partition directory; move it out of the data directory",
            name=name,
        )
    partition = int(match["partition"])
    if partition > INT32_MAX:
        raise InvalidDataDirectory(f"the partition number of {name!r} is too large", name=name)
    return ParsedDirectory(match["topic"], partition, DirectoryKind(match["kind"] or ""))


def unique_id_of(name: str) -> str:
    """Return the unique id of a deletion or move; empty for a live directory."""
    _, _, marked = name.rpartition(".")
    unique_id, dash, kind = marked.rpartition("-")
    return unique_id if dash and kind in {one.value for one in DirectoryKind if one.value} else ""


def _segment_name(offset: int, suffix: str) -> str:
    assert 0 <= offset <= INT64_MAX, offset
    return f"{offset:0{OFFSET_DIGITS}d}{suffix}"
