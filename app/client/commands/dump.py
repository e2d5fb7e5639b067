"""`tidelog dump`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.client.commands.session import JsonOption, terminal_session
from app.client.failures import Failure
from app.client.terminal import printable


def dump(
    *,
    files: Annotated[list[Path], typer.Argument(help=".log, .index …")],
    max_bytes: Annotated[
        int | None,
        typer.Option(
            min=0, help="Print only the whole batches in the first BYTES bytes of a .log file."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the contents of log files, as `kafka-dump-log --deep-iteration` does.

    tidelog dump data/flights-0/00000000000000000000.log
    tidelog dump data/flights-0/*.index --json

    It only reads, and works with or without a running service. Damage is
    printed in its place, and the exit code is then 1. Missing offsets are
    printed too: they are damage only if the log was never compacted.
    """
    from engine.fs.posix import PosixFileSystem  # noqa: PLC0415 - only `dump` needs it
    from engine.tools.dump import dump_file, render  # noqa: PLC0415 - only `dump` needs it

    fs = PosixFileSystem()
    problems = 0
    with terminal_session(as_json=as_json) as terminal:
        for path in files:
            try:
                for entry in dump_file(fs, path, max_bytes=max_bytes):
                    is_problem = entry.kind == "problem"
                    is_valid = entry.fields.get("isvalid", entry.fields.get("isValid"))
                    problems += is_problem or is_valid is False
                    if as_json:
                        terminal.json({"kind": entry.kind, **entry.fields})
                    else:
                        is_told = is_problem or entry.kind == "gap"
                        (sys.stderr if is_told else sys.stdout).write(
                            printable(render(entry)) + "\n"
                        )
            except BrokenPipeError:
                raise  # the pipe was closed: `tidelog dump … | head` is not a failure
            except OSError as error:
                raise Failure(
                    f"{error.filename or path} cannot be read: {error.strerror or error}"
                ) from error
        if problems:
            raise Failure(f"{problems} problem(s) found in {len(files)} file(s)")
