"""The offset index: Kafka's `OffsetIndexTest`, and the bytes of docs/formats/offset-index.md."""

import errno
from pathlib import Path

import pytest

from engine.errors import CorruptIndex, IndexFull, OffsetsOutOfOrder, SegmentOverflow
from engine.index.offset import ENTRY, OffsetIndex
from engine.types import INT32_MAX, OffsetPosition
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka

BASE = 45
ENTRIES = [OffsetPosition(BASE + delta, delta * 10) for delta in (1, 4, 9, 20)]


@pytest.fixture
def index(disk: ForgetfulDisk, path: Path) -> OffsetIndex:
    return OffsetIndex(disk, path, BASE, 30 * 8)


@pytest.fixture
def filled(index: OffsetIndex) -> OffsetIndex:
    for entry in ENTRIES:
        index.append(*entry)
    return index


def test_entries_are_eight_bytes(disk: ForgetfulDisk, path: Path) -> None:
    """The worked example of the format page comes out byte for byte."""
    index = OffsetIndex(disk, path, 0, 100)
    index.append(2, 138)
    index.append(4, 276)
    index.close()
    assert disk.read_bytes(path) == bytes.fromhex("00000002 0000008a 00000004 00000114")


@kafka("OffsetIndexTest.randomLookupTest", "OffsetIndexTest.lookupExtremeCases")
def test_empty_index_leads_to_the_first_byte(index: OffsetIndex) -> None:
    """Without entries every look-up answers the start of the segment, by offset and by position."""
    assert index.lookup(BASE) == index.lookup(BASE + 1_000) == OffsetPosition(BASE, 0)
    assert index.floor_by_position(1_000) == OffsetPosition(BASE, 0)
    assert (index.last_entry.offset, index.count, list(index.entries())) == (BASE, 0, [])


@kafka("OffsetIndexTest.lookupExtremeCases")
def test_lookup_finds_the_last_entry_at_or_before(filled: OffsetIndex) -> None:
    """Between entries the lower one, on an entry that one, after the last the last."""
    found = [filled.lookup(BASE + delta) for delta in (-9, 0, 1, 3, 4, 19, 20, 10_000)]
    first = OffsetPosition(BASE, 0)
    one, four, nine, twenty = ENTRIES
    assert found == [first, first, one, one, four, nine, twenty, twenty]


def test_floor_by_position_finds_the_last_entry_at_or_before(filled: OffsetIndex) -> None:
    """The same query for positions."""
    found = [filled.floor_by_position(position) for position in (0, 9, 10, 89, 90, 9_999)]
    one, four, nine, twenty = ENTRIES
    assert found == [(BASE, 0), (BASE, 0), one, four, nine, twenty]


@pytest.mark.parametrize(("position", "count"), [(0, 0), (10, 0), (11, 1), (40, 1), (41, 2)])
def test_content_below_a_position_ends_before_it(
    filled: OffsetIndex, position: int, count: int
) -> None:
    """An entry that leads to where a file is cut off leads nowhere."""
    content = filled.content_below(position)
    assert [*ENTRY.iter_unpack(content)] == [(1, 10), (4, 40)][:count]


def test_lookup_beyond_the_warm_tail(disk: ForgetfulDisk, path: Path) -> None:
    """In an index of many pages the old entries are found as well as the new ones."""
    index = OffsetIndex(disk, path, BASE, 5_000 * 8)
    for slot in range(5_000):
        index.append(BASE + slot * 3, slot)
    for slot in (0, 1, 2_500, 3_974, 3_975, 3_976, 4_998, 4_999):
        assert index.lookup(BASE + slot * 3 + 1) == OffsetPosition(BASE + slot * 3, slot)


@kafka("OffsetIndexTest.testEntry", "OffsetIndexTest.testEntryOverflow")
def test_entries_are_read_by_slot(filled: OffsetIndex) -> None:
    """Every slot gives its entry; a slot without one is an error."""
    assert [filled.entry(slot) for slot in range(4)] == ENTRIES == list(filled.entries())
    for slot in (-1, 4):
        with pytest.raises(IndexError):
            filled.entry(slot)


