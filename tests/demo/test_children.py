"""Processes of the demo: what they print, how they fail, and that none is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.children import Child, ChildFailed, Server

PROGRAMS = "tests.demo.programs"


def pid_of(line: str) -> int:
    return int(line.removeprefix("pid "))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_child_is_stopped_with_its_block(tmp_path: Path) -> None:
    """A program that would run for ever is gone when the block ends."""
    with Child([PROGRAMS, "for ever"], tmp_path / "log") as child:
        pid = pid_of(next(child.lines(timeout_s=30)))
        assert pid == child.pid
    assert is_gone(pid)


def test_what_a_child_prints_is_read_and_kept(tmp_path: Path) -> None:
    """Lines come as they are printed, end with the program, and are in the log, too."""
    with Child([PROGRAMS, "quick"], tmp_path / "log") as child:
        lines = list(child.lines(timeout_s=30))
        child.wait()
    assert len(lines) == 1
    assert (tmp_path / "log").read_text().splitlines() == lines


def test_a_child_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    """The message has the exit code and the end of what was printed, errors included."""
    with Child([PROGRAMS, "fail"], tmp_path / "log") as child:
        list(child.lines(timeout_s=30))
        with pytest.raises(ChildFailed, match="ended with code 3") as caught:
            child.wait()
    assert "it went wrong" in str(caught.value)
    assert str(tmp_path / "log") in str(caught.value)


def test_a_child_that_takes_too_long_is_told(tmp_path: Path) -> None:
    """Waiting for a line has an end."""
    with Child([PROGRAMS, "for ever"], tmp_path / "log") as child:
        lines = child.lines(timeout_s=0.3)
        with pytest.raises(ChildFailed, match=r"was not done within 0 s"):
            list(lines)


def test_a_server_tells_its_address(tmp_path: Path) -> None:
    """The address is found in whatever sentence it is printed in."""
    with Server([PROGRAMS, "serve"], tmp_path / "log") as server:
        assert server.url == "http://127.0.0.1:4711"


def test_a_server_that_ends_before_it_listens_is_told(tmp_path: Path) -> None:
    """A service that cannot start is one sentence with its own last words."""
    with pytest.raises(ChildFailed, match="before it told its address"):
        Server([PROGRAMS, "fail"], tmp_path / "log")


def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    """After `kill -9` of its parent a child ends by itself, and its files are closed."""
    owner_code = (
        "import sys, threading; from pathlib import Path; from demo.children import Child\n"
        "child = Child(sys.argv[1:3], Path(sys.argv[3]), keep_open=[int(sys.argv[4])])\n"
        "print(next(child.lines(timeout_s=30)), flush=True); threading.Event().wait()"
    )
    held_while_it_lives, inherited = os.pipe()
    arguments = [PROGRAMS, "for ever", str(tmp_path / "log"), str(inherited)]
    with subprocess.Popen(
        [sys.executable, "-c", owner_code, *arguments],
        stdout=subprocess.PIPE,
        pass_fds=[inherited],
    ) as owner:
        os.close(inherited)
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith(b"pid ")
        owner.send_signal(signal.SIGKILL)
    with os.fdopen(held_while_it_lives, "rb") as pipe:
        assert pipe.read() == b""
