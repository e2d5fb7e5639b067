"""Leader epochs on disk: Kafka's `LeaderEpochCheckpointFile`."""

import pytest

from engine.checkpoint.kafka_files import read_epochs, write_epochs
from engine.errors import CorruptCheckpoint
from engine.fs.names import LEADER_EPOCH_CHECKPOINT
from engine.fs.posix import PosixFileSystem
from engine.types import EpochOffset
from tests.support.golden import golden_partitions
from tests.support.kafka import kafka
from tests.support.place import Place

ENTRIES = [EpochOffset(0, 0), EpochOffset(3, 1500)]


@kafka(
    "LeaderEpochCheckpointFileTest",
    "LeaderEpochCheckpointFileTest.shouldPersistAndOverwriteAndReloadFile",
)
def test_entries_come_back_in_order(place: Place) -> None:
    """Entries are read as written, in Kafka's bytes, and a second write replaces them."""
    path = place / LEADER_EPOCH_CHECKPOINT
    assert read_epochs(place.fs, path) == []
    write_epochs(place.fs, path, ENTRIES)
    assert place.fs.read_bytes(path) == b"0\n2\n0 0\n3 1500\n"
    assert read_epochs(place.fs, path) == ENTRIES
    write_epochs(place.fs, path, [])
    assert (place.fs.read_bytes(path), read_epochs(place.fs, path)) == (b"0\n0\n", [])


@pytest.mark.parametrize(
    "entries", ["0 5\n0 6", "1 5\n0 6", "0 5\n1 5", "0 5\n1 4", "-1 0\n0 1", "0 -1\n1 0"]
)
def test_entries_that_cannot_be_are_refused(place: Place, entries: str) -> None:
    """Epochs and offsets that do not ascend, or are negative, make the file unbelievable."""
    path = place.write(LEADER_EPOCH_CHECKPOINT, f"0\n2\n{entries}\n".encode())
    with pytest.raises(CorruptCheckpoint):
        read_epochs(place.fs, path)


def test_vanished_directory_is_reported(place: Place) -> None:
    """Writing where the partition has been renamed away is an error and creates nothing."""
    with pytest.raises(FileNotFoundError):
        write_epochs(place.fs, place / "gone" / LEADER_EPOCH_CHECKPOINT, ENTRIES)


def test_checkpoints_of_a_broker_are_read_and_written(place: Place) -> None:
    """Every partition of a real broker gives its bytes back after reading and writing."""
    for partition in golden_partitions("clean"):
        original = partition / LEADER_EPOCH_CHECKPOINT
        write_epochs(place.fs, place / "copy", read_epochs(PosixFileSystem(), original))
        assert place.fs.read_bytes(place / "copy") == original.read_bytes()
