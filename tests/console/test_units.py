"""The console's own unit tests, in Node, and its types."""

import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "console"


@pytest.mark.needs("console", "npm")
def test_units_of_the_console_pass() -> None:
    """Formatting, filters, events, metrics and what is typed, as Vitest runs them."""
    command = ["npm", "run", "--silent", "test"]
    ran = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
