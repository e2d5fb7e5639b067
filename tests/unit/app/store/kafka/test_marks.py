"""The offsets of a log at a cluster: published whole, and committed ones never go back."""

from collections.abc import Hashable

from app.store.kafka.marks import Marks


def marks() -> tuple[Marks, list[Hashable]]:
    moved: list[Hashable] = []
    return Marks("events-0", moved.append), moved


def test_a_committed_append_moves_the_high_watermark_and_tells() -> None:
    """Readers are woken once for each move, and not by what changes nothing."""
    log, moved = marks()
    log.saw(high_watermark=3, log_end_offset=3)
    log.saw(high_watermark=3, log_end_offset=3)
    assert (log.watermarks.high_watermark, log.watermarks.log_end_offset) == (3, 3)
    assert moved == ["events-0"]


def test_an_uncommitted_append_moves_the_log_end_alone() -> None:
    """With `acks=1` nothing can be read yet."""
    log, moved = marks()
    log.saw(log_end_offset=2)
    assert (log.watermarks.high_watermark, log.watermarks.log_end_offset) == (0, 2)
    assert moved == []


def test_a_new_leader_does_not_take_committed_offsets_back() -> None:
    """Its high watermark may lag; what only the old leader had may be gone."""
    log, _ = marks()
    log.saw(high_watermark=5, log_end_offset=9, leader_epoch=1)
    log.saw(high_watermark=4, log_end_offset=6, leader_epoch=2)
    assert (log.watermarks.high_watermark, log.watermarks.log_end_offset) == (5, 6)
    assert log.leader_epoch == 2


def test_an_open_transaction_keeps_the_last_stable_offset() -> None:
    """An append does not say whether it has ended; a fetch does, and that wakes readers too."""
    log, moved = marks()
    log.saw(high_watermark=5, last_stable_offset=2)
    log.saw(high_watermark=6)
    assert log.watermarks.last_stable_offset == 2
    log.saw(last_stable_offset=6)
    assert log.watermarks.last_stable_offset == 6
    assert len(moved) == 3


def test_deleted_records_raise_every_offset_below() -> None:
    """The log start is a lower bound of all the others."""
    log, _ = marks()
    log.saw(log_start_offset=7)
    assert (log.watermarks.log_start_offset, log.watermarks.last_stable_offset) == (7, 7)
