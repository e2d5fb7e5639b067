"""What is written to a topic while the memory of its deliveries is rebuilt."""

from app.operations.deliveries.table import DeliveryTable, Entry, TopicMemory


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


def test_equal_offsets_of_two_partitions_are_two_parts() -> None:
    """A delivery over several partitions keeps each of them, whatever came first."""
    memory = TopicMemory("t", "id")
    first, second = entry(1, 0), entry(1, 0)._replace(partition=1)
    memory.note(first, 5)
    memory.note(second, 5)
    memory.publish(read_from_log(first), {0: 5, 1: 5})
    table = table_of(memory)
    assert table is not None
    assert sorted(table.find(first.digest)) == sorted([first, second])


def test_what_other_services_wrote_is_added_once() -> None:
    """The log shows this service's own deliveries too, before or after they are noted."""
    memory = TopicMemory("t", "id")
    memory.found(entry(9, 9))  # without a table, the rebuild finds it
    memory.publish(read_from_log(), {0: 0})
    memory.note(entry(1, 10), 0)
    for offset in (10, 11):
        memory.found(entry(offset - 9, offset))
    memory.positions[0] = 12
    memory.note(entry(2, 11), 0)
    table = table_of(memory)
    assert table is not None
    assert [table.find(entry(number, 0).digest) for number in (1, 2)] == [
        [entry(1, 10)],
        [entry(2, 11)],
    ]
