"""The transaction index: Kafka's `TransactionIndexTest`, and the bytes of its format page."""

import errno
from pathlib import Path

import pytest

from engine.errors import CorruptIndex
from engine.index.transaction import TransactionIndex
from engine.types import AbortedTransaction
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka

ABORTED = [
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
]


@pytest.fixture
def index(disk: ForgetfulDisk, path: Path) -> TransactionIndex:
    return TransactionIndex(disk, path, 0)


@pytest.fixture
def filled(index: TransactionIndex) -> TransactionIndex:
    for aborted in ABORTED:
        index.append(aborted)
    return index


@kafka("TransactionIndexTest.testAbortedTxnSerde")
def test_entries_are_thirty_four_bytes(
    disk: ForgetfulDisk, path: Path, index: TransactionIndex
) -> None:
    """The worked example of the format page comes out byte for byte."""
    index.append(AbortedTransaction(1, 0, 29, 8))
    index.append(AbortedTransaction(2, 8, 74, 36))
    assert disk.read_bytes(path) == bytes.fromhex(
        "0000 0000000000000001 0000000000000000 000000000000001d 0000000000000008"
        "0000 0000000000000002 0000000000000008 000000000000004a 0000000000000024"
    )


@kafka("TransactionIndexTest.testFlush", "TransactionIndexTest.testUpdateParentDir")
def test_nothing_is_on_disk_before_the_first_entry(
    disk: ForgetfulDisk, path: Path, index: TransactionIndex
) -> None:
    """A segment without an aborted transaction has no such file, for any query."""
    index.sync()
    index.reset()
    index.truncate_to_offset(0)
    index.sanity_check()
    index.rename(path.with_name("renamed"))
    assert (list(index.entries()), index.size_bytes) == ([], 0)
    assert disk.list_directory(path.parent) == []
    index.append(ABORTED[0])
    assert disk.list_directory(path.parent) == ["renamed"]
    index.close()


@kafka("TransactionIndexTest.testPositionSetCorrectlyWhenOpened")
def test_reopened_index_goes_on(disk: ForgetfulDisk, path: Path, filled: TransactionIndex) -> None:
    """Entries written before and after a reopening are all there, in order."""
    filled.close()
    reopened = TransactionIndex(disk, path, 0)
    reopened.append(AbortedTransaction(4, 51, 60, 61))
    assert list(reopened.entries()) == [*ABORTED, AbortedTransaction(4, 51, 60, 61)]
    assert reopened.size_bytes == 5 * 34


@kafka(
    "TransactionIndexTest.testLastOffsetMustIncrease",
    "TransactionIndexTest.testLastOffsetCannotDecrease",
)
@pytest.mark.parametrize("last_offset", [50, 49])
def test_markers_must_ascend(filled: TransactionIndex, last_offset: int) -> None:
    """An equal or smaller marker is refused and changes nothing."""
    with pytest.raises(ValueError, match="does not follow"):
        filled.append(AbortedTransaction(4, 0, last_offset, 99))
    assert list(filled.entries()) == ABORTED


@kafka("TransactionIndexTest.testCollectAbortedTransactions")
@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "found", "is_complete"),
    [
        (0, 100, ABORTED, False),
        (0, 32, ABORTED[:3], True),
        (0, 35, ABORTED, True),
        (11, 35, ABORTED[1:], True),
        (20, 41, ABORTED[2:], False),
        (51, 60, [], False),
    ],
)
def test_search_finds_what_touches_a_range(
    filled: TransactionIndex,
    fetch_offset: int,
    upper_bound: int,
    found: list[AbortedTransaction],
    *,
    is_complete: bool,
) -> None:
    """Kafka's table: the transactions that a reader needs, and whether later ones matter."""
    assert filled.collect(fetch_offset, upper_bound) == (found, is_complete)


