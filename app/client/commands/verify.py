"""`tidelog verify` and `tidelog repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from app.client.commands.session import JsonOption, terminal_session

DirectoriesArgument: TypeAlias = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="The data directories, all of them.")
]
GoneOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--gone", help="A data directory that will not come back."),
]
DefaultsOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--topic-defaults",
        envvar="TIDELOG_DEFAULT_TOPIC_CONFIG",
        metavar="JSON",
        help="What the service has as TIDELOG_DEFAULT_TOPIC_CONFIG.",
    ),
]


def verify(
    *,
    directories: DirectoriesArgument,
    gone: GoneOption = None,
    topic_defaults: DefaultsOption = "{}",
    as_json: JsonOption = False,
) -> None:
    """Check everything that data directories promise; write nothing.

    tidelog verify data
    tidelog verify /disk-1/tidelog /disk-2/tidelog

    Batches, offsets, indexes, snapshots, epochs, checkpoints, topics. Stop the
    service first: what is written meanwhile may look wrong. The exit code is 1
    if there is a problem; what is called a note is none.
    """
    from app.client.checking import (  # noqa: PLC0415 - it loads the engine
        Subject,
        check_directories,
    )

    with terminal_session(as_json=as_json) as terminal:
        subject = Subject(tuple(directories), tuple(gone or ()), topic_defaults)
        check_directories(terminal, subject)


def repair(
    *,
    directories: DirectoriesArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="End each damaged log before its damage; data is lost.")
    ] = False,
    gone: GoneOption = None,
    topic_defaults: DefaultsOption = "{}",
    as_json: JsonOption = False,
) -> None:
    """Make anew whatever can be made from the logs, without serving anybody.

    tidelog repair --dry-run data
    tidelog repair data

    Damaged records stay as they are, unless --cut ends the log before them. The
    exit code is 1 if something is left that this cannot put right.
    """
    from app.client.checking import (  # noqa: PLC0415 - it loads the engine
        Subject,
        repair_directories,
    )

    with terminal_session(as_json=as_json) as terminal:
        subject = Subject(tuple(directories), tuple(gone or ()), topic_defaults)
        repair_directories(terminal, subject, dry_run=dry_run, cut=cut)
