"""A branch that no test takes fails the run, on one core or on several."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.branches import PACKAGES

ROOT = Path(__file__).parents[2]

SOURCE = '''"""A room."""


def sign(number: int) -> str:
    """Name the sign."""
    name = "positive"
    if number < 0:
        name = "negative"
    return name
'''

TEST = """from engine.room import sign


def test_it():
    assert [sign(number) for number in {numbers}]
"""


def run(folder: Path, numbers: list[int], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test of a room of its own, which sees the numbers, with branches counted."""
    for package in PACKAGES:
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("")
    (folder / "engine" / "room.py").write_text(SOURCE)
    (folder / "conftest.py").write_text("import engine.room\n")
    (folder / "test_room.py").write_text(TEST.format(numbers=numbers))
    (folder / "pytest.toml").write_text('[pytest]\npythonpath = ["."]\n')
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.branches", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="one process"),
        pytest.param(("-n", "1"), id="a worker", marks=pytest.mark.long),  # as `make test` itself
    ],
)
@pytest.mark.parametrize(
    ("numbers", "code", "is_named"),
    [([-1], pytest.ExitCode.TESTS_FAILED, True), ([-1, 1], pytest.ExitCode.OK, False)],
    ids=["in part", "whole"],
)
def test_a_branch_that_no_test_takes_fails_the_run_and_is_named(
    tmp_path: Path,
    arguments: tuple[str, ...],
    numbers: list[int],
    code: pytest.ExitCode,
    *,
    is_named: bool,
) -> None:
    """Every line of the room runs, and yet the way around its `if` is reported if none took it."""
    found = run(tmp_path, numbers, *arguments)
    assert found.returncode == code, found.stdout + found.stderr
    assert ("engine/room.py: never run: 7->9" in found.stdout) == is_named
