"""`tidelog restore` and `tidelog archive`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from app.client.access import with_access
from app.client.commands.session import JsonOption, ServerOption, session, terminal_session
from app.client.connection import DEFAULT_SERVER

SourceArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE",
        help="The archive: s3://bucket/folder, gs://…, az://… or file:///folder; or the folder of "
        "a plain copy. With --as the service knows it.",
        show_default=False,
    ),
]
UrlArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="URL", help="s3://bucket/folder, gs://…, az://… or file:///folder."),
]
TopicsOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic. Repeat the option for more.")
]
UntilOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="As it was archived then, such as 2026-11-28T09:30:00Z."
    ),
]

archive = typer.Typer(add_completion=False, no_args_is_help=True, help="Look after an archive.")


@with_access
def restore(
    *,
    source: SourceArgument = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The new data directory; it must be empty.")
    ] = None,
    topics: TopicsOption = None,
    until: UntilOption = None,
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Read and verify everything, write nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what there is to restore.")
    ] = False,
    new_name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Into a running service, as a new topic of this name."
        ),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Make a data directory from an archive, or from a copy of a data directory.

    tidelog restore s3://backups/log --data-dir data
    tidelog restore s3://backups/log --data-dir old --topic clicks --until 2026-11-28T09:30Z
    tidelog restore /snapshots/monday/data --data-dir data

    An interrupted restore goes on when the same command is run again; until
    its end the directory cannot be served. The exit code is 1 if something is
    damaged; what comes before the damage is restored.

    With --as a running service brings back one topic of its own archive, which
    may be deleted, beside those that it has:

    tidelog restore --topic clicks --until 2026-11-24T09:00Z --as clicks-tuesday
    """
    from app.client.archive import (  # noqa: PLC0415 - it loads the engine
        Wanted,
        restore_copy_of,
        restore_directory,
        restore_topic,
        show_selection,
        verify_archive,
    )
    from app.client.failures import Failure  # noqa: PLC0415 - beside it

    wanted = Wanted(tuple(topics or ()), until)
    if new_name is not None:
        with session(server, as_json=as_json) as (connection, terminal):
            if source or data_dir or dry_run or verify_only or len(wanted.topics) != 1:
                raise Failure("--as takes one --topic, --until and --server, and nothing else", 2)
            restore_topic(connection, terminal, new_name, wanted)
        return
    with terminal_session(as_json=as_json) as terminal:
        if source is None:
            raise Failure("say what to restore from: the URL of an archive, or a folder", 2)
        is_copy = "://" not in source
        looks_only = dry_run or verify_only
        if is_copy and (data_dir is not None or looks_only):
            target = data_dir or Path()
            restore_copy_of(terminal, Path(source), target, wanted, looks_only=looks_only)
        elif dry_run:
            show_selection(terminal, source, wanted)
        elif verify_only:
            verify_archive(terminal, source, wanted)
        elif data_dir is None:
            raise Failure("say where to restore to: --data-dir DIR", 2)
        else:
            restore_directory(terminal, source, data_dir, wanted)


@archive.command()
def status(*, url: UrlArgument, as_json: JsonOption = False) -> None:
    """Show what the archive has of each partition.

    tidelog archive status s3://backups/log
    """
    from app.client.archive import show_status  # noqa: PLC0415 - it loads the engine

    with terminal_session(as_json=as_json) as terminal:
        show_status(terminal, url)


@archive.command()
def verify(
    *,
    url: UrlArgument,
    topics: TopicsOption = None,
    until: UntilOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read every object that a restore would read, and compare the checksums.

    tidelog archive verify s3://backups/log

    It downloads the whole archive. The exit code is 1 if something is damaged.
    """
    from app.client.archive import Wanted, verify_archive  # noqa: PLC0415 - it loads the engine

    with terminal_session(as_json=as_json) as terminal:
        verify_archive(terminal, url, Wanted(tuple(topics or ()), until))


@archive.command()
def prune(
    *,
    url: UrlArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be deleted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete what interrupted uploads left in the bucket.

    tidelog archive prune --dry-run s3://backups/log

    Only objects of earlier processes that no manifest names. The service
    deletes by itself what retention has removed.
    """
    from app.client.archive import prune_archive  # noqa: PLC0415 - it loads the engine

    with terminal_session(as_json=as_json) as terminal:
        prune_archive(terminal, url, dry_run=dry_run)
