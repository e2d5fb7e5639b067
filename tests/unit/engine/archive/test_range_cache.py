"""The range cache: which requests it sends, and what it keeps."""

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


def test_a_cached_range_is_requested_once() -> None:
    """And again after its eviction; the least recently used range is evicted first."""
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


def test_a_sequential_read_prefetches_the_next_ranges() -> None:
    """After a cached range; a first or random read fetches only its own range."""
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


def test_prefetching_stays_within_the_limit() -> None:
    """A cache of three ranges prefetches one after the second read."""
    here = Here(max_bytes=30)
    here.cache.read(REF, 0, 5)
    here.cache.read(REF, 10, 5)
    assert here.asked() == 3


def test_concurrent_readers_of_a_range_share_one_request() -> None:
    """Those that arrive while it runs wait for its result."""
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


def test_closing_the_cache_fails_pending_and_later_reads() -> None:
    """No read waits for a request that will never run."""
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


def test_a_failure_pauses_requests_and_is_not_cached() -> None:
    """For a second no request is sent; cached ranges stay readable."""
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


def test_a_truncated_object_is_an_error() -> None:
    """For example a torn upload to a plain directory."""
    here = Here()
    here.bucket.objects["object"] = CONTENT[:55]
    with pytest.raises(ArchiveUnavailable, match="did not return object"):
        here.cache.read(REF, 50, 1)


def test_a_missing_object_is_an_error() -> None:
    """The error names the object."""
    here = Here()
    del here.bucket.objects["object"]
    with pytest.raises(ArchiveUnavailable, match="did not return object"):
        here.cache.read(REF, 50, 1)
