"""One limited resource and its holders: no holder can take all of it from the others."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from engine.errors import Overloaded

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
