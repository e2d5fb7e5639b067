"""A few threads that run real code one at a time, and switch where the policy says so.

Each thread is traced (`sys.settrace`). At each of the chosen `steps` the policy may interrupt the
thread and let another one continue. A thread that finds one of the `locks.TurnLock`s held passes
the turn on instead of waiting. So the seed of the policy decides the whole interleaving, and a
deadlock is found the moment it arises.
"""

from __future__ import annotations

import sys
import threading
import traceback
from _thread import LockType, allocate_lock
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol

from tests.interleavings.policies import Policy
from tests.interleavings.steps import Grain, Steps

LONGEST: Final = 400_000
"""A schedule takes some thousand steps: more steps mean an endless loop."""

FAIR_STEPS: Final = 20_000
"""After this many steps in one turn another thread runs: no thread can spin for ever."""

PATIENCE_S: Final = 120
"""A thread without a step for this long waits for something outside the schedule."""


class Deadlock(Exception):
    """Every thread waits for a lock that another one holds."""


class TakesTooLong(Exception):
    """The schedule does not end."""


class Abandoned(BaseException):
    """The schedule has failed and is being given up; no `except Exception` may stop this."""


class Waitable(Protocol):
    """Something that a thread may wait for."""

    def is_free(self) -> bool: ...


class Switch(NamedTuple):
    """One thread stopped at a line, and another one continued."""

    thread: int
    code: CodeType | None
    line: int
    why: str
    following: int

    def told(self, names: Sequence[str]) -> str:
        where = "its end"
        if self.code is not None:
            _, _, path = self.code.co_filename.rpartition("/engine/")
            where = f"engine/{path}:{self.line} ({self.code.co_qualname})"
        return f"{names[self.thread]} {self.why} {where}; {names[self.following]} goes on"


class _Thread:
    """One of the threads of a schedule."""

    def __init__(self) -> None:
        self.turn: LockType = allocate_lock()
        self.turn.acquire()
        self.is_alive = True
        self.wanted: Waitable | None = None
        self.error: BaseException | None = None

    @property
    def can_run(self) -> bool:
        return self.is_alive and (self.wanted is None or self.wanted.is_free())


_here = threading.local()


def turns_here() -> Turns | None:
    """Return the schedule that the calling thread belongs to, if it does."""
    turns: Turns | None = getattr(_here, "turns", None)
    return turns


