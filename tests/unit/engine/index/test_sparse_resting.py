"""An index at rest: it keeps its last entry, has no open file, and opens it when used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CorruptIndex
from engine.fs.port import IndexFile
from engine.index.offset import ENTRY, OffsetIndex
from engine.index.time import TimeIndex
from engine.types import OffsetPosition, TimestampOffset
from tests.support.filesystem import ForgetfulDisk
from tests.support.machine import Operation

BASE = 45
ENTRIES = [OffsetPosition(BASE + delta, delta * 10) for delta in (1, 4, 9, 20)]
MAX_BYTES = 30 * 8


@pytest.fixture
def resting(disk: ForgetfulDisk, path: Path) -> OffsetIndex:
    """Four entries of a sealed segment, on the disk."""
    index = OffsetIndex(disk, path, BASE, MAX_BYTES)
    for entry in ENTRIES:
        index.append(*entry)
    index.trim()
    index.sync()
    index.rest()
    return index


def test_what_it_ends_with_is_known_without_its_file(
    disk: ForgetfulDisk, resting: OffsetIndex
) -> None:
    """A start needs the end of each index, and must not open thousands of files for it."""
    disk.fail("open_index")
    assert resting.is_resting
    assert (resting.count, resting.last_entry, resting.is_full) == (4, ENTRIES[-1], True)
    assert resting.size_bytes == 4 * 8
    resting.sync()
    resting.trim()
    assert disk.forget_faults()


def test_any_look_opens_it_again(resting: OffsetIndex) -> None:
    """Each query has the same result as without a rest, and leaves the file open."""
    uses: dict[str, Callable[[], bool]] = {
        "lookup": lambda: resting.lookup(BASE + 5) == ENTRIES[1],
        "floor": lambda: resting.floor_by_position(95) == ENTRIES[2],
        "entry": lambda: resting.entry(0) == ENTRIES[0],
        "entries": lambda: list(resting.entries()) == ENTRIES,
    }
    for name, is_right in uses.items():
        resting.rest()
        assert is_right(), name
        assert not resting.is_resting, name


def test_it_grows_when_it_is_next_appended_to(
    disk: ForgetfulDisk, path: Path, resting: OffsetIndex
) -> None:
    """An active segment without appends since the start keeps a file without free space."""
    resting.restore_max_size()
    assert not resting.is_full
    assert disk.size_bytes(path) == 4 * 8
    resting.append(BASE + 30, 300)
    assert disk.size_bytes(path) == MAX_BYTES
    assert list(resting.entries()) == [*ENTRIES, OffsetPosition(BASE + 30, 300)]


def test_room_that_nobody_used_is_given_up_without_a_file(
    disk: ForgetfulDisk, path: Path, resting: OffsetIndex
) -> None:
    """A clean stop closes an index that had rested since the start, and leaves the file alone."""
    disk.fail("open_index")
    resting.restore_max_size()
    resting.close()
    assert disk.size_bytes(path) == 4 * 8
    assert resting.is_full


def test_a_file_that_changed_meanwhile_is_corrupt(
    disk: ForgetfulDisk, path: Path, resting: OffsetIndex
) -> None:
    """Its entries are not those of the segment."""
    with disk.open(path) as file:
        file.truncate(8)
    with pytest.raises(CorruptIndex, match="its length is 8; it was 32"):
        resting.lookup(BASE + 5)


def test_an_index_that_cannot_grow_can_be_asked_again(
    disk: ForgetfulDisk, resting: OffsetIndex
) -> None:
    """What fails while it is opened leaves it at rest, as it was."""
    resting.restore_max_size()
    disk.fail("resize")
    with pytest.raises(OSError, match="Input/output"):
        resting.append(BASE + 30, 300)
    assert resting.is_resting
    resting.append(BASE + 30, 300)
    assert resting.lookup(BASE + 30) == OffsetPosition(BASE + 30, 300)


def test_a_file_that_could_not_grow_is_let_go_of(
    disk: ForgetfulDisk, resting: OffsetIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk that is tried again and again takes no file after another."""
    opened: list[IndexFile] = []
    open_index = disk.open_index

    def noted(path: Path, size_bytes: int = 0, *, read_only: bool = False) -> IndexFile:
        opened.append(open_index(path, size_bytes, read_only=read_only))
        return opened[-1]

    monkeypatch.setattr(disk, "open_index", noted)
    resting.restore_max_size()
    disk.fail("resize")
    with pytest.raises(OSError, match="Input/output"):
        resting.append(BASE + 30, 300)
    (file,) = opened
    with pytest.raises(ValueError, match="closed"):
        file.sync()


