"""Opens the logs of data directories that no service uses, for a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.fs.port import FileSystem
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.scheduler import ThreadScheduler


def open_logs(fs: FileSystem, directories: Sequence[Path], config: EngineConfig) -> LogManager:
    """Open and recover every log; raises as `LogManager.open`. The caller closes the manager.

    Delayed removals are left to whatever serves the directories next.
    """
    clock = SystemClock()
    manager = LogManager(
        directories,
        fs=fs,
        clock=clock,
        scheduler=ThreadScheduler(clock),  # never started
        recorder=NullRecorder(),
        config=config,
    )
    manager.open()
    return manager
