"""Makes a data directory from an archive, which tidelog and Kafka open.

Files are written whole: under a temporary name, compared with the checksum of their object, synced,
then renamed. A journal in the data directory says which files are complete and from which objects,
so that an interrupted restore goes on, and keeps the directory from being opened before its end.
An object that is missing or damaged ends its partition before it: what is restored is a prefix.

The leader epoch of each restored log is one higher than the archive's: records above its end may
have been acknowledged and read, and readers must see that their offsets now mean others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from engine.archive.catalog import ArchivedTopic
from engine.archive.manifest import LOG, SNAPSHOT, Manifest, ObjectRef, Piece
from engine.archive.store import ArchiveDamaged, ArchiveError, ObjectStore
from engine.archive.upkeep import BadObject, checked, load_catalog, load_manifest
from engine.checkpoint.kafka_files import OffsetCheckpoint, write_epochs, write_topic_id
from engine.checkpoint.tidelog_files import ProducerIds, TopicsFile
from engine.errors import InvalidDataDirectory
from engine.fs import names
from engine.fs.directories import (
    DirectoryLock,
    ensure_directory,
    ensure_empty,
    replace_atomically,
)
from engine.fs.port import File, FileSystem
from engine.manager.directories import UNSEEN_PRODUCER_IDS
from engine.manager.partitions import LeftState
from engine.segment.file_records import FileRecords
from engine.types import Buffer, EpochOffset, TopicPartition

_LOG = logging.getLogger(__name__)

THREADS: Final = 4
"""How many files are written at once."""


class ArchivedPartition(NamedTuple):
    """A partition to restore: its manifest at the wanted time."""

    log: TopicPartition
    manifest: Manifest

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.manifest.pieces)


class Selection(NamedTuple):
    """What a restore will do."""

    topics: Mapping[str, ArchivedTopic]
    partitions: Sequence[ArchivedPartition]
    producer_ids_end: int
    problems: Sequence[str]
    """What cannot be restored at all, and why."""


class RestoredPartition(NamedTuple):
    """The result for one partition: the offsets [first_offset, end_offset) are there."""

    log: TopicPartition
    first_offset: int
    end_offset: int
    size_bytes: int
    archived_ms: int
    """When its last records were archived; 0 without any."""
    max_timestamp: int
    """The largest record time in its last segment, in ms; -1 without one."""
    problem: str | None = None
    """Why it ends before the archive does."""


Progress = Callable[[TopicPartition, int], None]
"""Told the partition and the number of bytes that were just read."""


def select(
    store: ObjectStore, *, topics: Collection[str] | None = None, until_ms: int | None = None
) -> Selection:
    """Return what the archive has of these topics, or of all, at a time, or now.

    Raises ArchiveError if there is no archive or it lacks a topic, StoreUnavailable.
    """
    catalog = load_catalog(store)
    there = catalog.present if until_ms is None else catalog.at(until_ms)
    if topics is not None:
        missing = sorted(set(topics) - there.keys())
        if missing:
            raise ArchiveError(
                f"topic {missing[0]!r} is not in {store.url}"
                + ("" if until_ms is None else " at that time")
                + f"; it has {', '.join(sorted(there)) or 'no topics'}"
            )
        there = {name: topic for name, topic in there.items() if name in topics}
    partitions: list[ArchivedPartition] = []
    problems: list[str] = []
    for name, topic in sorted(there.items()):
        for partition in range(topic.entry.partitions):
            log = TopicPartition(name, partition)
            try:
                manifest = load_manifest(store, topic.entry.id, partition)
            except ArchiveDamaged as error:
                problems.append(f"{log} is not restored: {error}")
                continue
            if manifest is not None:
                if until_ms is not None:
                    manifest = manifest.at(until_ms)
                partitions.append(ArchivedPartition(log, manifest))
    return Selection(there, partitions, catalog.producer_ids_end, problems)


def verify(store: ObjectStore, selection: Selection, progress: Progress) -> list[str]:
    """Read everything that a restore would read; return what is wrong with it."""
    problems = list(selection.problems)
    for log, manifest in selection.partitions:
        for piece in manifest.pieces:
            for ref in piece.objects.values():
                try:
                    for data in checked(store, ref):
                        progress(log, len(data))
                except BadObject as error:
                    problems.append(f"{log}, offsets from {piece.first_offset} on: {error}")
    return problems


# -- restore -------------------------------------------------------------------------------------


class _Journal:
    """The files that are complete, and the objects that they were made of. Thread-safe."""

    def __init__(self, fs: FileSystem, directory: Path, url: str) -> None:
        self._fs = fs
        self._directory = directory
        self._path = directory / names.RESTORE_FILE
        self._lock = Lock()
        self._done: dict[str, list[str]] = {}
        size_bytes = self._read()
        self._file = fs.open(self._path, create=True)
        self._file.truncate(size_bytes)
        if not self._file.size_bytes:
            self._file.append(_line({"restore_of": url}))
            self._file.sync()
            fs.sync_directory(directory)

    def _read(self) -> int:
        """Read the lines; return where a torn one begins, whose file is written again."""
        try:
            content = self._fs.read_bytes(self._path)
        except FileNotFoundError:
            return 0
        size_bytes = 0
        for line in content.splitlines(keepends=True):
            try:
                done = json.loads(line if line.endswith(b"\n") else b"")
            except ValueError:
                break
            if "file" in done:
                self._done[done["file"]] = done["objects"]
            size_bytes += len(line)
        return size_bytes

    def is_done(self, path: Path, made_of: Sequence[str]) -> bool:
        return self._done.get(self._name(path)) == list(made_of)

    def note(self, path: Path, made_of: Sequence[str]) -> None:
        with self._lock:
            self._file.append(_line({"file": self._name(path), "objects": list(made_of)}))

    def end(self) -> None:
        """Remove the journal, durably: the directory can be opened."""
        self._file.close()
        self._fs.sync_directory(self._directory)
        self._fs.remove(self._path)
        self._fs.sync_directory(self._directory)

    def close(self) -> None:
        self._file.close()

    def _name(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a restore writes, and what it reads from."""

    fs: FileSystem
    store: ObjectStore
    journal: _Journal | None
    """None if what is interrupted is not gone on with."""
    progress: Progress

    def is_done(self, path: Path, made_of: Sequence[str]) -> bool:
        return self.journal is not None and self.journal.is_done(path, made_of)

    def note(self, path: Path, made_of: Sequence[str]) -> None:
        if self.journal is not None:
            self.journal.note(path, made_of)


