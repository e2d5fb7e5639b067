"""The promises of a `FileSystem` about names, on the machine's and on the tests' disk."""

import errno
import re
from pathlib import Path

import pytest

from engine.errors import DirectoryLocked
from engine.fs.directories import DirectoryLock
from engine.fs.names import LOCK_FILE
from engine.fs.posix import SMALL_FILE_BYTES, PosixFileSystem
from tests.support.place import Place


def test_directories_are_made_once_and_listed_in_order(place: Place) -> None:
    """Creating an existing directory is allowed; names are sorted."""
    place.fs.make_directory(place / "b" / "c", parents=True)
    place.fs.make_directory(place / "b")
    place.write("a", b"")
    place.fs.sync_directory(place.directory)
    assert place.fs.list_directory(place.directory) == ["a", "b"]
    assert place.fs.list_directory(place / "b") == ["c"]


def test_an_open_directory_is_synced_under_any_name(place: Place) -> None:
    """The open handle is independent of the directory's name; it cannot be used once closed."""
    place.fs.make_directory(place / "d")
    with place.fs.open_directory(place / "d") as directory:
        place.fs.rename(place / "d", place / "e")
        directory.sync_all()
    with pytest.raises(ValueError, match="is closed"):
        directory.sync_all()
    directory.close()
    with pytest.raises(FileNotFoundError):
        place.fs.open_directory(place / "d")


def test_directory_is_not_made_over_a_file_or_without_its_parent(place: Place) -> None:
    """A file of that name, or a missing parent, is an error and not repaired."""
    place.write("f", b"")
    with pytest.raises(FileExistsError):
        place.fs.make_directory(place / "f")
    with pytest.raises(FileNotFoundError):
        place.fs.make_directory(place / "missing" / "d")


def test_names_are_told_apart(place: Place) -> None:
    """Files, directories and nothing at all answer differently, below a file too."""
    place.write("f", b"abc")
    place.fs.make_directory(place / "d")
    paths = [place / "f", place / "d", place / "missing", place / "f" / "below"]
    assert [place.fs.exists(path) for path in paths] == [True, True, False, False]
    assert [place.fs.is_directory(path) for path in paths] == [False, True, False, False]
    assert place.fs.size_bytes(place / "f") == 3


def test_entries_say_which_names_are_directories(place: Place) -> None:
    """They are sorted, and agree with `is_directory`."""
    place.write("b", b"")
    place.fs.make_directory(place / "c")
    place.fs.make_directory(place / "a")
    assert place.fs.list_entries(place.directory) == [
        ("a", True, False),
        ("b", False, True),
        ("c", True, False),
    ]
    with pytest.raises(NotADirectoryError):
        place.fs.list_entries(place / "b")


def test_a_link_is_neither_a_file_nor_a_directory(tmp_path: Path) -> None:
    """Whatever its target: it is not followed."""
    fs = PosixFileSystem()
    fs.make_directory(tmp_path / "directory")
    (tmp_path / "far").symlink_to(tmp_path / "directory")
    (tmp_path / "lost").symlink_to(tmp_path / "missing")
    assert fs.list_entries(tmp_path) == [
        ("directory", True, False),
        ("far", False, False),
        ("lost", False, False),
    ]
    for name in ("far", "lost"):
        assert fs.exists(tmp_path / name)
        assert fs.is_misplaced(tmp_path / name)
        assert not fs.is_directory(tmp_path / name)
    assert not fs.is_misplaced(tmp_path / "missing")


