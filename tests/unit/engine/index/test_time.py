"""The time index: Kafka's `TimeIndexTest`, and the bytes of docs/formats/time-index.md."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CorruptIndex, IndexFull, OffsetsOutOfOrder, SegmentOverflow
from engine.index.time import ENTRY, TimeIndex
from engine.types import INT32_MAX, TimestampOffset
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka

BASE = 45
ENTRIES = [TimestampOffset(time, BASE + time // 10) for time in (10, 40, 90, 200)]


@pytest.fixture
def index(disk: ForgetfulDisk, path: Path) -> TimeIndex:
    return TimeIndex(disk, path, BASE, 6 * 12)


@pytest.fixture
def filled(index: TimeIndex) -> TimeIndex:
    for entry in ENTRIES:
        index.maybe_append(*entry)
    return index


@kafka("TimeIndexTest.testEntrySize", "TimeIndexTest.testParseEntry")
def test_entries_are_twelve_bytes(disk: ForgetfulDisk, path: Path) -> None:
    """The worked example of the format page comes out byte for byte."""
    index = TimeIndex(disk, path, 0, 100)
    index.maybe_append(1_700_000_000_000, 2)
    index.close()
    assert disk.read_bytes(path) == bytes.fromhex("0000018bcfe56800 00000002")


@kafka("TimeIndexTest.testResize")
def test_resize_keeps_the_entries(disk: ForgetfulDisk, path: Path, filled: TimeIndex) -> None:
    """The same number of entries changes nothing, others do, and the last one stays known."""
    assert not filled.resize(6 * 12 + 11)
    assert filled.resize(4 * 12)
    assert (disk.size_bytes(path), filled.is_full) == (4 * 12, True)
    assert filled.resize(8 * 12)
    assert (disk.size_bytes(path), filled.is_full) == (8 * 12, False)
    assert (list(filled.entries()), filled.last_entry) == (ENTRIES, ENTRIES[-1])
    filled.maybe_append(300, BASE + 30)
    assert filled.lookup(1_000) == (300, BASE + 30)


@kafka("TimeIndexTest.testLookUp", "TimeIndexTest.testLastEntry")
def test_empty_index_knows_no_time(index: TimeIndex) -> None:
    """Without entries every look-up answers "no timestamp, from the base offset on"."""
    assert index.lookup(-1) == index.lookup(1_000) == index.last_entry == (-1, BASE)
    assert (index.count, list(index.entries()), index.is_full) == (0, [], False)


@pytest.mark.parametrize("times", [(-1,), (-1, -1), (-1, 90)])
def test_an_entry_without_a_time_is_corrupt(
    disk: ForgetfulDisk, path: Path, times: tuple[int, ...]
) -> None:
    """Records without times are not indexed: an entry without a time makes the file corrupt."""
    with disk.open(path, create=True) as file:
        for slot, time in enumerate(times):
            file.append(ENTRY.pack(time, 10 * slot))
    index = TimeIndex(disk, path, BASE, 6 * 12)
    with pytest.raises(CorruptIndex, match="time -1"):
        index.sanity_check()
    with pytest.raises(CorruptIndex):
        index.entry(0)


@kafka("TimeIndexTest.testLookUp")
def test_lookup_finds_the_last_entry_at_or_before(filled: TimeIndex) -> None:
    """Between entries the lower one, before the first none, after the last the last."""
    found = [filled.lookup(time) for time in (9, 10, 39, 40, 199, 200, 10_000)]
    ten, forty, ninety, two_hundred = ENTRIES
    assert found == [(-1, BASE), ten, ten, forty, ninety, two_hundred, two_hundred]


def test_lookup_beyond_the_warm_tail(disk: ForgetfulDisk, path: Path) -> None:
    """In an index of many pages the old entries are found as well as the new ones."""
    index = TimeIndex(disk, path, BASE, 3_000 * 12)
    for slot in range(2_900):
        index.maybe_append(slot * 3, BASE + slot)
    for slot in (0, 1, 1_000, 2_216, 2_217, 2_218, 2_898, 2_899):
        assert index.lookup(slot * 3 + 1) == TimestampOffset(slot * 3, BASE + slot)


@kafka("TimeIndexTest.testEntry", "TimeIndexTest.testEntryOverflow")
def test_entries_are_read_by_slot(filled: TimeIndex) -> None:
    """Every slot gives its entry; a slot without one is an error."""
    assert [filled.entry(slot) for slot in range(4)] == ENTRIES == list(filled.entries())
    with pytest.raises(IndexError):
        filled.entry(4)


def test_only_a_later_time_is_news(filled: TimeIndex) -> None:
    """The same time again changes nothing, at the same offset or a later one."""
    filled.maybe_append(200, BASE + 20)
    filled.maybe_append(200, BASE + 99)
    assert (list(filled.entries()), filled.last_entry) == (ENTRIES, ENTRIES[-1])


def test_no_timestamp_is_never_stored(index: TimeIndex) -> None:
    """A segment whose records have no time has no entries."""
    index.maybe_append(-1, BASE, skip_full=True)
    assert index.count == 0


@kafka("TimeIndexTest.testAppend", "TimeIndexTest.testIsFull", "TimeIndexTest.testLastEntry")
def test_last_slot_is_kept_for_the_sealing_entry(filled: TimeIndex) -> None:
    """The index counts as full one entry early; sealing may use that entry, once."""
    filled.maybe_append(300, BASE + 30)
    assert filled.is_full
    with pytest.raises(IndexFull):
        filled.maybe_append(400, BASE + 40)
    filled.maybe_append(400, BASE + 40, skip_full=True)
    assert (filled.last_entry, filled.count) == ((400, BASE + 40), 6)
    filled.maybe_append(400, BASE + 40, skip_full=True)
    with pytest.raises(IndexFull):
        filled.maybe_append(500, BASE + 50, skip_full=True)
    assert filled.count == 6


def test_more_entries_than_the_maximum_leave_a_slot_for_the_last(
    disk: ForgetfulDisk, path: Path, filled: TimeIndex
) -> None:
    """The topic's index size may have shrunk: a segment that is active again can still be sealed.

    Found by the simulated life of seed 60105359.
    """
    filled.trim()
    filled.close()
    smaller = TimeIndex(disk, path, BASE, 3 * 12)
    smaller.restore_max_size()
    assert smaller.is_full
    smaller.maybe_append(300, BASE + 30, skip_full=True)
    assert (smaller.last_entry, smaller.count) == ((300, BASE + 30), 5)


@kafka("TimeIndexTest.testAppend")
def test_offsets_and_times_do_not_go_back(filled: TimeIndex) -> None:
    """A smaller offset or an earlier time is refused and changes nothing."""
    with pytest.raises(OffsetsOutOfOrder):
        filled.maybe_append(300, BASE + 19, skip_full=True)
    with pytest.raises(ValueError, match="time 199 is before 200"):
        filled.maybe_append(199, BASE + 21)
    assert list(filled.entries()) == ENTRIES


@pytest.mark.parametrize("offset", [BASE - 1, BASE + INT32_MAX + 1])
def test_offset_out_of_reach_is_refused(index: TimeIndex, offset: int) -> None:
    """An offset that 31 bits cannot express relative to the base is not stored."""
    with pytest.raises(SegmentOverflow):
        index.maybe_append(10, offset)
    assert (index.count, index.last_entry) == (0, (-1, BASE))


@kafka("TimeIndexTest.testTruncate")
@pytest.mark.parametrize(("delta", "kept"), [(21, 4), (20, 3), (10, 3), (9, 2), (1, 0), (0, 0)])
def test_truncation_keeps_everything_below(
    disk: ForgetfulDisk, path: Path, filled: TimeIndex, delta: int, kept: int
) -> None:
    """An entry on the offset goes, one below stays, the file keeps its length."""
    filled.truncate(filled.kept_below(BASE + delta))
    assert list(filled.entries()) == ENTRIES[:kept]
    assert filled.last_entry == (ENTRIES[kept - 1] if kept else (-1, BASE))
    assert disk.size_bytes(path) == 72


def test_closed_index_is_trimmed_and_reopens(
    disk: ForgetfulDisk, path: Path, filled: TimeIndex
) -> None:
    """After a clean close the file holds only its entries, and they are loaded again."""
    filled.close()
    assert disk.size_bytes(path) == 48
    reopened = TimeIndex(disk, path, BASE, 72)
    assert (reopened.last_entry, reopened.is_full) == (ENTRIES[-1], True)
    reopened.reset()
    assert (reopened.last_entry, reopened.is_full) == ((-1, BASE), False)


def test_closed_index_says_so(filled: TimeIndex) -> None:
    """Using a closed index raises an error that names the cause."""
    filled.close()
    uses: list[Callable[[], object]] = [
        lambda: filled.lookup(10),
        lambda: filled.lookup(999),
        lambda: filled.entry(0),
        lambda: list(filled.entries()),
        lambda: filled.maybe_append(900, BASE + 900, skip_full=True),
        lambda: filled.truncate(filled.kept_below(BASE)),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_sane_index_passes(index: TimeIndex) -> None:
    """No entries are sane, and so are ascending ones."""
    index.sanity_check()
    index.maybe_append(10, BASE)
    index.sanity_check()


@kafka("TimeIndexTest.testSanityCheck")
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("000000000000000a 00000001 0000000000000009 00000002", "time went back"),
        ("000000000000000a ffffffff", "before base offset"),
        ("000000000000000a 00000001 00", "multiple of an entry"),
    ],
)
def test_impossible_index_is_corrupt(
    disk: ForgetfulDisk, path: Path, content: str, complaint: str
) -> None:
    """A time that went back, an offset below the base or half an entry cannot be an index."""
    with disk.open(path, create=True) as file:
        file.append(bytes.fromhex(content))
    with pytest.raises(CorruptIndex, match=complaint):
        TimeIndex(disk, path, BASE, 72).sanity_check()


def test_damaged_entry_is_reported_when_it_is_met(disk: ForgetfulDisk, path: Path) -> None:
    """An offset below the segment is an error, not an answer."""
    with disk.open(path, create=True) as file:
        file.append(bytes.fromhex("0000000000000001 ffffffff 0000000000000009 00000001"))
    with pytest.raises(CorruptIndex, match="slot 0"):
        TimeIndex(disk, path, BASE, 72).lookup(5)