def restore(
    store: ObjectStore,
    fs: FileSystem,
    directory: Path,
    selection: Selection,
    progress: Progress,
    *,
    threads: int = THREADS,
) -> list[RestoredPartition]:
    """Fill an empty data directory; return how far each partition came.

    Afterwards everything is on disk, and the directory can be opened. An interrupted restore into
    the same directory goes on. Raises ArchiveError if the directory has other content,
    DirectoryLocked, StoreUnavailable, OSError.
    """
    ensure_directory(fs, directory)
    with DirectoryLock(fs, directory):
        if not fs.exists(directory / names.RESTORE_FILE):
            try:
                ensure_empty(fs, directory, besides=(names.LOCK_FILE,))
            except InvalidDataDirectory as error:
                raise ArchiveError(str(error)) from error
        journal = _Journal(fs, directory, store.url)
        try:
            target = _Target(fs, store, journal, progress)

            def restore_one(one: ArchivedPartition) -> RestoredPartition:
                path = directory / names.partition_directory_name(one.log)
                ensure_directory(fs, path)
                return _restore_one(target, one, path)

            with ThreadPoolExecutor(threads, thread_name_prefix="tidelog-restore") as pool:
                done = list(pool.map(restore_one, selection.partitions))
            _write_directory(fs, directory, selection, done)
        except BaseException:
            journal.close()
            raise
        journal.end()
    return done


def restore_copy_of(
    store: ObjectStore, fs: FileSystem, one: ArchivedPartition, path: Path, progress: Progress
) -> tuple[RestoredPartition, LeftState]:
    """Fill the empty directory of a log that is to be another one; return how its files are.

    Everything in it is on disk, its name is not. Raises StoreUnavailable, OSError.
    """
    done = _restore_one(_Target(fs, store, None, progress), one, path)
    return done, _left([one], [done])


def _restore_one(target: _Target, one: ArchivedPartition, path: Path) -> RestoredPartition:
    log, manifest = one
    pieces: list[Piece] = []
    problem: str | None = None
    for base_offset, chain in manifest.chains().items():
        whole, problem = _restore_segment(target, log, path / names.log_name(base_offset), chain)
        pieces += whole
        if problem is not None:
            problem = f"{problem}; restored is what comes before it"
            _LOG.error("%s: %s", log, problem)
            break
    restored = replace(manifest, pieces=tuple(pieces))
    if problem is not None:
        restored = replace(restored, end_offset=0)
    if (
        not pieces or pieces[-1].is_sealed or pieces[-1].end_offset < restored.archived_offset
    ):  # its name tells where the log ends, even after a gap
        empty = path / names.log_name(restored.archived_offset)
        with target.fs.open(empty, create=True) as file:
            file.sync()
    _write_small_files(target.fs, path, restored)
    last = pieces[-1] if pieces else None
    return RestoredPartition(
        log,
        max(restored.log_start_offset, pieces[0].base_offset if pieces else 0),
        restored.archived_offset,
        sum(piece.size_bytes for piece in pieces),
        last.archived_ms if last else 0,
        last.max_timestamp if last else -1,
        problem,
    )


def _restore_segment(
    target: _Target, log: TopicPartition, path: Path, chain: Sequence[Piece]
) -> tuple[list[Piece], str | None]:
    """Write a segment's files; return the pieces in them, and what is wrong with the next one."""
    fs = target.fs
    made_of = [f"{piece.objects[LOG].name}:{piece.size_bytes}" for piece in chain]
    whole: list[Piece] = list(chain)
    problem: str | None = None
    if target.is_done(path, made_of):
        target.progress(log, sum(piece.size_bytes for piece in chain))
    else:
        with _complete(fs, path) as file:
            for count, piece in enumerate(chain):
                start = file.size_bytes
                try:
                    for data in _first_bytes(target, log, piece):
                        file.append(data)
                except BadObject as error:
                    file.truncate(start)
                    whole, problem = whole[:count], str(error)
                    break
        if whole:
            target.note(path, made_of[: len(whole)])
        else:
            fs.remove(path)
    if len(whole) == 1 and whole[0].is_sealed:
        for kind, ref in whole[0].objects.items():
            if kind != LOG:
                _restore_companion(target, path, kind, ref, whole[0].end_offset)
    return whole, problem


