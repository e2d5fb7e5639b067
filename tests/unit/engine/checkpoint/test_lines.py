"""The text format of all checkpoint files, read strictly."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.kafka_files import format_lines, parse_lines, read_lines, write_lines
from engine.errors import CorruptCheckpoint
from tests.support.kafka import kafka
from tests.support.place import Place

words = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=9)


def test_file_is_a_version_a_count_and_lines(place: Place) -> None:
    """The bytes are those of Kafka, with a newline at the end.

    Without entries there are no lines.
    """
    path = place / "checkpoint"
    write_lines(place.fs, path, [("foo", 0, 42), ("bar.baz", 3, 100)])
    assert place.fs.read_bytes(path) == b"0\n2\nfoo 0 42\nbar.baz 3 100\n"
    assert read_lines(place.fs, path, 3) == [["foo", "0", "42"], ["bar.baz", "3", "100"]]
    write_lines(place.fs, path, [])
    assert place.fs.read_bytes(path) == b"0\n0\n"
    assert read_lines(place.fs, path, 3) == []


@given(st.lists(st.tuples(words, words), max_size=5))
def test_what_is_written_is_read(rows: list[tuple[str, str]]) -> None:
    """Words of any alphabet are read back."""
    parsed = parse_lines(format_lines(rows), 2, Path("checkpoint"))
    assert parsed == [list(row) for row in rows]


@kafka("OffsetCheckpointFileTest.shouldReturnEmptyMapForEmptyFile")
@pytest.mark.parametrize("content", [b"", b"0\n", b"0"])
def test_file_without_a_count_has_no_entries(place: Place, content: bytes) -> None:
    """Kafka creates the file empty; a version alone has no entries either."""
    path = place.write("checkpoint", content)
    assert read_lines(place.fs, path, 3) == []


def test_missing_file_has_no_entries(place: Place) -> None:
    """A directory that never wrote a checkpoint has none."""
    assert read_lines(place.fs, place / "checkpoint", 3) == []


def test_spacing_is_not_held_against_a_file(place: Place) -> None:
    """Kafka splits at any white space, and so do we."""
    path = place.write("checkpoint", b"0 \r\n 1\r\nfoo\t0   42\r\n")
    assert read_lines(place.fs, path, 3) == [["foo", "0", "42"]]


@kafka("OffsetCheckpointFileTest.shouldThrowIfVersionIsNotRecognised")
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"1\n0\n", "version"),
        (b"x\n0\n", "not a number"),
        (b"0\nx\n", "not a number"),
        (b"\n0\n", "not a number"),
        (b"0\n99999999999999999999\n", "not a number"),
        (b"0\n2\nfoo 0 42\n", "declares 2 entries and has 1"),
        (b"0\n0\nfoo 0 42\n", "declares 0 entries and has 1"),
        (b"0\n-1\n", "declares -1"),
        (b"0\n1\nfoo 0\n", "malformed line 'foo 0'"),
        (b"0\n1\nfoo 0 42 1\n", "malformed line"),
        (b"0\n1\n\n", "malformed line ''"),
        (b"0\n1\nfoo 0 \xff\n", "UTF-8"),
    ],
)
def test_damaged_file_is_refused_whole(place: Place, content: bytes, complaint: str) -> None:
    """A file with one wrong line is refused; the error names the file."""
    path = place.write("checkpoint", content)
    with pytest.raises(CorruptCheckpoint, match=complaint) as refused:
        read_lines(place.fs, path, 3)
    assert refused.value.facts() == {"file": str(path)}