@kafka("TransactionIndexTest.testTruncate")
@pytest.mark.parametrize(("offset", "kept"), [(51, 4), (50, 3), (36, 3), (35, 2), (0, 0)])
def test_truncation_keeps_markers_below(filled: TransactionIndex, offset: int, kept: int) -> None:
    """The first marker at or after the offset is removed with all after it.

    Then appends continue.
    """
    filled.truncate_to_offset(offset)
    assert list(filled.entries()) == ABORTED[:kept]
    filled.append(AbortedTransaction(9, 100, 101, 102))
    assert list(filled.entries())[kept:] == [AbortedTransaction(9, 100, 101, 102)]


def test_reset_empties_the_file(disk: ForgetfulDisk, path: Path, filled: TransactionIndex) -> None:
    """Recovery starts again, with any marker."""
    filled.reset()
    assert (list(filled.entries()), disk.read_bytes(path)) == ([], b"")
    filled.append(ABORTED[0])
    assert list(filled.entries()) == ABORTED[:1]


def test_torn_entry_is_ignored_and_then_cut_away(disk: ForgetfulDisk, path: Path) -> None:
    """The incomplete entry of a crash is neither returned nor shifts the next one."""
    with disk.open(path, create=True) as file:
        file.append(bytes(34 + 5))
    index = TransactionIndex(disk, path, 0)
    assert len(list(index.entries())) == 1
    index.append(ABORTED[1])
    assert list(index.entries())[1:] == [ABORTED[1]]
    assert index.size_bytes == 68


@kafka("TransactionIndexTest.testSanityCheck")
def test_marker_below_the_segment_is_corrupt(
    disk: ForgetfulDisk, path: Path, filled: TransactionIndex
) -> None:
    """An entry that cannot belong to the segment makes the index worthless."""
    filled.sanity_check()
    with pytest.raises(CorruptIndex, match="before its base offset"):
        TransactionIndex(disk, path, 11).sanity_check()


def test_unknown_version_is_corrupt(disk: ForgetfulDisk, path: Path) -> None:
    """An entry that a later program wrote is not guessed at."""
    with disk.open(path, create=True) as file:
        file.append(b"\0\1" + bytes(32))
    with pytest.raises(CorruptIndex, match="version 1 at 0"):
        list(TransactionIndex(disk, path, 0).entries())


@kafka("TransactionIndexTest.testRenameIndex", "TransactionIndexTest.testDeleteIfExists")
def test_renamed_index_goes_on(disk: ForgetfulDisk, path: Path, filled: TransactionIndex) -> None:
    """A rename moves the file under an open index, and a deletion finds it there."""
    filled.rename(path.with_name("renamed"))
    filled.append(AbortedTransaction(4, 51, 60, 61))
    assert len(list(filled.entries())) == 5
    assert disk.list_directory(path.parent) == ["renamed"]
    filled.delete()
    filled.delete()
    assert disk.list_directory(path.parent) == []


def test_synced_entries_survive_a_power_cut(
    disk: ForgetfulDisk, path: Path, index: TransactionIndex
) -> None:
    """Synced entries are found again, later ones are not."""
    index.append(ABORTED[0])
    index.sync()
    disk.sync_directory(path.parent)
    index.append(ABORTED[1])
    disk.restart()
    assert list(TransactionIndex(disk, path, 0).entries()) == ABORTED[:1]


def test_failed_append_changes_nothing(disk: ForgetfulDisk, index: TransactionIndex) -> None:
    """A disk that refuses the entry leaves the index as it was; the same marker may come again."""
    disk.fail("append", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        index.append(ABORTED[0])
    index.append(ABORTED[0])
    assert list(index.entries()) == ABORTED[:1]


def test_closed_index_says_so(filled: TransactionIndex, disk: ForgetfulDisk, path: Path) -> None:
    """Using a closed index raises an error that names the cause."""
    filled.close_handles()
    for use in (lambda: filled.append(ABORTED[0]), lambda: list(filled.entries()), filled.sync):
        with pytest.raises(ValueError, match=r"closed|follow"):
            use()
    unused = TransactionIndex(disk, path.with_name("unused"), 0)
    unused.close()
    with pytest.raises(ValueError, match="closed"):
        unused.append(ABORTED[0])
