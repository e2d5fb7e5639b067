"""Mutants against the tests that reach them, each in a fork of one process that has loaded all.

pytest collects once. A rehearsal, in a fork of its own, runs every test and every life and notes
which of them reach which site. For a mutant, another fork changes the loaded function and runs
those, until one fails. Only code of this process is changed: a process that a test starts runs
the code as it is.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interleavings.locks import engine_locks
from tests.interleavings.runs import Variant, play
from tests.mutants import reached
from tests.mutants.live import replace_code
from tests.mutants.sites import (
    SOURCES,
    Kind,
    Mutant,
    instrumented_tree,
    mutated_tree,
)
from tests.simulation.runs import failure_of
from tests.support.campaign import tell

GUARD_TESTS: Final = ("tests/interleavings/test_guards.py", "tests/interleavings/test_pairs.py")
"""They look at locks; runs from seeds are played by the trial itself."""

SERVICE_TESTS: Final = ("http", "unit/app", "store", "conformance", "cli")
ENGINE_TESTS: Final = ("crash", "unit/engine", "property", "conformance", "corruption")
JOB_TESTS: Final = ("unit/pyspark_tidelog", "spark")

LONGEST_TEST_S: Final = 60
"""One that takes longer hangs; the verdict says so, because it may only have been slow."""

GRACE_S: Final = 15
"""How much later a test ends that does not heed its timeout, as one that waits for a thread."""

UNTHREADED_TESTS: Final = 50
"""How many tests with a single thread look at a lock that is left out; they can hardly notice."""


class BrokenError(Exception):
    """The work of a fork failed, or its process died."""


@dataclass(frozen=True)
class Effort:
    """How long a mutant is looked at before it counts as a survivor."""

    lives: int
    schedules: int
    seconds: float
    """At most, for a mutant; one that takes longer is not judged."""
    tests: Sequence[str] = ()
    """Files or folders; none stands for all."""


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed_by: str | None
    """What noticed it; None for a survivor."""
    runs: int
    """The tests, lives and schedules that may notice it."""
    seconds: float
    is_judged: bool = True
    """False if time ran out or the process died: either may be the machine's fault."""


@dataclass(frozen=True)
class Rehearsal:
    """What every test and life reaches, how long it takes, and which ones fail unchanged."""

    by_site: Mapping[int, Mapping[str, bool]]
    seconds: Mapping[str, float]
    failed: frozenset[str]


class Trials:
    """A pytest plugin that judges mutants in place of running the collected tests."""

    def __init__(
        self,
        root: Path,
        mutants: Sequence[Mutant],
        effort: Effort,
        keep: Callable[[Verdict], None],
    ) -> None:
        self._root = root
        self._mutants = mutants
        self._effort = effort
        self._keep = keep
        self._numbers = {one: number for number, one in enumerate(mutants)}
        self._items: dict[str, pytest.Item] = {}
        self._failure: str | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        for path in {mutant.path for mutant in self._numbers}:
            importlib.import_module(path.removesuffix(".py").replace("/", "."))
        found = in_fork(self._rehearse, 3_600)
        by_site = {int(site): runs for site, runs in found["by_site"].items()}
        rehearsal = Rehearsal(by_site, found["seconds"], frozenset(found["failed"]))
        total = sum(rehearsal.seconds.values())
        tell(f"rehearsal: {len(rehearsal.seconds)} runs, {total:.0f} s")
        for nodeid in sorted(rehearsal.failed):
            tell(f"left out, for it fails without a change: {nodeid}")
        for mutant in self._mutants:
            self._keep(self._judge(mutant, rehearsal))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failure is None:
            self._failure = f"{report.nodeid}: {str(report.longrepr).splitlines()[-1]}"

    def _rehearse(self, _: Callable[[str], None]) -> object:
        for path in {mutant.path for mutant in self._numbers}:
            tree = instrumented_tree(self._root, path, self._numbers)
            replace_code(self._root / path, tree)
        seconds, failed = {}, []
        for run in (*self._items, *(f"life {seed}" for seed in self._seeds())):
            reached.run = run
            started = time.perf_counter()
            if self._fails([run]):
                failed.append(run)
            seconds[run] = time.perf_counter() - started
        return {"by_site": reached.by_site, "seconds": seconds, "failed": failed}

    def _seeds(self) -> Sequence[int]:
        is_of_engine = any(mutant.path.startswith("engine/") for mutant in self._mutants)
        return range(1, self._effort.lives + 1) if is_of_engine else ()

    def _judge(self, mutant: Mutant, rehearsal: Rehearsal) -> Verdict:
        started = time.perf_counter()
        runs = runs_for(mutant, self._numbers[mutant], rehearsal, self._effort.schedules)

        def trial(answer: Callable[[str], None]) -> object:
            replace_code(self._root / mutant.path, mutated_tree(self._root, mutant))
            return self._fails(runs, on_hang=answer)

        is_judged = True
        try:
            killed_by = in_fork(trial, self._effort.seconds)
        except (TimeoutError, BrokenError) as error:
            killed_by, is_judged = repr(error), False
        seconds = time.perf_counter() - started
        return Verdict(mutant, killed_by, len(runs), seconds, is_judged)

    def _fails(
        self, runs: Sequence[str], on_hang: Callable[[str], None] | None = None
    ) -> str | None:
        """Return what failed first, if anything did; `on_hang` is called for what does not end."""
        self._failure = None
        for run, following in zip_longest(runs, runs[1:], fillvalue=""):
            watchdog = threading.Timer(
                LONGEST_TEST_S + GRACE_S, on_hang or tell, [f"{run}: does not end"]
            )
            watchdog.daemon = True
            watchdog.start()
            failure = self._failure_of(run, following)
            watchdog.cancel()
            if failure is not None:
                return failure
        return None

    def _failure_of(self, run: str, following: str) -> str | None:
        if run.startswith("life "):
            error = failure_of(int(run.removeprefix("life ")))
            return None if error is None else f"{run}: {error!r}"
        if run.startswith("schedule "):
            return _failure_of_schedule(run)
        item, following_item = self._items[run], self._items.get(following)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following_item)
        return self._failure


