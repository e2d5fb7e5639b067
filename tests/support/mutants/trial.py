"""One mutant against the tests: a copy of the checkout, the change, and who notices it first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.mutants.sites import Mutant, mutated

LEFT_OUT: Final = shutil.ignore_patterns(
    ".*_cache", ".git", ".hypothesis", ".venv", "__pycache__", "build", "data", "dist"
)

ENGINE_TESTS: Final = ("crash", "unit/engine", "property", "conformance", "corruption", "golden")
JOB_TESTS: Final = ("unit/pyspark_tidelog", "spark")


@dataclass(frozen=True)
class Effort:
    """How long a mutant is looked at before it counts as a survivor."""

    lives: int
    schedules: int
    seconds: float
    """At most, for one command; one that takes longer has hung, and the mutant is killed."""


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed_by: str | None
    """What noticed it; None for a survivor."""


class Tree:
    """A copy of a checkout in which one file at a time is changed."""

    def __init__(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=LEFT_OUT)
        self._source = source
        self._path = target

    def judge(self, mutant: Mutant, effort: Effort) -> Verdict:
        """Run the tests, the simulator and the interleavings until one of them fails."""
        path = self._path / mutant.path
        path.write_text(mutated(self._source, mutant))
        try:
            for name, command in commands(mutant, effort, self._path):
                if not self._passes(command, effort.seconds):
                    return Verdict(mutant, name)
            return Verdict(mutant, None)
        finally:
            shutil.copyfile(self._source / mutant.path, path)

    def _passes(self, command: Sequence[str], seconds: float) -> bool:
        environment = {**os.environ, "PYTHONPATH": str(self._path)}
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=self._path,
                env=environment,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def commands(mutant: Mutant, effort: Effort, root: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what is run, the quickest to notice such a change first."""
    is_of_engine = mutant.path.startswith("engine/")
    room = "/".join(("unit", *Path(mutant.path).parent.parts))
    folders = dict.fromkeys(("crash", room, *ENGINE_TESTS) if is_of_engine else (room, *JOB_TESTS))
    for number, folder in enumerate(folders):
        if (root / "tests" / folder).is_dir():
            pytest = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120")
            yield f"tests/{folder}", (*pytest, f"tests/{folder}")
        if number == 1 and is_of_engine:
            for tool, runs in (("simulation", effort.lives), ("interleavings", effort.schedules)):
                yield tool, ("-m", f"tests.support.{tool}", "--seed", "1", "--runs", str(runs))
