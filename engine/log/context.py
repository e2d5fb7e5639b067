"""The environment of a log: ports, limits, and the health of its data directory."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from engine.clock import Clock
from engine.config import EngineConfig, LogConfig
from engine.fs.filesystem import FileSystem
from engine.fs.health import DirectoryHealth
from engine.metrics import Recorder
from engine.scheduler import Scheduler
from engine.segment.resting import SealedFiles
from engine.state.shared_room import SharedRoom


@dataclass(frozen=True, slots=True)
class LogContext:
    """Shared by all logs of one data directory."""

    fs: FileSystem
    clock: Clock
    scheduler: Scheduler
    recorder: Recorder
    health: DirectoryHealth
    config: EngineConfig
    sealed_files: SealedFiles
    """The open sealed segments of all data directories."""
    sealed_room: SharedRoom = field(default_factory=lambda: SharedRoom("max_sealed_segments"))
    """The remaining number of sealed segments, for all data directories."""
    producer_room: SharedRoom = field(default_factory=lambda: SharedRoom("max_producers"))
    """The remaining number of producer ids, for all data directories."""
    random: random.Random = field(default_factory=random.Random)
    """For segment.jitter.ms, which keeps many logs from rolling at the same moment."""

    def draw_jitter_ms(self, config: LogConfig) -> int:
        """Return a random reduction of segment.ms for one segment."""
        limit = min(config.segment_jitter_ms, config.segment_ms)
        return self.random.randrange(limit) if limit else 0
