"""One limited resource and its holders: no holder can take all of it from the others.

Requests and bytes are given back; topics and group offsets stay until somebody deletes them. Their
files do not say who made them, so a share of makers counts only what was made since the start. At a
restart the counts begin at 0 and each principal gets a share of what is free, so something is
always free.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final, Generic, TypeVar

from engine.errors import Overloaded, PolicyViolation

_HOST_BITS: Final = 64
"""IPv6: a single host usually has all addresses of its /64 network."""


def is_beyond_share(own: int, free: int, share_percent: int) -> bool:
    """Whether a holder has more than its share while so much is free."""
    return own * (100 - share_percent) > share_percent * free


class Pool:
    """Use of one resource, in total and by holder. Belongs to the event loop.

    A holder is a principal, or the address of a client without credentials. A holder alone may have
    `share_percent` of the limit. The more the others hold, the less it may have: never more than
    `share_percent / (100 - share_percent)` times what is still free. So something is always left
    for the next holder, and the first request of a holder needs no share.
    """

    __slots__ = ("_held_by", "_name", "_share_name", "_share_percent", "held", "limit")

    def __init__(
        self, name: str, limit: int, share_percent: int, *, share_name: str = "max_share_percent"
    ) -> None:
        self.limit = limit
        self.held = 0
        self._name = name
        self._share_name = share_name
        self._share_percent = share_percent
        self._held_by: dict[str, int] = {}

    def take(self, holder: str, amount: int) -> None:
        """Count an amount before it is held; raises Overloaded if it is too much."""
        if not amount:
            return
        own = self._held_by.get(holder, 0)
        total = self.held + amount
        if total > self.limit:
            raise Overloaded(
                f"{self._name} ({self.limit}) is reached",
                limit=self._name,
                limit_value=self.limit,
            )
        if own:  # most requests are their holder's only one
            percent = self._share_percent
            if is_beyond_share(own + amount, self.limit - total, percent):
                raise Overloaded(
                    f"this client holds its share ({self._share_name}: {percent}) of "
                    f"{self._name} ({self.limit})",
                    limit=self._share_name,
                    limit_value=percent,
                )
        self._held_by[holder] = own + amount
        self.held = total

    def add(self, holder: str, amount: int) -> None:
        """Count an amount regardless of the limit; a negative amount is released."""
        if not amount:
            return
        self.held += amount
        held_by = self._held_by
        own = held_by.get(holder, 0) + amount
        if own:
            held_by[holder] = own
        else:
            held_by.pop(holder, None)


@lru_cache(maxsize=4_096)
def network_of(host: str) -> str:
    """Return the holder for a client's address: for IPv6, its network."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address, _HOST_BITS), strict=False))


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
