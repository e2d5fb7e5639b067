"""`tidelog verify` and `tidelog repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from app.client.commands.session import JsonOption, terminal_session

DirectoryArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="DIR", help="The data directory.")
]


def verify(*, directory: DirectoryArgument, as_json: JsonOption = False) -> None:
    """Check everything that a data directory promises; write nothing.

    tidelog verify data

    Batches, offsets, indexes, snapshots, epochs, checkpoints, topics. Stop the
    service first: what is written meanwhile may look wrong. The exit code is 1
    if there is a problem; what is called a note is none.
    """
    from app.client.checking import check_directory  # noqa: PLC0415 - it loads the engine

    with terminal_session(as_json=as_json) as terminal:
        check_directory(terminal, directory)


def repair(
    *,
    directory: DirectoryArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="End each damaged log before its damage; data is lost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make anew whatever can be made from the logs, without serving anybody.

    tidelog repair --dry-run data
    tidelog repair data

    Damaged records stay as they are, unless --cut ends the log before them. The
    exit code is 1 if something is left that this cannot put right.
    """
    from app.client.checking import repair_directory  # noqa: PLC0415 - it loads the engine

    with terminal_session(as_json=as_json) as terminal:
        repair_directory(terminal, directory, dry_run=dry_run, cut=cut)
