"""The console's own unit tests, in Node, its types and its form."""

import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "console"


def run_npm(script: str) -> None:
    command = ["npm", "run", "--silent", script]
    ran = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.needs("console", "npm")
def test_units_of_the_console_pass() -> None:
    """Formatting, filters, events, what is typed, and the states of pages, as Vitest runs them."""
    run_npm("test")


@pytest.mark.needs("console", "npm")
def test_the_console_is_formatted_and_lint_finds_nothing() -> None:
    """Prettier, and ESLint with the strict presets of typescript-eslint."""
    run_npm("lint")
