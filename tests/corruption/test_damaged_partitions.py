"""A partition directory with a file that cannot be used: its log is offline, the others are not."""

import errno
import re
from pathlib import Path

import pytest

from engine.errors import LogOffline
from engine.fs import names
from engine.manager.manager import LogManager
from tests.support.builders import EVENTS
from tests.support.damage import PARTITION, Filled, fill
from tests.support.logs import read_values


def segment_file(base_offset: int, suffix: str) -> Path:
    return PARTITION / f"{base_offset:020d}{suffix}"


def ensure_all_served(filled: Filled, manager: LogManager) -> None:
    values = [value for value in read_values(manager.log(EVENTS)) if value is not None]
    assert values == [*filled.values.values()]


def with_directory_at(path: Path) -> Filled:
    filled = fill()
    filled.world.fs.remove(path, missing_ok=True)
    filled.world.fs.make_directory(path / "mine", parents=True)
    return filled


@pytest.mark.parametrize(
    "path",
    [
        PARTITION / names.LEADER_EPOCH_CHECKPOINT,
        PARTITION / names.PARTITION_METADATA,
        PARTITION / names.SEGMENT_GAPS,
        *(segment_file(30, suffix) for suffix in (".log", ".snapshot", *names.INDEX_SUFFIXES)),
        *(segment_file(0, ".log" + suffix) for suffix in (".deleted", ".cleaned", ".swap")),
    ],
    ids=lambda path: path.name,
)
def test_a_directory_in_the_place_of_a_file_takes_its_log_offline(path: Path) -> None:
    """The others are served; once it is moved away, this one is, too."""
    filled = with_directory_at(path)
    fs = filled.world.fs
    manager = filled.reopen()
    sentence = f"{re.escape(str(path))} is not a regular file.*move.*tidelog repair"
    with pytest.raises(LogOffline, match=sentence) as caught:
        manager.log(EVENTS)
    assert caught.value.facts()["file"] == str(path)
    assert fs.is_directory(path / "mine")
    manager.close()
    fs.rename(path, Path("/elsewhere"))
    if path.suffix not in {names.LOG_SUFFIX, names.TXN_INDEX_SUFFIX}:  # the file's content is gone
        ensure_all_served(filled, filled.reopen())


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("open", segment_file(30, ".log")),
        ("open", segment_file(30, ".txnindex")),
        ("read", PARTITION / names.LEADER_EPOCH_CHECKPOINT),
        ("read", PARTITION / names.PARTITION_METADATA),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_file_that_may_not_be_read_takes_its_log_offline(call: str, path: Path) -> None:
    """The sentence names the cause and says what to do; nothing is taken for missing."""
    filled = fill()
    filled.world.restart(power_cut=False)
    filled.world.disk.fail(call, error=errno.EACCES, path_end=str(path))
    manager = filled.world.open_manager()
    with pytest.raises(LogOffline, match=r"Permission denied.*let this user read") as caught:
        manager.log(EVENTS)
    assert caught.value.facts()["file"] == str(path)
    assert not manager.health.is_offline
    manager.close()
    ensure_all_served(filled, filled.reopen())