@kafka("OffsetIndexTest.appendTooMany")
def test_full_index_takes_no_more(disk: ForgetfulDisk, path: Path) -> None:
    """The room is what fits in whole entries; then an append is refused and changes nothing."""
    index = OffsetIndex(disk, path, BASE, 2 * 8 + 7)
    assert not index.is_full
    index.append(BASE, 0)
    index.append(BASE + 1, 1)
    with pytest.raises(IndexFull):
        index.append(BASE + 2, 2)
    assert (index.is_full, index.count, index.last_entry.offset) == (True, 2, BASE + 1)


@kafka("OffsetIndexTest.appendOutOfOrder")
@pytest.mark.parametrize("offset", [BASE + 20, BASE + 19])
def test_offsets_must_ascend(filled: OffsetIndex, offset: int) -> None:
    """An equal or smaller offset is refused and changes nothing."""
    with pytest.raises(OffsetsOutOfOrder):
        filled.append(offset, 300)
    assert list(filled.entries()) == ENTRIES


@pytest.mark.parametrize("offset", [BASE - 1, BASE + INT32_MAX + 1])
def test_offset_out_of_reach_is_refused(index: OffsetIndex, offset: int) -> None:
    """An offset that 31 bits cannot express relative to the base is not stored."""
    with pytest.raises(SegmentOverflow) as refused:
        index.append(offset, 0)
    assert refused.value.facts() == {"offset": offset, "base_offset": BASE}
    assert index.count == 0


def test_last_offset_in_reach_is_stored(index: OffsetIndex) -> None:
    """The largest offset that fits is found again."""
    index.append(BASE + INT32_MAX, 7)
    assert index.lookup(BASE + INT32_MAX) == (BASE + INT32_MAX, 7)


@kafka("OffsetIndexTest.truncate")
@pytest.mark.parametrize(
    ("delta", "kept"), [(21, 4), (20, 3), (10, 3), (9, 2), (1, 0), (0, 0), (-5, 0)]
)
def test_truncation_keeps_everything_below(
    disk: ForgetfulDisk, path: Path, filled: OffsetIndex, delta: int, kept: int
) -> None:
    """An entry on the offset goes, one below stays, the file keeps its length."""
    filled.truncate(filled.kept_below(BASE + delta))
    assert list(filled.entries()) == ENTRIES[:kept]
    assert filled.last_entry.offset == (ENTRIES[kept - 1].offset if kept else BASE)
    assert disk.size_bytes(path) == 240
    filled.append(BASE + 500, 500)
    assert filled.lookup(BASE + 500) == (BASE + 500, 500)


@kafka("OffsetIndexTest.testReopen")
def test_closed_index_is_trimmed_and_reopens_full(
    disk: ForgetfulDisk, path: Path, filled: OffsetIndex
) -> None:
    """After a clean close the file is its entries; reopened they are there, and no room is left."""
    filled.close()
    assert disk.size_bytes(path) == 32
    reopened = OffsetIndex(disk, path, BASE, 240)
    assert list(reopened.entries()) == ENTRIES
    assert (reopened.last_entry.offset, reopened.is_full) == (BASE + 20, True)
    reopened.restore_max_size()
    assert (disk.size_bytes(path), reopened.is_full) == (240, False)
    reopened.append(BASE + 21, 210)
    assert reopened.entry(4) == (BASE + 21, 210)


def test_crash_leaves_padding_that_counts_until_a_reset(
    disk: ForgetfulDisk, path: Path, filled: OffsetIndex
) -> None:
    """An untrimmed file counts whole, zeros included; a reset empties it."""
    assert filled.count == 4
    disk.restart(power_cut=False)
    crashed = OffsetIndex(disk, path, BASE, 240)
    assert (crashed.count, crashed.last_entry.offset) == (30, BASE)
    crashed.reset()
    assert (crashed.count, crashed.last_entry.offset, crashed.is_full) == (0, BASE, False)
    crashed.append(BASE + 1, 10)
    assert list(crashed.entries()) == [(BASE + 1, 10)]


