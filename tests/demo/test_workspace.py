"""The folder of the demo: fresh for each run, one run at a time, no foreign files."""

import os
from pathlib import Path

import pytest

from demo.workspace import WorkspaceBusy, fresh_workspace


def test_a_run_begins_with_an_empty_folder(tmp_path: Path) -> None:
    """What an earlier run left is gone when the next one begins, and stays after the last."""
    root = tmp_path / "demo"
    with fresh_workspace(root) as workspace:
        workspace.data.mkdir()
        (workspace.data / "file").write_text("x")
        workspace.service_output.write_text("x")
    assert (root / "log" / "file").exists()
    with fresh_workspace(root) as workspace:
        assert [path.name for path in root.iterdir()] == [".tidelog-demo"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """A folder with files that no demo wrote is refused, and nothing in it is touched."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(WorkspaceBusy, match="not of the demo"), fresh_workspace(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    """A folder that is there and empty is as good as a new one."""
    with fresh_workspace(tmp_path) as workspace:
        assert workspace.root == tmp_path


def test_a_link_in_the_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    """Emptying the folder never leaves it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    root = tmp_path / "demo"
    with fresh_workspace(root):
        (root / "link").symlink_to(outside)
    with fresh_workspace(root):
        assert not (root / "link").is_symlink()
    assert (outside / "kept").exists()


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second is refused with one sentence while the first runs."""
    with (
        fresh_workspace(tmp_path),
        pytest.raises(WorkspaceBusy, match="another demo is running"),
        fresh_workspace(tmp_path, wait_s=0.0),
    ):
        pass


def test_a_process_that_outlives_its_run_keeps_the_folder(tmp_path: Path) -> None:
    """The lock is handed down: the next run waits for the last child of the one before."""
    with fresh_workspace(tmp_path) as workspace:
        child_holds = os.dup(workspace.lock)
    with (
        pytest.raises(WorkspaceBusy, match="another demo is running"),
        fresh_workspace(tmp_path, wait_s=0.5),
    ):
        pass
    os.close(child_holds)
    with fresh_workspace(tmp_path, wait_s=0.0) as again:
        assert again.root == tmp_path
