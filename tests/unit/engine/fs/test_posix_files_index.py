"""The promises of an `IndexFile`, on the machine's file system and on the tests' disk."""

import pytest

from tests.support.place import Place


def test_stores_reach_the_file(place: Place) -> None:
    """What was stored is in the file at once, and after a close."""
    file = place.fs.open_index(place / "m", 8)
    assert (file.is_new, file.size_bytes, file.load(0, 9)) == (True, 8, bytes(8))
    file.store(2, b"hi")
    assert place.fs.read_bytes(place / "m") == b"\0\0hi\0\0\0\0"
    file.sync()
    file.close()
    assert place.fs.read_bytes(place / "m") == b"\0\0hi\0\0\0\0"


def test_existing_file_keeps_its_own_length(place: Place) -> None:
    """`size_bytes` only applies to new files."""
    place.fs.open_index(place / "m", 8).close()
    file = place.fs.open_index(place / "m", 100)
    assert (file.is_new, file.size_bytes) == (False, 8)


@pytest.mark.parametrize("read_only", [False, True])
def test_missing_file_needs_a_size_and_the_right_to_write(place: Place, *, read_only: bool) -> None:
    """A file that is not there is not created without a length, or for a reader."""
    with pytest.raises(FileNotFoundError):
        place.fs.open_index(place / "m", 8 if read_only else None, read_only=read_only)
    assert not place.fs.exists(place / "m")


def test_what_is_read_only_takes_no_stores(place: Place) -> None:
    """A reader cannot change an index."""
    place.fs.open_index(place / "m", 8).close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        place.fs.open_index(place / "m", read_only=True).store(0, b"x")


def test_resize_cuts_and_extends_with_zeros(place: Place) -> None:
    """A smaller file keeps its first bytes; a larger one ends in zeros; zero bytes are possible."""
    file = place.fs.open_index(place / "m", 4)
    file.store(0, b"abcd")
    file.resize(2)
    assert (file.load(0, 4), place.fs.size_bytes(place / "m")) == (b"ab", 2)
    file.resize(4)
    assert file.load(0, 4) == b"ab\0\0"
    file.resize(0)
    assert (file.load(0, 4), file.size_bytes) == (b"", 0)
    file.resize(3)
    assert file.load(0, 4) == b"\0\0\0"


def test_reserve_sets_space_aside_within_the_file(place: Place) -> None:
    """The reservation covers the request, never exceeds the file, and shrinks with it."""
    file = place.fs.open_index(place / "m", 200_000)
    assert file.reserved_bytes == 0
    file.reserve(1)
    assert 1 <= file.reserved_bytes <= 200_000
    file.reserve(200_000)
    file.reserve(1)
    assert (file.reserved_bytes, place.fs.size_bytes(place / "m")) == (200_000, 200_000)
    file.resize(8)
    assert file.reserved_bytes == 8


def test_what_is_closed_says_so(place: Place) -> None:
    """Another file may have its descriptor by then."""
    file = place.fs.open_index(place / "m", 8)
    file.close()
    file.close()
    for use in (lambda: file.load(0, 1), lambda: file.store(0, b"x"), file.sync):
        with pytest.raises(ValueError, match="closed"):
            use()
