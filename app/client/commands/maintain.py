"""What an operator does to topics: delete, configure, compact, retain, truncate, look at producers.

What cannot be undone says first what will be lost, and asks: a person types the topic's name, a
script adds --yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import httpx
import typer

from app.client.access import with_access
from app.client.commands.session import (
    JsonOption,
    ServerOption,
    TopicArgument,
    YesOption,
    key_value,
    session,
)
from app.client.connection import (
    DEFAULT_SERVER,
    Connection,
    JsonObject,
    Request,
    decode_object,
    entries_of,
    json_request,
    partitions_of,
    topic_path,
)
from app.client.terminal import Terminal

PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Partition; default: all.")
]
OnePartitionOption = Annotated[int, typer.Option("--partition", "-p", min=0, help="Its number.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@with_access
def delete(
    *,
    topic: TopicArgument,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic with all its records.

    tidelog delete flights
    tidelog delete flights --yes
    """
    with session(server, as_json=as_json) as (connection, terminal):
        described = connection.send(Request("GET", topic_path(topic)))
        records = sum(_count(one) for one in _marks(connection, topic))
        terminal.ensure_meant(
            f"{topic} and its {records:,} records will be deleted for good", topic, yes=yes
        )
        # Not one that was created under the name since it was looked at.
        connection.send(Request("DELETE", topic_path(topic), headers=unchanged(described)))
        terminal.result({"topic": topic, "records": records}, f"{topic} deleted")


@with_access
def config(
    *,
    topic: TopicArgument,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE…", help="Values to set.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Key that gets its default again; repeat.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Grow to so many partitions.")
    ] = None,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Show or change the configuration of a topic.

    tidelog config flights
    tidelog config flights retention.ms=86400000 --unset cleanup.policy --dry-run
    """
    wanted: dict[str, str | None] = dict(map(key_value, changes or []))
    wanted.update(dict.fromkeys(unset or []))
    with session(server, as_json=as_json) as (connection, terminal):
        described = connection.send(Request("GET", topic_path(topic)))
        before = decode_object(described)
        if not wanted and partitions is None:
            for key, value in sorted(before["config"].items()):
                shown = {"key": key, **value}
                if as_json:
                    terminal.json(shown)
            if not as_json:
                terminal.table(
                    ("key", "value", "source"),
                    (
                        (key, str(value["value"]), value["source"])
                        for key, value in sorted(before["config"].items())
                    ),
                )
            return
        for key, value in wanted.items():
            was = before["config"].get(key, {}).get("value", "-")
            terminal.result(
                {"key": key, "before": was, "after": value, "dry_run": dry_run},
                f"{key}: {was} → {'default' if value is None else value}",
            )
        if partitions is not None:
            terminal.result(
                {"before": before["partitions"], "after": partitions, "dry_run": dry_run},
                f"partitions: {before['partitions']} → {partitions}",
            )
        if dry_run:
            return
        patch: dict[str, object] = {"config": wanted} if wanted else {}
        if partitions is not None:
            patch["partitions"] = partitions
        connection.send(json_request("PATCH", topic_path(topic), patch, unchanged(described)))


@with_access
def compact(
    *,
    topic: TopicArgument,
    partition: PartitionOption = None,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Compact a topic now: of each key the last record stays.

    tidelog compact users --dry-run
    """
    with session(server, as_json=as_json) as (connection, terminal):
        for number in _numbers(connection, topic, partition):
            place = f"{topic}-{number}"
            if dry_run:
                found = connection.json(Request("GET", topic_path(topic, number, "compaction")))
                dirty = f"{found['cleanable_bytes']:,}"
                sentence = f"{place}: {dirty} bytes from offset {found['first_dirty_offset']:,} on"
            else:
                found = connection.json(Request("POST", topic_path(topic, number, "compact")))
                sentence = (
                    f"{place}: {found['records_kept']:,} of {found['records_read']:,} records "
                    f"kept, {found['bytes_before']:,} bytes became {found['bytes_after']:,}"
                )
            terminal.result({"topic": topic, "partition": number, **found}, sentence)


