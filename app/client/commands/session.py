"""Shared by all commands: options, and exit codes of failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from app.client.access import given_access
from app.client.failures import Failure
from app.client.terminal import Terminal

if TYPE_CHECKING:
    from app.client.connection import Connection

EXIT_REFUSED: Final = 3  # repeating the command does not help: something has to be changed first
EXIT_STOPPED: Final = 130  # a shell's exit code for Ctrl-C

ServerOption: TypeAlias = Annotated[
    str,
    typer.Option("--server", envvar="TIDELOG_SERVER", help="Address of the service."),
]
JsonOption: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print JSON for programs: one object per line, no progress."),
]
YesOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask, although it cannot be undone.")
]
TopicArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")]


@contextmanager
def terminal_session(*, as_json: bool) -> Iterator[Terminal]:
    """Yield the terminal; a failure inside is printed as one sentence and ends the program."""
    terminal = Terminal(as_json=as_json)
    try:
        yield terminal
    except Failure as failure:
        terminal.failure(failure)
        raise typer.Exit(failure.exit_code) from failure
    except KeyboardInterrupt as stop:
        raise typer.Exit(EXIT_STOPPED) from stop


def require_spark_source(*, as_json: bool) -> None:
    """End the program with the command to run, unless the Spark source is installed."""
    with terminal_session(as_json=as_json):
        if find_spec("pyspark_tidelog") is None:
            raise Failure(
                "this command needs the Spark source: run pip install pyspark-tidelog", EXIT_REFUSED
            )


@contextmanager
def session(server: str, *, as_json: bool) -> Iterator[tuple[Connection, Terminal]]:
    """The same with a connection to the service, closed at the end."""
    from app.client.connection import Connection  # noqa: PLC0415 - it loads httpx

    with (
        terminal_session(as_json=as_json) as terminal,
        Connection(server, access=given_access(), notice=terminal.notice) as connection,
    ):
        yield connection, terminal


def key_value(text: str) -> tuple[str, str]:
    """Read an option of the form KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as retention.ms=-1")
    return key, value