class Turns:
    """The turns of one schedule. Used once."""

    def __init__(
        self,
        policy: Policy,
        steps: Steps,
        *,
        on_turn: Callable[[int], None] = lambda thread: None,
    ) -> None:
        """`on_turn` is called, untraced, on a thread that continues, before its next step."""
        self.switches: list[Switch] = []
        self.steps = 0
        self._policy = policy
        self._lines_of = steps.lines_of
        self._grain = steps.grain
        self._on_turn = on_turn
        self._threads: list[_Thread] = []
        self._next_change = 0
        self._failure: Exception | None = None
        self._finished = threading.Event()
        # Bound once: it is called for each line.
        self._on_event = self._line if steps.grain is Grain.STORE else self._any

    def run(self, works: Sequence[Callable[[], object]]) -> list[BaseException | None]:
        """Run the works interleaved, each on a thread; return their errors.

        Raises Deadlock and TakesTooLong; then the works have not ended.
        """
        self._threads = [_Thread() for _ in works]
        threads = [
            threading.Thread(target=self._main, args=(number, work), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        self._draw_change()
        first = self._policy.choose(range(len(works)))
        self._threads[first].turn.release()
        if not self._finished.wait(PATIENCE_S):
            raise TakesTooLong(f"a thread waits outside of the schedule:\n{_stacks(threads)}")
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return [thread.error for thread in self._threads]

    # -- on the threads ----------------------------------------------------------------------

    def _main(self, number: int, work: Callable[[], object]) -> None:
        _here.turns, _here.number = self, number
        mine = self._threads[number]
        mine.turn.acquire()
        try:
            self._ensure_going_on()
            self._on_turn(number)
            sys.settrace(self._trace)
            try:
                work()
            finally:
                sys.settrace(None)
        except BaseException as error:  # noqa: BLE001 - any error is reported to the schedule
            mine.error = error
        mine.is_alive = False
        self._pass_on(number, None, "comes to")

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._lines_of(frame.f_code):
            frame.f_trace_opcodes = self._grain is Grain.OPCODE
            return self._on_event
        return None

    def _any(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.steps += 1
        if self.steps >= self._next_change:
            self._change(frame)
        return self._on_event

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno in self._lines_of(frame.f_code):
            self.steps += 1
            if self.steps >= self._next_change:
                self._change(frame)
        return self._on_event

    def _change(self, frame: FrameType) -> None:
        number = _here.number
        if self._failure is not None:
            return  # it unwinds
        if self.steps > LONGEST:
            self._give_up(TakesTooLong(f"more than {LONGEST} steps"))
            raise Abandoned
        self._policy.interrupted(number)
        self._draw_change()
        others = [other for other in self._runnable() if other != number]
        if others:
            self._hand_over(number, self._policy.choose(others), frame, "stops at")

    def wait_for(self, wanted: Waitable) -> None:
        """Let others run until the lock of the calling thread is free."""
        number = _here.number
        self._threads[number].wanted = wanted
        try:
            while not wanted.is_free():
                self._pass_on(number, _frame_of_engine(), "waits at")
        finally:
            self._threads[number].wanted = None

    def give_way(self) -> None:
        """Let others run for a moment, if any can: time passes for the calling thread."""
        number = _here.number
        others = [other for other in self._runnable() if other != number]
        if others:
            chosen = self._policy.choose(others)
            self._hand_over(number, chosen, _frame_of_engine(), "waits a moment at")

    def look(self) -> None:
        """Call `on_turn` between two steps of the calling thread.

        No other thread runs meanwhile.
        """
        sys.settrace(None)
        self._on_turn(_here.number)
        sys.settrace(self._trace)

    # -- whose turn it is --------------------------------------------------------------------

    def _draw_change(self) -> None:
        self._next_change = min(self._policy.next_change(self.steps), self.steps + FAIR_STEPS)

    def _runnable(self) -> list[int]:
        return [number for number, thread in enumerate(self._threads) if thread.can_run]

    def _pass_on(self, number: int, frame: FrameType | None, why: str) -> None:
        """Let another thread run, because the calling one cannot; a deadlock ends the schedule."""
        alive = [other for other, thread in enumerate(self._threads) if thread.is_alive]
        if not alive:
            self._finished.set()
            return
        runnable = self._runnable() if self._failure is None else alive
        if not runnable:
            self._give_up(Deadlock(f"all wait for each other:\n{_held_up(self._threads)}"))
            runnable = alive
        self._hand_over(number, self._policy.choose(runnable), frame, why)

    def _hand_over(self, number: int, following: int, frame: FrameType | None, why: str) -> None:
        code, line = (None, 0) if frame is None else (frame.f_code, frame.f_lineno)
        self.switches.append(Switch(number, code, line, why, following))
        if following != number:
            self._threads[following].turn.release()
            if not self._threads[number].is_alive:
                return
            self._threads[number].turn.acquire()
            self._on_turn(number)
        self._ensure_going_on()

    def _give_up(self, failure: Exception) -> None:
        self._failure = self._failure or failure

    def _ensure_going_on(self) -> None:
        if self._failure is not None:
            raise Abandoned


def _frame_of_engine() -> FrameType | None:
    """Return the engine's innermost frame that takes a lock."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - as a debugger
    while frame is not None and not _is_of_engine(frame.f_code):
        frame = frame.f_back
    return frame


def _is_of_engine(code: CodeType) -> bool:
    return "/engine/" in code.co_filename and not code.co_filename.endswith("/guard.py")


def _held_up(threads: Sequence[_Thread]) -> str:
    return "\n".join(
        f"  thread {number} wants {thread.wanted}"
        for number, thread in enumerate(threads)
        if thread.is_alive
    )


def _stacks(threads: Sequence[threading.Thread]) -> str:
    frames = sys._current_frames()  # noqa: SLF001 - as a debugger
    return "\n".join(
        "".join(traceback.format_stack(frames[thread.ident]))
        for thread in threads
        if thread.ident in frames
    )
