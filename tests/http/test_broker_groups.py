"""The groups in a broker's directory: the committed offsets of its consumers, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from app.store.local.group_offsets import OFFSETS_TOPIC, encode_key, encode_value
from app.store.port import CursorKey, CursorValue
from engine.fs import names
from engine.records.batch import BatchView
from engine.records.builder import NewRecord, build_batch, encode_batch
from engine.records.control import ControlType, build_end_marker
from engine.runtime import Runtime
from engine.types import AppendOrigin, TopicPartition
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import Api, running
from tests.support.time import START_MS

pytestmark = pytest.mark.anyio

TIME = START_MS.to_bytes(8, "big")


def commit(group: str, offset: int | None, *, partition: int = 0) -> NewRecord:
    """The record that a broker writes when a consumer commits, or None when its offset expires."""
    key = encode_key(CursorKey(group, "events", partition))
    value = None if offset is None else encode_value(CursorValue(offset, 3, "", START_MS))
    return START_MS, key, value, ()


def end(control_type: ControlType, producer_id: int) -> bytearray:
    return build_end_marker(
        control_type,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=START_MS,
    )


def in_transaction(producer_id: int, *records: NewRecord, sequence: int = 0) -> bytearray:
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def broker_directory(path: Path, partitions: Mapping[int, list[bytearray]]) -> Path:
    """A directory with some partitions of the offsets topic, and no file of tidelog's."""
    runtime = Runtime(path)
    runtime.open()
    manager = runtime.manager
    manager.create_topic(OFFSETS_TOPIC, 1 + max(partitions), {}, internal=True)
    manager.create_topic("events", 1, {})
    for number, batches in partitions.items():
        log = manager.log(TopicPartition(OFFSETS_TOPIC, number))
        for batch in batches:
            log.append(batch, origin=AppendOrigin.COORDINATOR)
    manager.log(TopicPartition("events", 0)).append(build_batch([commit("x", 0)] * 50))
    runtime.close()
    (path / names.TOPICS_FILE).unlink()
    return path


def leave_out(path: Path, *partitions: int) -> None:
    """As on a broker that is one of several: it has not all partitions of a topic."""
    for number in partitions:
        directory = path / f"{OFFSETS_TOPIC}-{number}"
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


async def offsets(api: Api) -> dict[str, int]:
    """The offset of each group in `events-0`."""
    found = {}
    for group in (await api.client.get("/v1/groups")).json()["groups"]:
        listed = (await api.client.get(f"/v1/groups/{group}/offsets")).json()["offsets"]
        found[group] = listed[0]["offset"]
    return found


async def put(api: Api, group: str, offset: int) -> httpx.Response:
    url = f"/v1/groups/{group}/offsets/events/0"
    return await api.client.put(url, json={"offset": offset})


async def test_the_last_commit_of_each_group_is_found(tmp_path: Path) -> None:
    """Later ones replace earlier ones, expired ones are dropped, other records are not cursors."""
    membership = (START_MS, b"\x00\x02\x00\x01g", b"\x00\x03whatever", ())
    old = (START_MS, b"\x00\x00" + encode_key(CursorKey("old", "events", 0))[2:], None, ())
    v1 = b"\x00\x01" + (8).to_bytes(8, "big") + b"\x00\x00" + TIME + TIME
    path = broker_directory(
        tmp_path,
        {
            0: [
                build_batch([commit("a", 1), membership, commit("b", 5), commit("c", 6)]),
                build_batch([commit("a", 2), commit("c", None)]),
                build_batch([old, (START_MS, old[1], v1, ())]),
            ],
            2: [build_batch([commit("elsewhere", 9)])],
        },
    )
    async with running(path) as api:
        assert await offsets(api) == {"a": 2, "b": 5, "old": 8, "elsewhere": 9}
        lag = (await api.client.get("/v1/groups/elsewhere/lag")).json()
        assert lag["total_lag"] == 41


