"""Checks data directories without locking or changing anything.

It checks that segments adjoin, batches are intact and offsets ascend; that indexes, snapshots,
epochs and checkpoints agree with the batches; that topics have their partitions; and lists unknown
files. The directories should not be in use: writes during the check may look like faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.checkpoint.kafka_files import CleanShutdownMarker, OffsetCheckpoint
from engine.checkpoint.tidelog_files import (
    DirectorySet,
    ProducerIds,
    TopicsCopy,
    TopicsFile,
    read_directory_set,
)
from engine.config import EngineConfig
from engine.errors import CorruptCheckpoint, InvalidDataDirectory
from engine.fs import names
from engine.fs.names import DirectoryKind, parse_partition_directory, partition_directory_name
from engine.fs.port import FileSystem
from engine.manager.membership import decide
from engine.manager.topics import Topic
from engine.tools.findings import Checked, Finding, Findings, Severity
from engine.tools.verify_partition import PartitionCheck, Scope
from engine.types import TopicPartition

CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)
_OTHER_FILES = frozenset({names.LOCK_FILE, names.CLEAN_SHUTDOWN_FILE, names.META_PROPERTIES})
_OUR_FILES = frozenset(
    {
        *CHECKPOINTS,
        *_OTHER_FILES,
        names.ARCHIVE_FILE,
        names.DAMAGE_FILE,
        names.TOPICS_FILE,
        names.API_KEYS_FILE,
        names.INGEST_FILE,
        names.PRODUCER_ID_FILE,
        names.DIRECTORIES_FILE,
    }
)


class DirectoryCheck:
    """One check of a log's data directories; iterate over `findings` once, to its end.

    `config` is that of the service: defaults of topics, directories that are gone.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Path | Sequence[Path],
        config: EngineConfig | None = None,
    ) -> None:
        self.checked = Checked()
        self._fs = fs
        self._config = config or EngineConfig()
        paths = [directories] if isinstance(directories, Path) else directories
        self._directories = [_OneDirectory(fs, path) for path in paths]
        self._topics: Mapping[str, Topic] = {}

    def findings(self) -> Findings:
        """Yield the findings in the order of the check; OSError if something cannot be read."""
        for directory in self._directories:
            yield from directory.judge_files()
        yield from self._judge_membership()
        partitions: dict[TopicPartition, _OneDirectory] = {}
        for directory in self._directories:
            yield from directory.read_small_files()
            yield from directory.find_partitions()
            for log, path in directory.partitions.items():
                other = partitions.setdefault(log, directory)
                if other is not directory:
                    detail = f"{other.path} also holds this partition: move one of them away"
                    yield Finding(Severity.REFUSED, path, detail)
        yield from self._judge_copies()
        for directory in self._directories:
            for log, path in directory.partitions.items():
                scope = directory.scope(log, self._topics.get(log.topic), self._config)
                yield from PartitionCheck(self._fs, path, scope, self.checked).findings()
        yield from self._judge_topics(partitions)
        for directory in self._directories:
            yield from directory.judge_checkpoints(self.checked)

    def _judge_membership(self) -> Findings:
        """Compare the recorded sets of directories with the given directories."""
        found: dict[Path, DirectorySet | None] = {}
        damage: list[Finding] = []
        for path in (directory.path for directory in self._directories):
            file = path / names.DIRECTORIES_FILE
            try:
                is_odd = self._fs.is_misplaced(file)
                found[path] = None if is_odd else read_directory_set(self._fs, path)
            except CorruptCheckpoint as error:
                found[path] = None
                damage.append(Finding(Severity.DERIVED, file, str(error), stale_files=(file,)))
        if any(found.values()):
            yield from damage  # rebuilt from the others
        else:
            for finding in damage:
                detail = f"{finding.detail}; if moved away, it is rebuilt for the given directories"
                yield Finding(Severity.REFUSED, finding.file, detail)
        try:
            decide(found, (), self._config.gone_directories)
        except InvalidDataDirectory as error:
            yield Finding(Severity.REFUSED, self._directories[0].path, str(error))

    def _judge_copies(self) -> Findings:
        """Use the newest topics file, as a start does."""
        copies = [one.topics for one in self._directories if one.topics is not None]
        newest = max(copies, key=lambda copy: (copy.generation, len(copy.topics)), default=None)
        if newest is not None:
            self._topics = {
                name: Topic.of_entry(name, entry)
                for name, entry in newest.topics.items()
                if not entry.deleted
            }
        for directory in self._directories:
            error = directory.topics_error
            if error is not None:
                path = directory.path / names.TOPICS_FILE
                if newest is None or newest == TopicsCopy():
                    detail = f"{error}; restore it from a copy"
                    yield Finding(Severity.REFUSED, path, detail)
                else:
                    detail = f"{error}; another directory has a copy"
                    yield Finding(Severity.DERIVED, path, detail, is_left_to_opening=True)

    def _judge_topics(self, present: Mapping[TopicPartition, _OneDirectory]) -> Findings:
        for name, topic in self._topics.items():
            for log in (TopicPartition(name, number) for number in topic.own_partitions):
                if log not in present:
                    path = self._directories[0].path / partition_directory_name(log)
                    detail = "the partition's directory is missing: opening creates an empty one"
                    yield Finding(Severity.DAMAGE, path, detail, is_left_to_opening=True)


