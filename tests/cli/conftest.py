"""A real service for the commands to talk to, and a way to run them in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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
        return CliRunner(env=environment).invoke(app, arguments, input=stdin)

    return invoke


def objects(text: str) -> list[dict[str, object]]:
    """Read the lines of JSON that a command printed."""
    return [msgspec.json.decode(line) for line in text.splitlines()]