def test_resize_keeps_the_entries(disk: ForgetfulDisk, path: Path, filled: OffsetIndex) -> None:
    """A size is rounded down to whole entries; the same size changes nothing.

    Entries are not cut.
    """
    assert not filled.resize(247)
    assert filled.resize(40)
    assert (disk.size_bytes(path), list(filled.entries())) == (40, ENTRIES)
    with pytest.raises(ValueError, match="do not fit"):
        filled.resize(31)
    assert filled.size_bytes == 32


def test_empty_index_can_be_trimmed_to_nothing(disk: ForgetfulDisk, path: Path) -> None:
    """A rolled segment without entries has files of no length, which open again."""
    index = OffsetIndex(disk, path, BASE, 240)
    index.trim()
    assert (disk.size_bytes(path), index.is_full) == (0, True)
    assert index.lookup(BASE + 5) == (BASE, 0)
    index.close()
    reopened = OffsetIndex(disk, path, BASE, 240)
    assert (reopened.count, reopened.lookup(BASE + 5)) == (0, (BASE, 0))
    reopened.reset()
    reopened.append(BASE + 1, 1)
    assert reopened.lookup(BASE + 5) == (BASE + 1, 1)


def test_index_without_room_for_an_entry_is_refused(disk: ForgetfulDisk, path: Path) -> None:
    """A maximum below one entry can never work."""
    with pytest.raises(ValueError, match="cannot hold an entry"):
        OffsetIndex(disk, path, BASE, 7)


def test_read_only_index_is_left_as_it_is(
    disk: ForgetfulDisk, path: Path, filled: OffsetIndex
) -> None:
    """Reading an index neither creates nor trims its file."""
    disk.restart(power_cut=False)
    with pytest.raises(FileNotFoundError):
        OffsetIndex(disk, path.with_name("missing"), BASE, 0, read_only=True)
    index = OffsetIndex(disk, path, BASE, 0, read_only=True)
    assert list(index.entries())[:4] == ENTRIES
    index.close()
    assert disk.size_bytes(path) == 240


@kafka("OffsetIndexTest.forceUnmapTest")
def test_closed_index_says_so(filled: OffsetIndex) -> None:
    """Using a closed index raises an error that names the cause, and never reads foreign memory."""
    filled.close_handles()
    filled.close()
    uses = [
        lambda: filled.lookup(BASE),
        lambda: filled.lookup(BASE + 999),
        lambda: filled.floor_by_position(0),
        lambda: filled.entry(0),
        lambda: list(filled.entries()),
        lambda: filled.append(BASE + 99, 1),
        lambda: filled.truncate(filled.kept_below(BASE)),
        lambda: filled.resize(8 * 100),
        filled.reset,
    ]
    for use in uses:
        with pytest.raises(ValueError, match="is closed"):
            use()
    with pytest.raises(ValueError, match="is closed"):
        filled.sync()


def test_renamed_index_goes_on(disk: ForgetfulDisk, path: Path, filled: OffsetIndex) -> None:
    """A rename moves the file under an open index; a failed one still counts, as in Kafka."""
    target = path.with_name("new.index")
    filled.rename(target)
    filled.append(BASE + 21, 210)
    assert (filled.path, disk.exists(path), disk.exists(target)) == (target, False, True)
    disk.fail("rename")
    with pytest.raises(OSError, match="Input/output"):
        filled.rename(path)
    assert filled.path == path
    filled.path = target
    filled.delete()
    filled.delete()
    assert not disk.exists(target)


def test_synced_entries_survive_a_power_cut(
    disk: ForgetfulDisk, path: Path, filled: OffsetIndex
) -> None:
    """Synced entries are found again, later ones are not."""
    filled.sync()
    disk.sync_directory(path.parent)
    filled.append(BASE + 21, 210)
    disk.restart()
    index = OffsetIndex(disk, path, BASE, 240)
    assert [index.entry(slot) for slot in range(5)] == [*ENTRIES, (BASE, 0)]


