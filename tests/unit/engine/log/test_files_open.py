"""How many files a log has open on a real disk, for sizing the limit of open files."""

from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from bench.stock import opened
from engine.config import EngineConfig
from engine.log.log import Log
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.logs import append_values, fill_segments, read_values
from tests.support.open_files import open_files_left

LOG = TopicPartition("events", 0)


def open_files(log: Log) -> Counter[str]:
    """Return how many files of each kind this process has open in the log's directory."""
    found: Counter[str] = Counter()
    for number in Path("/dev/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing
            target = number.readlink()
            if target.parent == log.directory:
                found[target.suffix] += 1
    return found


def test_a_start_keeps_the_file_of_the_active_segment_open(tmp_path: Path) -> None:
    """Ten thousand segments of a partition need no files.

    A read opens the segments that it looks into, an append nothing before its first index entry.
    """
    with opened(tmp_path) as manager:
        manager.create_topic("events", 1, {})
        fill_segments(manager.log(LOG), 2, 2, 2)
    with opened(tmp_path) as manager:
        log = manager.log(LOG)
        assert open_files(log) == {".log": 1}
        append_values(log, b"more")
        log.durability.commit()
        assert open_files(log) == {".log": 1}
        assert len(read_values(log, 5)) == 2
        assert open_files(log)[".log"] == 1
        assert len(read_values(log, 3)) == 4
        assert open_files(log)[".log"] == 2
        assert {kind for kind in open_files(log) if kind != ".log"} == {".index"}
        assert not log.reader.segments[0].indexes.offset_stays_open()
    with opened(tmp_path) as manager:
        assert manager.log(LOG).watermarks.log_end_offset == 7


def test_a_flush_closes_the_files_of_what_was_sealed(tmp_path: Path) -> None:
    """A log that rolls all day long keeps those of one segment open."""
    # Without a flusher: an index that it syncs meanwhile stays open until its own round ends.
    with closing(Runtime(tmp_path).manager) as manager:
        manager.open()
        manager.create_topic("events", 1, {})
        log = manager.log(LOG)
        fill_segments(log, 2, 2, 2, 2)
        log.durability.flush()
        found = open_files(log)
        assert found[".log"] == 1
        assert found[".index"] == found[".timeindex"]
        assert found[".index"] in {1, 2}  # a map has its own descriptor before Python 3.13
        append_values(log, b"more")
        assert log.reader.segments[-1].indexes.are_open


def test_readers_keep_so_many_sealed_segments_open(tmp_path: Path) -> None:
    """The one that was opened first is closed for the next; all of it can still be read."""
    with opened(tmp_path) as manager:
        manager.create_topic("events", 1, {"segment.index.bytes": "4096"})
        values = fill_segments(manager.log(LOG), *[1] * 20)
    config = EngineConfig(max_open_sealed_segments=3)
    with opened(tmp_path, config) as manager:
        log = manager.log(LOG)
        for _ in range(2):
            assert read_values(log) == values
            assert open_files(log)[".log"] == 4
            assert open_files(log)[".index"] <= 2 * 4


def test_a_start_and_all_reads_need_few_files(tmp_path: Path) -> None:
    """One topic with many segments took all descriptors, and the service did not start again."""
    with opened(tmp_path) as manager:
        manager.create_topic("events", 1, {"segment.index.bytes": "4096"})
        values = fill_segments(manager.log(LOG), *[1] * 200)
        manager.log(LOG).durability.flush()
    config = EngineConfig(max_open_sealed_segments=3)
    with open_files_left(40), opened(tmp_path, config) as manager:
        log = manager.log(LOG)
        assert read_values(log) == values
        assert read_values(log) == values
        append_values(log, b"more")
        log.roll()
        log.durability.flush()