class _OneDirectory:
    """The content of one data directory and of its small files."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        self.partitions: dict[TopicPartition, Path] = {}
        self.topics: TopicsCopy | None = None
        self.topics_error: CorruptCheckpoint | None = None
        self._was_clean = CleanShutdownMarker(fs, path).exists()
        self._fs = fs
        self._names: list[str] = []
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {}

    def judge_files(self) -> Findings:
        self._names = self._fs.list_directory(self.path)
        for name in self._names:
            path = self.path / name
            if name in _OUR_FILES and self._fs.is_misplaced(path):
                yield Finding(Severity.REFUSED, path, "it is not a regular file: move it away")
            elif name == names.LOCK_FILE:
                detail = (
                    "a broker leaves it when it stops, this service if it was killed; if a process "
                    "still uses the directory, stop it before a check"
                )
                yield Finding(Severity.NOTE, path, detail)
            elif name not in _OUR_FILES and not self._is_partition(path):
                if self._fs.is_misplaced(path):
                    detail = (
                        "it is a special file, or a link that leads to no partition, and is not "
                        "opened: move it away"
                    )
                    yield Finding(Severity.REFUSED, path, detail)
                    continue
                yield Finding(Severity.NOTE, path, "it is not of this format and is left alone")

    def find_partitions(self) -> Findings:
        for name in self._names:
            path = self.path / name
            if name not in _OUR_FILES and self._is_partition(path):
                log, finding = self._classify(path)
                if finding is not None:
                    yield finding
                if log is not None:
                    self.partitions[log] = path

    def _is_partition(self, path: Path) -> bool:
        """Whether it is a directory, or a link to one from a partition's name."""
        if self._fs.is_directory(path):
            return True
        try:
            kind = parse_partition_directory(path.name).kind
        except InvalidDataDirectory:
            return False
        return kind.may_be_link and self._fs.real_directory(path) is not None

    def _classify(self, path: Path) -> tuple[TopicPartition | None, Finding | None]:
        """Return the partition of a directory, if it is served, and a finding, if any."""
        if path.name in names.NOT_PARTITIONS:
            return None, None
        try:
            parsed = parse_partition_directory(path.name)
        except InvalidDataDirectory as error:
            return None, Finding(Severity.REFUSED, path, str(error))
        if parsed.kind is DirectoryKind.DELETED:
            detail = "it was deleted: the service removes it after its start"
            return None, Finding(Severity.NOTE, path, detail)
        if parsed.kind is DirectoryKind.FUTURE:
            detail = "a copy of an interrupted move: the service finishes or restarts the move"
            return None, Finding(Severity.NOTE, path, detail)
        if parsed.kind is not DirectoryKind.LIVE or parsed.topic == names.CLUSTER_METADATA_TOPIC:
            return None, Finding(Severity.NOTE, path, "it is kept but not served")
        return parsed.topic_partition, None

    def read_small_files(self) -> Findings:
        for name in CHECKPOINTS:
            path = self.path / name
            try:
                self._offsets[name] = {} if self._is_odd(path) else self._read_offsets(path)
            except CorruptCheckpoint as error:
                self._offsets[name] = {}
                detail = f"{error}; opening treats it as empty and writes it again"
                yield Finding(Severity.DERIVED, path, detail, stale_files=(path,))
        try:
            if not self._is_odd(self.path / names.TOPICS_FILE):
                self.topics = TopicsFile(self._fs, self.path).read_copy()
        except CorruptCheckpoint as error:
            self.topics_error = error
        path = self.path / names.PRODUCER_ID_FILE
        try:
            if not self._is_odd(path):
                ProducerIds(self._fs, self.path).ensure_readable()
        except CorruptCheckpoint as error:
            detail = f"{error}; if moved away, it is rebuilt above the ids found in the logs"
            yield Finding(Severity.REFUSED, path, detail)

    def _is_odd(self, path: Path) -> bool:
        return self._fs.is_misplaced(path)

    def _read_offsets(self, path: Path) -> Mapping[TopicPartition, int]:
        return OffsetCheckpoint(self._fs, path).read()

    def scope(self, log: TopicPartition, topic: Topic | None, config: EngineConfig) -> Scope:
        """Return what the data directory's files say about a partition."""
        is_gapless = topic is not None and topic.is_gapless(
            topic.log_config(config.default_topic_config)
        )
        return Scope(
            self._was_clean,
            self._offsets[names.RECOVERY_POINT_CHECKPOINT].get(log, 0),
            not is_gapless,
            self._offsets[names.LOG_START_CHECKPOINT].get(log, 0),
            None if topic is None else topic.topic_id,
        )

    def judge_checkpoints(self, checked: Checked) -> Findings:
        """Compare the checkpoints with the real ends of the logs."""
        promises = {
            names.RECOVERY_POINT_CHECKPOINT: "was on disk",
            names.HIGH_WATERMARK_CHECKPOINT: "was committed",
            names.LOG_START_CHECKPOINT: "was the log start",
        }
        for file, promise in promises.items():
            for log, offset in self._offsets[file].items():
                end = checked.ends.get(partition_directory_name(log))
                if log in self.partitions and end is not None and offset > end:
                    detail = f"offset {offset} of {log} {promise}, but the log ends at {end}"
                    yield Finding(Severity.DAMAGE, self.path / file, detail, offset=offset)
