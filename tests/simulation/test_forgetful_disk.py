"""The disk of the crash tests forgets what it should, and nothing else."""

import errno
from pathlib import Path
from random import Random

import pytest

from engine.fs.directories import replace_atomically
from tests.support.filesystem import ForgetfulDisk, PowerCut

ROOT = Path("/data")


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(ROOT)
    disk.sync_everything()
    return disk


def test_power_cut_forgets_names_and_bytes_that_were_not_synced(disk: ForgetfulDisk) -> None:
    """A file needs its own sync for its bytes and its directory's for its name."""
    synced = disk.open(ROOT / "synced", create=True)
    synced.append(b"kept")
    synced.sync()
    disk.open(ROOT / "empty", create=True)
    disk.sync_directory(ROOT)
    synced.append(b", lost")
    disk.open(ROOT / "nameless", create=True).sync()
    disk.restart()
    assert disk.list_directory(ROOT) == ["empty", "synced"]
    assert disk.read_bytes(ROOT / "synced") == b"kept"


def test_crash_of_the_process_forgets_nothing(disk: ForgetfulDisk) -> None:
    """What was written survives the process, and can still be lost to the power."""
    disk.open(ROOT / "f", create=True).append(b"written")
    disk.open_index(ROOT / "m", 4).store(0, b"kept")
    disk.restart(power_cut=False)
    assert [disk.read_bytes(ROOT / name) for name in "fm"] == [b"written", b"kept"]
    disk.restart()
    assert disk.list_directory(ROOT) == []


def test_stores_into_an_index_need_a_sync(disk: ForgetfulDisk) -> None:
    """After a power cut it has its content of the last sync."""
    index = disk.open_index(ROOT / "m", 4)
    index.store(0, b"a")
    index.sync()
    index.store(1, b"b")
    disk.sync_directory(ROOT)
    disk.restart()
    assert disk.read_bytes(ROOT / "m") == b"a\0\0\0"


def test_old_process_cannot_reach_the_disk_any_more(disk: ForgetfulDisk) -> None:
    """What was opened before a restart has no effect after it."""
    file = disk.open(ROOT / "f", create=True)
    index = disk.open_index(ROOT / "m", 4)
    lock = disk.lock(ROOT / "lock")
    disk.sync_everything()
    disk.restart()
    owner = disk.lock(ROOT / "lock")
    lock.release()
    with pytest.raises(PowerCut):
        index.store(0, b"late")
    with pytest.raises(PowerCut):
        file.append(b"late")
    assert [disk.read_bytes(ROOT / name) for name in "fm"] == [b"", bytes(4)]
    with pytest.raises(BlockingIOError):
        disk.lock(ROOT / "lock")
    owner.release()


def test_power_goes_before_the_chosen_change(disk: ForgetfulDisk) -> None:
    """Earlier changes happen, that one and later ones do not."""
    file = disk.open(ROOT / "f", create=True)
    with disk.power_cut_before(3):
        file.append(b"1")
        file.append(b"2")
        for _ in range(2):
            with pytest.raises(PowerCut):
                file.append(b"3")
    with pytest.raises(PowerCut):
        disk.read_bytes(ROOT / "f")
    disk.restart(power_cut=False)
    assert disk.read_bytes(ROOT / "f") == b"12"


def test_torn_append_leaves_its_first_half(disk: ForgetfulDisk) -> None:
    """A crash in the middle of a write is possible too."""
    file = disk.open(ROOT / "f", create=True)
    with disk.power_cut_before(1, torn=True), pytest.raises(PowerCut):
        file.append(b"abcdef")
    disk.restart(power_cut=False)
    assert disk.read_bytes(ROOT / "f") == b"abc"


def test_unsynced_bytes_may_survive_by_chance() -> None:
    """With a random source, some unsynced sectors survive, never other bytes."""
    found = set()
    for seed in range(20):
        disk = ForgetfulDisk()
        disk.make_directory(ROOT)
        file = disk.open(ROOT / "f", create=True)
        file.append(b"a" * 2_000)
        file.sync()
        disk.sync_everything()
        file.truncate(1_000)
        file.append(b"b" * 4_000)
        disk.restart(random=Random(seed))
        found.add(disk.read_bytes(ROOT / "f"))
    assert len(found) > 10
    assert all(1_000 <= len(content) <= 5_000 for content in found)
    assert any(len(content) < 2_000 for content in found), "cut, and not written again"
    assert any(b"\0" in content[1_024:2_000] for content in found), "nor what was there before"
    assert all(content[:1_000] == b"a" * 1_000 for content in found)
    assert {byte for content in found for byte in content} <= set(b"ab\0")


def test_ordered_call_fails_once_and_without_effect(disk: ForgetfulDisk) -> None:
    """The nth call of a kind on a path fails; the ones around it do not."""
    file = disk.open(ROOT / "f", create=True)
    other = disk.open(ROOT / "g", create=True)
    disk.fail("append", error=errno.ENOSPC, nth=2, path_end="f")
    file.append(b"1")
    other.append(b"1")
    with pytest.raises(OSError, match="No space left"):
        file.append(b"2")
    file.append(b"3")
    assert disk.read_bytes(ROOT / "f") == b"13"


