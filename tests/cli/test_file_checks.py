"""`tidelog verify` and `tidelog repair` on a broker's directory."""

import errno
import io
import shutil
from pathlib import Path

import pytest

from app.client.checking import Subject, check_directories
from app.client.terminal import Terminal
from engine.fs.directories import DirectoryLock
from engine.fs.posix import PosixFileSystem
from engine.records.scan import iter_headers
from engine.runtime import Runtime
from tests.cli.conftest import Run, objects
from tests.support.golden import golden_archive
from tests.support.logs import fill

INDEX = Path("segments-0") / "00000000000000000000.index"
LOG = Path("segments-0") / "00000000000000000000.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three partitions of a broker that was stopped cleanly."""
    for name in ("segments-0", "txn-0", "codec-zstd-0"):
        shutil.copytree(golden_archive("clean") / name, tmp_path / "data" / name)
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    return tmp_path / "data"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_verify_is_content_with_a_sound_directory(run: Run, directory: Path) -> None:
    """The exit code is 0; unknown files are notes, and the counts are printed."""
    shown = run("verify", str(directory))
    assert shown.exit_code == 0
    assert "note: segments-0/dump.txt: it is not of this format" in shown.stdout
    assert "3 partitions, 5 segments" in shown.stdout


def test_verify_tells_a_problem_and_what_to_do(run: Run, directory: Path) -> None:
    """The exit code is 1, and programs get an object for each finding."""
    flip(directory / INDEX)
    shown = run("verify", str(directory))
    assert shown.exit_code == 1
    assert f"derived: {INDEX}:" in shown.stdout
    assert "tidelog repair --dry-run" in shown.stderr
    found = objects(run("verify", "--json", str(directory)).stdout)
    assert [one["file"] for one in found if one["kind"] == "derived"] == [str(directory / INDEX)]
    assert found[-1]["problems"] == 1


def test_repair_tells_first_and_mends_then(run: Run, directory: Path) -> None:
    """A dry run changes nothing; the real one rebuilds exactly the named file."""
    content = (directory / INDEX).read_bytes()
    flip(directory / INDEX)
    damaged = (directory / INDEX).read_bytes()
    told = run("repair", "--dry-run", str(directory))
    assert told.exit_code == 0
    assert f"{INDEX}: removed" in told.stdout
    assert (directory / INDEX).read_bytes() == damaged
    done = run("repair", str(directory))
    assert done.exit_code == 0
    assert "segments-0: 1 segments rebuilt" in done.stdout
    assert (directory / INDEX).stat().st_size > 0
    assert run("verify", str(directory)).exit_code == 0
    assert len((directory / INDEX).read_bytes()) <= len(content)


def test_repair_leaves_damage_to_a_person(run: Run, directory: Path) -> None:
    """Without --cut the exit code is 1 and the log keeps its bytes; with it the log ends."""
    flip(directory / LOG)
    damaged = (directory / LOG).read_bytes()
    refused = run("repair", str(directory))
    assert refused.exit_code == 1
    assert "--cut" in refused.stderr
    assert (directory / LOG).read_bytes() == damaged
    cut = run("repair", "--cut", str(directory))
    assert cut.exit_code == 0
    assert "is cut at byte" in cut.stdout
    assert len((directory / LOG).read_bytes()) < len(damaged)


def test_a_directory_that_is_not_there_is_told(run: Run, tmp_path: Path) -> None:
    """One sentence, no traceback."""
    for command in ("verify", "repair"):
        shown = run(command, str(tmp_path / "nowhere"))
        assert shown.exit_code == 1
        assert "nowhere cannot be read: No such file or directory" in shown.stderr


def test_what_is_refused_is_left_to_a_person(run: Run, directory: Path) -> None:
    """Nothing is repaired while the directory cannot be opened at all."""
    (directory / "no partition").mkdir()
    shown = run("repair", str(directory))
    assert shown.exit_code == 1
    assert "refused: no partition" in shown.stdout


