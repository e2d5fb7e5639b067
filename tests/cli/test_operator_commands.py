"""What an operator does from a shell: groups, topics, logs; nothing is lost unasked."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from app.client.connection import Connection, Request, json_request, topic_path
from app.client.failures import Refused
from demo.children import Server
from tests.cli.conftest import Run, objects


@pytest.fixture
def connection(service: Server) -> Iterator[Connection]:
    with Connection(service.url) as connection:
        yield connection


def fill(run: Run, topic: str, records: int, *options: str) -> None:
    assert run("create", topic, *options).exit_code == 0
    lines = b"".join(b'{"key":"k%d","value":%d}\n' % (n % 5, n) for n in range(records))
    assert run("append", topic, stdin=lines).exit_code == 0


def store(connection: Connection, group: str, topic: str, offset: int, partition: int = 0) -> None:
    path = f"/v1/groups/{group}/offsets/{topic}/{partition}"
    connection.send(json_request("PUT", path, {"offset": offset}))


def stored(connection: Connection, group: str, topic: str, partition: int = 0) -> int | None:
    try:
        path = f"/v1/groups/{group}/offsets/{topic}/{partition}"
        return int(connection.json(Request("GET", path))["offset"])
    except Refused:
        return None


def marks(connection: Connection, topic: str) -> dict[str, Any]:
    return connection.json(Request("GET", topic_path(topic, 0, "offsets")))


def refused(result: Result, said: str, code: int = 3) -> None:
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


def test_groups_are_listed_with_their_lag(run: Run, connection: Connection) -> None:
    """In records and in time; programs get one object a partition."""
    assert "no group has stored an offset yet" in run("groups", "list").stderr
    fill(run, "behind", 10)
    store(connection, "slow", "behind", 4)
    assert run("groups", "list").stdout.split() == ["group", "slow"]
    assert objects(run("groups", "list", "--json").stdout) == [{"group": "slow"}]
    shown = run("groups", "lag", "slow").stdout
    assert "behind          0       4   10    6" in shown
    assert "slow: 6 records behind" in shown
    (lag,) = objects(run("groups", "lag", "slow", "--json").stdout)
    assert (lag["lag"], lag["missed"]) == (6, 0)
    assert run("groups", "lag", "absent").exit_code == 1


def test_workers_are_shown_with_what_they_hold(run: Run, connection: Connection) -> None:
    """What is to move is marked."""
    assert "g has no workers" in run("groups", "workers", "g").stderr
    fill(run, "held", 1, "-p", "2")
    for name in ("a", "b"):
        body = {"worker": name, "topics": ["held"]}
        connection.send(json_request("POST", "/v1/groups/g/leases", body))
    lines = run("groups", "workers", "g").stdout.splitlines()
    assert lines[1].split() == ["a", "2", "0", "held-0", "held-1", "(to", "move)"]
    assert lines[2].split() == ["b", "0", "1"]
    assert [one["worker"] for one in objects(run("groups", "workers", "g", "--json").stdout)] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(("to", "offset"), [("earliest", 2), ("latest", 10), ("7", 7), ("99", 10)])
def test_a_group_goes_on_where_it_is_set(
    run: Run, connection: Connection, to: str, offset: int
) -> None:
    """A dry run only says so; an offset beyond the end is the end."""
    topic = f"set-{to}"
    fill(run, topic, 10)
    connection.send(
        json_request("POST", topic_path(topic, 0, "delete-records"), {"before_offset": 2})
    )
    store(connection, topic, topic, 5)
    dry = run("groups", "reset", topic, topic, "--to", to, "--dry-run")
    assert dry.stdout == f"{topic}-0 would go on at {offset} (was 5)\n"
    assert stored(connection, topic, topic) == 5
    assert "goes on" in run("groups", "reset", topic, topic, "--to", to).stdout
    assert stored(connection, topic, topic) == offset


def test_a_group_is_set_to_a_time(run: Run, connection: Connection) -> None:
    """The first record at or after it; the end, if there is none."""
    run("create", "timed", "-c", "retention.ms=-1", "-p", "1")
    lines = b"".join(b'{"value":%d,"timestamp":%d}\n' % (n, 1_000 * n) for n in range(10))
    run("append", "timed", stdin=lines)
    run("groups", "reset", "clock", "timed", "--to", "ts:3500")
    assert stored(connection, "clock", "timed") == 4
    (change,) = objects(
        run("groups", "reset", "clock", "timed", "--to", "ts:99999", "--json").stdout
    )
    assert change == {
        "topic": "timed",
        "partition": 0,
        "before": 4,
        "offset": 10,
        "dry_run": False,
    }


def test_a_group_with_workers_is_not_set_unasked(run: Run, connection: Connection) -> None:
    """They would go on where they are."""
    fill(run, "busy", 10)
    body = {"worker": "w-1", "topics": ["busy"]}
    connection.send(json_request("POST", "/v1/groups/crew/leases", body))
    refused(run("groups", "reset", "crew", "busy", "--to", "3"), "would go on where they are: w-1")
    assert stored(connection, "crew", "busy") is None
    assert run("groups", "reset", "crew", "busy", "--to", "3", "--force").exit_code == 0
    assert stored(connection, "crew", "busy") == 3
    assert run("groups", "reset", "crew", "busy", "--to", "4", "-p", "0", "--force").exit_code == 0
    assert stored(connection, "crew", "busy") == 4
    refused(run("groups", "reset", "crew", "busy", "--to", "3", "-p", "5"), "no partition 5")
    assert run("groups", "reset", "crew", "busy", "--to", "now").exit_code == 2


def test_the_offsets_of_a_group_are_deleted(run: Run, connection: Connection) -> None:
    """All, or those of one topic."""
    for topic in ("one", "two"):
        fill(run, topic, 1)
        store(connection, "old", topic, 1)
    refused(run("groups", "delete", "old"), "2 offsets of old will be deleted: add --yes")
    assert run("groups", "delete", "old", "--topic", "one", "--yes").exit_code == 0
    assert (stored(connection, "old", "one"), stored(connection, "old", "two")) == (None, 1)
    assert run("groups", "delete", "old", "--yes").stdout == "1 offsets of old deleted\n"


def test_a_topic_is_deleted_if_that_is_meant(run: Run) -> None:
    """A script says so; the sentence says what is lost."""
    fill(run, "gone", 12)
    refused(run("delete", "gone"), "gone and its 12 records will be deleted for good: add --yes")
    refused(run("delete", "gone", "--json"), "add --yes")
    assert run("topics", "gone").exit_code == 0
    assert run("delete", "gone", "--yes").stdout == "gone deleted\n"
    assert run("topics", "gone").exit_code == 1


@pytest.mark.parametrize(("typed", "code"), [("typed", 0), ("typo", 3), ("", 3)])
def test_a_person_types_the_name(run: Run, service: Server, typed: str, code: int) -> None:
    """Anything else changes nothing."""
    if run("topics", "typed").exit_code != 0:
        fill(run, "typed", 1)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{typed}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", "delete", "typed"],
            stdin=theirs,
            capture_output=True,
            text=True,
            env={**os.environ, "TIDELOG_SERVER": service.url},
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, "Type typed to go on:" in done.stderr) == (code, True), done.stderr
    assert (run("topics", "typed").exit_code == 0) is bool(code)


def test_a_configuration_is_shown_and_changed(run: Run) -> None:
    """What changes is shown first; a dry run shows it only."""
    run("create", "set", "-c", "retention.ms=1000000", "-c", "cleanup.policy=compact")
    changes = ("retention.ms=-1", "--unset", "cleanup.policy", "--partitions", "3")
    dry = run("config", "set", *changes, "--dry-run").stdout
    assert dry.splitlines() == [
        "retention.ms: 1000000 → -1",
        "cleanup.policy: compact → default",
        "partitions: 1 → 3",
    ]
    before = {one["key"]: one for one in objects(run("config", "set", "--json").stdout)}
    assert (before["retention.ms"]["value"], before["retention.ms"]["source"]) == (
        "1000000",
        "topic",
    )
    assert run("config", "set", *changes).stdout == dry
    after = {one["key"]: one for one in objects(run("config", "set", "--json").stdout)}
    assert (after["retention.ms"]["value"], after["cleanup.policy"]["source"]) == ("-1", "default")
    assert "retention.ms" in run("config", "set").stdout
    assert "3 partition(s)" in run("topics", "set").stdout
    wrong = run("config", "set", "retention.sm=1")
    assert (wrong.exit_code, "retention.ms" in wrong.stderr) == (1, True)


def test_a_topic_is_compacted(run: Run, connection: Connection) -> None:
    """All partitions, or one; a dry run says what it would rewrite."""
    run("create", "users", "-c", "cleanup.policy=compact", "-p", "2")
    fill_more = b"".join(b'{"key":"k%d","value":%d}\n' % (n % 2, n) for n in range(40))
    run("append", "users", "-p", "0", stdin=fill_more)
    connection.send(Request("POST", topic_path("users", 0, "roll")))
    dry = run("compact", "users", "--dry-run").stdout.splitlines()
    assert dry[0].startswith("users-0: ")
    assert dry[1] == "users-1: 0 bytes from offset 0 on"
    assert "users-0: 2 of 40 records kept" in run("compact", "users", "-p", "0").stdout
    (report,) = objects(run("compact", "users", "-p", "0", "--json").stdout)
    assert report["partition"] == 0
    fill(run, "plain", 1)
    assert run("compact", "plain").exit_code == 1


def test_retention_runs_when_asked(run: Run, connection: Connection) -> None:
    """A dry run removes nothing."""
    run("create", "short", "-c", "retention.bytes=1")
    run("append", "short", stdin=b'{"value":1}\n')
    connection.send(Request("POST", topic_path("short", 0, "roll")))
    run("append", "short", stdin=b'{"value":2}\n')
    assert "short-0: 1 segments," in run("retention", "short", "--dry-run").stdout
    assert marks(connection, "short")["log_start_offset"] == 0
    (report,) = objects(run("retention", "short", "--json").stdout)
    assert len(report["removed"]) == 1  # type: ignore[arg-type]  # it is a list
    assert marks(connection, "short")["log_start_offset"] == 1


def test_the_ends_of_a_log_are_cut_if_that_is_meant(run: Run, connection: Connection) -> None:
    """Each says first what is lost."""
    run("create", "cut")
    for n in range(10):
        run("append", "cut", stdin=b'{"value":%d}\n' % n)
    assert run("truncate", "cut", "-p", "0", "--to", "7", "--dry-run").stdout == (
        "3 offsets of cut-0 from offset 7 on would be deleted for good\n"
    )
    refused(run("truncate", "cut", "-p", "0", "--to", "7"), "3 offsets of cut-0 from 7 on will be")
    assert marks(connection, "cut")["log_end_offset"] == 10
    assert run("truncate", "cut", "-p", "0", "--to", "7", "-y").stdout == "cut-0 ends at 7 now\n"
    assert run("delete-records", "cut", "-p", "0", "--before", "2", "--dry-run").stdout == (
        "2 offsets of cut-0 below 2 would be deleted for good\n"
    )
    refused(run("delete-records", "cut", "-p", "0", "--before", "2"), "2 offsets of cut-0 below 2")
    assert marks(connection, "cut")["log_start_offset"] == 0
    done = run("delete-records", "cut", "-p", "0", "--before", "2", "--yes")
    assert done.stdout == "cut-0 begins at 2 now\n"
    assert run("delete-records", "cut", "-p", "0", "--before", "99", "--yes").exit_code == 1


def test_producers_are_listed(run: Run) -> None:
    """Those of all partitions, with their sequences."""
    fill(run, "made", 4, "-p", "2")
    found = objects(run("producers", "made", "--json").stdout)
    assert {one["partition"] for one in found} <= {0, 1}
    assert found
    table = run("producers", "made").stdout.splitlines()
    assert table[0].split()[:3] == ["partition", "producer", "id"]
    assert len(table) == 1 + len(found)


def test_commands_and_options_are_completed() -> None:
    """In the shells that typer knows; modules are loaded as they are named."""
    for words, number, expected in (
        ("tidelog gro", 1, "groups"),
        ("tidelog groups re", 2, "reset"),
        ("tidelog work --para", 2, "--parallel"),
    ):
        done = subprocess.run(
            [Path(sys.executable).with_name("tidelog")],
            env={
                **os.environ,
                "_TIDELOG_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(number),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert expected in done.stdout.split()
