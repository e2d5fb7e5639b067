"""`tidelog directories` and `tidelog move` against a real service, and against its answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.client.commands.move import MoveFailed, follow
from app.client.connection import Connection
from app.client.terminal import Terminal
from demo.children import Server, serve_arguments
from tests.cli.conftest import Run, objects
from tests.cli.service_model import answer

REPORT: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "directory": "/a",
    "state": "waiting",
    "target": "/b",
    "first_offset": -1,
    "copied_offset": -1,
    "end_offset": -1,
    "problem": None,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service of two data directories."""
    folder = tmp_path_factory.mktemp("service")
    arguments = [*serve_arguments(folder / "a"), "--data-dir", str(folder / "b")]
    with Server(arguments, folder / "output.txt") as server:
        yield server


@pytest.fixture
def home(service: Server) -> Path:
    return service.log.parent


def test_directories_are_shown_with_what_lies_there(run: Run, home: Path) -> None:
    """A table for people, an object a line for programs."""
    run("create", "shown", "--partitions", "2")
    heading, first, second = run("directories").stdout.splitlines()
    assert heading.split() == ["directory", "status", "partitions", "bytes"]
    assert first.split()[:2] == [str(home / "a"), "online"]
    assert second.split()[:2] == [str(home / "b"), "online"]
    listed = objects(run("directories", "--json").stdout)
    assert [one["path"] for one in listed] == [str(home / "a"), str(home / "b")]


def test_a_partition_is_moved_and_read_where_it_is_now(run: Run, home: Path) -> None:
    """There and back; where it is already nothing is done, with the same answer."""
    run("create", "moved")
    run("append", "moved", stdin=b'{"value": 1}\n{"value": 2}')
    for target in ("b", "a", "a"):
        done = run("move", "moved", "0", str(home / target))
        assert (done.exit_code, done.stdout) == (0, f"moved-0 is in {home / target}\n")
        assert (home / target / "moved-0").is_dir()
    assert len(objects(run("read", "moved", "--json").stdout)) == 2


def test_without_waiting_it_is_only_begun(run: Run, home: Path) -> None:
    """The answer says where it will be; programs get the report."""
    run("create", "begun", "--partitions", "2")
    told = run("move", "begun", "1", str(home / "b"), "--no-wait")
    other = run("move", "begun", "0", str(home / "b"), "--no-wait", "--json")
    assert told.exit_code == other.exit_code == 0
    assert str(home / "b") in told.stdout
    assert objects(other.stdout)[0]["topic"] == "begun"


def test_another_path_is_refused(run: Run) -> None:
    """One sentence that names the directories there are, and exit code 1."""
    run("create", "refused")
    shown = run("move", "refused", "0", "/etc")
    assert shown.exit_code == 1
    assert "/etc is not a data directory of this log" in shown.stderr


def answering(*states: dict[str, Any]) -> Connection:
    """A service whose reports follow one another."""
    reports = iter(states)

    def report(_: httpx.Request) -> httpx.Response:
        return answer(200, **{**REPORT, **next(reports)})

    transport = httpx.MockTransport(report)
    return Connection("http://127.0.0.1", transport=transport, pause=lambda _: None)


def test_a_move_is_followed_to_its_end() -> None:
    """However many reports that takes; the last one is returned."""
    copying = {"state": "copying", "first_offset": 5, "end_offset": 9}
    with answering(
        {}, {**copying, "copied_offset": 6}, {**copying, "copied_offset": 9}, {"state": "done"}
    ) as connection:
        assert follow(connection, Terminal(), REPORT)["state"] == "done"


def test_a_move_that_nobody_knows_of_any_more_is_told() -> None:
    """The service was restarted: whether it was moved, the directories tell."""
    with answering({"state": "idle"}) as connection, pytest.raises(MoveFailed, match="restarted"):
        follow(connection, Terminal(), REPORT)


def test_a_move_that_failed_fails() -> None:
    """With the problem as the service has it."""
    failed = {"state": "failed", "problem": "no space left"}
    with answering({}, failed) as connection, pytest.raises(MoveFailed, match="no space left"):
        follow(connection, Terminal(), REPORT)
