"""What a partition costs among many: calls are counted, time is not."""

from engine.fs.names import partition_directory_name
from engine.types import TopicPartition
from tests.support.builders import DATA, World
from tests.support.counting import counted

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
