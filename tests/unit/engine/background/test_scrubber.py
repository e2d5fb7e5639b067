"""The scrubber verifies every committed byte and reports damage; it changes nothing."""

import errno
import threading
from collections.abc import Callable

import pytest

from engine.background.scrubber import CHUNK_BYTES, MAX_REPORTED, Scrubber
from engine.clock import SystemClock
from engine.config import ScrubConfig
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.metrics import NullRecorder
from engine.records.header import HEADER_BYTES
from engine.types import TopicPartition
from tests.support.builders import EVENTS, World, new_batch
from tests.support.logs import fill

OTHER = TopicPartition("events", 1)
LARGE_BYTES = CHUNK_BYTES * 9 // 10


class Watcher(NullRecorder):
    """Counts scrubbed bytes, and runs a function in the middle."""

    def __init__(self) -> None:
        self.scrubbed_bytes = 0
        self.damaged = 0
        self.interlude: Callable[[], object] = lambda: None
        self.has_scrubbed = threading.Event()

    def scrubbed(self, log: TopicPartition, *, size_bytes: int, damaged: int) -> None:
        self.scrubbed_bytes += size_bytes
        self.damaged += damaged
        self.has_scrubbed.set()
        interlude, self.interlude = self.interlude, lambda: None
        interlude()


class Scene:
    """Two logs of several segments, and a scrubber that is run by hand."""

    def __init__(self, *, interval_ms: int = 0) -> None:
        self.world = World()
        self.manager: LogManager = self.world.open_manager()
        self.manager.create_topic("events", 2, {"retention.ms": "-1"})
        for log in self.manager.logs():
            for _ in range(3):
                fill(log, batches=3)
                log.roll()
            log.durability.commit()
        self.watcher = Watcher()
        self.scrubber = Scrubber(
            self.manager,
            clock=SystemClock() if interval_ms else self.world.clock,
            config=ScrubConfig(interval_ms=interval_ms),
            recorder=self.watcher,
        )

    @property
    def log(self) -> Log:
        return self.manager.log(EVENTS)

    def flip(self, segment: int, position: int) -> str:
        """Change a bit on the disk; return the file."""
        path = self.log.reader.segments[segment].records.path
        self.world.disk._inode(path).content[position] ^= 4  # noqa: SLF001 - damage
        return str(path)

    def size_bytes(self) -> int:
        return sum(log.reader.size_bytes for log in self.manager.logs())


def test_what_is_whole_is_reported_whole() -> None:
    """Every byte of every segment of every log is looked at, once."""
    scene = Scene()
    scene.world.clock.advance(5_000)
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report == scene.scrubber.report
    assert (report.damaged_count, report.damage) == (0, ())
    assert report.checked_bytes == scene.watcher.scrubbed_bytes == scene.size_bytes() > 0
    assert report.start_ms == report.end_ms == scene.world.clock.now_ms()


def test_what_is_not_committed_yet_is_left() -> None:
    """Above the high watermark a batch may still be on its way to the disk."""
    scene = Scene()
    committed_bytes = scene.size_bytes()
    scene.log.append(new_batch(value=b"late"))
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.checked_bytes == committed_bytes


def test_each_damaged_batch_is_reported_with_its_place() -> None:
    """File, position and offset of all of them, in one pass, and readers elsewhere continue."""
    scene = Scene()
    segment = scene.log.reader.segments[1]
    size_bytes = segment.size_bytes // 3
    first = scene.flip(1, size_bytes + HEADER_BYTES + 2)
    second = scene.flip(2, 2 * size_bytes + HEADER_BYTES + 2)
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.damaged_count == scene.watcher.damaged == 2
    found = [(one.log, one.file, one.position, one.offset) for one in report.damage]
    bases = [scene.log.reader.segments[number].base_offset for number in (1, 2)]
    per_batch = (bases[1] - bases[0]) // 3
    assert found == [
        (EVENTS, first, size_bytes, bases[0] + per_batch),
        (EVENTS, second, 2 * size_bytes, bases[1] + 2 * per_batch),
    ]
    assert report.checked_bytes == scene.size_bytes()
    scene.flip(1, size_bytes + HEADER_BYTES + 2)
    scene.flip(2, 2 * size_bytes + HEADER_BYTES + 2)
    again = scene.scrubber.run_pass()
    assert again is not None
    assert again.damaged_count == 0


def test_after_a_batch_without_an_end_the_next_segment_is_checked() -> None:
    """A damaged length hides what follows in its file, and nothing else."""
    scene = Scene()
    scene.flip(0, 8)
    segment = scene.log.reader.segments[2]
    scene.flip(2, segment.size_bytes - 1)
    report = scene.scrubber.run_pass()
    assert report is not None
    assert [(one.position > 0) for one in report.damage] == [False, True]


