"""Who may read a data directory: only the user that runs the service."""

import os
from pathlib import Path
from stat import S_IMODE

import pytest

from app.security.keys import add_key, changing_keys
from bench.stock import opened
from engine.fs.posix import PosixFileSystem
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin, TopicPartition
from tests.support.builders import new_batch


def modes(directory: Path) -> dict[str, int]:
    """The modes of the directory and of all in it, by path."""
    return {str(one): S_IMODE(one.stat().st_mode) for one in (directory, *directory.rglob("*"))}


@pytest.mark.parametrize("umask", [0, 0o022, 0o077], ids=oct)
def test_only_the_owner_may_read_a_data_directory(umask: int, tmp_path: Path) -> None:
    """Files are 0600 and directories 0700, while the service runs and after it; keys too."""
    directory = tmp_path / "data"
    before = os.umask(umask)
    try:
        with opened(directory) as manager:
            manager.create_topic("events", 2, {"segment.index.bytes": "4096"})
            log = manager.log(TopicPartition("events", 0))
            log.append(
                new_batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
            )
            abort = build_end_marker(
                ControlType.ABORT,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=0,
            )
            log.append(abort, origin=AppendOrigin.COORDINATOR)
            log.roll()
            log.durability.flush()
            manager.checkpoint()
            manager.allocate_producer()
            with changing_keys(PosixFileSystem(), directory) as keys:
                add_key(keys, "name", ("admin:*",), now_ms=0)
            running = modes(directory)
    finally:
        os.umask(before)
    for found in (running, modes(directory)):
        assert len(found) > 15
        assert set(found.values()) == {0o600, 0o700}
        for path, mode in found.items():
            assert (mode == 0o700) == (path == str(directory) or "events-" in Path(path).name), path


def test_a_data_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    """Its owner has set the mode; new files in it are private all the same."""
    directory = tmp_path / "data"
    directory.mkdir(0o755)
    directory.chmod(0o755)
    with opened(directory) as manager:
        manager.create_topic("events", 1, {"segment.index.bytes": "4096"})
    assert S_IMODE(directory.stat().st_mode) == 0o755
    assert S_IMODE((directory / "events-0").stat().st_mode) == 0o700
