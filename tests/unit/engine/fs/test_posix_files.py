"""The promises of a `File`, on the machine's file system and on the tests' disk."""

import pytest

from tests.support.kafka import kafka
from tests.support.place import Place


@kafka("FileRecordsTest.testFileSize")
def test_append_returns_where_it_wrote_and_moves_the_end(place: Place) -> None:
    """Each append starts where the one before ended, and the size follows."""
    with place.fs.open(place / "f", create=True) as file:
        assert [file.append(b"abc"), file.append(bytearray(b"de")), file.size_bytes] == [0, 3, 5]
        assert file.append(memoryview(b"f")) == 5
        assert file.read_at(0, 100) == b"abcdef"


def test_append_many_writes_all_buffers_in_order(place: Place) -> None:
    """Any number of buffers, also more than one system call takes, end up one after another."""
    buffers = [b"%d," % number for number in range(3_000)]
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"start,")
        assert file.append_many([]) == file.append_many(buffers) == 6
        assert file.read_at(6, 1 << 20) == b"".join(buffers)
        assert file.size_bytes == 6 + len(b"".join(buffers))


@kafka("FileRecordsTest.testRead", "FileRecordsTest.testOutOfRangeSlice")
@pytest.mark.parametrize("read", ["read_at", "read_cached"])
def test_reads_are_short_only_where_the_file_ends(place: Place, read: str) -> None:
    """A read inside the file is complete, one across its end stops there, one after it is empty."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"0123456789")
        reads = [getattr(file, read)(*span) for span in [(2, 3), (8, 5), (10, 5), (99, 1), (3, 0)]]
        assert [bytes(data) for data in reads] == [b"234", b"89", b"", b"", b""]


def test_what_was_prefetched_is_read_as_ever(place: Place) -> None:
    """A range after the end, or of a removed file, changes nothing."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"0123456789")
        for position, length in ((0, 5), (8, 100), (99, 1)):
            file.prefetch(position, length)
        assert file.read_at(0, 100) == b"0123456789"
        place.fs.remove(place / "f")
        file.prefetch(0, 10)
        assert (file.size_bytes, file.read_at(0, 100)) == (10, b"0123456789")


def test_reopened_file_goes_on_at_its_end(place: Place) -> None:
    """An existing file opens at its length and is appended to there."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"one")
    with place.fs.open(place / "f", create=True) as file:
        assert file.append(b"two") == 3
    assert place.fs.read_bytes(place / "f") == b"onetwo"


def test_exclusive_open_refuses_an_existing_file(place: Place) -> None:
    """It fails if another process has created the file."""
    place.fs.open(place / "f", create=True, exclusive=True).close()
    with pytest.raises(FileExistsError):
        place.fs.open(place / "f", create=True, exclusive=True)


def test_missing_file_is_not_created_unasked(place: Place) -> None:
    """Opening without `create` reports a missing file and leaves it missing."""
    with pytest.raises(FileNotFoundError):
        place.fs.open(place / "f")
    assert not place.fs.exists(place / "f")


def test_read_only_file_refuses_appends(place: Place) -> None:
    """A file opened to be read cannot be written."""
    place.fs.open(place / "f", create=True).close()
    with place.fs.open(place / "f", read_only=True) as file, pytest.raises(OSError, match="Bad"):
        file.append(b"x")


@kafka("FileRecordsTest.testPreallocateTrue")
def test_preallocated_file_is_long_on_disk_and_empty_inside(place: Place) -> None:
    """A new preallocated file counts as empty, its appends fill the reserved bytes."""
    with place.fs.open(place / "f", create=True, preallocate_bytes=100) as file:
        assert (file.size_bytes, place.fs.size_bytes(place / "f")) == (0, 100)
        file.append(b"abc")
        assert place.fs.size_bytes(place / "f") == 100
        file.truncate(file.size_bytes)
    assert place.fs.read_bytes(place / "f") == b"abc"


def test_preallocation_leaves_an_existing_file_alone(place: Place) -> None:
    """After a crash a preallocated file is as long as it is found, zeros included."""
    place.fs.open(place / "f", create=True, preallocate_bytes=10).close()
    with place.fs.open(place / "f", create=True, preallocate_bytes=100) as file:
        assert file.size_bytes == 10
        assert file.read_at(0, 100) == bytes(10)


@kafka("FileRecordsTest.testTruncateIfSizeIsDifferentToTargetSize")
def test_truncate_cuts_the_end_for_good(place: Place) -> None:
    """The cut bytes are gone, and the next append replaces them."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"abcdef")
        file.truncate(2)
        assert file.read_at(0, 10) == b"ab"
        assert file.append(b"Z") == 2
    assert place.fs.read_bytes(place / "f") == b"abZ"


