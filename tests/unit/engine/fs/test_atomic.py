"""Replacing a file: after a power cut at any moment, one of the two contents is there."""

import errno
from pathlib import Path
from random import Random

import pytest

from engine.fs.directories import replace_atomically
from tests.support.filesystem import ForgetfulDisk, PowerCut
from tests.support.place import Place

TARGET = Path("/data/file")
OLD, NEW = b"the old content", b"the new one"


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(TARGET.parent)
    replace_atomically(disk, TARGET, OLD)
    disk.sync_everything()
    return disk


def steps_of_a_replacement() -> list[int]:
    disk = ForgetfulDisk()
    disk.make_directory(TARGET.parent)
    before = len(disk.changes)
    replace_atomically(disk, TARGET, NEW)
    return list(range(1, len(disk.changes) - before + 1))


def test_replacement_is_readable_and_leaves_no_rest(place: Place) -> None:
    """Afterwards the file has the new content and no temporary file is left."""
    for content in (OLD, NEW, b""):
        replace_atomically(place.fs, place / "file", content)
        assert place.fs.read_bytes(place / "file") == content
    assert place.fs.list_directory(place.directory) == ["file"]


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("step", steps_of_a_replacement())
def test_power_cut_leaves_the_old_content_or_the_new(
    disk: ForgetfulDisk, step: int, *, torn: bool
) -> None:
    """Whichever step the power cut hits, and whatever else the disk kept, no mixture is found."""
    with disk.power_cut_before(step, torn=torn), pytest.raises(PowerCut):
        replace_atomically(disk, TARGET, NEW)
    disk.restart(random=Random(step))
    assert disk.read_bytes(TARGET) in {OLD, NEW}
    replace_atomically(disk, TARGET, b"and on it goes")
    assert disk.read_bytes(TARGET) == b"and on it goes"


def test_finished_replacement_survives_a_power_cut(disk: ForgetfulDisk) -> None:
    """Once the call returned, the new content is durable, its name included."""
    replace_atomically(disk, TARGET, NEW)
    disk.restart()
    assert disk.read_bytes(TARGET) == NEW


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename"])
def test_failure_keeps_the_old_content(disk: ForgetfulDisk, operation: str) -> None:
    """If the disk refuses a step, readers still see the old content."""
    disk.fail(operation, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        replace_atomically(disk, TARGET, NEW)
    assert disk.read_bytes(TARGET) == OLD
