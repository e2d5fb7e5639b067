"""Numbers for producers, never one twice."""

from contextlib import suppress

import pytest

from engine.checkpoint.tidelog_files import ProducerIds
from engine.errors import CorruptCheckpoint
from tests.support.filesystem import ForgetfulDisk, PowerCut
from tests.support.place import Place


def producer_ids(place: Place) -> ProducerIds:
    return ProducerIds(place.fs, place.directory, block_size=3)


def test_ids_count_up_from_zero(disk: ForgetfulDisk, place: Place) -> None:
    """Ids are consecutive, and the disk is used once for a block of them."""
    ids = producer_ids(place)
    assert [ids.allocate() for _ in range(3)] == [0, 1, 2]
    changes = len(disk.changes)
    assert ids.allocate() == 3
    assert len(disk.changes) > changes
    changes = len(disk.changes)
    assert [ids.allocate(), ids.allocate()] == [4, 5]
    assert len(disk.changes) == changes


def test_power_cut_loses_ids_and_repeats_none(disk: ForgetfulDisk, place: Place) -> None:
    """Whichever step of a new block the power cut hits, an id that was given out never returns."""
    given: list[int] = []
    for step in range(1, 12):
        ids = producer_ids(place)
        with disk.power_cut_before(step), suppress(PowerCut):
            given.extend(ids.allocate() for _ in range(7))
        disk.restart()
    assert len(given) > 20
    assert len(set(given)) == len(given)


def test_ids_exceed_every_one_that_was_seen(place: Place) -> None:
    """After an id was found in a log, all further ones are larger, after a restart too."""
    ids = producer_ids(place)
    assert ids.allocate() == 0
    ids.raise_above(1)
    assert ids.allocate() == 2
    ids.raise_above(4_000)
    ids.raise_above(7)
    assert ids.allocate() == 4_001
    assert producer_ids(place).allocate() == 4_004


@pytest.mark.parametrize(
    "content", [b"", b'{"version": 1}', b'{"version": 1, "next_producer_id": -1}', b"\xff"]
)
def test_damaged_file_is_refused(place: Place, content: bytes) -> None:
    """Starting again from 0 would repeat ids, so a file that cannot be read is an error."""
    ids = producer_ids(place)
    place.write(ids.path.name, content)
    with pytest.raises(CorruptCheckpoint):
        ids.allocate()


def test_failed_reservation_gives_nothing_out(disk: ForgetfulDisk, place: Place) -> None:
    """If the block cannot be written, no id of it is given out; later the same ids are free."""
    ids = producer_ids(place)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        ids.allocate()
    assert ids.allocate() == 0
