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
    typer.Option("--gone", help="A data directory that is lost for good."),
]
DefaultsOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--topic-defaults",
        envvar="TIDELOG_DEFAULT_TOPIC_CONFIG",
        metavar="JSON",
        help="The service's TIDELOG_DEFAULT_TOPIC_CONFIG.",
    ),
]


def verify(
    *,
    directories: DirectoriesArgument,
    gone: GoneOption = None,
    topic_defaults: DefaultsOption = "{}",
    as_json: JsonOption = False,
) -> None:
    """Check data directories for damage; changes nothing.

    tidelog verify data
    tidelog verify /disk-1/tidelog /disk-2/tidelog

    Batches, offsets, indexes, snapshots, epochs, checkpoints, topics. Stop the
    service first: concurrent writes may look like damage. The exit code is 1
    if there is a problem; a note is not a problem.
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
        bool, typer.Option("--dry-run", help="Only print what would be done.")
    ] = False,
    cut: Annotated[
        bool,
        typer.Option(
            "--cut", help="Truncate each damaged log before the damage; later data is lost."
        ),
    ] = False,
    gone: GoneOption = None,
    topic_defaults: DefaultsOption = "{}",
    as_json: JsonOption = False,
) -> None:
    """Rebuild everything that can be rebuilt from the logs.

    tidelog repair --dry-run data
    tidelog repair data

    Damaged records stay, unless --cut truncates the log before them. The exit
    code is 1 if problems remain that this command cannot repair.
    """
    from app.client.checking import (  # noqa: PLC0415 - it loads the engine
        Subject,
        repair_directories,
    )

    with terminal_session(as_json=as_json) as terminal:
        subject = Subject(tuple(directories), tuple(gone or ()), topic_defaults)
        repair_directories(terminal, subject, dry_run=dry_run, cut=cut)