def _first_bytes(target: _Target, log: TopicPartition, piece: Piece) -> Iterator[Buffer]:
    """Yield the piece's bytes; its object has more if a later state of it is archived."""
    left = piece.size_bytes
    for data in checked(target.store, piece.objects[LOG]):
        if left > 0:
            wanted = memoryview(data)[:left]
            left -= len(wanted)
            target.progress(log, len(wanted))
            yield wanted


def _restore_companion(
    target: _Target, log_path: Path, kind: str, ref: ObjectRef, end_offset: int
) -> None:
    """Write an index or the snapshot. If it is damaged, leave it out: startup rebuilds it."""
    is_snapshot = kind == SNAPSHOT
    name = names.snapshot_name(end_offset) if is_snapshot else f"{log_path.stem}.{kind}"
    path = log_path.with_name(name)
    if target.is_done(path, [ref.name]):
        return
    try:
        content = b"".join(checked(target.store, ref))
    except BadObject as error:
        _LOG.warning("%s is left out, startup rebuilds it: %s", path, error)
        return
    with _complete(target.fs, path) as file:
        file.append(content)
    target.note(path, [ref.name])


@contextmanager
def _complete(fs: FileSystem, path: Path) -> Iterator[File]:
    """Yield an empty file; after the block it is synced and has its name."""
    staging = path.with_name(path.name + names.TEMPORARY_SUFFIX)
    with fs.open(staging, create=True) as file:
        file.truncate(0)
        yield file
        file.sync()
    fs.rename(staging, path)


def _write_small_files(fs: FileSystem, path: Path, manifest: Manifest) -> None:
    write_topic_id(fs, path / names.PARTITION_METADATA, manifest.topic_id)
    if manifest.gaps:
        replace_atomically(fs, path / names.SEGMENT_GAPS, manifest.gaps.encode("latin-1"))
    epochs = list(manifest.epochs) or _epochs_in(fs, path, manifest)
    highest = max((entry.epoch for entry in epochs), default=0)
    kept = [entry for entry in epochs if entry.start_offset < manifest.archived_offset]
    next_one = EpochOffset(highest + 1, manifest.archived_offset)
    write_epochs(fs, path / names.LEADER_EPOCH_CHECKPOINT, [*kept, next_one])
    fs.sync_directory(path)


def _epochs_in(fs: FileSystem, path: Path, manifest: Manifest) -> list[EpochOffset]:
    """Return the leader epochs that the batches have: those of an earlier time are not kept."""
    found: list[EpochOffset] = []
    for base_offset in manifest.chains():
        with fs.open(path / names.log_name(base_offset), read_only=True) as file:
            records = FileRecords(file)
            for _, header in records.headers(0, file.size_bytes):
                if header.leader_epoch > (found[-1].epoch if found else -1):
                    found.append(EpochOffset(header.leader_epoch, header.base_offset))
    return found


def _write_directory(
    fs: FileSystem, directory: Path, selection: Selection, done: Iterable[RestoredPartition]
) -> None:
    """Write the checkpoints and tidelog's own files."""
    left = _left(selection.partitions, done)
    for name, offsets in (
        (names.RECOVERY_POINT_CHECKPOINT, left.recovery_points),
        (names.LOG_START_CHECKPOINT, left.log_starts),
        (names.HIGH_WATERMARK_CHECKPOINT, left.high_watermarks),
    ):
        OffsetCheckpoint(fs, directory / name).write(offsets)
    ProducerIds(fs, directory).reserve_through(selection.producer_ids_end + UNSEEN_PRODUCER_IDS)
    entries = {name: topic.entry for name, topic in selection.topics.items()}
    TopicsFile(fs, directory).write(entries, 1)
    fs.sync_directory(directory)


def _left(archived: Iterable[ArchivedPartition], done: Iterable[RestoredPartition]) -> LeftState:
    """Return what the checkpoints of restored logs say; a start verifies the logs behind it."""
    manifests = {one.log: one.manifest for one in archived}
    ends = {one.log: one.end_offset for one in done}
    return LeftState(
        was_clean=False,
        recovery_points={log: _last_base(manifests[log], end) for log, end in ends.items()},
        log_starts={log: min(manifests[log].log_start_offset, end) for log, end in ends.items()},
        high_watermarks=ends,
    )


def _last_base(manifest: Manifest, end_offset: int) -> int:
    """Return where the last segment begins that a start has to scan."""
    bases = (
        piece.end_offset if piece.is_sealed else piece.base_offset for piece in manifest.pieces
    )
    return max((base for base in bases if base <= end_offset), default=end_offset)
