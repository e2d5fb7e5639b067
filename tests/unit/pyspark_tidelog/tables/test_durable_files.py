"""What reaches the disk before what: no power can be cut here, so the system calls are compared."""

from __future__ import annotations

from pathlib import Path

from pyspark_tidelog.tables.durable_files import ensure_folder, replace_text, sync_tree
from tests.support.disk_calls import disk_calls


def test_a_text_is_on_disk_before_it_has_its_name_and_then_the_name(tmp_path: Path) -> None:
    """Otherwise a power cut leaves the name on an empty file, or the old text after a success."""
    with disk_calls() as calls:
        replace_text(tmp_path / "a.json", "{}")
    assert calls.below(tmp_path) == ["sync a.json of 2 bytes", "rename a.json", "sync ."]


def test_every_file_and_folder_of_a_tree_is_synced_the_names_last(tmp_path: Path) -> None:
    """A folder's own names come after all that is below it."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("abc")
    with disk_calls() as calls:
        sync_tree(tmp_path)
    assert calls.below(tmp_path) == ["sync inner/file of 3 bytes", "sync inner", "sync ."]


def test_every_name_on_the_way_to_a_new_folder_is_synced(tmp_path: Path) -> None:
    """Otherwise a power cut takes a table whose files are on disk. An old folder costs nothing."""
    with disk_calls() as calls:
        ensure_folder(tmp_path / "lake" / "events")
    assert calls.below(tmp_path) == ["sync lake", "sync ."]
    with disk_calls() as calls:
        ensure_folder(tmp_path / "lake" / "events")
    assert calls.below(tmp_path) == []
