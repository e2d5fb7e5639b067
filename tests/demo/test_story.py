"""`python -m demo` from outside: the whole of it, and how it refuses and stops."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import main
from demo.workspace import fresh_workspace


def demo(folder: Path) -> list[str]:
    return [sys.executable, "-m", "demo", str(folder)]


def test_a_folder_that_is_not_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence and the exit code 1; nothing is started or removed."""
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(sys, "argv", ["demo", str(tmp_path)])
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "not of the demo" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_and_leaves_nothing_running(tmp_path: Path, stop: signal.Signals) -> None:
    """Interrupted once its service listens, it says so, and no process holds its folder."""
    root = tmp_path / "demo"
    with subprocess.Popen(demo(root), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"the service listens" in process.stdout.readline()
        process.send_signal(stop)
        assert b"nothing is left running" in process.stdout.read()
    assert process.returncode == 130
    with fresh_workspace(root, wait_s=0.0) as workspace:
        assert not workspace.data.exists()


@pytest.mark.long
@pytest.mark.spark
def test_every_row_arrives_exactly_once(tmp_path: Path) -> None:
    """The whole demo, twice in one folder: equal numbers, identical values, exit code 0."""
    for _ in range(2):
        told = subprocess.run(demo(tmp_path / "demo"), capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stdout
        assert (
            "exactly once: rows sent 363,733, in the log 363,733, in the lake 363,733; "
            "duplicates 0; values identical"
        ) in told.stdout
