"""Ranges of objects in memory: what is asked of the store, how often, and what is kept."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.archive import range_cache
from engine.archive.manifest import ObjectRef
from engine.archive.range_cache import AHEAD, PAUSE_MS, RangeCache
from engine.errors import ArchiveUnavailable
from tests.support.bucket import Bucket
from tests.support.time import ManualClock

CONTENT = bytes(range(200))
REF = ObjectRef("object", len(CONTENT), 0)


class Later(Executor):
    """Threads that begin when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.is_closed = False

    def shutdown(self, *_: Any, **__: Any) -> None:
        self.is_closed = True

    def submit(self, work: Any, /, *args: Any, **_: Any) -> Future[Any]:
        if self.is_closed:
            raise RuntimeError("closed")
        self.waiting.append((work, args))
        return Future()

    def run(self) -> None:
        while self.waiting:
            work, args = self.waiting.pop(0)
            work(*args)


class Here:
    """A cache of ranges of ten bytes in front of a bucket with one object."""

    def __init__(self, max_bytes: int = 1_000) -> None:
        self.bucket = Bucket()
        self.bucket.objects["object"] = CONTENT
        self.clock = ManualClock()
        self.cache = RangeCache(self.bucket, self.clock, max_bytes)

    def asked(self) -> int:
        count, self.bucket.operations = self.bucket.operations, 0
        return count


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of ten bytes."""
    monkeypatch.setattr(range_cache, "RANGE_BYTES", 10)


@given(
    reads=st.lists(st.tuples(st.integers(0, 220), st.integers(0, 60)), max_size=20),
    max_bytes=st.sampled_from([0, 10, 50, 1_000]),
)
def test_a_read_returns_the_bytes_of_the_object(
    reads: list[tuple[int, int]], max_bytes: int
) -> None:
    """However small the cache is, and what was read before."""
    here = Here(max_bytes)
    for position, length in reads:
        whole = CONTENT[position : position + length]
        seen = here.cache.peek(REF, position, length)
        assert seen is None or bytes(seen) == whole
        assert bytes(here.cache.read(REF, position, length)) == whole


def test_a_range_is_asked_for_once_while_it_is_here() -> None:
    """And again once others have displaced it, the one that was used longest ago first."""
    here = Here(max_bytes=20)
    here.cache.read(REF, 50, 1)
    here.cache.read(REF, 59, 1)
    assert here.asked() == 1
    here.cache.read(REF, 80, 1)
    here.cache.read(REF, 50, 1)
    here.cache.read(REF, 110, 1)
    assert here.asked() == 2
    assert here.cache.peek(REF, 50, 10) == CONTENT[50:60]
    assert here.cache.peek(REF, 80, 10) is None


def test_who_reads_on_finds_the_following_ranges() -> None:
    """After a range that is here; who jumps, or begins, gets what was asked for."""
    here = Here()
    here.cache.read(REF, 0, 5)
    assert here.asked() == 1
    here.cache.read(REF, 10, 5)
    assert here.asked() == 1 + AHEAD
    here.cache.read(REF, 20, 5)
    assert here.asked() == 1
    here.cache.read(REF, 120, 5)
    assert here.asked() == 1
    here.cache.read(REF, 180, 10)
    here.cache.read(REF, 190, 10)
    assert here.asked() == 2


def test_nothing_is_asked_for_ahead_that_would_displace_what_is_read() -> None:
    """A cache of three ranges has room for one in advance."""
    here = Here(max_bytes=30)
    here.cache.read(REF, 0, 5)
    here.cache.read(REF, 10, 5)
    assert here.asked() == 3


def test_readers_at_one_place_share_a_request() -> None:
    """Whoever comes while it runs waits for it too."""
    here = Here()
    here.cache.pool = pool = Later()
    with ThreadPoolExecutor(3) as readers:
        reading = [readers.submit(here.cache.read, REF, 50, 5) for _ in range(3)]
        while not pool.waiting:
            pass  # until the first has asked
        assert here.cache.peek(REF, 50, 5) is None
        pool.run()
        assert [bytes(one.result()) for one in reading] == [CONTENT[50:55]] * 3
    assert here.asked() == 1


def test_nobody_waits_for_a_cache_that_is_closed() -> None:
    """Who has asked before the stop, and who asks after it."""
    here = Here()
    here.cache.pool = pool = Later()
    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(here.cache.read, REF, 50, 5)
        while not pool.waiting:
            pass  # until it has asked
        here.cache.close()
        with pytest.raises(ArchiveUnavailable):
            reading.result()
        with pytest.raises(ArchiveUnavailable):
            here.cache.read(REF, 90, 5)


def test_a_failure_is_not_kept_and_pauses_the_others() -> None:
    """For a second nothing is asked; what is here can be read meanwhile."""
    here = Here()
    here.cache.read(REF, 170, 10)
    here.cache.read(REF, 50, 10)
    here.cache.read(REF, 180, 10)
    here.bucket.is_down = True
    with pytest.raises(ArchiveUnavailable, match="did not return object"):
        here.cache.read(REF, 100, 1)
    here.bucket.is_down = False
    with pytest.raises(ArchiveUnavailable, match="did not answer less than"):
        here.cache.read(REF, 100, 1)
    assert here.cache.read(REF, 50, 10) == CONTENT[50:60]
    assert here.cache.read(REF, 180, 10) == CONTENT[180:190]
    here.clock.advance(PAUSE_MS)
    assert here.cache.read(REF, 100, 1) == CONTENT[100:101]


def test_an_object_that_is_shorter_than_its_manifest_says_is_no_answer() -> None:
    """A torn upload to a plain directory."""
    here = Here()
    here.bucket.objects["object"] = CONTENT[:55]
    with pytest.raises(ArchiveUnavailable, match="did not return object"):
        here.cache.read(REF, 50, 1)


def test_a_missing_object_is_no_answer() -> None:
    """It may have been removed by hand; the error names it."""
    here = Here()
    del here.bucket.objects["object"]
    with pytest.raises(ArchiveUnavailable, match="did not return object"):
        here.cache.read(REF, 50, 1)