@with_access
def retention(
    *,
    topic: TopicArgument,
    partition: PartitionOption = None,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Remove what the topic's retention does not keep any more, now.

    tidelog retention flights --dry-run
    """
    with session(server, as_json=as_json) as (connection, terminal):
        for number in _numbers(connection, topic, partition):
            params = {"dry_run": "true" if dry_run else "false"}
            path = topic_path(topic, number, "retention")
            found = connection.json(Request("POST", path, params))
            size = sum(one["size_bytes"] for one in found["removed"])
            done = "would be removed" if dry_run else "removed"
            sentence = f"{topic}-{number}: {len(found['removed'])} segments, {size:,} bytes {done}"
            terminal.result({"topic": topic, "partition": number, **found}, sentence)


@with_access
def truncate(
    *,
    topic: TopicArgument,
    partition: OnePartitionOption,
    to: Annotated[int, typer.Option("--to", min=0, help="The log ends before this offset.")],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Delete the newest records of a partition, from an offset on.

    tidelog truncate flights -p 0 --to 1000 --dry-run
    """
    with session(server, as_json=as_json) as (connection, terminal):
        path = topic_path(topic, partition, "offsets")
        response = connection.send(Request("GET", path))
        marks = decode_object(response)
        lost = max(0, marks["log_end_offset"] - max(to, marks["log_start_offset"]))
        place = f"{topic}-{partition}"
        if dry_run:
            _told(terminal, place, lost, f"from offset {to:,} on")
            return
        terminal.ensure_meant(
            f"{lost:,} offsets of {place} from {to:,} on will be deleted for good", topic, yes=yes
        )
        # Not what was appended since it was looked at.
        request = json_request(
            "POST",
            topic_path(topic, partition, "truncate"),
            {"to_offset": to},
            unchanged(response),
        )
        done = connection.json(request)
        terminal.result(
            {"topic": topic, "partition": partition, **done},
            f"{place} ends at {done['log_end_offset']:,} now",
        )


@with_access
def delete_records(
    *,
    topic: TopicArgument,
    partition: OnePartitionOption,
    before: Annotated[int, typer.Option("--before", min=0, help="The log begins at this offset.")],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Delete the oldest records of a partition, below an offset.

    tidelog delete-records flights -p 0 --before 1000
    """
    with session(server, as_json=as_json) as (connection, terminal):
        marks = connection.json(Request("GET", topic_path(topic, partition, "offsets")))
        lost = max(0, before - marks["log_start_offset"])
        place = f"{topic}-{partition}"
        if dry_run:
            _told(terminal, place, lost, f"below {before:,}")
            return
        terminal.ensure_meant(
            f"{lost:,} offsets of {place} below {before:,} will be deleted for good",
            topic,
            yes=yes,
        )
        path = topic_path(topic, partition, "delete-records")
        done = connection.json(json_request("POST", path, {"before_offset": before}))
        terminal.result(
            {"topic": topic, "partition": partition, **done},
            f"{place} begins at {done['log_start_offset']:,} now",
        )


@with_access
def producers(
    *,
    topic: TopicArgument,
    partition: PartitionOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """List the producers that a topic's logs know, and their open transactions.

    tidelog producers flights -p 0
    """
    with session(server, as_json=as_json) as (connection, terminal):
        found = [
            {"partition": number, **one}
            for number in _numbers(connection, topic, partition)
            for one in entries_of(connection, topic_path(topic, number, "producers"), "producers")
        ]
        if as_json:
            for one in found:
                terminal.json(one)
            return
        columns = ("partition", "producer_id", "producer_epoch", "last_sequence")
        terminal.table(
            (*(f">{name.replace('_', ' ')}" for name in columns), ">open transaction from"),
            (
                (
                    *(str(one[name]) for name in columns),
                    _or_dash(one["current_txn_start_offset"]),
                )
                for one in found
            ),
        )


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def unchanged(response: httpx.Response) -> Mapping[str, str]:
    """Return the condition that nothing has changed since a response; none if it has no ETag."""
    etag = response.headers.get("etag")
    return {} if etag is None else {"If-Match": etag}


def _told(terminal: Terminal, place: str, lost: int, which: str) -> None:
    would = {"place": place, "offsets": lost, "dry_run": True}
    terminal.result(would, f"{lost:,} offsets of {place} {which} would be deleted for good")


def _numbers(connection: Connection, topic: str, partition: int | None) -> list[int]:
    return list(range(partitions_of(connection, topic))) if partition is None else [partition]


def _marks(connection: Connection, topic: str) -> list[JsonObject]:
    found = connection.json(Request("GET", topic_path(topic, operation="offsets")))
    partitions: list[JsonObject] = found["partitions"]
    return partitions


def _count(marks: JsonObject) -> int:
    count: int = marks["high_watermark"] - marks["log_start_offset"]
    return count
