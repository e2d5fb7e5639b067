"""The marker of a clean stop: Kafka's `CleanShutdownFileHandler`."""

from engine.checkpoint.kafka_files import CleanShutdownMarker
from engine.fs.posix import PosixFileSystem
from tests.support.filesystem import ForgetfulDisk
from tests.support.golden import golden_archive
from tests.support.kafka import kafka
from tests.support.place import Place


@kafka("CleanShutdownFileHandlerTest")
def test_marker_is_there_between_write_and_delete(place: Place) -> None:
    """Only its existence matters, its content is Kafka's; deleting a missing one is allowed."""
    marker = CleanShutdownMarker(place.fs, place.directory)
    marker.delete()
    assert not marker.exists()
    marker.write()
    assert marker.exists()
    assert place.fs.read_bytes(marker.path) == b'{"version":0,"brokerEpoch":-1}'
    marker.delete()
    assert not marker.exists()


def test_power_cut_undoes_neither(disk: ForgetfulDisk, place: Place) -> None:
    """A written marker stays and, above all, a deleted one does not come back."""
    marker = CleanShutdownMarker(place.fs, place.directory)
    marker.write()
    disk.restart()
    assert marker.exists()
    marker.delete()
    disk.restart()
    assert not marker.exists()


@kafka("CleanShutdownFileHandlerTest")
def test_marker_of_a_broker_counts() -> None:
    """A directory that Kafka stopped has its marker, one that was killed has not."""
    found = {
        name: CleanShutdownMarker(PosixFileSystem(), golden_archive(name)).exists()
        for name in ("clean", "killed")
    }
    assert found == {"clean": True, "killed": False}
