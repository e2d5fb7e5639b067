"""Batches, logs and data directories in one line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, TypeVar

from engine.config import EngineConfig, LogConfig
from engine.fs.health import DirectoryHealth
from engine.fs.names import partition_directory_name
from engine.fs.port import FileSystem
from engine.log.damage import KnownDamage
from engine.log.files import LogContext
from engine.log.log import Log
from engine.log.open.loader import LoadRequest
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder, Recorder
from engine.records.builder import build_batch
from engine.segment.indexes import SealedFiles
from engine.types import TopicPartition
from tests.support.filesystem import ForgetfulDisk
from tests.support.time import START_MS, ManualClock, ManualScheduler

SMALL_INDEXES = MappingProxyType({"segment.index.bytes": "16384"})
"""Topics of a world: a disk in memory holds what others only reserve."""

SMALL_CONFIG = EngineConfig(default_topic_config=SMALL_INDEXES)

DATA = Path("/data")
"""The data directory of every world in memory."""

DiskT = TypeVar("DiskT", bound=FileSystem)

TOPIC_ID = "S6g8ZPZuQWap3C72_08X5Q"
EVENTS = TopicPartition("events", 0)


def new_batch(
    count: int = 1, *, value: bytes = b"value", timestamp: int = START_MS, **options: Any
) -> bytearray:
    """A batch of equal records with a key, as a client sends it; `options` are `build_batch`'s."""
    return build_batch([(timestamp, b"key", value, ())] * count, **options)


def values_of(records: Iterable[bytes], *, timestamp: int = START_MS, **options: Any) -> bytearray:
    """A batch with these values, without keys."""
    return build_batch([(timestamp, None, value, ()) for value in records], **options)


def with_data(disk: DiskT) -> DiskT:
    """The disk, with a folder for the data that a power cut does not take."""
    disk.make_directory(DATA, parents=True)
    disk.sync_directory(Path("/"))
    return disk


@dataclass
class World:
    """A disk, a clock and a scheduler that a test drives, and what is opened on them."""

    fs: FileSystem = field(default_factory=ForgetfulDisk)
    directory: Path = DATA
    clock: ManualClock = field(default_factory=ManualClock)
    recorder: Recorder = field(default_factory=NullRecorder)
    config: EngineConfig = field(default_factory=lambda: SMALL_CONFIG)

    def __post_init__(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.health = DirectoryHealth(self.directory, self.recorder)
        self.fs.make_directory(self.directory, parents=True)
        self.fs.sync_directory(self.directory.parent)

    @property
    def disk(self) -> ForgetfulDisk:
        """The disk in memory, for tests that steer it."""
        assert isinstance(self.fs, ForgetfulDisk)
        return self.fs

    def restart(self, *, power_cut: bool) -> None:
        """Let the process end without a word, with or without the power."""
        self.disk.restart(power_cut=power_cut)
        self.scheduler = ManualScheduler(self.clock)
        self.health = DirectoryHealth(self.directory, self.recorder)

    def context(self) -> LogContext:
        return LogContext(
            self.fs,
            self.clock,
            self.scheduler,
            self.recorder,
            self.health,
            self.config,
            SealedFiles(self.config.max_open_sealed_segments),
            KnownDamage(self.fs, self.directory, self.clock),
            random=Random(0),
        )

    def open_log(
        self,
        config: LogConfig | None = None,
        *,
        log: TopicPartition = EVENTS,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        was_clean: bool = False,
    ) -> Log:
        """Open a log of its own, made if it is missing, and commit what was found."""
        opened = self.open_uncommitted(
            config,
            log=log,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            was_clean=was_clean,
        )
        opened.durability.commit()
        return opened

    def open_uncommitted(
        self,
        config: LogConfig | None = None,
        *,
        log: TopicPartition = EVENTS,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        was_clean: bool = False,
        high_watermark: int = 0,
    ) -> Log:
        """Open a log as it is found; after an unclean stop nothing of it is visible yet."""
        path = self.directory / partition_directory_name(log)
        self.fs.make_directory(path)
        self.fs.sync_directory(self.directory)
        config = config or LogConfig()
        request = LoadRequest(
            path,
            config,
            recovery_point,
            log_start_offset,
            was_clean,
            high_watermark,
            is_gapless=not config.is_compacted,
        )
        return Log.open(self.context(), log, TOPIC_ID, request)

    def new_manager(self) -> LogManager:
        """A manager of the data directory, not open yet."""
        return LogManager(
            self.directory,
            fs=self.fs,
            clock=self.clock,
            scheduler=self.scheduler,
            recorder=self.recorder,
            config=self.config,
        )

    def open_manager(self, topics: Mapping[str, int] | None = None) -> LogManager:
        """Open the data directory and make these topics, given with their partitions."""
        manager = self.new_manager()
        manager.open()
        for name, partitions in (topics or {}).items():
            manager.create_topic(name, partitions, {})
        return manager
