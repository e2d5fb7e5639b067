"""The file with the ids of the data directories that belong together."""

import json

import pytest

from engine.checkpoint.tidelog_files import (
    DirectorySet,
    read_directory_set,
    write_directory_set,
)
from engine.errors import CorruptCheckpoint
from engine.fs.names import DIRECTORIES_FILE
from tests.support.filesystem import ForgetfulDisk
from tests.unit.engine.checkpoint.conftest import DIRECTORY

A, B, SET = "a" * 32, "b" * 32, "5" * 32
KNOWN = DirectorySet(A, SET, 3, {A: "/a", B: "/b"})


def test_what_is_written_is_read_and_survives_a_power_cut(disk: ForgetfulDisk) -> None:
    """The whole set with its generation; a missing file is None."""
    assert read_directory_set(disk, DIRECTORY) is None
    write_directory_set(disk, DIRECTORY, KNOWN)
    disk.restart(power_cut=True)
    assert read_directory_set(disk, DIRECTORY) == KNOWN


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "a"},
        {"set": None},
        {"generation": "3"},
        {"directories": [A]},
        {"directories": {B: "/b"}},
        {"directories": {A: 1}},
        {"directories": {A: "/a", "b": "/b"}},
        {"version": 2},
    ],
)
def test_a_malformed_file_is_refused(disk: ForgetfulDisk, wrong: dict[str, object]) -> None:
    """If any part is malformed, the whole file is refused."""
    good = {"version": 1, "id": A, "set": SET, "generation": 3, "directories": {A: "/a"}}
    with disk.open(DIRECTORY / DIRECTORIES_FILE, create=True) as file:
        file.append(json.dumps(good | wrong).encode())
    with pytest.raises(CorruptCheckpoint, match=DIRECTORIES_FILE):
        read_directory_set(disk, DIRECTORY)