@kafka("FileRecordsTest.testTruncateNotCalledIfSizeIsBiggerThanTargetSize")
@pytest.mark.parametrize("size_bytes", [-1, 4])
def test_truncate_never_makes_a_file_longer(place: Place, size_bytes: int) -> None:
    """A size that the file does not have is refused and changes nothing."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"abc")
        with pytest.raises(ValueError, match="cannot cut"):
            file.truncate(size_bytes)
        assert file.read_at(0, 10) == b"abc"


@kafka("FileRecordsTest.testTruncateNotCalledIfSizeIsSameAsTargetSize")
def test_truncate_to_its_own_size_does_not_touch_the_file(place: Place) -> None:
    """The time of modification, which dates segments without timestamps, survives an empty cut."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"abc")
        place.fs.set_modified_ms(place / "f", 1_000)
        file.truncate(3)
    assert place.fs.modified_ms(place / "f") == 1_000


def test_open_file_follows_a_rename_and_outlives_a_removal(place: Place) -> None:
    """Readers of a file keep it through a rename and a removal of its name."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"abc")
        place.fs.rename(place / "f", place / "g")
        file.path = place / "g"
        file.append(b"d")
        assert place.fs.read_bytes(place / "g") == b"abcd"
        place.fs.remove(place / "g")
        assert file.read_at(0, 4) == b"abcd"


def test_closed_file_says_so(place: Place) -> None:
    """Using a closed file raises an error that names the cause, however often it is closed."""
    file = place.fs.open(place / "f", create=True)
    file.append(b"abc")
    file.close()
    file.close()
    for use in (lambda: file.read_at(0, 1), lambda: file.append(b"x"), file.sync, file.sync_all):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_synced_bytes_are_still_there(place: Place) -> None:
    """Both kinds of sync return after the bytes are written."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"abc")
        file.sync()
        file.append(b"def")
        file.sync_all()
    assert place.fs.read_bytes(place / "f") == b"abcdef"


def test_an_open_file_tells_its_age_under_any_name(place: Place) -> None:
    """The time of modification is the file's, after a rename and after its removal too."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"x")
        place.fs.set_modified_ms(place / "f", 123_456)
        assert file.modified_ms() == place.fs.modified_ms(place / "f") == 123_456
        place.fs.rename(place / "f", place / "g")
        assert file.modified_ms() == 123_456
        place.fs.remove(place / "g")
        assert file.modified_ms() == 123_456


def test_version_distinguishes_files_of_one_name(place: Place) -> None:
    """A file that took another's name has another version; an unchanged one has the same."""
    with place.fs.open(place / "f", create=True) as file:
        seen = [file.version()]
        assert file.version() == seen[0]
        with place.fs.open(place / "g", create=True) as other:
            seen.append(other.version())
            place.fs.rename(place / "g", place / "f")
            assert len(set(seen)) == 2


def test_forgetting_what_is_cached_loses_nothing(place: Place) -> None:
    """The appended bytes are then read from the disk, and the next append continues after them."""
    with place.fs.open(place / "f", create=True) as file:
        file.append(b"one")
        file.forget_cached()
        assert file.read_at(0, 3) == b"one"
        assert file.append(b"two") == 3
    assert place.fs.read_bytes(place / "f") == b"onetwo"