async def test_what_is_no_cursor_is_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One unreadable record only affects its own group, and its place is logged."""
    strange = (START_MS, encode_key(CursorKey("odd", "events", 0)), b"\x00\x09", ())
    path = broker_directory(tmp_path, {0: [build_batch([strange, commit("a", 1)])]})
    async with running(path) as api:
        assert await offsets(api) == {"a": 1}
    (told,) = [one for one in caplog.records if one.name == "app.store.local.group_offsets"]
    assert told.getMessage() == "__consumer_offsets-0, offset 0: unknown version 9 of a cursor"


async def test_commits_of_a_transaction_count_from_its_end_on(tmp_path: Path) -> None:
    """Committed ones by their own place in the log, aborted and open ones not at all."""
    path = broker_directory(
        tmp_path,
        {
            0: [
                build_batch([commit("a", 1), commit("b", 1), commit("c", 1)]),
                in_transaction(7, commit("a", 2), commit("b", 2)),
                in_transaction(8, commit("c", 8)),
                build_batch([commit("b", 3)]),
                end(ControlType.COMMIT, 7),
                end(ControlType.ABORT, 8),
                in_transaction(9, commit("a", 9), commit("d", 9)),
                encode_batch(BatchView(end(ControlType.COMMIT, 9)).header, []),  # compacted away
            ]
        },
    )
    async with running(path) as api:
        assert await offsets(api) == {"a": 2, "b": 3, "c": 1}


async def test_a_brokers_topic_is_compacted_from_the_first_put_on(tmp_path: Path) -> None:
    """Reads change nothing; the first put takes the topic over with the broker's own policy."""
    path = broker_directory(tmp_path, {0: [build_batch([commit("a", 1)])], 1: []})
    async with running(path) as api:
        assert not api.log(OFFSETS_TOPIC).config.is_compacted
        assert (await put(api, "a", 4)).status_code == 200
        assert api.log(OFFSETS_TOPIC).config.is_compacted
        assert api.log(OFFSETS_TOPIC).watermarks.log_end_offset == 2
    async with running(path) as api:
        assert await offsets(api) == {"a": 4}
        assert api.log(OFFSETS_TOPIC).config.is_compacted


async def test_a_group_whose_partition_is_on_another_broker_is_kept_in_one_that_is_here(
    tmp_path: Path,
) -> None:
    """Stored, found, and found again after a restart, wherever Kafka would have put it."""
    path = broker_directory(tmp_path, {0: [], 1: [build_batch([commit("a", 1)])], 2: []})
    leave_out(path, 0, 2)
    async with running(path) as api:
        for number, group in enumerate("abcdef"):
            assert (await put(api, group, number)).status_code in {200, 201}
    async with running(path) as api:
        assert await offsets(api) == {group: number for number, group in enumerate("abcdef")}


async def test_damage_costs_the_groups_that_lie_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are an error, never empty: a reader without a stored offset would start again."""
    path = broker_directory(
        tmp_path, {0: [build_batch([commit("b", 1)])], 1: [build_batch([commit("a", 1)])]}
    )
    log = path / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)
    async with running(path) as api:
        for answer in (
            await api.client.get("/v1/groups/b/offsets"),
            await api.client.get("/v1/groups/b/offsets/events/0"),
            await api.client.get("/v1/groups"),
            await put(api, "b", 2),
        ):
            assert (answer.status_code, answer.json()["code"]) == (500, "stored_data_corrupt")
        assert (await put(api, "a", 2)).status_code == 200
    assert any("cannot be read" in one.getMessage() for one in caplog.records)


async def test_groups_of_a_disk_that_is_gone_are_not_taken_for_new() -> None:
    """503 until it is back; those on other disks are served."""
    disk = ForgetfulDisk()
    small = {"segment.index.bytes": "16384"}
    settings = {
        "fs": disk,
        "more_data_directories": (Path("/b"),),
        "offsets_topic_partitions": 2,
        "default_topic_config": small,
    }
    for path in ("/a", "/b"):
        disk.make_directory(Path(path))
    disk.sync_everything()
    async with running(Path("/a"), **settings) as api:
        await api.create(partitions=2)
        for group in "ab":
            assert (await put(api, group, 0)).status_code == 201
        homes = {log.directory.parent for log in api.local.manager.logs()}
        assert homes == {Path("/a"), Path("/b")}
        here = api.log(OFFSETS_TOPIC, 0).directory.parent == Path("/a")
    disk.fail("open", path_end=f"/b/{names.LOCK_FILE}")
    async with running(Path("/a"), **settings) as api:
        statuses = [
            (await api.client.get(f"/v1/groups/{group}/offsets")).status_code for group in "ab"
        ]
        # Java's hash of a letter is its code: "b" is even, so it is in partition 0
        assert statuses == ([503, 200] if here else [200, 503])
