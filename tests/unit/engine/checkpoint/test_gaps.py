"""Recorded gaps between segments, in which nothing was lost."""

import pytest

from engine.checkpoint.tidelog_files import SegmentGap, note_gap, read_gaps
from engine.errors import CorruptCheckpoint
from tests.support.damage import DAMAGES, Damage, rewrite
from tests.support.place import Place


def test_a_line_is_a_gap_with_its_checksum(place: Place) -> None:
    """Ascending; a gap that a truncation cut off is forgotten with the next."""
    path = place / "gaps"
    assert read_gaps(place.fs, path) == []
    for gap in (SegmentGap(3, 10), SegmentGap(12, 20), SegmentGap(15, 30)):
        note_gap(place.fs, path, gap)
    assert place.fs.read_bytes(path) == b"0\n2\n3 10 1b13f9ad\n15 30 77697dc4\n"
    assert read_gaps(place.fs, path) == [SegmentGap(3, 10), SegmentGap(15, 30)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_noticed_and_left_as_it_is(place: Place, damage: Damage) -> None:
    """To write a sound one would disown the gaps that cannot be read any more."""
    path = place / "gaps"
    note_gap(place.fs, path, SegmentGap(3, 10))
    content = damage(place.fs.read_bytes(path))
    rewrite(place.fs, path, content)
    if damage.__name__ == "cut_by_a_byte":  # the newline at the end: nothing is lost
        assert read_gaps(place.fs, path) == [SegmentGap(3, 10)]
        return
    with pytest.raises(CorruptCheckpoint, match="gaps is corrupt"):
        read_gaps(place.fs, path)
    note_gap(place.fs, path, SegmentGap(15, 30))
    assert place.fs.read_bytes(path) == content


def test_no_digit_can_change_unnoticed(place: Place) -> None:
    """One bit at a time: every byte but the spacing counts."""
    path = place / "gaps"
    note_gap(place.fs, path, SegmentGap(1203, 4510))
    content = place.fs.read_bytes(path)
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            rewrite(place.fs, path, bytes(damaged))
            try:
                found = read_gaps(place.fs, path)
            except CorruptCheckpoint:
                continue
            assert found == [SegmentGap(1203, 4510)], (at, bit)