def test_full_disk_refuses_an_entry_instead_of_killing_the_process(
    disk: ForgetfulDisk, index: OffsetIndex
) -> None:
    """Space is allocated before the store, so that lack of it is an ordinary error."""
    disk.remaining_bytes = 0
    with pytest.raises(OSError, match="No space left"):
        index.append(BASE + 1, 10)
    assert index.count == 0


@kafka("OffsetIndexTest.testSanityLastOffsetEqualToBaseOffset")
def test_sane_index_passes(filled: OffsetIndex, disk: ForgetfulDisk, path: Path) -> None:
    """Entries at or after the base offset are sane, also one that equals it.

    So is an empty index.
    """
    filled.sanity_check()
    equal = OffsetIndex(disk, path.with_name("equal"), BASE, 240)
    equal.sanity_check()
    equal.append(BASE, 0)
    equal.sanity_check()


@pytest.mark.parametrize("content", ["ffffffff 00000000", "00000001 00000000 00"])
def test_impossible_index_is_corrupt(disk: ForgetfulDisk, path: Path, content: str) -> None:
    """An entry below the base offset, or a length that is not whole entries, is an error."""
    with disk.open(path, create=True) as file:
        file.append(bytes.fromhex(content))
    with pytest.raises(CorruptIndex, match="corrupt") as found:
        OffsetIndex(disk, path, BASE, 240).sanity_check()
    assert found.value.facts() == {"file": str(path)}


def test_a_last_entry_that_leads_before_the_file_is_no_entry(
    disk: ForgetfulDisk, path: Path
) -> None:
    """Its position is a number of the file's bytes; found by hostile bytes."""
    with disk.open(path, create=True) as file:
        file.append(bytes.fromhex("00000090 000010b3 000000b3 ffff2ef9"))
    with pytest.raises(CorruptIndex, match="points to byte -"):
        OffsetIndex(disk, path, BASE, 240).sanity_check()


def test_damaged_entry_is_reported_when_it_is_met(disk: ForgetfulDisk, path: Path) -> None:
    """A position that no file can have is an error, not an answer."""
    with disk.open(path, create=True) as file:
        file.append(bytes.fromhex("00000001 ffffffff 00000009 00000001"))
    index = OffsetIndex(disk, path, BASE, 240)
    with pytest.raises(CorruptIndex, match="slot 0"):
        index.lookup(BASE + 1)


def test_space_for_the_next_entry_is_reserved_ahead(
    disk: ForgetfulDisk, index: OffsetIndex
) -> None:
    """Once reserved, an entry is stored on a disk that filled up; a full index needs nothing."""
    index.reserve_next()
    disk.remaining_bytes = 0
    index.append(BASE + 1, 10)
    index.trim()
    index.reserve_next()
    assert (index.is_full, index.count) == (True, 1)


UNEVEN = [*range(700), *range(100_000, 100_700), 2_000_000, *range(2_100_000, 2_100_900)]


def test_a_look_up_loads_few_blocks_wherever_it_leads(disk: ForgetfulDisk, path: Path) -> None:
    """Offsets that ascend unevenly mislead the first guess to either side, and the next."""
    index = OffsetIndex(disk, path, BASE, len(UNEVEN) * 8)
    for number, delta in enumerate(UNEVEN):
        index.append(BASE + delta, number)
    for number, delta in enumerate(UNEVEN):
        before = disk.calls
        assert index.lookup(BASE + delta) == OffsetPosition(BASE + delta, number)
        assert disk.calls - before <= 6
        assert index.floor_by_position(number).position == number


def test_what_fails_for_now_or_was_cut_meanwhile_is_told_apart(
    disk: ForgetfulDisk, path: Path, filled: OffsetIndex
) -> None:
    """The first may succeed when it is tried again; the second is damage."""
    disk.fail("load", error=errno.ENOMEM)
    with pytest.raises(OSError, match="memory"):
        filled.lookup(BASE + 5)
    assert filled.lookup(BASE + 5) == ENTRIES[1]
    with disk.open(path) as file:
        file.truncate(9)
    with pytest.raises(CorruptIndex, match="it ends before byte 32"):
        filled.lookup(BASE + 5)