def test_a_report_names_only_so_many_places() -> None:
    """A disk that rots all over does not fill the memory; all places are counted."""
    scene = Scene()
    log = scene.manager.log(OTHER)
    before = log.reader.size_bytes
    for _ in range(MAX_REPORTED + 1):
        log.append(new_batch(value=b"v"))
    log.durability.commit()
    active = log.reader.segments[-1]
    content = scene.world.disk._inode(active.records.path).content  # noqa: SLF001 - damage
    size_bytes = (log.reader.size_bytes - before) // (MAX_REPORTED + 1)
    for number in range(MAX_REPORTED + 1):
        content[(number + 1) * size_bytes - 1] ^= 1
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.damaged_count == MAX_REPORTED + 1
    assert len(report.damage) == MAX_REPORTED


def test_large_segments_are_read_piece_by_piece() -> None:
    """Between the pieces the throttle is called; no piece is skipped or read twice."""
    scene = Scene()
    before = scene.size_bytes()
    for _ in range(3):
        scene.log.append(new_batch(value=b"v" * (CHUNK_BYTES * 2 // 3)))
    scene.log.durability.commit()
    large = scene.size_bytes() - before
    seen: list[int] = []
    scene.watcher.interlude = lambda: seen.append(scene.watcher.scrubbed_bytes)
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.checked_bytes == before + large
    assert seen[0] < scene.log.reader.size_bytes


def test_segments_that_go_meanwhile_are_not_missed() -> None:
    """A segment that retention removes meanwhile is not damage, and the rest is verified."""
    scene = Scene()
    log = scene.log
    end = log.watermarks.high_watermark

    def retire() -> None:
        log.delete_records(end)
        log.maintenance.run_retention()

    scene.watcher.interlude = retire
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.damaged_count == 0
    assert report.checked_bytes >= scene.manager.log(OTHER).reader.size_bytes


def test_a_log_that_is_cut_meanwhile_is_left_for_the_next_pass() -> None:
    """Its bytes may have changed; the other logs are verified all the same."""
    scene = Scene()
    for _ in range(2):
        scene.log.append(new_batch(value=b"v" * LARGE_BYTES))
    scene.log.durability.commit()
    first_of_large = scene.log.watermarks.high_watermark - 2
    scene.flip(len(scene.log.reader.segments) - 1, scene.log.reader.segments[-1].size_bytes - 1)

    def watch() -> None:
        if scene.watcher.scrubbed_bytes > LARGE_BYTES:
            scene.log.truncate_to(first_of_large)
        else:
            scene.watcher.interlude = watch

    scene.watcher.interlude = watch
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.damaged_count == 0
    other = scene.manager.log(OTHER)
    assert report.checked_bytes >= other.reader.size_bytes
    assert scene.watcher.scrubbed_bytes > LARGE_BYTES


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["look", "read"])
def test_a_log_that_cannot_be_read_now_is_left_for_the_next_pass(name: str, error: int) -> None:
    """Too many open files, or a failing disk, end neither the pass nor the thread."""
    scene = Scene()
    scene.world.disk.fail(name, error=error)
    report = scene.scrubber.run_pass()
    assert report is not None
    assert report.damaged_count == 0
    assert report.checked_bytes < scene.size_bytes()
    again = scene.scrubber.run_pass()
    assert again is not None
    assert (again.checked_bytes == scene.size_bytes()) == (error == errno.EMFILE)


def test_a_stop_ends_the_pass() -> None:
    """Half a pass reports nothing, for it has not seen everything."""
    scene = Scene()
    scene.watcher.interlude = scene.scrubber.stop
    assert scene.scrubber.run_pass() is None
    assert scene.scrubber.report is None
    assert scene.watcher.scrubbed_bytes < scene.size_bytes()


def test_it_runs_by_itself_only_if_an_interval_is_given() -> None:
    """Off by default; with an interval a thread makes pass after pass until it is stopped."""
    idle = Scene()
    idle.scrubber.start()
    assert "tidelog-scrubber" not in {thread.name for thread in threading.enumerate()}
    idle.scrubber.stop()
    busy = Scene(interval_ms=1)
    busy.scrubber.start()
    assert busy.watcher.has_scrubbed.wait(10)
    busy.watcher.has_scrubbed.clear()
    assert busy.watcher.has_scrubbed.wait(10)
    busy.scrubber.stop()
    assert "tidelog-scrubber" not in {thread.name for thread in threading.enumerate()}
