"""What goes on for long: ended soon after the credentials it was begun with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from app.security.principal import Principal
from engine.clock import Clock


class _Going(NamedTuple):
    """One answer or body that goes on."""

    caller: Principal
    end: Callable[[], None]


class Lasting:
    """Tails, waiting readers, streams and downloads, each with its caller. Of the event loop.

    Each of them checks its caller before every part. That covers the parts; those that wait for a
    commit, or for their client, are woken or cut off here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._going: dict[Hashable, _Going] = {}

    def add(self, key: Hashable, caller: Principal, end: Callable[[], None]) -> None:
        """Have `end` called when the caller's credentials have ended, until it is removed."""
        self._going[key] = _Going(caller, end)

    def remove(self, key: Hashable) -> None:
        """Forget what was added under this key."""
        del self._going[key]

    @contextmanager
    def during(self, caller: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Have `end` called if the caller's credentials end within the block."""
        key = object()
        self.add(key, caller, end)
        try:
            yield
        finally:
            self.remove(key)

    def end_invalid(self) -> None:
        """End what goes on without valid credentials."""
        now_ms = self._clock.now_ms()
        for going in tuple(self._going.values()):  # some of them remove themselves at once
            if not going.caller.is_valid(now_ms):
                going.end()
