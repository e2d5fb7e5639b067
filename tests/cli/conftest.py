"""A real service for the commands to talk to, and a way to run them in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from demo.children import Server, serve_arguments

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of its own for each module of tests, on a free port."""
    folder = tmp_path_factory.mktemp("service")
    with Server(serve_arguments(folder / "data"), folder / "output.txt") as server:
        yield server


@pytest.fixture(scope="module")
def data_directory(service: Server) -> Path:
    """Where that service keeps its logs."""
    return service.log.with_name("data")


@pytest.fixture
def run(service: Server) -> Run:
    """Run a command against the service, its standard input given as bytes."""

    def invoke(*arguments: str, stdin: bytes = b"") -> Result:
        environment = {"TIDELOG_SERVER": service.url, "COLUMNS": "200"}
        with standard_input(stdin):
            return CliRunner(env=environment).invoke(app, arguments, input=stdin)

    return invoke


@contextmanager
def standard_input(content: bytes) -> Iterator[None]:
    """Let file descriptor 0 be a file with this content; CliRunner replaces `sys.stdin` only."""
    with TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def objects(text: str) -> list[dict[str, object]]:
    """Read the lines of JSON that a command printed."""
    return [msgspec.json.decode(line) for line in text.splitlines()]
