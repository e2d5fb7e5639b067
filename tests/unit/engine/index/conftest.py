"""A disk in memory with one directory, where index files go."""

from pathlib import Path

import pytest

from tests.support.filesystem import ForgetfulDisk

DIRECTORY = Path("/data/topic-0")


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(DIRECTORY, parents=True)
    disk.sync_everything()
    return disk


@pytest.fixture
def path() -> Path:
    return DIRECTORY / "00000000000000000045.index"
