"""Every file of two data directories removed, replaced by a directory, or made unreadable.

A start refuses with a sentence that names the file, or serves every record; the object in place of
a file is never removed. `test_every_file` covers changed bytes.
"""

import errno
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.tools.findings import Severity
from engine.tools.verify import DirectoryCheck
from tests.corruption.images import Image, ensure_right, image
from tests.support.builders import SMALL_CONFIG, World
from tests.unit.engine.manager.test_directories import A, B, opened

BOTH = pytest.mark.parametrize("was_clean", [True, False])


def refusal_of(world: World, before: Image, path: Path) -> str | None:
    """Open and read everything; return what is said instead, if that is."""
    try:
        manager = opened(world)
        for (log, isolation), records in before.records.items():
            ensure_right(manager.log(log), isolation, records, path)
        manager.close()
    except EngineError as refusal:
        return str(refusal)
    return None


@pytest.mark.long
@BOTH
def test_a_directory_in_the_place_of_any_file(*, was_clean: bool) -> None:
    """It stays, with what is in it; a check tells it once, as what a start makes of it."""
    before = image(was_clean=was_clean)
    served = set()
    for path in before.files:
        world = before.restored()
        world.fs.remove(path)
        world.fs.make_directory(path / "mine", parents=True)
        world.disk.sync_everything()
        found = DirectoryCheck(world.fs, [A, B], SMALL_CONFIG).findings()
        (finding,) = [one for one in found if one.file == path]
        refusal = refusal_of(world, before, path)
        if refusal is None:
            served.add(path.suffix)
        else:
            assert path.name in refusal
            assert "move it" in refusal
        assert finding.severity is (Severity.NOTE if refusal is None else Severity.REFUSED)
        assert world.fs.is_directory(path / "mine")
    assert not served


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("call", ["open", "open_index", "read"])
def test_any_file_that_may_not_be_read(call: str, *, was_clean: bool) -> None:
    """It is unchanged, and with permission everything is served.

    The operation that needed it failed with an error.
    """
    before = image(was_clean=was_clean)
    for path in before.files:
        world = before.restored()
        world.disk.fail(call, error=errno.EACCES, path_end=str(path))
        refusal = refusal_of(world, before, path)
        if refusal is not None:
            assert str(path.parts[1]) in refusal
            assert "let this user read" in refusal
        world.disk.forget_faults()
        world.restart(power_cut=False)
        assert refusal_of(world, before, path) is None