def test_what_is_not_on_the_disk_does_not_rest(disk: ForgetfulDisk, path: Path) -> None:
    """It would never be synced.

    An entry, a cut or a new length since the last sync keep it open.
    """
    index = OffsetIndex(disk, path, BASE, MAX_BYTES)
    changes: list[Callable[[], object]] = [
        lambda: index.append(*ENTRIES[0]),
        lambda: index.append(*ENTRIES[1]),
        lambda: index.truncate(index.kept_below(ENTRIES[1].offset)),
        index.trim,
        index.restore_max_size,
    ]
    for number, change in enumerate(changes):
        change()
        index.rest()
        assert not index.is_resting, number
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            index.sync()
        index.rest()
        assert not index.is_resting, number
        index.sync()
    index.rest()
    assert index.is_resting


def test_a_sync_under_way_has_its_file_to_the_end(disk: ForgetfulDisk, path: Path) -> None:
    """A flush syncs without a lock; another one does not let the index rest meanwhile."""
    index = OffsetIndex(disk, path, BASE, MAX_BYTES)
    index.append(*ENTRIES[0])

    def meanwhile(operation: Operation) -> None:
        if operation.name == "sync":
            index.rest()

    disk.meanwhile = meanwhile
    index.sync()
    index.sync()
    disk.meanwhile = None
    disk.sync_directory(path.parent)
    disk.restart()
    assert next(OffsetIndex(disk, path, BASE, MAX_BYTES).entries()) == ENTRIES[0]


def test_a_sync_just_before_an_entry_is_stored_is_not_its_own(
    disk: ForgetfulDisk, path: Path
) -> None:
    """A flush syncs during an append: an entry stored after it must be synced by the next."""

    class Overtaken:
        size = ENTRY.size

        def pack(self, *entry: int) -> bytes:
            index.sync()
            return ENTRY.pack(*entry)

    class Index(OffsetIndex):
        ENTRY = Overtaken()  # type: ignore[assignment]  # the used part of a Struct

    index = Index(disk, path, BASE, MAX_BYTES)
    index.append(*ENTRIES[0])
    index.rest()
    assert not index.is_resting
    index.sync()
    index.rest()
    assert index.is_resting


def test_a_closed_index_does_not_wake(resting: OffsetIndex) -> None:
    """It stays closed, whether it rested before or `rest` is called afterwards."""
    resting.close_handles()
    resting.rest()
    for use in (lambda: resting.lookup(BASE), resting.wake, resting.sync, resting.reset):
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_an_index_of_times_rests_as_well(disk: ForgetfulDisk, path: Path) -> None:
    """Its last time answers for the segment; a search, and the next entry, open the file."""
    index = TimeIndex(disk, path, BASE, 30 * 12)
    entries = [TimestampOffset(1_000 * delta, BASE + delta) for delta in (1, 4, 9)]
    for entry in entries:
        index.maybe_append(*entry)
    index.trim()
    index.sync()
    index.rest()
    assert index.last_entry == entries[-1]
    assert index.is_resting
    assert index.lookup(4_500) == entries[1]
    index.rest()
    index.restore_max_size()
    index.maybe_append(10_000, BASE + 10)
    assert list(index.entries()) == [*entries, TimestampOffset(10_000, BASE + 10)]
