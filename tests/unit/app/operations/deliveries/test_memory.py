"""What is written to a topic while the memory of its deliveries is rebuilt."""

from app.operations.deliveries.memory import TopicMemory
from app.operations.deliveries.table import DeliveryTable, Entry


def entry(number: int, offset: int) -> Entry:
    return Entry(bytes([number]) * 16, bytes(8), offset, 1, 1, 1, 0, 0)


def read_from_log(*entries: Entry) -> DeliveryTable:
    table = DeliveryTable()
    for one in entries:
        table.add(one.pack())
    return table


def table_of(memory: TopicMemory) -> DeliveryTable | None:
    return memory.table


def test_what_was_written_meanwhile_is_added_once() -> None:
    """The rebuild may have found it in the log."""
    memory = TopicMemory("t", "id")
    memory.note(entry(1, 10), 5)
    memory.note(entry(2, 11), 5)
    memory.publish(read_from_log(entry(1, 10)), {0: 5})
    assert len(table_of(memory) or ()) == 2
    assert memory.table is not None
    assert memory.table.find(entry(2, 11).digest) == [entry(2, 11)]
    assert memory.pending == []


def test_what_was_written_before_a_truncation_is_not_added() -> None:
    """If it is still in the log, the rebuild has found it."""
    memory = TopicMemory("t", "id")
    memory.note(entry(1, 10), 5)
    memory.publish(read_from_log(), {0: 6})
    assert len(table_of(memory) or ()) == 0


def test_what_was_written_after_a_truncation_needs_another_rebuild() -> None:
    """The rebuild began before it, and may have found records that are removed now."""
    memory = TopicMemory("t", "id")
    memory.note(entry(1, 10), 6)
    memory.publish(read_from_log(entry(2, 10)), {0: 5})
    assert table_of(memory) is None
    memory.publish(read_from_log(entry(1, 10)), {0: 6})
    assert len(table_of(memory) or ()) == 1


def test_an_append_under_another_epoch_shows_a_truncation() -> None:
    """The table is wrong then: it is rebuilt, and the append is not lost."""
    memory = TopicMemory("t", "id")
    memory.publish(read_from_log(entry(1, 10)), {0: 5})
    memory.note(entry(2, 10), 6)
    assert table_of(memory) is None
    memory.publish(read_from_log(), {0: 6})
    table = table_of(memory)
    assert table is not None
    assert table.find(entry(2, 10).digest) == [entry(2, 10)]


def test_a_new_partition_brings_its_epoch() -> None:
    """Partitions may be added after the rebuild."""
    memory = TopicMemory("t", "id")
    memory.publish(read_from_log(), {})
    memory.note(entry(1, 0), 7)
    assert memory.epochs == {0: 7}
