"""The promises of a `MappedFile`, on the machine's file system and on the tests' disk."""

import pytest

from tests.support.place import Place


def test_stores_reach_the_file(place: Place) -> None:
    """Data stored in the buffer is in the file, without a system call, and after a close."""
    mapped = place.fs.open_map(place / "m", 8)
    assert (mapped.is_new, mapped.size_bytes, len(mapped.buffer)) == (True, 8, 8)
    mapped.buffer[2:4] = b"hi"
    assert place.fs.read_bytes(place / "m") == b"\0\0hi\0\0\0\0"
    mapped.sync()
    mapped.close()
    assert place.fs.read_bytes(place / "m") == b"\0\0hi\0\0\0\0"


def test_existing_file_is_mapped_at_its_own_length(place: Place) -> None:
    """`size_bytes` only applies to new files."""
    place.fs.open_map(place / "m", 8).close()
    mapped = place.fs.open_map(place / "m", 100)
    assert (mapped.is_new, mapped.size_bytes) == (False, 8)


@pytest.mark.parametrize("read_only", [False, True])
def test_missing_file_needs_a_size_and_the_right_to_write(place: Place, *, read_only: bool) -> None:
    """A file that is not there is not created without a length, or for a reader."""
    with pytest.raises(FileNotFoundError):
        place.fs.open_map(place / "m", 8 if read_only else None, read_only=read_only)
    assert not place.fs.exists(place / "m")


def test_read_only_map_cannot_be_stored_into(place: Place) -> None:
    """A reader's map refuses stores."""
    place.fs.open_map(place / "m", 8).close()
    mapped = place.fs.open_map(place / "m", read_only=True)
    with pytest.raises(TypeError):
        mapped.buffer[0] = 1


def test_resize_cuts_and_extends_with_zeros(place: Place) -> None:
    """A smaller map keeps its first bytes; a larger one ends in zeros; zero bytes are possible."""
    mapped = place.fs.open_map(place / "m", 4)
    mapped.buffer[:] = b"abcd"
    mapped.resize(2)
    assert (bytes(mapped.buffer), place.fs.size_bytes(place / "m")) == (b"ab", 2)
    mapped.resize(4)
    assert bytes(mapped.buffer) == b"ab\0\0"
    mapped.resize(0)
    assert (bytes(mapped.buffer), mapped.size_bytes) == (b"", 0)
    mapped.resize(3)
    assert bytes(mapped.buffer) == b"\0\0\0"


def test_reserve_sets_space_aside_within_the_file(place: Place) -> None:
    """The reservation covers the request, never exceeds the file, and shrinks with it."""
    mapped = place.fs.open_map(place / "m", 200_000)
    assert mapped.reserved_bytes == 0
    mapped.reserve(1)
    assert 1 <= mapped.reserved_bytes <= 200_000
    mapped.reserve(200_000)
    mapped.reserve(1)
    assert (mapped.reserved_bytes, place.fs.size_bytes(place / "m")) == (200_000, 200_000)
    mapped.resize(8)
    assert mapped.reserved_bytes == 8


def test_closed_map_says_so(place: Place) -> None:
    """A released buffer raises instead of reading memory that is no longer the file's."""
    mapped = place.fs.open_map(place / "m", 8)
    mapped.close()
    mapped.close()
    with pytest.raises(ValueError, match="released"):
        mapped.buffer[0]
    with pytest.raises(ValueError, match="closed"):
        mapped.sync()
