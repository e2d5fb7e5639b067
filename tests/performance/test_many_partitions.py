"""What a partition costs among many: calls are counted, time is not."""

import pytest

from engine.background.committer import LOOK_AGAIN
from engine.fs.names import partition_directory_name
from engine.types import TopicPartition
from tests.support.builders import DATA, SMALL_INDEXES, World, with_data
from tests.support.counting import counted
from tests.support.filesystem import ForgetfulDisk
from tests.support.service import open_service
from tests.support.wire import Listener, request

FEW, MANY = 20, 80


def calls_to_create(partitions: int) -> float:
    """How many functions run for each partition of a new topic."""
    manager = World().open_manager()
    with counted() as calls:
        manager.create_topic("events", partitions, {})
    manager.close()
    return calls.count / partitions


def calls_to_make_anew(partitions: int) -> float:
    """How many run for each partition at a start that misses the directories of all of them."""
    world = World()
    world.open_manager({"events": partitions}).close()
    for number in range(partitions):
        name = partition_directory_name(TopicPartition("events", number))
        world.disk.remove_tree(DATA / name)
    manager = world.new_manager()
    with counted() as calls:
        manager.open()
    assert len(manager.logs()) == partitions
    manager.close()
    return calls.count / partitions


def test_a_partition_is_made_by_as_many_calls_however_many_there_are() -> None:
    """Eighty partitions cost four times what twenty do, not sixteen times."""
    assert 0 < calls_to_create(MANY) <= calls_to_create(FEW)


def test_a_missing_partition_is_made_anew_by_as_many_calls() -> None:
    """So do eighty whose directories are gone when the service starts."""
    assert 0 < calls_to_make_anew(MANY) <= calls_to_make_anew(FEW)


@pytest.mark.anyio
async def test_one_request_to_many_partitions_is_one_round_with_one_sync() -> None:
    """All partitions are written, then synced in one round: by one sync if that is not slower."""
    disk = with_data(ForgetfulDisk())
    config = {**SMALL_INDEXES, "index.interval.bytes": "100000000"}
    async with open_service(DATA, fs=disk, default_topic_config=config) as service:
        client = Listener(service).connect()
        topic = b'{"partitions":%d}' % FEW
        assert (await client.ask(request("PUT", "/v1/topics/events", topic))).status == 201
        records = ",".join(f'{{"key":"{number}","value":1}}' for number in range(8 * FEW))
        append = request("POST", "/v1/topics/events/records", f'{{"records":[{records}]}}'.encode())
        assert (await client.ask(append)).status == 201  # opens what is opened once, on workers
        writes, one_sync = ["append"] * FEW, ["sync_file_system"]
        rounds: list[list[str]] = []
        while writes + one_sync not in rounds:  # the flusher may also begin before the last write
            assert len(rounds) < 4 * LOOK_AGAIN, rounds[-1]
            before = len(disk.changes)
            assert (await client.ask(append)).status == 201
            rounds.append([change.name for change in disk.changes[before:]])
            assert rounds[-1].count("append") == FEW
