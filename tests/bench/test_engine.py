"""The benchmark of the engine runs and its figures add up; how large they are is not a test."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.engine.logs import fill, open_log
from bench.engine.opening import open_and_tell
from engine.config import LogConfig
from engine.runtime import Runtime

SMALL = (
    ("--segments", "4"),
    ("--large-bytes", "2e6"),
    ("--small-bytes", "5e5"),
    ("--tail-bytes", "2e6"),
    ("--partitions", "3"),
    ("--megabytes", "1"),
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.engine", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_every_measure_of_the_engine_gives_figures(tmp_path: Path) -> None:
    """A small run of all ends well, with a table, the same figures as JSON, and no files left."""
    target = tmp_path / "results" / "figures.json"
    options = [word for pair in SMALL for word in pair]
    done = run(*options, "--folder", str(tmp_path), "--json", str(target))
    assert done.returncode == 0, done.stderr
    figures = msgspec.json.decode(target.read_bytes())["figures"]
    assert len(figures) == 9
    for figure in figures:
        assert figure["target"] > 0
        assert figure["name"] in done.stdout
    assert all(figure["value"] > 0 for figure in figures if "memory" not in figure["name"])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "no measure is called speed"),
        (["--partitions", "0"], "0 is not above zero"),
        (["--large-bytes", "1e18"], "has no room for --large-bytes"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], message: str) -> None:
    """The error says what was wrong, before anything is written."""
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_filled_log_is_readable_to_its_end_and_found_by_time(tmp_path: Path) -> None:
    """What look-ups search for is there: a batch for each millisecond, all of it committed."""
    log = open_log(tmp_path, LogConfig())
    first_ms = fill(log, 100_000, 4096)
    assert log.reader.size_bytes >= 100_000
    assert log.watermarks.high_watermark == log.watermarks.log_end_offset
    third = log.reader.offset_for_time(first_ms + 2)
    assert third is not None
    assert third.offset == 8
    log.maintenance.close_handles()


def test_opening_counts_the_partitions_it_opened(tmp_path: Path) -> None:
    """The figures of a partition are divided by those that are really there."""
    runtime = Runtime(tmp_path)
    runtime.open()
    runtime.manager.create_topic("many", 2, {})
    runtime.close()
    opened = open_and_tell(tmp_path)
    assert opened.partitions == 2
    assert opened.seconds > 0
    assert opened.files_seconds > 0
