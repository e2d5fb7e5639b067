"""How many files a log has open on a real disk: what a limit of open files is reckoned by."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

from bench.stock import opened
from engine.log.log import Log
from engine.types import TopicPartition
from tests.support.logs import append_values, fill_segments, read_values

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


def test_a_start_keeps_one_file_of_each_segment_open(tmp_path: Path) -> None:
    """Ten thousand idle partitions or segments need ten thousand files, not fifty thousand.

    A read opens the index of offsets that it looks into, an append nothing before its first entry.
    """
    with opened(tmp_path) as manager:
        manager.create_topic("events", 1, {})
        fill_segments(manager.log(LOG), 2, 2, 2)
    with opened(tmp_path) as manager:
        log = manager.log(LOG)
        assert open_files(log) == {".log": 3}
        append_values(log, b"more")
        log.commit()
        assert open_files(log) == {".log": 3}
        assert len(read_values(log, 5)) == 2
        assert {kind for kind in open_files(log) if kind != ".log"} == {".index"}
        assert not log.segments[0].indexes.offset_stays_open()
    with opened(tmp_path) as manager:
        assert manager.log(LOG).watermarks.log_end_offset == 7


def test_a_flush_closes_the_indexes_of_what_was_sealed(tmp_path: Path) -> None:
    """A log that rolls all day long keeps one file of each segment, not five."""
    with opened(tmp_path) as manager:
        manager.create_topic("events", 1, {})
        log = manager.log(LOG)
        fill_segments(log, 2, 2, 2, 2)
        log.flush()
        found = open_files(log)
        assert found[".log"] == 4
        assert found[".index"] == found[".timeindex"]
        assert found[".index"] in {1, 2}  # a map has a descriptor of its own before Python 3.13
        append_values(log, b"more")
        assert log.segments[-1].indexes.are_open
