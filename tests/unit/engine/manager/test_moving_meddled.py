"""What happens to a log while it is moved to another data directory."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import OffsetBelowLogStart, Recovering, TopicNotFound
from engine.log.read.reader import LogReader
from tests.support.builders import EVENTS
from tests.support.logs import append_values, read_values
from tests.unit.engine.manager.test_directories import B, restarted
from tests.unit.engine.manager.test_moving import carried_out, partition_directories, prepared


class Meddling:
    """Does something to the log once, when its first chunk was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
        self._what: list[Callable[[], object]] = [what]
        read = LogReader.read

        def read_and_meddle(reader: LogReader, offset: int, **options: Any) -> object:
            fetched = read(reader, offset, **options)
            if self._what:
                self._what.pop()()
            return fetched

        monkeypatch.setattr(LogReader, "read", read_and_meddle)


def test_appends_go_on_during_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends after the first chunk are in the copy too, even if they were not committed."""
    _world, manager, values = prepared()
    log = manager.log(EVENTS)
    Meddling(monkeypatch, lambda: append_values(log, b"meanwhile"))
    manager.move_partition(EVENTS, B)
    assert read_values(log) == [*values, b"meanwhile"]


def test_a_copy_whose_start_was_deleted_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If retention overtakes the copy, the copy starts where the log starts now."""
    monkeypatch.setattr("engine.manager.moving.CHUNK_BYTES", 2)  # one batch at a time
    _world, manager, values = prepared()
    log = manager.log(EVENTS)

    def overtake() -> None:
        log.delete_records(5)
        log.maintenance.run_retention()

    Meddling(monkeypatch, overtake)
    manager.move_partition(EVENTS, B)
    assert log.directory == B / "events-0"
    assert read_values(log) == values[5:]


def test_a_log_that_is_truncated_at_the_last_moment_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy would hold the cut records; the move is given up and can be tried again."""
    world, manager, values = prepared()
    log = manager.log(EVENTS)

    def cut(*_: int) -> None:
        log.truncate_to(4)

    with pytest.raises(Recovering, match="truncated"):
        manager.move_partition(EVENTS, B, progress=cut)
    assert partition_directories(world) == ["/a/events-0"]
    manager.move_partition(EVENTS, B)
    assert read_values(log) == values[:4]


def test_a_topic_that_is_deleted_meanwhile_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion wins and the copy goes with it."""
    world, manager, _ = prepared()
    Meddling(monkeypatch, lambda: manager.delete_topic("events"))
    with pytest.raises(TopicNotFound, match="deleted while"):
        manager.move_partition(EVENTS, B)
    assert partition_directories(world) == ["/a/events-0-delete"]


def test_a_close_ends_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the end of the move, and leaves everything clean; the next start continues."""
    monkeypatch.setattr("engine.manager.moving.CHUNK_BYTES", 2)
    world, manager, values = prepared()
    closing = threading.Thread(target=manager.close)

    def close() -> None:
        manager.interrupt()
        closing.start()

    Meddling(monkeypatch, close)
    with pytest.raises(Recovering):
        manager.move_partition(EVENTS, B)
    closing.join()
    assert partition_directories(world) == ["/a/events-0", "/b/events-0-future"]
    manager = restarted(world)
    log = manager.log(EVENTS)
    assert log.durability.recovery.was_clean
    assert read_values(log) == values
    assert carried_out(manager)
    assert log.directory == B / "events-0"
    assert read_values(log) == values


def test_a_log_that_loses_its_beginning_again_and_again_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The move is given up in the end, without a trace."""
    world, manager, values = prepared()

    def read(reader: LogReader, offset: int, **_: object) -> object:
        raise OffsetBelowLogStart("gone")

    with monkeypatch.context() as patch:
        patch.setattr(LogReader, "read", read)
        with pytest.raises(Recovering, match="faster"):
            manager.move_partition(EVENTS, B)
    assert partition_directories(world) == ["/a/events-0"]
    assert read_values(manager.log(EVENTS)) == values