def test_a_directory_in_use_is_not_repaired(run: Run, directory: Path) -> None:
    """A directory that a process has locked is refused in one sentence, and nothing is changed."""
    flip(directory / INDEX)
    damaged = (directory / INDEX).read_bytes()
    with DirectoryLock(PosixFileSystem(), directory):
        shown = run("repair", str(directory))
    assert shown.exit_code == 1
    assert "is in use by another process" in shown.stderr
    assert (directory / INDEX).read_bytes() == damaged


class Unread(io.BytesIO):
    """A pipe whose other end is closed."""

    def write(self, _: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_pipe_that_is_no_longer_read_is_no_damage(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tidelog verify --json … | head` is not taken for a directory that cannot be read."""
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(Unread(), write_through=True))
    with pytest.raises(BrokenPipeError):
        check_directories(Terminal(as_json=True), Subject((directory,)))


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """The directories of a service that had two, with a partition of ten records in each."""
    paths = (tmp_path / "one", tmp_path / "two")
    runtime = Runtime(paths)
    runtime.open()
    runtime.manager.create_topic("events", 2, {})
    for log in runtime.manager.logs():
        fill(log, batches=10)
    runtime.close()
    return paths


def test_several_directories_are_checked_together(run: Run, two: tuple[Path, Path]) -> None:
    """Neither misses the partitions of the other; files are named by their whole paths."""
    sound = run("verify", *map(str, two))
    assert (sound.exit_code, "2 partitions" in sound.stdout) == (0, True)
    alone = run("verify", str(two[0]))
    assert alone.exit_code == 1
    assert f"{two[1]} belongs to the same log" in alone.stdout
    index = two[1] / "events-1" / "00000000000000000000.timeindex"
    flip(index)
    shown = run("verify", *map(str, two))
    assert shown.exit_code == 1
    assert f"derived: {index}" in shown.stdout
    assert f"tidelog repair --dry-run {two[0]} {two[1]}" in shown.stderr
    assert run("repair", *map(str, two)).exit_code == 0
    assert run("verify", *map(str, two)).exit_code == 0


def test_a_directory_that_is_gone_is_repaired_without(run: Run, two: tuple[Path, Path]) -> None:
    """Its partitions are missing; a repair creates them again, empty, and the log is complete."""
    shutil.rmtree(two[1])
    refused = run("repair", str(two[0]))
    assert (refused.exit_code, f"{two[1]} belongs" in refused.stdout) == (1, True)
    gone = ("--gone", str(two[1]))
    shown = run("verify", str(two[0]), *gone)
    assert shown.exit_code == 1
    assert "events-1: the partition's directory is missing" in shown.stdout
    assert run("repair", str(two[0]), *gone).exit_code == 0
    assert run("verify", str(two[0])).exit_code == 0


def test_what_is_made_anew_is_as_the_service_would_make_it(
    run: Run, two: tuple[Path, Path]
) -> None:
    """By the service's defaults for topics, given or taken from the environment."""
    index = two[0] / "events-0" / "00000000000000000000.index"
    assert index.stat().st_size == 0
    defaults = ("--topic-defaults", '{"index.interval.bytes": 100}')
    index.write_bytes(bytes(range(16)))
    assert run("repair", *map(str, two), *defaults).exit_code == 0
    assert index.stat().st_size > 0
    for wrong in ("{", '{"index.interval.bytes": "no"}', "[]"):
        refused = run("verify", *map(str, two), "--topic-defaults", wrong)
        assert refused.exit_code == 1
        assert "default topic configuration is invalid" in refused.stderr


def test_repair_tells_which_log_it_cannot_open(run: Run, directory: Path) -> None:
    """Its end is hidden by damage: with --cut the log ends there, and opens."""
    path = max((directory / "segments-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    *_, last = (at for at, _ in iter_headers(bytes(content)))
    content[last + 8 : last + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    refused = run("repair", str(directory))
    assert refused.exit_code == 1
    assert "1 log(s)" in refused.stderr
    assert f"cannot be opened: segments-0: {path}" in refused.stderr
    assert run("repair", "--cut", str(directory)).exit_code == 0
    assert run("verify", str(directory)).exit_code == 0
