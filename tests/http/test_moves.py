"""Data directories as the service lists them, and partitions moved between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.fs.port import Space
from tests.support.gate import Gate
from tests.support.service import RECORDS, Api, open_service
from tests.support.wired_client import wired

pytestmark = pytest.mark.anyio

MOVE = "/v1/topics/events/partitions/0/move"


A, B = "/a", "/b"
SETTINGS: dict[str, Any] = {"more_data_directories": (Path(B),), "max_waiting_moves": 1}


@pytest.fixture
def disk() -> Gate:
    return Gate()


@asynccontextmanager
async def served(disk: Gate) -> AsyncIterator[Api]:
    """A service of two data directories on this disk."""
    async with (
        open_service(Path(A), fs=disk, **SETTINGS) as service,
        wired(service) as client,
    ):
        yield Api(service, client)


@pytest.fixture
async def api(disk: Gate) -> AsyncIterator[Api]:
    """Two directories, a partition of three records in the first."""
    async with served(disk) as api:
        await api.create(segment_index_bytes=16384)
        await api.append(1, 2, 3)
        yield api
        disk.opened.set()


def end_moves(api: Api, disk: Gate) -> None:
    """Let the running move end; no other one starts."""
    assert disk.reached.wait(60)
    disk.opened.set()
    api.local.runtime.mover.stop()


async def values(api: Api) -> list[object]:
    records = (await api.client.get(f"{RECORDS}?offset=earliest")).json()["records"]
    return [record["value"] for record in records]


async def test_directories_are_listed_with_their_partitions(api: Api) -> None:
    """The preferred one first; an offline one has its reason."""
    api.local.manager.directories[1].fail(OSError(5, "Input/output error", f"{B}/x-0/index"))
    listed = (await api.client.get("/v1/directories")).json()["directories"]
    first, second = listed
    assert (first["path"], first["status"], first["partitions"]) == (
        A,
        "online",
        1,
    )
    assert first["size_bytes"] == api.log().reader.size_bytes > 0
    assert (second["status"], second["partitions"], second["size_bytes"]) == ("offline", 0, 0)
    assert second["detail"] == "[Errno 5] Input/output error: 'x-0/index'"
    assert (first["total_bytes"], first["free_bytes"]) == (2**40, 2**39)


async def test_a_directory_that_does_not_answer_has_no_known_space(
    api: Api, disk: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other facts are listed all the same."""

    def fail(_: Path) -> Space:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "space", fail)
    (first, _) = (await api.client.get("/v1/directories")).json()["directories"]
    assert (first["status"], first["total_bytes"], first["free_bytes"]) == ("online", None, None)


async def test_a_partition_is_moved_to_a_listed_directory(api: Api, disk: Gate) -> None:
    """Accepted at once; afterwards it is there, complete, and appends continue (M10)."""
    before = (await api.client.get(MOVE)).json()
    assert (before["state"], before["target"], before["directory"]) == ("idle", None, A)
    accepted = await api.client.post(MOVE, json={"directory": B})
    assert (accepted.status_code, accepted.json()["target"]) == (202, B)
    end_moves(api, disk)
    after = (await api.client.get(MOVE)).json()
    assert (after["state"], after["directory"], after["copied_offset"]) == ("done", B, 3)
    (move,) = (await api.client.get("/v1/moves")).json()["moves"]
    assert (move["topic"], move["source"], move["target"]) == ("events", A, B)
    assert (move["state"], move["copied_offset"], move["problem"]) == ("done", 3, None)
    await api.append(4)
    assert await values(api) == [1, 2, 3, 4]


async def test_a_move_to_where_it_lies_is_done(api: Api) -> None:
    """200 instead of 202: there is nothing to wait for."""
    answer = await api.client.post(MOVE, json={"directory": A})
    assert (answer.status_code, answer.json()["state"]) == (200, "done")


@pytest.mark.parametrize("directory", ["/etc", "", "b", "../b", 1])
async def test_no_other_directory_can_be_named(api: Api, directory: object) -> None:
    """An unlisted directory is refused, and nothing is created there."""
    answer = await api.client.post(MOVE, json={"directory": directory})
    assert answer.status_code == 422
    assert (await api.client.get(MOVE)).json()["state"] == "idle"


async def test_a_move_that_failed_says_why_without_the_path(api: Api, disk: Gate) -> None:
    """The partition stays where it was (M10)."""
    assert (await api.client.post(MOVE, json={"directory": B})).status_code == 202
    assert disk.reached.wait(60)
    api.local.manager.directories[1].fail(OSError(5, "Input/output error", f"{B}/x-0/index"))
    end_moves(api, disk)
    report = (await api.client.get(MOVE)).json()
    assert (report["state"], report["directory"]) == ("failed", A)
    (move,) = (await api.client.get("/v1/moves")).json()["moves"]
    assert move["problem"] == report["problem"]
    assert report["problem"].startswith("a data directory is offline until restart: ")
    assert "'x-0/index'" in report["problem"]


async def test_a_partition_that_is_not_there_is_not_moved(api: Api) -> None:
    """404 for the topic and for the partition."""
    for path in (MOVE.replace("events", "none"), MOVE.replace("/0/", "/7/")):
        answer = await api.client.post(path, json={"directory": B})
        assert answer.status_code == 404
        assert (await api.client.get(path)).status_code == 404


async def test_one_move_at_a_time_and_one_target(api: Api, disk: Gate) -> None:
    """A repeated request is the same move.

    Another target, and one move too many, are refused (M9).
    """
    await api.create("other", segment_index_bytes=16384)
    assert (await api.client.post(MOVE, json={"directory": B})).status_code == 202
    assert disk.reached.wait(60)
    again = await api.client.post(MOVE, json={"directory": B})
    assert (again.status_code, again.json()["state"]) == (202, "waiting")
    elsewhere = await api.client.post(MOVE, json={"directory": A})
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (422, "policy_violation")
    full = await api.client.post(MOVE.replace("events", "other"), json={"directory": A})
    assert (full.status_code, full.json()["code"]) == (503, "overloaded")
    await api.append(4)
    end_moves(api, disk)
    assert api.log().directory.parent == Path(B)
    assert await values(api) == [1, 2, 3, 4]


async def test_a_restart_in_the_middle_of_a_move_serves_every_record(
    disk: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is served from its old directory, and the move continues."""
    monkeypatch.setattr("engine.manager.moving.CHUNK_BYTES", 2)  # one batch at a time
    async with served(disk) as api:
        await api.create(segment_index_bytes=16384)
        for value in (1, 2, 3):
            await api.append(value)
        assert (await api.client.post(MOVE, json={"directory": B})).status_code == 202
        assert disk.reached.wait(60)
        api.local.manager.interrupt()  # as closing begins
        disk.opened.set()
    for event in (disk.reached, disk.opened):
        event.clear()
    async with served(disk) as api:
        assert disk.reached.wait(60)
        now = (await api.client.get(MOVE)).json()
        assert (now["state"], now["directory"], now["target"]) == ("waiting", A, B)
        assert await values(api) == [1, 2, 3]
        end_moves(api, disk)
        now = (await api.client.get(MOVE)).json()
        assert (now["state"], now["directory"]) == ("done", B)
        assert await values(api) == [1, 2, 3]
        listed = (await api.client.get("/v1/directories")).json()["directories"]
        assert [one["partitions"] for one in listed] == [0, 1]
