"""Moves partitions to another data directory, one at a time, on a thread of its own.

A request returns at once, and the caller polls the report: a move takes as long as copying the
bytes takes. The next start begins moves again that a stop or a crash interrupted, as Kafka
continues its future logs.
"""

from __future__ import annotations

import enum
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import (
    EngineError,
    LogOffline,
    Overloaded,
    PartitionNotFound,
    PolicyViolation,
    Recovering,
)
from engine.manager.manager import LogManager
from engine.metrics import Recorder
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)


class MoveState(enum.Enum):
    """The progress of a move."""

    WAITING = "waiting"
    COPYING = "copying"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MoveReport:
    """One move: the offsets [first_offset, copied_offset) are copied, of those up to end_offset.

    They are -1 until copying has begun; end_offset grows while records are appended.
    """

    log: TopicPartition
    source: Path
    target: Path
    state: MoveState
    first_offset: int = -1
    copied_offset: int = -1
    end_offset: int = -1
    problem: str | None = None
    """Why it failed; the partition stays where it was, unless the next start finds it complete."""

    @property
    def is_over(self) -> bool:
        return self.state in {MoveState.DONE, MoveState.FAILED}


class PartitionMover:
    """Moves partitions in the background. Thread-safe; `stop` once."""

    def __init__(self, manager: LogManager, recorder: Recorder, *, max_waiting: int) -> None:
        self._manager = manager
        self._recorder = recorder
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._reports: dict[TopicPartition, MoveReport] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-mover")
        self._is_stopped = False

    def start(self, log: TopicPartition, target: Path) -> MoveReport:
        """Queue the move of a partition to a data directory.

        Does nothing if the partition is already there, or on its way there. Raises TopicNotFound,
        PartitionNotFound, InvalidRequestValue if `target` is not a data directory, StorageOffline,
        PolicyViolation while the partition is moved elsewhere, Overloaded if too many wait,
        Recovering once stopped.
        """
        moving = self._manager.log(log)
        health = self._manager.data_directory(target)
        health.ensure_online()
        with self._lock:
            if self._is_stopped:
                raise Recovering("the data directories are being closed")
            known = self._reports.get(log)
            if known is not None and not known.is_over and self._is_wanted(known):
                if known.target == health.directory:
                    return known
                raise PolicyViolation(f"{log} is being moved elsewhere", log=str(log))
            source = moving.directory.parent
            report = MoveReport(log, source, health.directory, MoveState.WAITING)
            if source == health.directory:
                return replace(report, state=MoveState.DONE)
            self._ensure_room()
            self._manager.plan_move(log, target)
            self._enqueue(report)
        return report

    def resume(self) -> None:
        """Queue the moves that were requested before the start and have not ended."""
        with self._lock:
            for log, target in self._manager.unfinished_moves().items():
                try:
                    source = self._manager.log(log).directory.parent
                except LogOffline as error:
                    _LOG.warning("%s will be moved to %s after a restart: %s", log, target, error)
                    continue
                _LOG.info("resuming the move of %s to %s", log, target)
                self._enqueue(MoveReport(log, source, target, MoveState.WAITING))

    def _enqueue(self, report: MoveReport) -> None:
        self._reports.pop(report.log, None)  # the newest are last
        self._reports[report.log] = report
        self._thread.submit(self._run, report)

    def report(self, log: TopicPartition) -> MoveReport | None:
        """Return the report of the partition's last move; None if it was not moved."""
        return self._reports.get(log)

    def reports(self) -> list[MoveReport]:
        """Return the reports of all moves that are remembered, the newest last."""
        with self._lock:
            return list(self._reports.values())

    def stop(self) -> None:
        """Start no more moves, and wait for the one under way, which `LogManager.interrupt` ends.

        The next start resumes all of them. May be called again.
        """
        with self._lock:
            self._is_stopped = True
        self._thread.shutdown(cancel_futures=True)

    def _ensure_wanted(self, report: MoveReport) -> None:
        if not self._is_wanted(report):
            raise PartitionNotFound(f"{report.log} was deleted before it was moved")

    def _is_wanted(self, report: MoveReport) -> bool:
        """Whether the partition is still the same: it may have been deleted and created again."""
        return self._manager.unfinished_moves().get(report.log) == report.target

    def _ensure_room(self) -> None:
        over = [log for log, report in self._reports.items() if report.is_over]
        if len(self._reports) - len(over) >= self._max_waiting:
            raise Overloaded(f"{self._max_waiting} moves are waiting already")
        if len(self._reports) >= self._max_waiting:
            del self._reports[over[0]]

    def _run(self, report: MoveReport) -> None:
        def note(first_offset: int, copied_offset: int, end_offset: int) -> None:
            self._reports[report.log] = replace(
                report,
                state=MoveState.COPYING,
                first_offset=first_offset,
                copied_offset=copied_offset,
                end_offset=end_offset,
            )

        if self._reports[report.log] is not report:
            return  # the partition was created again, and its own move is later in the queue
        problem: str | None = None
        try:
            self._ensure_wanted(report)
            self._manager.move_partition(report.log, report.target, progress=note)
        except EngineError as error:
            problem = str(error)
            _LOG.error("%s was not moved to %s: %s", report.log, report.target, error)
        except Exception as error:  # noqa: BLE001 - the report must say what failed
            problem = f"{type(error).__name__}: {error}"
            _LOG.exception("%s was not moved to %s", report.log, report.target)
        state = MoveState.DONE if problem is None else MoveState.FAILED
        self._reports[report.log] = replace(self._reports[report.log], state=state, problem=problem)
        self._recorder.moved(report.log, succeeded=problem is None)
