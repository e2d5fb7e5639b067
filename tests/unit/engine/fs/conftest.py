"""Every test of the port runs on the machine's file system and on the tests' disk."""

from pathlib import Path

import pytest

from engine.fs.posix import PosixFileSystem
from tests.support.filesystem import ForgetfulDisk
from tests.support.place import Place


@pytest.fixture(params=["posix", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "posix":
        return Place(PosixFileSystem(), tmp_path)
    disk = ForgetfulDisk()
    disk.make_directory(Path("/data"))
    return Place(disk, Path("/data"))
