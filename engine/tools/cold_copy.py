"""Makes a data directory from a plain copy of one that was in use, and says what of it is usable.

Such a copy (`rsync`, a snapshot of the volume) has each file as it was at some moment, not all at
the same. So only what can be believed alone is taken: the `.log` files, the topics, the log starts,
the leader epochs, the gaps. Everything else is rebuilt: each log is scanned from its start, and
cut at the first batch that is torn or damaged. Its leader epoch rises, because records that the
copy lacks may have been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from engine.archive.restore import Progress
from engine.checkpoint.kafka_files import read_epochs, write_epochs
from engine.checkpoint.tidelog_files import ProducerIds
from engine.config import EngineConfig
from engine.errors import CorruptCheckpoint, InvalidDataDirectory
from engine.fs import names
from engine.fs.directories import ensure_directory, ensure_empty
from engine.fs.port import FileSystem
from engine.manager.directories import UNSEEN_PRODUCER_IDS
from engine.tools.offline import open_logs
from engine.types import INT64_MAX, EpochOffset, TopicPartition

CHUNK_BYTES: Final = 4 * 1024 * 1024

_OF_DIRECTORY: Final = (names.TOPICS_FILE, names.PRODUCER_ID_FILE, names.LOG_START_CHECKPOINT)
_OF_PARTITION: Final = (
    names.LEADER_EPOCH_CHECKPOINT,
    names.PARTITION_METADATA,
    names.SEGMENT_GAPS,
)


class CopiedPartition(NamedTuple):
    """The result for one partition: the offsets [first_offset, end_offset) are usable."""

    log: TopicPartition
    first_offset: int
    end_offset: int
    size_bytes: int
    cut_bytes: int
    """What was cut from the ends of its segments."""
    problem: str | None
    """Damage that was found, or why the log cannot be opened at all."""


def is_data_directory(fs: FileSystem, path: Path) -> bool:
    """Whether a directory looks like a data directory, or a copy of one."""
    if not fs.is_directory(path):
        return False
    return bool(_partitions(fs, path)) or fs.exists(path / names.TOPICS_FILE)


def size_of_copy(fs: FileSystem, source: Path) -> int:
    """Return the bytes of the segments in a copy."""
    return sum(
        fs.size_bytes(path / name)
        for path in _partitions(fs, source).values()
        for name in _segments(fs, path)
    )


def restore_copy(
    fs: FileSystem, source: Path, directory: Path, progress: Progress
) -> list[CopiedPartition]:
    """Fill an empty data directory from a copy, recover its logs, and close it again.

    The copy is only read. Raises InvalidDataDirectory if the target has content, and what
    `LogManager.open` raises.
    """
    ensure_directory(fs, directory)
    ensure_empty(fs, directory)
    for name in _OF_DIRECTORY:
        _copy(fs, source / name, directory / name)
    for log, path in _partitions(fs, source).items():
        target = directory / path.name
        fs.make_directory(target)
        for name in _OF_PARTITION:
            _copy(fs, path / name, target / name)
        for name in _segments(fs, path):
            _copy(fs, path / name, target / name, partial(progress, log))
        _raise_epoch(fs, target)
        fs.sync_directory(target)
    _skip_producer_ids(fs, directory)
    fs.sync_directory(directory)
    return _recover(fs, directory)


def _partitions(fs: FileSystem, source: Path) -> dict[TopicPartition, Path]:
    """Return the partition directories in use: none that is deleted, moved or set aside."""
    found: dict[TopicPartition, Path] = {}
    for name, is_directory, _ in fs.list_entries(source):
        with suppress(InvalidDataDirectory):
            parsed = names.parse_partition_directory(name)
            is_live = parsed.kind is names.DirectoryKind.LIVE
            if is_directory and is_live and parsed.topic != names.CLUSTER_METADATA_TOPIC:
                found[parsed.topic_partition] = source / name
    return found


def _segments(fs: FileSystem, path: Path) -> Iterator[str]:
    """Yield the names of a partition's `.log` files, oldest first."""
    for name in fs.list_directory(path):
        if name.endswith(names.LOG_SUFFIX) and names.base_offset_of(name) is not None:
            yield name


def _copy(
    fs: FileSystem, source: Path, target: Path, copied: Callable[[int], None] = lambda _: None
) -> None:
    """Copy a file durably; one that is missing is left out."""
    try:
        original = fs.open(source, read_only=True)
    except FileNotFoundError:
        return
    with original, fs.open(target, create=True, exclusive=True) as copy:
        while data := original.read_at(copy.size_bytes, CHUNK_BYTES):
            copy.append(data)
            copied(len(data))
        copy.sync()


def _raise_epoch(fs: FileSystem, directory: Path) -> None:
    """Have the start give the log the next leader epoch, at its end."""
    path = directory / names.LEADER_EPOCH_CHECKPOINT
    try:
        epochs = read_epochs(fs, path)
    except CorruptCheckpoint:
        epochs = []
    highest = max((entry.epoch for entry in epochs), default=0)
    write_epochs(fs, path, [*epochs, EpochOffset(highest + 1, INT64_MAX)])


def _skip_producer_ids(fs: FileSystem, directory: Path) -> None:
    """Reserve far more producer ids than the copied service can have given out since."""
    ids = ProducerIds(fs, directory)
    try:
        end_id = ids.reserved_end
    except CorruptCheckpoint:
        fs.remove(ids.path)  # those in the logs are seen at the start
        ids, end_id = ProducerIds(fs, directory), 0
    ids.reserve_through(end_id + UNSEEN_PRODUCER_IDS)


def _recover(fs: FileSystem, directory: Path) -> list[CopiedPartition]:
    manager = open_logs(fs, [directory], EngineConfig())
    try:
        done = [
            CopiedPartition(
                log.topic_partition,
                log.reader.local_log_start_offset,  # below it only an archive has the log
                log.watermarks.log_end_offset,
                log.reader.size_bytes,
                log.durability.recovery.truncated_bytes,
                log.durability.recovery.damage,
            )
            for log in manager.logs()
        ]
        done += [
            CopiedPartition(one.topic_partition, 0, 0, 0, 0, one.problem)
            for one in manager.offline_logs
        ]
        return sorted(done)
    finally:
        manager.close()
