"""The indexes give the answers that a plain sorted list gives."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fs.port import FileSystem
from engine.fs.posix import PosixFileSystem
from engine.index import sparse
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.types import OffsetPosition, TimestampOffset
from tests.support.filesystem import ForgetfulDisk
from tests.support.kafka import kafka

BASE = 1_000
DELTAS = st.sets(st.integers(0, 500), max_size=60)
TARGETS = st.integers(-5, 600)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> object:
    """Let searches load several blocks although examples are small."""
    patch = pytest.MonkeyPatch()
    patch.setattr(sparse, "BLOCK_BYTES", 5 * 12)
    yield
    patch.undo()


def disk() -> FileSystem:
    disk = ForgetfulDisk()
    disk.make_directory(Path("/d"))
    return disk


def offset_index(deltas: set[int]) -> tuple[OffsetIndex, list[OffsetPosition]]:
    entries = [OffsetPosition(BASE + delta, delta * 10) for delta in sorted(deltas)]
    index = OffsetIndex(disk(), Path("/d/i"), BASE, 100 * 8)
    for entry in entries:
        index.append(*entry)
    return index, entries


def time_index(deltas: set[int]) -> tuple[TimeIndex, list[TimestampOffset]]:
    entries = [TimestampOffset(delta * 7, BASE + delta // 2) for delta in sorted(deltas)]
    index = TimeIndex(disk(), Path("/d/i"), BASE, 100 * 12)
    for entry in entries:
        index.maybe_append(*entry)
    return index, entries


@kafka("OffsetIndexTest.randomLookupTest")
@given(DELTAS, TARGETS)
def test_offset_lookups_agree_with_a_sorted_list(deltas: set[int], target: int) -> None:
    """By offset and by position, the index and a list agree."""
    index, entries = offset_index(deltas)
    below = [entry for entry in entries if entry.offset <= BASE + target]
    assert index.lookup(BASE + target) == (below[-1] if below else (BASE, 0))
    left = [entry for entry in entries if entry.position <= target * 10]
    assert index.floor_by_position(target * 10) == (left[-1] if left else (BASE, 0))


@given(DELTAS, TARGETS)
def test_time_lookups_agree_with_a_sorted_list(deltas: set[int], target: int) -> None:
    """For any time the index and a list give the same entry."""
    index, entries = time_index(deltas)
    below = [entry for entry in entries if entry.timestamp <= target * 7]
    assert index.lookup(target * 7) == (below[-1] if below else (-1, BASE))


@given(DELTAS, TARGETS)
def test_truncations_agree_with_a_sorted_list(deltas: set[int], target: int) -> None:
    """Both indexes keep exactly the entries below the offset, equal offsets in a row included."""
    by_offset, offsets = offset_index(deltas)
    by_time, times = time_index(deltas)
    by_offset.truncate(by_offset.kept_below(BASE + target))
    by_time.truncate(by_time.kept_below(BASE + target))
    assert list(by_offset.entries()) == [entry for entry in offsets if entry.offset < BASE + target]
    assert list(by_time.entries()) == [entry for entry in times if entry.offset < BASE + target]


@given(DELTAS, st.sampled_from(["close", "close_handles"]))
def test_reopened_indexes_hold_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, deltas: set[int], ending: str
) -> None:
    """On a real disk, trimmed or not, the entries are read back; an untrimmed rest is zeros."""
    path = tmp_path_factory.mktemp("index") / "i"
    fs = PosixFileSystem()
    index = OffsetIndex(fs, path, BASE, 100 * 8)
    for delta in sorted(deltas):
        index.append(BASE + delta, delta * 10)
    getattr(index, ending)()
    reopened = OffsetIndex(fs, path, BASE, 100 * 8)
    entries = list(reopened.entries())
    assert entries[: len(deltas)] == [(BASE + delta, delta * 10) for delta in sorted(deltas)]
    assert set(entries[len(deltas) :]) <= {(BASE, 0)}
    assert len(entries) == (len(deltas) if ending == "close" else 100)
    reopened.delete()
    path.parent.rmdir()
