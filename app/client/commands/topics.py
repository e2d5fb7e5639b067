"""`tidelog topics` and `tidelog create`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from app.client.access import with_access
from app.client.commands.session import (
    JsonOption,
    ServerOption,
    TopicArgument,
    key_value,
    session,
)
from app.client.connection import (
    DEFAULT_SERVER,
    Connection,
    JsonObject,
    Request,
    entries_of,
    topic_path,
)
from app.client.terminal import Terminal

_CREATED = 201


@with_access
def topics(
    *,
    topic: Annotated[str | None, typer.Argument(help="Show one topic with its partitions.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """List the topics, or show the offsets of one topic's partitions.

    tidelog topics
    tidelog topics flights
    """
    with session(server, as_json=as_json) as (connection, terminal):
        if topic is None:
            _list(connection, terminal)
        else:
            _show(connection, terminal, topic)


@with_access
def create(
    *,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many.")] = 1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A Kafka topic configuration."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Create a topic; succeeds if it already exists with these settings.

    tidelog create flights --partitions 4 --config retention.ms=-1
    """
    wanted = {"partitions": partitions, "config": dict(map(key_value, config or []))}
    request = Request(
        "PUT",
        topic_path(topic),
        headers={"Content-Type": "application/json"},
        content=msgspec.json.encode(wanted),
    )
    with session(server, as_json=as_json) as (connection, terminal):
        response = connection.send(request)
        done = "created" if response.status_code == _CREATED else "exists already"
        terminal.result(
            msgspec.json.decode(response.content), f"{topic} {done}, {partitions} partition(s)"
        )


def _list(connection: Connection, terminal: Terminal) -> None:
    found = list(all_topics(connection))
    if terminal.as_json:
        for topic in found:
            terminal.json(topic)
    elif found:
        terminal.table(
            ("topic", ">partitions"), ((t["topic"], str(t["partitions"])) for t in found)
        )
    else:
        terminal.notice("no topics yet: create one with `tidelog create TOPIC`")


def all_topics(connection: Connection) -> Iterator[JsonObject]:
    """Yield every topic, page after page."""
    return entries_of(connection, "/v1/topics", "topics")


def _overrides(topic: JsonObject) -> str:
    """Return the configuration that was set for this topic, without defaults."""
    config: JsonObject = topic.get("config") or {}
    chosen = {k: v["value"] for k, v in config.items() if v.get("source") == "topic"}
    return " ".join(f"{key}={value}" for key, value in sorted(chosen.items()))


def _show(connection: Connection, terminal: Terminal, name: str) -> None:
    topic = connection.json(Request("GET", topic_path(name)))
    offsets = connection.json(Request("GET", topic_path(name, operation="offsets")))
    partitions: list[JsonObject] = offsets["partitions"]
    if terminal.as_json:
        terminal.json({**topic, "offsets": partitions})
        return
    records = sum(p["high_watermark"] - p["log_start_offset"] for p in partitions)
    terminal.result({}, f"{name}: {len(partitions)} partition(s), {records:,} records")
    if overrides := _overrides(topic):
        terminal.result({}, overrides)
    marks = ("log_start_offset", "high_watermark", "log_end_offset")
    terminal.table(
        (">partition", *(f">{mark.replace('_', ' ')}" for mark in marks), ">records"),
        (
            (
                str(p["partition"]),
                *(f"{p[mark]:,}" for mark in marks),
                f"{p['high_watermark'] - p['log_start_offset']:,}",
            )
            for p in partitions
        ),
    )
