"""Reads everything committed from time to time, to find damage before a reader does.

It only reports: each damaged batch with its file, position and offset. Data that was used recently
may come from the page cache instead of the disk.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from engine.clock import Clock
from engine.config import ScrubConfig
from engine.errors import (
    LogReplaced,
    Overloaded,
    SegmentNotFound,
    StorageOffline,
    StoredDataCorrupt,
)
from engine.log.log import Log
from engine.log.read.segment_files import FileKind
from engine.manager.manager import LogManager
from engine.metrics import Recorder
from engine.throttle import Throttle
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1024 * 1024
"""How much is verified between two calls of the throttle."""

MAX_REPORTED: Final = 1_000
"""How many damaged places a report lists; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place in a `.log` file."""

    log: TopicPartition
    file: str
    position: int
    offset: int
    """The base offset in the batch's header; -1 if unknown."""
    problem: str


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """The result of one pass over all logs; immutable."""

    start_ms: int
    end_ms: int
    """Milliseconds since the epoch."""
    checked_bytes: int
    damaged_count: int
    damage: tuple[Damage, ...]
    """The first `MAX_REPORTED` of them."""


class _Stopping(Exception):
    """The scrubber is stopping: the current pass ends without a report."""


class Scrubber:
    """Verifies all logs of all data directories periodically. `start` once, `stop` once."""

    def __init__(
        self, manager: LogManager, *, clock: Clock, config: ScrubConfig, recorder: Recorder
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._config = config
        self._recorder = recorder
        self._throttle = Throttle(clock, config.max_bytes_per_second)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelog-scrubber", daemon=True)
        self._report: ScrubReport | None = None

    @property
    def report(self) -> ScrubReport | None:
        """The result of the last complete pass; None before the first."""
        return self._report

    def start(self) -> None:
        """Start the thread if an interval is configured; all logs must be open."""
        if self._config.interval_ms:
            self._thread.start()

    def stop(self) -> None:
        """Abandon the current pass, and wait for the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._config.interval_ms / 1000):
            self.run_pass()

    def run_pass(self) -> ScrubReport | None:
        """Verify every log from its start to its high watermark; return None if stopped meanwhile.

        A log that is deleted, truncated, closed or offline is skipped, as is one for which too many
        files would be open; the others are still verified.
        """
        start_ms = self._clock.now_ms()
        checked_bytes = 0
        damage: list[Damage] = []
        try:
            for log in self._manager.logs():
                checked_bytes += self._check(log, damage)
        except _Stopping:
            return None
        report = ScrubReport(
            start_ms=start_ms,
            end_ms=self._clock.now_ms(),
            checked_bytes=checked_bytes,
            damaged_count=len(damage),
            damage=tuple(damage[:MAX_REPORTED]),
        )
        self._report = report
        _LOG.info("scrubbed %d bytes: %d damaged places", checked_bytes, len(damage))
        return report

    def _check(self, log: Log, damage: list[Damage]) -> int:
        checked_bytes = 0
        try:
            for segment in log.reader.listing().segments:
                with suppress(SegmentNotFound):  # retention or compaction removed it
                    checked_bytes += self._check_segment(log, segment.base_offset, damage)
        except (LogReplaced, StorageOffline, Overloaded) as error:
            _LOG.info("%s was not scrubbed to its end: %s", log.topic_partition, error)
        return checked_bytes

    def _check_segment(self, log: Log, base_offset: int, damage: list[Damage]) -> int:
        file = log.reader.open_file(base_offset, FileKind.LOG)
        position = 0
        while position < file.size_bytes:
            check = log.reader.check_file(file, position, CHUNK_BYTES)
            size_bytes = check.next_position - position
            for error in check.damage:
                _LOG.error("%s is damaged: %s", log.topic_partition, error)
                damage.append(_described(log, error))
                log.reader.note_damage(error)
            self._recorder.scrubbed(
                log.topic_partition, size_bytes=size_bytes, damaged=len(check.damage)
            )
            position = check.next_position
            if self._stopping.wait(self._throttle.pause_ms(size_bytes) / 1000):
                raise _Stopping
        return position


def _described(log: Log, error: StoredDataCorrupt) -> Damage:
    return Damage(log.topic_partition, str(error.file), error.position, error.offset, str(error))
