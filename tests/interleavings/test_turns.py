"""The interleaving tester: what it schedules, what it finds, and that a seed is enough."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from types import CodeType

import pytest

from engine.fs.health import DirectoryHealth
from tests.interleavings.locks import TurnLock, engine_locks
from tests.interleavings.policies import FewInterruptions, Often, Policy
from tests.interleavings.runs import Variant
from tests.interleavings.runs import play as play_variant
from tests.interleavings.steps import Grain, Steps
from tests.interleavings.turns import Deadlock, TakesTooLong, Turns

HERE = ("test_turns",)


class Counter:
    """Something that two threads change, with or without a lock."""

    def __init__(self) -> None:
        self.lock = TurnLock()
        self.value = 0

    def add_carelessly(self) -> None:
        before = self.value
        self.value = before + 1

    def add(self) -> None:
        with self.lock:
            self.add_carelessly()


def steps_here(grain: Grain = Grain.LINE) -> Steps:
    return Steps(HERE, grain)


def play(policy: Policy, *works: Callable[[], None], grain: Grain = Grain.LINE) -> Turns:
    turns = Turns(policy, steps_here(grain))
    assert turns.run(works) == [None] * len(works)
    return turns


@pytest.mark.parametrize("grain", list(Grain), ids=lambda grain: grain.name)
def test_a_lost_update_is_found(grain: Grain) -> None:
    """Among a hundred schedules one has both threads read before either writes."""
    found = set()
    for seed in range(100):
        counter = Counter()
        policy = FewInterruptions(Random(seed), 0.1)
        play(policy, counter.add_carelessly, counter.add_carelessly, grain=grain)
        found.add(counter.value)
    assert found == {1, 2}


def test_a_lock_is_respected() -> None:
    """However often threads are interrupted, no other thread is inside."""
    for seed in range(100):
        counter = Counter()
        play(Often(Random(seed)), counter.add, counter.add, counter.add)
        assert counter.value == 3


def take(first: TurnLock, second: TurnLock) -> None:
    with first, second:
        pass


def test_a_deadlock_is_reported() -> None:
    """Two threads that lock two locks in opposite order are found, without a hang."""
    one, other = TurnLock(), TurnLock()

    def take_both() -> None:
        for seed in range(50):
            turns = Turns(Often(Random(seed)), steps_here(Grain.OPCODE))
            turns.run([partial(take, one, other), partial(take, other, one)])

    with pytest.raises(Deadlock, match="wait for each other"):
        take_both()
    assert not one.locked()
    assert not other.locked()


def test_what_has_no_end_is_told() -> None:
    """A thread that spins for ever, while all others have their turns, fails the schedule."""
    stop = False

    def spin() -> None:
        while not stop:
            pass

    with pytest.raises(TakesTooLong):
        Turns(FewInterruptions(Random(1), 1), steps_here()).run([spin, spin])


def test_a_lock_asked_for_soon_is_not_waited_for() -> None:
    """A timeout expires if the lock is still held after the others had a turn."""
    lock = TurnLock()
    lock.acquire()
    answers: list[bool] = []
    play(Often(Random(1)), lambda: answers.append(lock.acquire(timeout=1)), lambda: None)
    assert answers == [False]
    assert not lock.acquire(blocking=False)


def test_an_error_of_a_thread_is_returned() -> None:
    """An error of one thread does not stop the others."""
    counter = Counter()
    turns = Turns(Often(Random(1)), steps_here())
    errors = turns.run([partial([].pop), counter.add])
    assert isinstance(errors[0], IndexError)
    assert errors[1] is None
    assert counter.value == 1


def test_only_the_engine_gets_scheduled_locks() -> None:
    """Locks that the engine creates inside are scheduled; the module `threading` is unchanged."""
    with engine_locks():
        assert isinstance(DirectoryHealth(Path())._lock, TurnLock)  # noqa: SLF001 - its internals
        assert not isinstance(threading.Lock(), TurnLock)
    assert not isinstance(DirectoryHealth(Path())._lock, TurnLock)  # noqa: SLF001 - as above


def test_lines_that_store_are_known() -> None:
    """An assignment to an attribute is a step of that grain; a look at one is none."""
    code: CodeType = Counter.add_carelessly.__code__
    lines = Steps(HERE, Grain.STORE).lines_of(code)
    assert lines == {code.co_firstlineno + 2}
    assert Steps(("/engine/log/",), Grain.STORE).lines_of(code) == frozenset()
    with pytest.raises(AssertionError, match="there is no elsewhere"):
        Steps(("elsewhere",), Grain.STORE)


def test_a_seed_replays_its_schedule() -> None:
    """The same seed interrupts the same threads at the same lines."""
    with engine_locks():
        first, again, other = (play_variant(Variant(seed)).switches for seed in (3, 3, 4))
    assert first == again != other
    assert any("stops at engine/" in switch for switch in first)
