"""`tidelog directories` and `tidelog move`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from app.client.access import with_access
from app.client.commands.session import JsonOption, ServerOption, TopicArgument, session
from app.client.connection import DEFAULT_SERVER, Connection, JsonObject, Request, topic_path
from app.client.failures import Failure
from app.client.terminal import Terminal

_POLL_S = 0.5


class MoveFailed(Failure):
    """The service could not move the partition."""

    code = "move_failed"


@with_access
def directories(*, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """List the data directories of the service with their sizes.

    tidelog directories
    """
    with session(server, as_json=as_json) as (connection, terminal):
        found = connection.json(Request("GET", "/v1/directories"))["directories"]
        if as_json:
            for directory in found:
                terminal.json(directory)
            return
        terminal.table(
            ("directory", "status", ">partitions", ">bytes"),
            (
                (d["path"], d["status"], f"{d['partitions']:,}", f"{d['size_bytes']:,}")
                for d in found
            ),
        )


@with_access
def move(
    *,
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its number.")],
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="As printed by `tidelog directories`.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is done, and show the progress.")
    ] = True,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Move a partition to another data directory of the service.

    tidelog move flights 0 /disk-2/tidelog

    Appends and reads continue. Stopping this command does not stop the move;
    a restarted service starts the move again.
    """
    request = Request(
        "POST",
        topic_path(topic, partition, "move"),
        headers={"Content-Type": "application/json"},
        content=msgspec.json.encode({"directory": directory}),
    )
    with session(server, as_json=as_json) as (connection, terminal):
        report = connection.json(request)
        if wait:
            report = follow(connection, terminal, report)
        sentence = (
            f"{topic}-{partition} is in {report['directory']}"
            if report["state"] == "done"
            else f"{topic}-{partition} will be moved to {report['target']}"
        )
        terminal.result(report, sentence)


def follow(connection: Connection, terminal: Terminal, report: JsonObject) -> JsonObject:
    """Poll until the move is done; return its last report.

    MoveFailed if it failed, or if a restarted service does not know it.
    """
    path = topic_path(report["topic"], report["partition"], "move")
    copied = 0
    with terminal.progress("offsets copied") as meter:
        while report["state"] in {"waiting", "copying"}:
            connection.wait(_POLL_S)
            report = connection.json(Request("GET", path))
            so_far = max(0, report["copied_offset"] - report["first_offset"])
            meter.advance(so_far - copied)
            copied = so_far
    if report["state"] == "failed":
        name = f"{report['topic']}-{report['partition']}"
        raise MoveFailed(f"{name} was not moved: {report['problem']}")
    if report["state"] == "idle":
        raise MoveFailed(
            "the service was restarted: check where the partition is, and move it again"
        )
    return report
