"""Whether a data directory keeps what a log promises; only read, nothing is locked or repaired.

Segments tile, batches are intact, offsets ascend; indexes, snapshots, epochs and checkpoints agree
with the batches; topics have their partitions; what is unknown is named. The directory should not
be in use: what is written during the check may look wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.checkpoint.clean_shutdown import CleanShutdownMarker
from engine.checkpoint.json_file import read_json
from engine.checkpoint.offsets import OffsetCheckpoint
from engine.checkpoint.producer_ids import VERSION as PRODUCER_IDS_VERSION
from engine.checkpoint.topics_file import TopicEntry, TopicsFile
from engine.config import LogConfig
from engine.errors import CorruptCheckpoint, InvalidDataDirectory
from engine.fs import names
from engine.fs.names import DirectoryKind, parse_partition_directory, partition_directory_name
from engine.fs.port import FileSystem
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
_OUR_FILES = frozenset({*CHECKPOINTS, *_OTHER_FILES, names.TOPICS_FILE, names.PRODUCER_ID_FILE})


class DirectoryCheck:
    """One check of one data directory; `findings` is iterated once, and to its end."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self.checked = Checked()
        self.was_clean = CleanShutdownMarker(fs, directory).exists()
        self._fs = fs
        self._directory = directory
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {}
        self._topics: Mapping[str, TopicEntry] = {}

    def findings(self) -> Findings:
        """Yield what is wrong, in the order in which it is met; OSError if it cannot be read."""
        found = self._fs.list_directory(self._directory)
        yield from self._judge_files(found)
        yield from self._read_small_files()
        partitions = []
        for name in found:
            path = self._directory / name
            if self._fs.is_directory(path) and name not in _OUR_FILES:
                log, finding = self._classify(path)
                if finding is not None:
                    yield finding
                if log is not None:
                    partitions.append((log, path))
        for log, path in partitions:
            yield from PartitionCheck(self._fs, path, self._scope(log), self.checked).findings()
        yield from self._judge_topics({log for log, _ in partitions})
        yield from self._judge_checkpoints()

    # -- what lies in the directory ------------------------------------------------------------

    def _judge_files(self, found: list[str]) -> Findings:
        for name in found:
            path = self._directory / name
            if name in _OUR_FILES and self._fs.is_directory(path):
                detail = "it is a directory where a file belongs: move it away"
                yield Finding(Severity.REFUSED, path, detail)
            elif name == names.LOCK_FILE:
                detail = "a process uses the directory, or died in it: stop it before a check"
                yield Finding(Severity.NOTE, path, detail)
            elif name not in _OUR_FILES and not self._fs.is_directory(path):
                yield Finding(Severity.NOTE, path, "it is not of this format and is left alone")

    def _classify(self, path: Path) -> tuple[TopicPartition | None, Finding | None]:
        """Return which partition a directory is, if it is served, and what is to be said of it."""
        if path.name == names.REMOTE_INDEX_CACHE:
            return None, None
        try:
            parsed = parse_partition_directory(path.name)
        except InvalidDataDirectory as error:
            return None, Finding(Severity.REFUSED, path, str(error))
        if parsed.kind is DirectoryKind.DELETED:
            detail = "it was deleted: the service removes it after its start"
            return None, Finding(Severity.NOTE, path, detail)
        if parsed.kind is not DirectoryKind.LIVE or parsed.topic == names.CLUSTER_METADATA_TOPIC:
            return None, Finding(Severity.NOTE, path, "it is set aside and not served")
        return parsed.topic_partition, None

    def _read_small_files(self) -> Findings:
        for name in CHECKPOINTS:
            path = self._directory / name
            try:
                self._offsets[name] = {} if self._is_odd(path) else self._read_offsets(path)
            except CorruptCheckpoint as error:
                self._offsets[name] = {}
                detail = f"{error}; opening takes it for empty and writes it anew"
                yield Finding(Severity.DERIVED, path, detail, stale_files=(path,))
        try:
            self._topics = TopicsFile(self._fs, self._directory).read()
        except CorruptCheckpoint as error:
            path = self._directory / names.TOPICS_FILE
            yield Finding(Severity.REFUSED, path, f"{error}; only a copy of it brings it back")
        except IsADirectoryError:
            pass  # told already
        path = self._directory / names.PRODUCER_ID_FILE
        try:
            if not self._is_odd(path):
                read_json(self._fs, path, PRODUCER_IDS_VERSION)
        except CorruptCheckpoint as error:
            detail = f"{error}; moved away, it is made anew above the ids found in the logs"
            yield Finding(Severity.REFUSED, path, detail)

    def _is_odd(self, path: Path) -> bool:
        return self._fs.is_directory(path)

    def _read_offsets(self, path: Path) -> Mapping[TopicPartition, int]:
        return OffsetCheckpoint(self._fs, path).read()

    # -- what the small files say of the partitions --------------------------------------------

    def _scope(self, log: TopicPartition) -> Scope:
        topic = self._topics.get(log.topic)
        may_have_gaps = (
            topic is None or topic.adopted or LogConfig.of(dict(topic.config)).is_compacted
        )
        recovery_point = self._offsets[names.RECOVERY_POINT_CHECKPOINT].get(log, 0)
        return Scope(self.was_clean, recovery_point, may_have_gaps)

    def _judge_topics(self, present: set[TopicPartition]) -> Findings:
        for name, topic in self._topics.items():
            if topic.adopted or topic.deleted:
                continue
            for log in (TopicPartition(name, number) for number in range(topic.partitions)):
                if log not in present:
                    path = self._directory / partition_directory_name(log)
                    detail = "the partition's directory is missing: opening makes an empty one"
                    yield Finding(Severity.DAMAGE, path, detail, is_left_to_opening=True)

    def _judge_checkpoints(self) -> Findings:
        """Hold what the checkpoints promise against where the logs really end."""
        promises = {
            names.RECOVERY_POINT_CHECKPOINT: "was on disk",
            names.HIGH_WATERMARK_CHECKPOINT: "was committed",
            names.LOG_START_CHECKPOINT: "was where the log began",
        }
        for file, promise in promises.items():
            for log, offset in self._offsets[file].items():
                end = self.checked.ends.get(partition_directory_name(log))
                if end is not None and offset > end:
                    detail = f"offset {offset} of {log} {promise}, and the log ends at {end}"
                    yield Finding(Severity.DAMAGE, self._directory / file, detail, offset=offset)
