"""Ends long requests when their credentials expire or are revoked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from app.security.principal import Principal
from engine.clock import Clock


class _Going(NamedTuple):
    """One long answer or body."""

    caller: Principal
    end: Callable[[], None]


class Lasting:
    """Tails, waiting readers, streams and downloads with their callers. Belongs to the event loop.

    Each of them checks its caller before every part. Those that wait for a commit, or for their
    client, are woken or cut off here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._going: dict[Hashable, _Going] = {}

    def add(self, key: Hashable, caller: Principal, end: Callable[[], None]) -> None:
        """Call `end` when the caller's credentials end, until it is removed."""
        self._going[key] = _Going(caller, end)

    def remove(self, key: Hashable) -> None:
        """Remove the entry with this key."""
        del self._going[key]

    @contextmanager
    def during(self, caller: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the caller's credentials end within the block."""
        key = object()
        self.add(key, caller, end)
        try:
            yield
        finally:
            self.remove(key)

    def end_invalid(self) -> None:
        """End long requests without valid credentials."""
        now_ms = self._clock.now_ms()
        for going in tuple(self._going.values()):  # some of them remove themselves at once
            if not going.caller.is_valid(now_ms):
                going.end()