@pytest.mark.parametrize("size", [0, 1, SMALL_FILE_BYTES, SMALL_FILE_BYTES + 1])
def test_a_file_is_read_whole(place: Place, size: int) -> None:
    """However long it is; and a directory is none."""
    content = bytes(range(256)) * (size // 256 + 1)
    place.write("f", content[:size])
    assert place.fs.read_bytes(place / "f") == content[:size]
    with pytest.raises(IsADirectoryError):
        place.fs.read_bytes(place.directory)


def test_rename_replaces_a_file(place: Place) -> None:
    """The target's old content is gone, the source's name too; across directories as well."""
    place.fs.make_directory(place / "d")
    place.write("old", b"old")
    place.write("new", b"new")
    place.fs.rename(place / "new", place / "old")
    place.fs.rename(place / "old", place / "d" / "moved")
    assert place.fs.list_directory(place.directory) == ["d"]
    assert place.fs.read_bytes(place / "d" / "moved") == b"new"


def test_rename_moves_a_directory_with_its_files_but_not_onto_another(place: Place) -> None:
    """A partition's directory moves whole; one that is in use is not replaced."""
    for name in ("a", "b"):
        place.fs.make_directory(place / name)
        place.write(f"{name}/f", b"x")
    with pytest.raises(OSError, match="not empty"):
        place.fs.rename(place / "a", place / "b")
    place.fs.rename(place / "a", place / "c")
    assert place.fs.list_directory(place / "c") == ["f"]
    with pytest.raises(FileNotFoundError):
        place.fs.rename(place / "a", place / "d")


def test_remove_takes_one_file_away(place: Place) -> None:
    """A missing file is an error unless the caller allows it."""
    place.write("f", b"")
    place.fs.remove(place / "f")
    place.fs.remove(place / "f", missing_ok=True)
    with pytest.raises(FileNotFoundError):
        place.fs.remove(place / "f")


def test_remove_tree_takes_everything_below_away(place: Place) -> None:
    """A directory goes with all that is in it, its neighbours stay."""
    place.fs.make_directory(place / "d" / "e", parents=True)
    place.write("d/e/f", b"")
    place.write("g", b"")
    place.fs.remove_tree(place / "d")
    assert place.fs.list_directory(place.directory) == ["g"]


def test_remove_tree_takes_a_link_away_that_leads_nowhere(tmp_path: Path) -> None:
    """A partition on a disk that is not mounted is deleted like any other."""
    link = tmp_path / "events-0"
    link.symlink_to(tmp_path / "elsewhere")
    PosixFileSystem().remove_tree(link)
    assert not link.is_symlink()


def test_time_of_modification_is_kept_in_milliseconds(place: Place) -> None:
    """The time that was set is read."""
    place.write("f", b"")
    place.fs.set_modified_ms(place / "f", 1_700_000_000_123)
    assert place.fs.modified_ms(place / "f") == 1_700_000_000_123


def test_directory_has_one_owner(place: Place) -> None:
    """A second owner is refused until the first gives the directory up; then no lock file stays."""
    with DirectoryLock(place.fs, place.directory) as lock:
        with pytest.raises(DirectoryLocked, match="in use by another process") as refused:
            DirectoryLock(place.fs, place.directory)
        assert refused.value.facts() == {"directory": str(place.directory)}
        assert place.fs.exists(place / LOCK_FILE)
    lock.release()
    assert not place.fs.exists(place / LOCK_FILE)
    DirectoryLock(place.fs, place.directory).release()


def test_lock_left_by_a_crash_does_not_lock(place: Place) -> None:
    """The file of an owner that died is taken over."""
    place.write(LOCK_FILE, b"")
    DirectoryLock(place.fs, place.directory).release()


def test_an_owner_whose_lock_file_is_gone_owns_nothing(place: Place) -> None:
    """The removal allowed another owner, whose file is not touched."""
    first = DirectoryLock(place.fs, place.directory)
    first.ensure_held()
    place.fs.remove(place / LOCK_FILE)
    with pytest.raises(OSError, match=re.escape(str(place / LOCK_FILE))) as lost:
        first.ensure_held()
    assert lost.value.errno == errno.ESTALE
    place.write(LOCK_FILE, b"")
    first.release()
    assert place.fs.exists(place / LOCK_FILE)


def test_lock_is_released_although_somebody_removed_its_file(place: Place) -> None:
    """An owner whose lock file was cleaned away can still give the directory up."""
    lock = DirectoryLock(place.fs, place.directory)
    place.fs.remove(place / LOCK_FILE)
    lock.release()
    DirectoryLock(place.fs, place.directory).release()


def test_a_file_system_has_a_size_and_room(place: Place) -> None:
    """The free space is part of the total; a missing path has no file system."""
    place.write("f", b"1")
    space = place.fs.space(place / "f")
    assert 0 < space.free_bytes <= space.total_bytes
