"""tidelog's small JSON files: written content is read back, changed content is refused."""

import contextlib
import json
import re
from pathlib import Path

import pytest

from engine.checkpoint.tidelog_files import read_json, write_json
from engine.errors import CorruptCheckpoint
from tests.support.damage import rewrite
from tests.support.filesystem import ForgetfulDisk
from tests.unit.engine.checkpoint.conftest import DIRECTORY

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "checkpoints.md"
PATH = DIRECTORY / "a.json"
FIELDS = {"generation": 3, "paths": {"b": "/b", "a": "/ä"}}


@pytest.fixture
def path(disk: ForgetfulDisk) -> Path:
    """A file with these fields."""
    write_json(disk, PATH, 1, FIELDS)
    return PATH


def read(disk: ForgetfulDisk) -> dict[str, object] | None:
    return read_json(disk, PATH, 1, FIELDS)


def test_what_is_written_is_read(disk: ForgetfulDisk, path: Path) -> None:
    """All fields and the version; people find it indented."""
    assert read(disk) == {"version": 1, **FIELDS}
    assert b'\n  "generation": 3,\n' in disk.read_bytes(path)


def test_no_bit_may_change_what_it_says(disk: ForgetfulDisk, path: Path) -> None:
    """Each flipped bit of the file is detected, unless it is in the spacing."""
    content = disk.read_bytes(path)
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        rewrite(disk, path, bytes(changed))
        with contextlib.suppress(CorruptCheckpoint):
            assert read(disk) == {"version": 1, **FIELDS}


def test_a_file_edited_by_hand_is_accepted_without_its_checksum(
    disk: ForgetfulDisk, path: Path
) -> None:
    """With the old checksum it is refused, with advice; spacing never matters."""
    stored = json.loads(disk.read_bytes(path))
    rewrite(disk, path, json.dumps(stored, indent=7).encode())
    assert read(disk) == {"version": 1, **FIELDS}
    stored["generation"] = 4
    rewrite(disk, path, json.dumps(stored).encode())
    with pytest.raises(CorruptCheckpoint, match="after an edit by hand, remove 'checksum'"):
        read(disk)
    del stored["checksum"]
    rewrite(disk, path, json.dumps(stored).encode())
    assert read(disk) == {"version": 1, **FIELDS, "generation": 4}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"generation": 3}',
        b'{"version": 2}',
        b'{"version": 1, "of_the_future": true}',
        b'{"version": 1, "checksum": ' + b"[" * 100_000,
        b'{"version": 1, "checksum": 7}',
    ],
    ids=range(7),
)
def test_anything_else_is_damage(disk: ForgetfulDisk, path: Path, content: bytes) -> None:
    """Another version, an unknown field, not an object, not JSON."""
    rewrite(disk, path, content)
    with pytest.raises(CorruptCheckpoint, match=path.name):
        read(disk)


def test_no_file_says_nothing(disk: ForgetfulDisk) -> None:
    """That is not damage."""
    assert read(disk) is None


def test_the_examples_of_the_page_are_sound(disk: ForgetfulDisk) -> None:
    """Each has the correct checksum."""
    examples = re.findall(r"```json\n(\{\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        with disk.open(PATH, create=True) as file:
            file.truncate(0)
            file.append(example.encode())
        fields = json.loads(example)
        assert fields.keys() >= {"version", "checksum"}
        assert read_json(disk, PATH, 1, fields) is not None
