"""One offset for each partition: Kafka's `OffsetCheckpointFile`."""

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.errors import CorruptCheckpoint
from engine.fs.names import HIGH_WATERMARK_CHECKPOINT
from engine.fs.posix import PosixFileSystem
from engine.types import INT64_MAX, TopicPartition
from tests.support.filesystem import ForgetfulDisk, PowerCut
from tests.support.golden import golden_archive
from tests.support.kafka import kafka
from tests.support.place import Place

OFFSETS = {TopicPartition("foo", 1): 5, TopicPartition("bar-x.y", 0): INT64_MAX}


@pytest.fixture
def checkpoint(place: Place) -> OffsetCheckpoint:
    return OffsetCheckpoint(place.fs, place / "recovery-point-offset-checkpoint")


@kafka("OffsetCheckpointFileTest.shouldPersistAndOverwriteAndReloadFile")
def test_write_replaces_everything(checkpoint: OffsetCheckpoint) -> None:
    """Only the last write is read."""
    assert checkpoint.read() == {}
    checkpoint.write(OFFSETS)
    assert checkpoint.read() == OFFSETS
    checkpoint.write({TopicPartition("foo", 2): 0})
    assert checkpoint.read() == {TopicPartition("foo", 2): 0}


@pytest.mark.parametrize("step", range(1, 7))
def test_power_cut_leaves_one_write_whole(
    disk: ForgetfulDisk, checkpoint: OffsetCheckpoint, step: int
) -> None:
    """Whichever step of a write the power cut hits, the old offsets or the new are found."""
    checkpoint.write(OFFSETS)
    later = {TopicPartition("foo", 1): 6}
    with disk.power_cut_before(step):
        try:
            checkpoint.write(later)
        except PowerCut:
            disk.restart()
            assert checkpoint.read() == OFFSETS
        else:
            assert step > 5, "the last change is the sync of the directory"
            disk.restart()
            assert checkpoint.read() == later


@pytest.mark.parametrize(
    "line", [b"foo x 1", b"foo 0 x", b"foo -1 1", b"foo 0 -1", b"foo 2147483648 1"]
)
def test_impossible_offsets_are_refused(
    place: Place, checkpoint: OffsetCheckpoint, line: bytes
) -> None:
    """A partition or offset that cannot be makes the whole file unbelievable."""
    place.write(checkpoint.path.name, b"0\n1\n" + line + b"\n")
    with pytest.raises(CorruptCheckpoint):
        checkpoint.read()


@pytest.mark.parametrize("archive", ["clean", "killed", "compacted"])
def test_checkpoints_of_a_broker_are_read(archive: str) -> None:
    """All four files of a real data directory are read, empty ones included."""
    directory = golden_archive(archive)
    found = {
        path.name: OffsetCheckpoint(PosixFileSystem(), path).read()
        for path in directory.glob("*-offset-checkpoint")
    }
    assert len(found) == 4
    assert found[HIGH_WATERMARK_CHECKPOINT][TopicPartition("segments", 0)] == 9_000
