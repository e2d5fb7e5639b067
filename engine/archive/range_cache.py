"""An in-memory cache of ranges of objects, least recently used evicted first.

An object is read in ranges of one size. Concurrent readers of a range share one request. A
sequential read prefetches the following ranges, because an object store needs tens of milliseconds
to start an answer; a single look-up fetches one range.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from typing import Final, NamedTuple

from engine.archive.manifest import ObjectRef
from engine.archive.store import ArchiveError, ObjectStore
from engine.clock import Clock
from engine.errors import ArchiveUnavailable
from engine.types import Buffer

_LOG = logging.getLogger(__name__)

RANGE_BYTES: Final = 4 * 1024 * 1024

AHEAD: Final = 2
"""How many ranges a sequential read prefetches."""

PAUSE_MS: Final = 1_000
"""How long after a failure no request is sent: otherwise every reader would wait for a timeout."""


class _Key(NamedTuple):
    name: str
    number: int


class _Range(NamedTuple):
    length: int
    content: Future[Buffer]


class RangeCache:
    """At most `max_bytes` of ranges, plus those that readers are using. Thread-safe.

    Requests run on the threads of `pool`; without a pool, on the reader's thread.
    """

    def __init__(self, store: ObjectStore, clock: Clock, max_bytes: int) -> None:
        self._store = store
        self._clock = clock
        self._max_bytes = max_bytes
        self.pool: Executor | None = None
        """Set before the first read."""
        self._lock = threading.Lock()
        self._ranges: OrderedDict[_Key, _Range] = OrderedDict()
        """Cached and requested ranges; the most recently used is the last."""
        self._size_bytes = 0
        self._paused_until_ms = 0.0

    def read(self, ref: ObjectRef, position: int, length: int) -> Buffer:
        """Return `length` bytes of an object, fewer only at its end. Raises ArchiveUnavailable."""
        end = min(position + length, ref.size_bytes)
        if position >= end:
            return b""
        first, last = position // RANGE_BYTES, (end - 1) // RANGE_BYTES
        asked: dict[_Key, _Range] = {}
        with self._lock:
            reads_on = _Key(ref.name, first - 1) in self._ranges
            wanted = [self._find(ref, number, asked) for number in range(first, last + 1)]
            if reads_on:
                self._find_ahead(ref, last + 1, asked)
            while self._size_bytes > self._max_bytes and len(self._ranges) > 1:
                self._forget(next(iter(self._ranges)))
        for key, one in asked.items():
            self._begin(key, one)
        parts = [self._content(ref.name, one) for one in wanted]
        return _cut(parts, position - first * RANGE_BYTES, end - position)

    def close(self) -> None:
        """Stop the threads; reads whose request has not started raise ArchiveUnavailable."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        with self._lock:
            for one in self._ranges.values():
                _fail(one, ArchiveError("the service stops"))

    def peek(self, ref: ObjectRef, position: int, length: int) -> Buffer | None:
        """Return what `read` would if all of it is cached, else None; never waits."""
        end = min(position + length, ref.size_bytes)
        if position >= end:
            return b""
        first, last = position // RANGE_BYTES, (end - 1) // RANGE_BYTES
        parts: list[Buffer] = []
        with self._lock:
            for index in range(first, last + 1):
                one = self._ranges.get(_Key(ref.name, index))
                if one is None or not one.content.done() or one.content.exception():
                    return None
                parts.append(one.content.result())
        return _cut(parts, position - first * RANGE_BYTES, end - position)

    def _find(self, ref: ObjectRef, number: int, asked: dict[_Key, _Range]) -> Future[Buffer]:
        """Return a range's future content; add the range to `asked` if it must be requested.

        The lock is held.
        """
        key = _Key(ref.name, number)
        known = self._ranges.get(key)
        if known is not None:
            self._ranges.move_to_end(key)
            return known.content
        if self._is_paused:
            raise ArchiveUnavailable(
                f"the archive did not answer less than {PAUSE_MS} ms ago: try again later"
            )
        length = min(RANGE_BYTES, ref.size_bytes - number * RANGE_BYTES)
        self._ranges[key] = asked[key] = _Range(length, Future())
        self._size_bytes += length
        return asked[key].content

    @property
    def _is_paused(self) -> bool:
        return self._clock.monotonic_ms() < self._paused_until_ms

    def _find_ahead(self, ref: ObjectRef, number: int, asked: dict[_Key, _Range]) -> None:
        end = -(-ref.size_bytes // RANGE_BYTES)
        for one in range(number, min(number + AHEAD, end)):
            if self._size_bytes + RANGE_BYTES <= self._max_bytes and not self._is_paused:
                self._find(ref, one, asked)

    def _begin(self, key: _Key, asked: _Range) -> None:
        if self.pool is None:
            self._fetch(key, asked)
            return
        try:
            self.pool.submit(self._fetch, key, asked)
        except RuntimeError as error:  # the pool was closed
            _fail(asked, ArchiveError(f"the service stops: {error}"))

    def _fetch(self, key: _Key, asked: _Range) -> None:
        position = key.number * RANGE_BYTES
        try:
            data = self._store.read_range(key.name, position, asked.length)
            _ensure_whole(data, asked.length)
        except BaseException as error:  # noqa: BLE001  # it is raised where the range is used
            with self._lock:
                self._paused_until_ms = self._clock.monotonic_ms() + PAUSE_MS
                if self._ranges.get(key) is asked:  # so that the next read requests it again
                    self._forget(key)
            _LOG.warning("%s was not read: %s", key.name, error)
            _fail(asked, error)
        else:
            asked.content.set_result(data)

    def _content(self, name: str, asked: Future[Buffer]) -> Buffer:
        try:
            return asked.result()
        except ArchiveError as error:
            # Without the cause: it names the bucket, which readers of a topic may not see.
            raise ArchiveUnavailable(
                f"the archive did not return {name}: try again later; /readyz says more"
            ) from error

    def _forget(self, key: _Key) -> None:
        self._size_bytes -= self._ranges.pop(key).length


def _fail(asked: _Range, error: BaseException) -> None:
    with suppress(InvalidStateError):  # it is already cached or failed
        asked.content.set_exception(error)


def _ensure_whole(data: Buffer, length: int) -> None:
    if len(data) != length:
        raise ArchiveError(f"it has {len(data)} of {length} bytes")


def _cut(parts: list[Buffer], start: int, length: int) -> Buffer:
    """Return a part of consecutive ranges; without a copy if it lies in one of them."""
    if len(parts) == 1:
        return memoryview(parts[0])[start : start + length]
    views = [memoryview(part) for part in parts]
    views[0] = views[0][start:]
    return memoryview(b"".join(views))[:length]
