"""The clean mark of a log: used if it belongs to that log, and removed with it."""

import pytest

from engine.fs.names import CLEANER_CHECKPOINT
from engine.records.control import ControlType
from tests.support.compaction import Compacted, newest

OPEN = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def test_a_mark_above_an_open_transaction_is_not_used() -> None:
    """Even if it is in the file: an open transaction is never cleaned."""
    compacted = Compacted()
    compacted.put(("key", "g"))
    compacted.put(("key", "h"), **OPEN)
    compacted.seal()
    compacted.close()
    compacted.world.restart(power_cut=True)
    write_marks(compacted, b"0\n1\nevents 0 2\n")
    compacted.open()
    for value in "ijklm":
        compacted.put(("key", value))
    compacted.end_transaction(ControlType.COMMIT, 1)
    compacted.seal()
    report = compacted.cleaner.run_pass()
    assert report is not None
    assert report.first_dirty_offset == 0
    assert newest(compacted.pairs()) == {"key": "m"}


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_mark_goes_with_what_it_was_about(*, power_cut: bool) -> None:
    """Records appended in place of cut ones are dirty after a crash too.

    The log has grown past the old mark by then, so nothing else would show it.
    """
    compacted = Compacted()
    for value in "abcdef":
        compacted.put(("key", value))
    compacted.clean()
    assert "events 0 6" in compacted.checkpoint()
    compacted.manager.truncate(compacted.log, 0)
    for value in "ghijklmn":
        compacted.put(("key", value))
    compacted.seal()
    compacted.crash(power_cut=power_cut)
    assert "events" not in compacted.checkpoint()
    report = compacted.cleaner.run_pass()
    assert report is not None
    assert report.first_dirty_offset == 0
    assert compacted.pairs() == [("key", "n")]


def test_a_mark_below_a_cut_stays() -> None:
    """It is still correct; the mark of another log is not touched."""
    compacted = Compacted()
    for value in "abcdef":
        compacted.put(("key", value))
    compacted.clean()
    compacted.put(("key", "g"))
    compacted.manager.truncate(compacted.log, 6)
    compacted.crash(power_cut=True)
    assert "events 0 6" in compacted.checkpoint()


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_topic_that_was_made_again_is_dirty(*, power_cut: bool) -> None:
    """A crash right after that finds no mark of the deleted topic."""
    compacted = Compacted()
    for value in "abcdef":
        compacted.put(("key", value))
    compacted.clean()
    compacted.manager.delete_topic("events")
    compacted.crash(power_cut=power_cut)
    for value in "ghijklmn":
        compacted.put(("key", value))
    report = compacted.clean()
    assert report.first_dirty_offset == 0
    assert compacted.pairs() == [("key", "n")]


def test_unreadable_marks_are_written_again(caplog: pytest.LogCaptureFixture) -> None:
    """The log counts as dirty, and the file is valid again."""
    compacted = Compacted()
    for value in "abcdef":
        compacted.put(("key", value))
    compacted.clean()
    compacted.close()
    compacted.world.restart(power_cut=True)
    write_marks(compacted, b"0\n1\nnonsense")
    compacted.open()
    assert "compacted logs count as dirty" in caplog.text
    assert compacted.checkpoint() == "0\n0\n"


def write_marks(compacted: Compacted, content: bytes) -> None:
    path = compacted.world.directory / CLEANER_CHECKPOINT
    with compacted.world.fs.open(path, create=True) as file:
        file.truncate(0)
        file.append(content)