def _failure_of_schedule(run: str) -> str | None:
    with engine_locks():
        error = play(Variant(int(run.removeprefix("schedule ")))).error
    return None if error is None else f"{run}: {error!r}"


def runs_for(mutant: Mutant, number: int, rehearsal: Rehearsal, schedules: int) -> Sequence[str]:
    """Return what may notice a mutant, the likeliest and quickest first."""
    found = {
        run: threaded
        for run, threaded in rehearsal.by_site.get(number, {}).items()
        if run not in rehearsal.failed
    }
    quickest = sorted(found, key=lambda run: rehearsal.seconds[run])
    lives = [run for run in quickest if run.startswith("life ")]
    tests = [run for run in quickest if not run.startswith("life ")]
    turns = [f"schedule {seed}" for seed in range(1, schedules + 1)]
    if not mutant.path.startswith("engine/log/"):
        turns = []
    if mutant.kind is Kind.UNLOCKED:
        threaded = [run for run in tests if found[run]]
        others = [run for run in tests if not found[run]]
        guards = [run for run in tests if run.startswith(GUARD_TESTS)]
        return [*dict.fromkeys([*guards, *others[:UNTHREADED_TESTS], *threaded]), *turns]
    crashes = [run for run in tests if run.startswith("tests/crash/")]
    others = [run for run in tests if not run.startswith("tests/crash/")]
    return [*crashes[:100], *lives[:20], *crashes[100:], *others, *lives[20:], *turns]


def in_fork(work: Callable[[Callable[[str], None]], object], seconds: float) -> Any:
    """Return what `work` returns in a fork of this process, as JSON carries it.

    Or what it gives to the function that it is called with, which ends the fork. Raises
    TimeoutError, and BrokenError if it fails or the process dies.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    deadline = time.monotonic() + seconds
    answer = bytearray()
    try:
        while select.select([reading], [], [], max(deadline - time.monotonic(), 0))[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                break
            answer += part
        else:
            raise TimeoutError
    finally:
        os.close(reading)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    told = json.loads(answer or b'{"broken": "the process died"}')
    if "broken" in told:
        raise BrokenError(told["broken"])
    return told["answer"]


def _answer(work: Callable[[Callable[[str], None]], object], writing: int) -> None:
    """Do the work, write what came of it, and end this process."""

    def end(told: Mapping[str, object]) -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(told).encode())
        os._exit(0)

    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    try:
        told = {"answer": work(lambda answer: end({"answer": answer}))}
    except BaseException as error:  # noqa: BLE001 - whatever it was, it is the answer
        told = {"broken": repr(error)}
    end(told)


def judge_all(
    root: Path,
    build: Path,
    mutants: Sequence[Mutant],
    effort: Effort,
    keep: Callable[[Verdict], None],
) -> None:
    """Judge mutants one after another; raises BrokenError if pytest could not run."""
    folders = effort.tests or [*GUARD_TESTS, *(f"tests/{one}" for one in _folders(mutants))]
    arguments = ("-s", "-q", "-p", "no:cacheprovider", f"--timeout={LONGEST_TEST_S}")
    trials = Trials(root, mutants, effort, keep)
    ended = pytest.main([*arguments, f"--basetemp={build / 'tmp'}", *folders], plugins=[trials])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise BrokenError(f"pytest ended with {ended!r}")  # no mutant was looked at


def _folders(mutants: Sequence[Mutant]) -> Iterator[str]:
    for source, folders in zip(SOURCES, (ENGINE_TESTS, JOB_TESTS, SERVICE_TESTS), strict=True):
        if any(mutant.path.startswith(f"{source}/") for mutant in mutants):
            yield from folders