def test_failed_sync_is_not_made_good_by_the_next(disk: ForgetfulDisk) -> None:
    """That of the same open file fails as well; another one succeeds and has not saved anything."""
    file = disk.open(ROOT / "f", create=True)
    disk.sync_directory(ROOT)
    file.append(b"lost")
    disk.fail("sync")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    disk.open(ROOT / "f").sync()
    disk.restart()
    assert disk.read_bytes(ROOT / "f") == b""


def test_disk_can_be_full_and_cold(disk: ForgetfulDisk) -> None:
    """Room for appends and the state of the page cache are at the test's command."""
    file = disk.open(ROOT / "f", create=True)
    disk.remaining_bytes = 3
    file.append(b"ab")
    with pytest.raises(OSError, match="No space left"):
        file.append(b"cd")
    assert disk.remaining_bytes == 1
    disk.is_cached = False
    assert (file.read_cached(0, 2), file.read_at(0, 2)) == (None, b"ab")
    with pytest.raises(OSError, match="No space left"):
        disk.open_index(ROOT / "m", 8).reserve(8)


def test_real_folder_can_be_put_on_it(disk: ForgetfulDisk, tmp_path: Path) -> None:
    """A broker's files can be put on the disk, durably, with sub-folders."""
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "f").write_bytes(b"abc")
    disk.put(tmp_path, ROOT / "kafka")
    disk.restart()
    assert disk.read_bytes(ROOT / "kafka" / "topic-0" / "f") == b"abc"


def test_names_survive_by_chance_and_in_any_order() -> None:
    """Each change to a directory is found or not, and a rename is never found by halves."""
    found = set()
    for seed in range(40):
        disk = ForgetfulDisk()
        disk.make_directory(ROOT)
        disk.sync_everything()
        replace_atomically(disk, ROOT / "a", b"")
        disk.rename(ROOT / "a", ROOT / "b")
        disk.open(ROOT / "c", create=True)
        disk.restart(random=Random(seed))
        found.add(tuple(disk.list_directory(ROOT)))
    assert found == {("a",), ("b",), ("a", "c"), ("b", "c")}


def test_changes_after_a_failed_sync_are_written(disk: ForgetfulDisk) -> None:
    """The kernel has dropped a page permanently, until a write changes that page again."""
    file = disk.open(ROOT / "f", create=True)
    disk.sync_directory(ROOT)
    file.append(b"a" * 10_000)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.append(b"b" * 10)
    disk.open(ROOT / "f").sync()
    disk.restart(power_cut=False)
    assert disk.read_bytes(ROOT / "f") == b"a" * 10_000 + b"b" * 10
    disk.restart()
    assert disk.read_bytes(ROOT / "f") == bytes(8_192) + b"a" * 1_808 + b"b" * 10


def test_a_torn_write_can_outlive_its_failure(disk: ForgetfulDisk) -> None:
    """If a failing disk cannot cut what was half written, the next process finds it."""
    file = disk.open(ROOT / "f", create=True)
    disk.fail("append", torn=True)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"abcdef")
    assert file.size_bytes == 0
    disk.restart(power_cut=False)
    assert disk.read_bytes(ROOT / "f") == b"abc"


def test_the_kernel_writes_without_being_asked() -> None:
    """Pages that the kernel wrote back survive a power cut, page by page."""
    found = set()
    for seed in range(60):
        disk = ForgetfulDisk()
        disk.make_directory(ROOT)
        disk.sync_everything()
        disk.open(ROOT / "f", create=True).append(b"a" * 8_192)
        disk.write_back(Random(seed))
        disk.restart()
        names = disk.list_directory(ROOT)
        found.add(disk.read_bytes(ROOT / "f") if names else None)
    assert {None, b""} < found, "neither the name nor the bytes are sure to be written"
    assert len(found) > 3


def test_any_call_may_be_the_one_that_fails(disk: ForgetfulDisk) -> None:
    """Without a name the nth call fails, whatever it is; a failure can be cancelled."""
    file = disk.open(ROOT / "f", create=True)
    disk.fail("", nth=2, error=errno.EMFILE)
    file.append(b"a")
    with pytest.raises(OSError, match="Too many open files"):
        file.read_at(0, 1)
    assert not disk.forget_faults()
    disk.fail("sync")
    assert disk.forget_faults()
    file.sync()


def test_others_may_act_while_somebody_waits_for_the_disk(disk: ForgetfulDisk) -> None:
    """Each call is announced before it happens."""
    seen: list[str] = []
    disk.meanwhile = lambda operation: seen.append(operation.name)
    disk.open(ROOT / "f", create=True).sync()
    assert seen == ["open", "create", "sync"]


def test_a_tree_is_removed_name_by_name(disk: ForgetfulDisk) -> None:
    """A crash in the middle leaves the directory with some of its files."""
    disk.make_directory(ROOT / "d")
    for name in "abc":
        disk.open(ROOT / "d" / name, create=True)
    with disk.power_cut_before(3), pytest.raises(PowerCut):
        disk.remove_tree(ROOT / "d")
    disk.restart(power_cut=False)
    assert disk.list_directory(ROOT / "d") == ["b", "c"]
