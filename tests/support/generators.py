"""Generators of clients as `docs/clients/generated.md` shows them: its commands, and what is run.

What a command fetches it fetches by the machine's own package managers, into a folder that git
ignores.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from tests.support.server import Served

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients" / "generated.md"
DOCUMENT = ROOT / "openapi" / "openapi.json"
PROGRAMS = ROOT / "tests" / "interop" / "clients"
GENERATOR = "openapi-generator"

_SECTION = re.compile(r"^(#{2,3}) (.+)$", flags=re.MULTILINE)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def commands_of(title: str) -> str:
    """Return the commands of a section of the page, without those of the sections below it."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"# {title}\n")
    assert found, f"the page has no section {title!r}"
    (commands,) = _COMMANDS.findall(_SECTION.split(rest, maxsplit=1)[0])
    return str(commands)


def generate(directory: Path, *titles: str) -> str:
    """Run the commands of sections where the document lies; return what they print."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(DOCUMENT, directory / "openapi.json")
    return "".join(run(directory, "sh", "-eu", "-c", commands_of(title)) for title in titles)


def fresh(name: str) -> Path:
    """Return an empty folder below `build`, for what a package manager fetches beside the code."""
    directory = ROOT / "build" / "clients" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def run(directory: Path, *command: str | Path) -> str:
    """Run a program in a folder; return what it prints, errors included."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def round_trip(served: Served, directory: Path, *command: str | Path) -> list[str]:
    """Run a client's program; append a record when its long poll waits. Return its lines."""
    lines = []
    with subprocess.Popen(
        [*command, served.url], cwd=directory, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        for line in program.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "polling":
                _append_for_a_waiting_reader(served, program)
    return lines


def _append_for_a_waiting_reader(served: Served, program: subprocess.Popen[str]) -> None:
    with httpx.Client(base_url=served.url) as client:
        while "tidelog_waiting_readers 1.0" not in client.get("/metrics").text:
            assert program.poll() is None, "the program ended instead of waiting"
        records = {"records": [{"value": 3}]}
        client.post("/v1/topics/events/partitions/0/records", json=records).raise_for_status()


@contextmanager
def python_client(directory: Path) -> Iterator[str]:
    """Generate the package `tidelog_client`, importable in the block; yield what was printed."""
    printed = generate(directory, "openapi-python-client")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        yield printed
    for name in [name for name in sys.modules if name.startswith("tidelog_client")]:
        del sys.modules[name]


def client_module(name: str) -> ModuleType:
    """Return a module of that package."""
    return importlib.import_module(f"tidelog_client.{name}")
