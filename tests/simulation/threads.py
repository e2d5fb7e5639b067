"""The engine's threads in a simulated life: each step runs when the history says.

They are the committer's, the mover's and the scrubber's; the simulated clock runs the scheduler's
tasks. They also check their results: no append waits for ever, and no move is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.background.mover import MoveReport, MoveState
from engine.errors import StorageError
from engine.log.log import Log
from engine.log.results import Appended
from engine.types import TopicPartition
from tests.simulation.determinism import WaitingExecutor
from tests.simulation.trouble import Kind

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Threads:
    """The threads of the present process, and the appends that wait for them."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.waiting: dict[Log, int] = {}
        """The log ends that appends wait for, which the committer has to report."""
        self.wrong: list[str] = []
        """What listeners of the committer have found, which may not raise."""
        self.planned: dict[TopicPartition, Path] = {}
        """The requested moves that have not begun; a restart keeps them."""
        self._is_in_round = False

    # -- the committer -----------------------------------------------------------------------

    def append(self, log: Log, data: bytes, **options: Any) -> Appended:
        """Append as the service does; the log decides whether the caller waits for the disk."""
        acks_all = log.watermarks.log_end_offset % 2 > 0
        committer = self._simulation.runtime.committer
        appended = committer.append(log, data, acks_all=acks_all, **options)
        if acks_all and appended.last_offset >= log.watermarks.high_watermark:
            self.waiting[log] = appended.last_offset + 1
        return appended

    def was_committed(self, moved: Sequence[tuple[Log, int]]) -> None:
        for log, high_watermark in moved:
            if high_watermark > log.watermarks.high_watermark:
                self.wrong.append(f"{log.topic_partition} is not committed to {high_watermark}")
            if self.waiting.get(log, 0) <= high_watermark:
                self.waiting.pop(log, None)

    def was_not_committed(self, logs: Sequence[Log], error: StorageError) -> None:
        for log in logs:
            self.waiting.pop(log, None)
            is_unforeseen = "could not be committed" in str(error)
            is_untroubled = self._simulation.trouble.kind is Kind.NOTHING
            if log in self._simulation.manager.logs() and (is_unforeseen or is_untroubled):
                self.wrong.append(f"{log.topic_partition} was not committed: {error}")

    def commit_round(self) -> None:
        """Run the committer until it would wait again: then no append waits for it.

        It has one thread: during a round there is no other round.
        """
        if self._is_in_round:
            return
        self._is_in_round = True
        try:
            while self._simulation.runtime.committer.run_round():
                pass
        finally:
            self._is_in_round = False
            self._see_commits()
        self.ensure_rounds_come()

    def commit_soon(self) -> None:
        """Ask for a round as the event loop does: it may run at once, or is left to the flusher."""
        try:
            self._simulation.runtime.committer.wake()
        finally:
            self._see_commits()
        self.ensure_rounds_come()

    def _see_commits(self) -> None:
        for driven in self._simulation.logs.values():
            driven.see_commits()

    def ensure_nobody_waits(self) -> None:
        assert not self.waiting, "somebody waits for ever"

    def ensure_rounds_come(self) -> None:
        """Appends that wait after a round was refused for lack of files are in a later one."""
        if self._simulation.is_offline:
            return
        queue = self._simulation.runtime.committer._queue  # noqa: SLF001 - only tests need it
        assert all(map(queue.is_waiting, self.waiting)), "somebody waits for ever"

    # -- the scrubber ------------------------------------------------------------------------

    def scrub(self) -> None:
        """Run a pass of the scrubber: a disk that fails is not damage."""
        report = self._simulation.runtime.scrubber.run_pass()
        assert report is not None
        assert report.damage == ()

    # -- the mover ---------------------------------------------------------------------------

    def move_next(self) -> None:
        """Let the mover run the oldest requested move."""
        simulation, mover = self._simulation, self._simulation.runtime.mover
        thread = cast("WaitingExecutor", mover._thread)  # noqa: SLF001 - there is no real thread
        if not thread.waiting:
            return
        asked: MoveReport = thread.waiting[0].args[0]
        is_wanted = asked.log in simulation.manager.unfinished_moves()
        driven = simulation.logs.get(asked.log)
        is_overtaken = (
            mover.report(asked.log) is not asked
        )  # created again, and to be moved as well
        if driven is None or is_overtaken:  # or its topic is gone
            thread.run_next()
            return
        directory, end = driven.log.directory, driven.model.end
        self.planned.pop(asked.log, None)
        with simulation.interruptible(driven):
            thread.run_next()
        report = mover.report(asked.log)
        assert report is not None
        simulation.told.append(f"      {report}")
        if not is_wanted:
            assert driven.log.directory == directory, "a topic made anew was moved"
        elif report.state is MoveState.DONE:
            assert driven.log.directory.parent == report.target
            driven.was_moved(end)
        else:
            assert simulation.trouble.kind is not Kind.NOTHING, report

    def check_plans(self) -> None:
        """A start finds each requested move that had not begun."""
        for log, target in list(self.planned.items()):
            if log not in self._simulation.logs:
                del self.planned[log]
                continue
            report = self._simulation.runtime.mover.report(log)
            assert report is not None, f"the move of {log} to {target} is forgotten"
            assert report.target == target
