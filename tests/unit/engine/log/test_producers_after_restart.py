"""A retry of one of a producer's last five batches is recognised, whatever came between."""

from collections.abc import Callable

import pytest

from engine.errors import SequenceGap
from engine.fs import names
from engine.log.log import Log
from engine.manager.manager import LogManager
from tests.support.builders import DATA, EVENTS, World, new_batch
from tests.support.damage import one_bit_flipped, rewrite
from tests.unit.engine.manager.test_directories import A, B, opened

WINDOWS = DATA / str(EVENTS) / names.PRODUCER_WINDOWS


def numbered(*sequences: int, producer_id: int = 9) -> bytearray:
    """One append of a batch for each sequence."""
    batches = [
        new_batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        for sequence in sequences
    ]
    return bytearray(b"".join(batches))


def is_duplicate(log: Log, *sequences: int, producer_id: int = 9) -> bool:
    return log.append(numbered(*sequences, producer_id=producer_id)).is_duplicate


def ensure_recognised(log: Log) -> None:
    """Each of the last five batches, any of them together, and the append that had them all."""
    end = log.watermarks.log_end_offset
    for sequence in range(5):
        assert is_duplicate(log, sequence)
    assert is_duplicate(log, 1, 2, 3)
    assert is_duplicate(log, 0, 1, 2, 3, 4)
    assert log.watermarks.log_end_offset == end
    assert not is_duplicate(log, 5)


def cleanly(world: World, manager: LogManager) -> None:
    manager.close()
    world.restart(power_cut=False)


def killed(world: World, manager: LogManager) -> None:
    manager.log(EVENTS).durability.commit()
    world.restart(power_cut=False)


def killed_after_a_roll(world: World, manager: LogManager) -> None:
    """The scan begins with an empty segment, above all the batches."""
    log = manager.log(EVENTS)
    log.roll()
    log.durability.flush()
    manager.checkpoint()
    world.restart(power_cut=False)


def cut_off_after_a_roll(world: World, manager: LogManager) -> None:
    """As above, and all that was not synced is gone."""
    log = manager.log(EVENTS)
    log.roll()
    log.durability.flush()
    manager.checkpoint()
    log.append(new_batch())
    log.durability.commit()
    world.restart(power_cut=True)


def twice(world: World, manager: LogManager) -> None:
    """The second stop writes the state that the first start has read."""
    manager.close()
    world.restart(power_cut=False)
    world.open_manager().close()
    world.restart(power_cut=False)


@pytest.mark.parametrize("end", [cleanly, killed, killed_after_a_roll, cut_off_after_a_roll, twice])
@pytest.mark.parametrize("append", [(0, 1, 2, 3, 4), (0,)], ids=["together", "one by one"])
def test_the_last_five_batches_are_recognised_after(
    append: tuple[int, ...], end: Callable[[World, LogManager], None]
) -> None:
    """A client that saw no answer repeats its append to the service that comes back."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    for first in range(0, 5, len(append)):
        log.append(numbered(*(first + number for number in append)))
    log.append(numbered(0, producer_id=3))
    end(world, manager)
    ensure_recognised(world.open_manager().log(EVENTS))


def test_a_producer_that_was_idle_for_long_is_recognised() -> None:
    """How much others have appended since does not matter."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(numbered(0, 1, 2, 3, 4))
    for _ in range(3):
        log.append(new_batch(50))
        log.roll()
        log.durability.flush()
    cleanly(world, manager)
    ensure_recognised(world.open_manager().log(EVENTS))


def test_the_window_goes_along_with_a_move() -> None:
    """Callers that hold the log only notice a pause; a restart there loads it too."""
    world = World()
    manager = opened(world)
    manager.create_topic("events", 1, {})
    log = manager.log(EVENTS)
    log.append(numbered(0, 1, 2, 3, 4))
    log.durability.commit()
    target = B if log.directory.parent == A else A
    manager.move_partition(EVENTS, target)
    assert log.directory.parent == target
    ensure_recognised(log)
    manager.close()
    world.restart(power_cut=False)
    assert is_duplicate(opened(world).log(EVENTS), 1, 2, 3, 4, 5)


def test_after_a_truncation_only_what_is_left_is_recognised() -> None:
    """A retry of what was cut is not a duplicate, whatever is in the file."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(numbered(0, 1, 2, 3, 4))
    log.durability.flush()
    manager.truncate(log, 3)
    assert is_duplicate(log, 0, 1, 2)
    cleanly(world, manager)
    log = world.open_manager().log(EVENTS)
    assert is_duplicate(log, 0, 1, 2)
    assert not is_duplicate(log, 3)
    assert log.watermarks.log_end_offset == 4


def test_a_truncation_keeps_what_was_known_before_a_snapshot() -> None:
    """The snapshot it goes back to has one batch, and no flush has written the file of windows."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(numbered(0, 1, 2))
    log.roll()
    log.append(numbered(3, 4))
    assert not world.fs.exists(WINDOWS)
    manager.truncate(log, 4)
    assert is_duplicate(log, 0, 1, 2, 3)
    assert not is_duplicate(log, 4)


def test_a_damaged_file_of_windows_costs_repetitions_and_no_start() -> None:
    """The last batch is in the snapshot; an older one is refused, not appended twice."""
    world = World()
    manager = world.open_manager({"events": 1})
    manager.log(EVENTS).append(numbered(0, 1, 2, 3, 4))
    cleanly(world, manager)
    rewrite(world.fs, WINDOWS, one_bit_flipped(world.fs.read_bytes(WINDOWS)))
    log = world.open_manager().log(EVENTS)
    assert is_duplicate(log, 4)
    with pytest.raises(SequenceGap):
        is_duplicate(log, 3)


def test_the_file_is_written_where_a_producer_has_several_batches() -> None:
    """A log with one batch of each producer has none, and the same is not written twice."""
    world = World()
    manager = world.open_manager({"events": 1})
    log = manager.log(EVENTS)
    log.append(numbered(0))
    log.durability.flush()
    assert not world.fs.exists(WINDOWS)
    log.append(numbered(1))
    log.durability.flush()
    assert world.fs.exists(WINDOWS)
    before = len(world.disk.changes)
    log.append(new_batch())
    log.durability.flush()
    assert not [
        one for one in world.disk.changes[before:] if names.PRODUCER_WINDOWS in one.path.name
    ]
