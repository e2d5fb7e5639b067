"""A disk in memory with one data directory."""

from pathlib import Path

import pytest

from tests.support.filesystem import ForgetfulDisk
from tests.support.place import Place

DIRECTORY = Path("/data")


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(DIRECTORY)
    disk.sync_everything()
    return disk


@pytest.fixture
def place(disk: ForgetfulDisk) -> Place:
    return Place(disk, DIRECTORY)
