"""`tidelog groups`: what groups have read, who works in them, and where they go on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from app.client.access import with_access
from app.client.commands.session import (
    EXIT_REFUSED,
    JsonOption,
    ServerOption,
    TopicArgument,
    YesOption,
    session,
)
from app.client.connection import (
    DEFAULT_SERVER,
    Connection,
    JsonObject,
    Request,
    entries_of,
    group_path,
    json_request,
    topic_path,
)
from app.client.failures import Failure, Refused

groups = typer.Typer(
    name="groups",
    help="List groups, their lag and workers; set where they go on.",
    no_args_is_help=True,
    add_completion=False,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")]

_TARGET = re.compile(r"earliest|latest|[0-9]+|ts:[0-9]+")


@groups.command(name="list")
@with_access
def list_groups(*, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """List the groups that have stored an offset.

    tidelog groups list
    """
    with session(server, as_json=as_json) as (connection, terminal):
        found = list(entries_of(connection, "/v1/groups", "groups"))
        if as_json:
            for group in found:
                terminal.json({"group": group})
        elif found:
            terminal.table(("group",), ((group,) for group in found))
        else:
            terminal.notice("no group has stored an offset yet")


@groups.command()
@with_access
def lag(
    *, group: GroupArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False
) -> None:
    """Show what a group has not read yet, in records and in time.

    tidelog groups lag billing
    """
    with session(server, as_json=as_json) as (connection, terminal):
        found = connection.json(Request("GET", group_path(group, "lag")))
        if as_json:
            for one in found["partitions"]:
                terminal.json(one)
            return
        terminal.table(
            ("topic", ">partition", ">offset", ">end", ">lag", ">age", ">missed"),
            (
                (
                    one["topic"],
                    str(one["partition"]),
                    f"{one['offset']:,}",
                    _number(one["end_offset"]),
                    _number(one["lag"]),
                    "-" if one["lag_ms"] is None else f"{one['lag_ms'] / 1000:,.0f} s",
                    _number(one["missed"]),
                )
                for one in found["partitions"]
            ),
        )
        terminal.result({}, f"{group}: {found['total_lag']:,} records behind")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


@groups.command()
@with_access
def workers(
    *, group: GroupArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False
) -> None:
    """Show the workers of a group, and which partitions each holds.

    tidelog groups workers billing
    """
    with session(server, as_json=as_json) as (connection, terminal):
        found = list(entries_of(connection, group_path(group, "leases"), "workers"))
        if as_json:
            for one in found:
                terminal.json(one)
        elif found:
            terminal.table(
                ("worker", ">partitions", ">waiting", "holds"),
                (
                    (
                        one["worker"],
                        str(len(one["partitions"])),
                        str(one["waiting"]),
                        " ".join(map(_place, one["partitions"])),
                    )
                    for one in found
                ),
            )
        else:
            terminal.notice(f"{group} has no workers with a lease")


def _place(held: JsonObject) -> str:
    return f"{held['topic']}-{held['partition']}{' (to move)' if held['revoking'] else ''}"


@groups.command()
@with_access
def reset(
    *,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, or ts:<ms since the epoch>.")
    ],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition; default: all.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Although workers of the group hold partitions.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Set where a group goes on in a topic.

    tidelog groups reset billing orders --to earliest --dry-run
    tidelog groups reset billing orders --to ts:1788000000000
    """
    if _TARGET.fullmatch(to) is None:
        raise typer.BadParameter("--to is earliest, latest, an offset, or ts:<ms since the epoch>")
    with session(server, as_json=as_json) as (connection, terminal):
        targets = _targets(connection, topic, to)
        if partition is not None:
            if partition not in targets:
                raise Failure(f"{topic} has no partition {partition}", EXIT_REFUSED)
            targets = {partition: targets[partition]}
        working = _holders(connection, group, topic)
        if working and not force and not dry_run:
            raise Failure(
                f"{group} has workers that would go on where they are: {', '.join(working)}; stop "
                "them first, or add --force",
                EXIT_REFUSED,
            )
        before = _stored(connection, group, topic)
        for number, offset in targets.items():
            if not dry_run:
                path = group_path(group, "offsets", topic, number)
                connection.send(json_request("PUT", path, {"offset": offset}))
            change = {
                "topic": topic,
                "partition": number,
                "before": before.get(number),
                "offset": offset,
                "dry_run": dry_run,
            }
            would = "would go on" if dry_run else "goes on"
            was = _number(before.get(number))
            terminal.result(change, f"{topic}-{number} {would} at {offset:,} (was {was})")


def _targets(connection: Connection, topic: str, to: str) -> Mapping[int, int]:
    """Return where each partition is to go on."""
    path = topic_path(topic, operation="offsets")
    marks = {one["partition"]: one for one in connection.json(Request("GET", path))["partitions"]}
    if to.isdigit():
        return {number: min(int(to), one["log_end_offset"]) for number, one in marks.items()}
    if not to.startswith("ts:"):
        mark = "log_start_offset" if to == "earliest" else "high_watermark"
        return {number: one[mark] for number, one in marks.items()}
    found = connection.json(Request("GET", path, {"timestamp": to.removeprefix("ts:")}))
    offsets = {one["partition"]: one["offset"] for one in found["partitions"]}
    # Nothing is as new as that: the group goes on at the end.
    return {
        number: one["high_watermark"] if offsets.get(number) is None else offsets[number]
        for number, one in marks.items()
    }


def _stored(connection: Connection, group: str, topic: str) -> Mapping[int, int]:
    try:
        stored = list(entries_of(connection, group_path(group, "offsets"), "offsets"))
    except Refused:
        return {}  # it has none; if something else is wrong, the change will say so
    return {one["partition"]: one["offset"] for one in stored if one["topic"] == topic}


def _holders(connection: Connection, group: str, topic: str) -> list[str]:
    """Return the workers that hold partitions of a topic."""
    found = entries_of(connection, group_path(group, "leases"), "workers")
    return [
        one["worker"] for one in found if any(held["topic"] == topic for held in one["partitions"])
    ]


@groups.command()
@with_access
def delete(
    *,
    group: GroupArgument,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only its offsets in this topic.")
    ] = None,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Delete the offsets that a group has stored; it begins anew.

    tidelog groups delete billing --topic orders --yes
    """
    with session(server, as_json=as_json) as (connection, terminal):
        stored = [
            one
            for one in entries_of(connection, group_path(group, "offsets"), "offsets")
            if topic in {None, one["topic"]}
        ]
        terminal.ensure_meant(f"{len(stored)} offsets of {group} will be deleted", group, yes=yes)
        for one in stored:
            path = group_path(group, "offsets", one["topic"], one["partition"])
            connection.send(Request("DELETE", path))
        terminal.result(
            {"group": group, "deleted": len(stored)}, f"{len(stored)} offsets of {group} deleted"
        )
