"""Who made the things that a limit counts, so that one principal cannot make all of them.

Requests and bytes are given back; topics and group offsets stay until somebody deletes them. Their
files do not say who made them, so a share counts only what was made since the start. At a restart
the counts begin at 0 and each principal gets a share of what is free, so something is always free.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from app.limits.shares import is_beyond_share
from engine.errors import PolicyViolation

K = TypeVar("K")

EVERYBODY = ""
"""Who makes something where no credentials are required: it has no share."""


class Makers(Generic[K]):
    """The makers of one kind of things. Belongs to the event loop."""

    def __init__(self, limit: str, limit_value: int, share_percent: int) -> None:
        self._limit = limit
        self._limit_value = limit_value
        self._share_percent = share_percent
        self._makers: dict[K, str] = {}
        self._counts: Counter[str] = Counter()

    def ensure_share(self, maker: str, total: int) -> None:
        """Raise PolicyViolation if this principal may not make one more of `total` things.

        The rule is that of `Pool`: with more than one, at most `share_percent` of the limit alone,
        and less the fewer are left.
        """
        own = self._counts[maker] if maker else 0
        percent = self._share_percent
        if own and is_beyond_share(own + 1, self._limit_value - total - 1, percent):
            raise PolicyViolation(
                f"{maker} made {own} of {self._limit} ({self._limit_value}) since the service "
                f"started, which is its share (max_share_percent: {percent}): delete what is not "
                f"needed, or raise the limit",
                limit="max_share_percent",
                limit_value=percent,
            )

    def add(self, maker: str, key: K) -> None:
        """Count what a principal made."""
        if maker and key not in self._makers:
            self._makers[key] = maker
            self._counts[maker] += 1

    def remove(self, key: K) -> None:
        """Count what is gone."""
        maker = self._makers.pop(key, None)
        if maker is not None:
            self._counts[maker] -= 1
            if not self._counts[maker]:
                del self._counts[maker]
