"""How many files are open, as a limit of partitions is reckoned by it."""

import os
from pathlib import Path

import pytest

from app.limits import system_limits


@pytest.mark.parametrize("told", [b"", None], ids=["an older Linux", "another system"])
def test_open_files_are_listed_where_the_system_does_not_tell(
    told: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more open file is one more in the count, and one less to spare."""
    if told is not None:
        (tmp_path / "fd").write_bytes(told)
    monkeypatch.setattr(system_limits, "_OPEN_FILES", tmp_path / "fd")
    before = system_limits.spare_files(0)
    number = os.dup(0)
    try:
        assert system_limits.spare_files(0) == before - 1
    finally:
        os.close(number)


def test_open_files_are_as_many_as_the_system_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is listed: with thousands of files that took most of the time of making a topic."""
    (tmp_path / "fd").write_bytes(b"x" * 700)
    monkeypatch.setattr(system_limits, "_OPEN_FILES", tmp_path / "fd")
    monkeypatch.setattr(os, "scandir", pytest.fail)
    few = system_limits.spare_files(0)
    (tmp_path / "fd").write_bytes(b"x" * 900)
    assert system_limits.spare_files(0) == few - 200


def test_what_this_system_tells_is_what_a_list_has() -> None:
    """Within the one file that a list takes itself."""
    listed = len(list(Path("/dev/fd").iterdir()))
    assert listed - 1 <= system_limits._open_files() <= listed  # noqa: SLF001 - there is no public way to see it
